"""A snapshot restored goes on bit for bit, in either layout, at any point of a block."""

import pytest
import torch

from bo_robust.covariance import SquaredExponential
from bo_robust.states.arms import ArmKernel, init, observe
from bo_robust.states.snapshots import restore_, snapshot


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("stop", [0, 1, 32, 45, 150])
def test_going_on_is_bit_identical(stop, trials, dense, device):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(120, 2, generator=g, dtype=torch.float64).to(device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), X)
    pulls = torch.randint(0, 120, (200, trials), generator=g).to(device)
    rewards = torch.randn(200, trials, generator=g, dtype=torch.float64).to(device)
    whole = init(kernel, 0.1, trials, dense=dense)
    saved = None
    for t in range(200):
        if t == stop:
            tensors, numbers = snapshot(whole)
            saved = ({k: v.clone() for k, v in tensors.items()}, numbers)
        observe(whole, pulls[t], rewards[t])
    again = init(kernel, 0.1, trials, dense=dense)
    restore_(again, *saved)
    for t in range(stop, 200):
        observe(again, pulls[t], rewards[t])
    for name in ("mean", "variance", "counts", "information_gain"):
        assert torch.equal(getattr(whole, name), getattr(again, name))
