import pytest
import torch
from botorch.acquisition import AcquisitionFunction

from benchmarks.loops.conditions import initial_pairs
from benchmarks.methods.conditions import (
    LNSO,
    VUCB,
    GPUCBMean,
    MCVaR,
    Random,
    RhoKG,
    Round,
    StableOptMethod,
    resample,
)
from benchmarks.methods.shared_gp import SharedGP
from benchmarks.problems.conditions.synthetic import Branin, Hartmann3OneTwo
from bo_robust.utils.random import stream

TINY = {"restarts": 2, "raw_samples": 8, "maxiter": 3}


def round_of(problem, n=6):
    X = initial_pairs(problem, n, 0, 0)
    Y = problem.f(X) + 0.1 * torch.from_numpy(stream(0, "noise", 0).standard_normal(n)).to(X)
    surrogate = SharedGP(torch.cat([problem.x_bounds, problem.z_bounds], -1))
    return Round(problem, surrogate, X, Y, 1)


METHODS = [VUCB(**TINY), StableOptMethod(**TINY), GPUCBMean(**TINY), Random()]
METHODS += [kind(**TINY, samples=4, scenarios=4) for kind in (MCVaR, RhoKG)]


@pytest.mark.parametrize("z", ["discrete", "continuous"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_proposals_are_possible(method, z, device):
    problem = Hartmann3OneTwo(z=z).make(device)
    torch.manual_seed(0)
    point = method.propose(round_of(problem))
    assert point.shape == (3,)
    assert point.device.type == device.type
    x, v = point[:1], point[1:]
    assert bool(((x >= problem.x_bounds[0]) & (x <= problem.x_bounds[1])).all())
    if problem.points is not None:
        same = (problem.points == v).all(-1)
        assert int(same.sum()) == 1
        assert float(problem.probabilities[same]) > 0.0
    else:
        assert bool(((v >= problem.z_bounds[0]) & (v <= problem.z_bounds[1])).all())


def test_v_ucb_from_draws_of_z():
    problem = Branin(z="continuous").make("cpu")
    now = round_of(problem)
    torch.manual_seed(0)
    method = VUCB(**TINY, optimizer=LNSO(num_starts=2, rounds=2))
    point = method.propose(now)
    # By the exact quantile over all points of Z, it is near the best there.
    torch.manual_seed(0)
    best = VUCB(**TINY).propose(now)
    ours, best = method.bound(now)(torch.stack([point, best])[:, :1].unsqueeze(-2)).tolist()
    assert best - 1.0 < ours < best + 1e-3
    assert bool(((point >= 0.0) & (point <= 1.0)).all())


def test_systematic_resampling(device):
    problem = Branin().make(device)
    torch.manual_seed(0)
    drawn = resample(problem, 50)
    counts = (drawn == problem.points.T).sum(0)
    expected = 50 * problem.probabilities
    assert int(counts.sum()) == 50
    assert bool((counts >= expected.floor()).all())
    assert bool((counts <= expected.floor() + 1).all())
    even = Branin(z="continuous").make(device)
    assert resample(even, 0) is even.environment.z
    assert len(resample(even, 7).unique()) == 7


class _NaNGradient(AcquisitionFunction):
    """-|x - 0.3| summed, with a gradient that is NaN everywhere."""

    def forward(self, X):
        values = -(X[:, 0] - 0.3).abs().sum(-1)
        return values + torch.sqrt(0.0 * values.detach() * values)  # 0 * inf backward


def test_where_the_gradient_is_nan_the_best_sample_is_taken(device):
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device=device)
    torch.manual_seed(0)
    x = MCVaR(raw_samples=256).maximized(_NaNGradient(model=None), bounds)
    assert float((x - 0.3).abs().sum()) < 0.15  # 256 Sobol points leave no square of side 0.1 empty
