"""The Problem container: its checks, its optimum, its moves."""

import math

import pytest
import torch

from bo_robust.covariance import SquaredExponential
from bo_robust.problems.base import Problem, trial_list
from bo_robust.problems.noise import Gaussian
from bo_robust.problems.rewards import TableRewards

F = torch.tensor([[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]], dtype=torch.float64)


def make(**changes):
    settings = {
        "name": "x",
        "f": F,
        "kernel": torch.eye(3, dtype=torch.float64),
        "rewards": Gaussian(1.0),
        "noise_var": 1.0,
    }
    return Problem(**(settings | changes))


def test_sizes_and_optimum():
    problem = make()
    assert (problem.trials, problem.num_arms) == (2, 3)
    assert problem.optimum.tolist() == [2.0, 5.0]


def test_to_moves_every_tensor(device):
    table = torch.zeros(4, 3, dtype=torch.float64)
    problem = make(rewards=TableRewards(table), arms=torch.zeros(3, 2, dtype=torch.float64))
    moved = problem.to(device, torch.float32)
    for tensor in (moved.f, moved.kernel, moved.arms, moved.rewards.table):
        assert (tensor.dtype, tensor.device.type) == (torch.float32, device.type)
    assert problem.f.dtype == torch.float64
    covariance = SquaredExponential(0.2)
    assert make(kernel=covariance, arms=torch.zeros(3, 1).double()).to(device, torch.float32).kernel is covariance


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"f": F[0]}, "f must be s x n"),
        ({"f": F[:0]}, "f must be s x n"),
        ({"f": F.long()}, "f must be s x n"),
        ({"f": F * math.nan}, "NaN"),
        ({"kernel": torch.eye(2, dtype=torch.float64)}, "3 x 3 or 2 x 3 x 3"),
        ({"kernel": torch.eye(3)}, "kernel matrix is torch.float32"),
        ({"kernel": SquaredExponential(0.2)}, "needs arm locations"),
        ({"arms": torch.zeros(2, 1).double()}, "arms must be 3 x d"),
        ({"arms": torch.zeros(3, 1)}, "arms is torch.float32"),
        ({"arm_names": ("a",)}, "3 names"),
        ({"moment_bound": 1.0}, "belong together"),
        ({"moment_bound": 1.0, "alpha": 1.5}, "alpha must be"),
        ({"moment_bound": -1.0, "alpha": 1.0}, "moment_bound must be"),
        ({"norm_bound": math.inf}, "norm_bound must be"),
        ({"noise_scale": 0.0}, "noise_scale must be"),
        ({"noise_var": 0.0}, "noise_var must be"),
    ],
)
def test_bad_problems_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_trial_lists():
    assert trial_list(range(3)) == [0, 1, 2]
    for bad in ([], [-1], [0.5], [True]):
        with pytest.raises(ValueError, match="trials must be"):
            trial_list(bad)
