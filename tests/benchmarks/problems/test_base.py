import math

import pytest
import torch

from benchmarks.problems.base import CandidatePriors, Problem, Trials
from benchmarks.problems.rewards import Gaussian, TableRewards
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import stream

F = torch.tensor([[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]], dtype=torch.float64)


def make(**changes):
    settings = {"name": "x", "f": F, "kernel": torch.eye(3).double(), "rewards": Gaussian(1.0), "noise_var": 1.0}
    return Problem(**(settings | changes))


def two(**changes):
    eye = torch.eye(3, dtype=torch.float64)
    settings = {"names": ("a", "b"), "kernels": torch.stack([eye, 2.0 * eye]), "true": (1, 0)}
    return CandidatePriors(**(settings | changes))


def test_to_moves_every_tensor(device):
    table = torch.zeros(4, 3, dtype=torch.float64)
    problem = make(rewards=TableRewards(table), arms=torch.zeros(3, 2, dtype=torch.float64))
    moved = problem.to(device, torch.float32)
    for tensor in (moved.f, moved.kernel, moved.arms, moved.rewards.table):
        assert (tensor.dtype, tensor.device.type) == (torch.float32, device.type)
    assert problem.f.dtype == torch.float64
    covariance = SquaredExponential(0.2)
    assert make(kernel=covariance, arms=torch.zeros(3, 1).double()).to(device, torch.float32).kernel is covariance


def test_candidates_move_and_know_the_true_prior_mean(device):
    means = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    problem = make(candidates=two(prior_means=means))
    assert problem.prior_mean.tolist() == [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]]  # trial 0 has b, trial 1 has a
    moved = problem.to(device, torch.float32)
    for tensor in (moved.candidates.kernels, moved.candidates.prior_means, moved.prior_mean):
        assert (tensor.dtype, tensor.device.type) == (torch.float32, device.type)
    assert problem.candidates.kernels.dtype == torch.float64
    assert make(candidates=two()).prior_mean is None
    assert make(candidates=two(prior_means=means, true=None)).prior_mean is None
    assert make().prior_mean is None


def test_trials():
    trials = Trials(range(3), 5)
    assert len(trials) == 3
    for i, (one, other) in enumerate(zip(trials.streams(), trials.streams(block=1), strict=True)):
        first = one.random()
        assert first == stream(5, "problem", i).random()
        assert other.random() == stream(5, "problem", i, block=1).random() != first
    assert trials.share(F[1]).tolist() == [[5.0, 4.0, 3.0]] * 3


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        *((make, {"f": f}, "f must be s x n") for f in (F[0], F[:0], F.long())),
        (make, {"f": F * math.nan}, "NaN"),
        (make, {"moment_bound": 1.0, "alpha": 1.5}, "alpha must be"),
        (make, {"moment_bound": -1.0, "alpha": 1.0}, "moment_bound must be"),
        (make, {"norm_bound": math.inf}, "norm_bound must be"),
        (make, {"noise_scale": 0.0}, "noise_scale must be"),
        (make, {"noise_var": 0.0}, "noise_var must be"),
        (two, {"names": ()}, "candidates need names"),
        (two, {"names": ("a", "a")}, "all different"),
        (two, {"kernels": None}, "must differ in something"),
    ],
)
def test_bad_problems_and_candidates_are_refused(call, changes, message):
    with pytest.raises(ValueError, match=message):
        call(**changes)
