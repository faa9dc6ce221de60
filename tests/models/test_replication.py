"""A list with ``RobustGP`` for each outcome: constraints and several objectives, with faults in any of them."""

import math

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import SumMarginalLogLikelihood
from torch.quasirandom import SobolEngine

from bo_robust import RobustGP, verify

BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FAULT = 10.0


def constrained(X):
    """Large x + z is good where x^2 + z^2 <= 1/2: the best is 1, at (1/2, 1/2)."""
    return torch.stack([X.sum(-1), X.square().sum(-1) - 0.5], -1)


def opposed(X):
    """The best are between (.2, .2) and (.8, .8)."""
    return torch.stack([-(X - 0.2).square().sum(-1), -(X - 0.8).square().sum(-1)], -1)


def start(outcomes, faults):
    """24 points with readings of both outcomes; ``faults`` are added to (row, outcome)."""
    X = SobolEngine(2, scramble=True, seed=0).draw(24, dtype=torch.float64)
    noise = torch.randn(24, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = outcomes(X) + 0.02 * noise
    for where, size in faults(outcomes(X)).items():
        Y[where] += size
    return X, Y


def play(outcomes, X, Y, made, acquisition, rounds=4):
    """The fitted list and its data after the rounds, each at the suspect or at the best of the acquisition."""
    for t in range(rounds + 1):
        torch.manual_seed(t)
        models = ModelListGP(*(make(X, Y[:, i : i + 1]) for i, make in enumerate(made)))
        fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
        if t == rounds:
            return models, X
        x = verify(models)
        if x is None:
            x, _ = optimize_acqf(acquisition(models, X), BOX, q=1, num_restarts=2, raw_samples=32)
        X, Y = torch.cat([X, x]), torch.cat([Y, outcomes(x)])


def believed_to_be_better(models, X):
    """Means ``n x 2``, -inf in rows that are not to be recommended; a constraint wants small values."""
    with torch.no_grad():
        mean = models.posterior(X).mean
    for model in models.models:
        if isinstance(model, RobustGP):
            mean = mean.where(model.recommendable(model.maximize is not None).unsqueeze(-1), -math.inf)
    return mean


def infeasible_looks_best(values):
    return {(int(values[:, 0].argmax()), 1): -FAULT}


def best_looks_infeasible(values):
    return {(int(values[:, 0].where(values[:, 1] <= 0.0, -math.inf).argmax()), 1): FAULT}


def mediocre_looks_best(values):
    return {(int((values[:, 0] - 0.4).abs().argmin()), 0): FAULT}


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(infeasible_looks_best, marks=pytest.mark.slow),
        pytest.param(best_looks_infeasible, marks=pytest.mark.slow),
        mediocre_looks_best,
    ],
)
def test_a_fault_in_objective_or_constraint_does_not_decide(faults):
    X, Y = start(constrained, faults)
    best = []
    for made in ((RobustGP, lambda X, Y: RobustGP(X, Y, maximize=None)), (SingleTaskGP, SingleTaskGP)):
        models, points = play(
            constrained,
            X,
            Y,
            made,
            lambda models, X: qLogNoisyExpectedImprovement(
                models,
                X,
                objective=GenericMCObjective(lambda Z, X=None: Z[..., 0]),
                constraints=[lambda Z: Z[..., 1]],
            ),
        )
        objective, cost = believed_to_be_better(models, points).unbind(-1)
        row = objective.where(cost <= 0.0, -math.inf).argmax()
        best.append(constrained(points[row]).tolist())
    (ours, our_cost), (theirs, their_cost) = best
    assert ours > 0.97
    assert our_cost < 0.01
    assert theirs < 0.9 or their_cost > 0.5


@pytest.mark.slow
def test_faults_in_two_objectives_leave_the_front_where_it_is():
    X, Y = start(opposed, lambda values: {(3, 0): FAULT, (8, 1): FAULT})
    covered, wrong = [], []
    for make in (RobustGP, SingleTaskGP):
        models, points = play(
            opposed,
            X,
            Y,
            (make, make),
            lambda models, X: qLogNoisyExpectedHypervolumeImprovement(models, [-1.5, -1.5], X),
        )
        mean = believed_to_be_better(models, points)
        front = is_non_dominated(mean)
        truth = opposed(points[front])
        covered.append(Hypervolume(torch.tensor([-0.8, -0.8])).compute(truth))
        wrong.append(float((mean[front] - truth).abs().max()))
    assert covered[0] > 0.51 > 0.49 > covered[1]  # 0.553 at most
    assert wrong[0] < 0.05 < 1.0 < wrong[1]


def test_a_list_is_asked_as_its_models_were_made():
    X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
    Y = torch.sin(3.0 * X)
    high, low = Y.clone(), Y.clone()
    high[3] += FAULT
    low[7] -= FAULT

    def asked(**sides):
        models = ModelListGP(
            SingleTaskGP(X, Y), *(RobustGP(X, {"high": high, "low": low}[n], maximize=m) for n, m in sides.items())
        )
        fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
        with pytest.raises(ValueError, match="give maximize to each RobustGP of the list"):
            verify(models, maximize=True)
        return verify(models)

    assert torch.equal(asked(high=True, low=False), X[3:4])
    assert torch.equal(asked(high=None, low=False), X[7:8])
    assert asked(high=False, low=True) is None
    assert asked(high=None, low=None) is None
