"""MoM-GP-UCB: what outliers do to it, and failed pulls; the estimator itself is tested in tests/posteriors."""

import math

import pytest
import torch

from bo_robust.algorithms import MoMGPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.features import FourierFeatures
from bo_robust.posteriors import whitening
from bo_robust.posteriors.arms import ArmKernel

BOX = ((0.0, 1.0),)
ROOTS = pytest.mark.parametrize("root", whitening.ROOTS)


def kernel_of(n, device):
    X = torch.linspace(0, 1, n, dtype=torch.float64, device=device).unsqueeze(1)
    return ArmKernel.from_covariance(SquaredExponential(0.3), X)


@ROOTS
def test_spikes_mislead_ridge_regression_and_not_the_median(root, device):
    """f = 1 at one arm of ten, else 0; one reward in 100 is -+1000. 30 trials: the best arm by the final mean."""
    kernel, s, T = kernel_of(10, device), 30, 400
    f, g, picks = torch.zeros(10, dtype=torch.float64, device=device), torch.Generator().manual_seed(1), {}
    f[7] = 1.0
    for groups in (1, 15):
        g.manual_seed(1)
        algorithm = MoMGPUCB(ConstantWidth(1.0), FourierFeatures(0.05, 40, BOX), groups, root)
        state = algorithm.init(kernel, 1.0, s)
        for t in range(T):
            arms = torch.full((s,), t % 10, device=device)
            spikes = torch.where(torch.rand(s, generator=g) < 0.01, 1000.0, 0.0)
            spikes *= torch.where(torch.rand(s, generator=g) < 0.5, 1.0, -1.0)
            algorithm.observe(state, arms, f[arms] + spikes.double().to(device))
        picks[groups] = float((state.posterior.mean.argmax(1) == 7).double().mean())
    assert picks[1] < 0.5
    assert picks[15] > 0.9


def test_failed_pulls_and_huge_rewards(device):
    algorithm = MoMGPUCB(ConstantWidth(1.0), FourierFeatures(0.3, 10, BOX), 3)
    state = algorithm.init(kernel_of(10, device), 0.1, 2)
    for t in range(60):
        y = {10: math.nan, 20: math.inf, 40: 1e308, 46: -1e308}.get(t, 1.0)
        rewards = torch.tensor([1.0, y], dtype=torch.float64, device=device)
        info = algorithm.observe(state, torch.full((2,), t % 5, device=device), rewards)
        assert info.ok.tolist() == [True, t not in (10, 20)]
    assert state.posterior.counts.sum(1).tolist() == [60.0, 58.0]
    # the two huge rewards came after g pulls of their arms, both in group 0
    assert torch.isfinite(state.posterior.mean).all()
    assert float(state.posterior.mean.abs().max()) < 3.0


def test_static_mistakes(device):
    width, features = ConstantWidth(1.0), FourierFeatures(0.3, 5, BOX)
    kernel = kernel_of(5, device)
    with pytest.raises(ValueError, match="groups must be"):
        MoMGPUCB(width, features, 0).init(kernel, 0.1)
    with pytest.raises(ValueError, match="prior mean zero"):
        MoMGPUCB(width, features).init(kernel, 0.1, prior_mean=torch.zeros(5))
    with pytest.raises(ValueError, match="locations of the arms"):
        MoMGPUCB(width, features).init(ArmKernel.from_matrix(kernel.matrix), 0.1)
