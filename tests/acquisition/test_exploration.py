"""Exploring where a reading would tell little, against hand-computed variances."""

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from bo_robust.acquisition import ValueAtRiskUCB, explore
from bo_robust.confidence import ConstantWidth
from bo_robust.environments import FiniteEnvironment
from bo_robust.models import CandidateEnsemble, candidate

NOISE_VAR = 0.1


def kernel(tkwargs):
    made = RBFKernel().to(**tkwargs)
    made.lengthscale = torch.tensor(0.1, **tkwargs)
    return made


def acquisition(readings, tkwargs):
    """Readings of 1 at x = 0.9 under the only condition: the variance of f there is 1 / (1 + n / 0.1)."""
    X = torch.tensor([[0.9, 0.5]], **tkwargs).expand(readings, 2)
    Y = torch.ones(readings, 1, **tkwargs)
    model = SingleTaskGP(X, Y, torch.full_like(Y, NOISE_VAR), covar_module=kernel(tkwargs), outcome_transform=None)
    model.mean_module.initialize(constant=0.0)
    environment = FiniteEnvironment(torch.tensor([[0.5]], **tkwargs))
    return ValueAtRiskUCB(model.eval(), environment, 0.1, 0.1)


@pytest.mark.parametrize("readings", [1, 5])
def test_a_choice_stands_unless_a_reading_would_tell_less_than_half_a_bit(readings, tkwargs):
    # One reading leaves the variance 1 / 11 < 0.1; none, far away, leaves 1.
    acqf = acquisition(readings, tkwargs)
    bounds = torch.tensor([[0.0], [1.0]], **tkwargs)
    known = acqf.select_condition(torch.tensor([0.9], **tkwargs))
    elsewhere = explore(acqf, known, bounds, seed=0)
    assert elsewhere.point.shape == known.point.shape == (2,)
    # The interval is longest where the kernel has forgotten the readings.
    assert float(elsewhere.point[0]) < 0.5
    assert float(elsewhere.regret_bound) == pytest.approx(0.2, abs=1e-3)  # 2 w sigma
    unknown = acqf.select_condition(torch.tensor([[0.2]], **tkwargs))
    assert explore(acqf, unknown, bounds) is unknown
    assert explore(acqf, acqf.select_condition(torch.tensor([[0.9]], **tkwargs)), bounds).point.shape == (1, 2)
    assert torch.equal(explore(acqf, known, bounds, seed=0).point, elsewhere.point)


def test_points_under_evaluation_count_as_readings(tkwargs):
    """At x = 0.6 nothing is known; a point under evaluation there makes the variance 1 / 11."""
    acqf = acquisition(1, tkwargs)
    bounds = torch.tensor([[0.0], [1.0]], **tkwargs)
    choice = acqf.select_condition(torch.tensor([0.2], **tkwargs))
    assert explore(acqf, choice, bounds) is choice
    acqf.set_X_pending(torch.tensor([[0.2, 0.5]], **tkwargs))
    elsewhere = explore(acqf, choice, bounds)
    assert elsewhere is not choice
    assert abs(float(elsewhere.point[0]) - 0.2) > 0.2


def test_every_candidate_must_know(tkwargs):
    """Two readings at 0.9: with length-scale 1 f is known at 0.8 too, with 0.01 it is not."""
    X, Y = torch.tensor([[0.9, 0.5], [0.9, 0.5]], **tkwargs), torch.ones(2, 1, **tkwargs)
    environment = FiniteEnvironment(torch.tensor([[0.5]], **tkwargs))
    bounds = torch.tensor([[0.0], [1.0]], **tkwargs)
    kept = {}
    for scales in ((1.0,), (1.0, 0.01)):
        U = [candidate("rbf", s, NOISE_VAR) for s in scales]
        risk = {"environment": environment, "functional": 0.1}
        model = CandidateEnsemble(X, Y, U, ConstantWidth(2.0), noise_scale=1.0, delta=0.1, **risk)
        acqf = ValueAtRiskUCB(model, environment, 0.1)
        choice = acqf.select_condition(torch.tensor([0.8], **tkwargs))
        kept[scales] = explore(acqf, choice, bounds) is choice
    assert kept == {(1.0,): False, (1.0, 0.01): True}


def test_several_choices_are_refused(tkwargs):
    acqf = acquisition(1, tkwargs)
    choices = acqf.select_condition(torch.tensor([[0.2], [0.9]], **tkwargs))
    with pytest.raises(ValueError, match="takes the choice for one design, got 2"):
        explore(acqf, choices, torch.tensor([[0.0], [1.0]], **tkwargs))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([[0.0, 1.0]], "2 x d, got shape"),
        ([[0.0], [1.0], [2.0]], "2 x d, got shape"),
        ([[0.0], [float("inf")]], "NaN or infinite"),
        ([[1.0], [0.0]], "lower below upper"),
        ([[0.0, 0.0], [1.0, 1.0]], "X has 2 columns"),
    ],
)
def test_a_wrong_box_is_refused_even_where_the_choice_stands(tkwargs, bounds, message):
    acqf = acquisition(1, tkwargs)
    choice = acqf.select_condition(torch.tensor([0.2], **tkwargs))
    with pytest.raises(ValueError, match=message):
        explore(acqf, choice, torch.tensor(bounds, **tkwargs))
    with pytest.raises(ValueError, match=r"pick must be one of .*informative; got 'best'"):
        explore(acqf, choice, torch.tensor([[0.0], [1.0]], **tkwargs), pick="best")
    with pytest.raises(ValueError, match="takes a ValueAtRiskUCB"):
        explore(acqf, choice.point, torch.tensor([[0.0], [1.0]], **tkwargs))
