import dataclasses

import pytest
import torch

from benchmarks.problems.conditions.base import ConditionsProblem, optimum, regret, value_at_risk
from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne
from bo_robust.risk_measures.environments import FiniteEnvironment


def table(values, probabilities, alpha, device="cpu"):
    """A problem whose f at x is (values of z) + x, on the points 0, 1, 2, ..."""

    def tensor(entries):
        return torch.tensor(entries, dtype=torch.float64, device=device)

    column, boxes = tensor(values), (tensor([[0.0], [1.0]]), tensor([[0.0], [99.0]]))
    environment = FiniteEnvironment(torch.arange(len(values)).to(column).unsqueeze(-1), tensor(probabilities))
    return ConditionsProblem(
        "table", lambda X: column[X[..., 1].long()] + X[..., 0], environment, *boxes, 1.0, alpha, initial=1
    )


@pytest.mark.parametrize(
    ("alpha", "expected"), [(0.05, 1.0), (0.1, 1.0), (0.1001, 2.0), (0.5, 2.0), (0.51, 3.0), (0.99, 5.0)]
)
def test_value_by_hand(alpha, expected, device):
    # P(f <= 1) = .1, P(f <= 2) = .5 (a tie of .1 and .3), P(f <= 3) = .7, P(f <= 5) = 1; a point of probability 0.
    problem = table([2.0, 5.0, 1.0, 3.0, 2.0, -9.0], [0.1, 0.3, 0.1, 0.2, 0.3, 0.0], alpha, device)
    X = torch.tensor([[0.0], [0.25]], dtype=torch.float64, device=device)
    assert value_at_risk(problem, X).tolist() == [expected, expected + 0.25]


def test_continuous_value_by_hand(device):
    # f = z: VaR_alpha is the alpha-quantile of N(.5, .125^2) cut at 2 sd: Phi^-1(.02275 + .1 x .9545) = -1.1839.
    problem = dataclasses.replace(Branin(z="continuous").make(device), f=lambda X: X[..., 1])
    x = torch.zeros(1, 1, dtype=torch.float64, device=device)
    assert float(value_at_risk(problem, x)) == pytest.approx(0.5 - 0.125 * 1.1839, abs=5e-5)


# algorithms.md section 6 for a discrete Z, to the printed digits (a grid of 20001 x there). For a continuous Z a search
# in x of the quantile of f over 2^21 cells of equal probability; what is left is the resolution of 2^14 points.
KNOWN = {
    (Branin, "discrete"): (0.7324785, 0.2348, 2e-7, 1e-4),
    (GoldsteinPrice, "discrete"): (1.79938, 0.836, 5e-5, 5e-4),
    (Branin, "continuous"): (0.6395337, 0.24744, 3e-5, 5e-5),
    (GoldsteinPrice, "continuous"): (1.6518157, 0.72789, 3e-5, 5e-5),
}


@pytest.mark.parametrize(("kind", "z"), list(KNOWN))
def test_known_optima(kind, z, device):
    problem = kind(z=z).make(device)
    best = optimum(problem)
    value, x, tolerance, x_tolerance = KNOWN[kind, z]
    assert best.value == pytest.approx(value, abs=tolerance)
    assert best.x.tolist() == pytest.approx([x], abs=x_tolerance)
    assert best.x.device.type == device.type
    assert optimum(problem) is best
    assert float(value_at_risk(problem, best.x)) == pytest.approx(best.value, abs=1e-12)


@pytest.mark.parametrize("kind", [Hartmann3OneTwo, Hartmann3TwoOne])
def test_hartmann_optimum_beats_a_finer_grid(kind, device):
    problem = kind().make(device)
    sobol = torch.quasirandom.SobolEngine(problem.dim_x, seed=1, scramble=True)
    X = sobol.draw(20_000, dtype=torch.float64).to(device)
    losses = regret(problem, X)
    assert float(losses.min()) >= -1e-9
    # The grid comes close: the search is not somewhere else, the function has no spike above it.
    assert float(losses.min()) < 2e-3
