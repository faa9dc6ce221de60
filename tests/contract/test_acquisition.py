"""The contract of every acquisition function. A new one is one row of ROWS and passes the whole suite."""

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.warnings import BadInitialCandidatesWarning
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.means import ZeroMean
from torch import Tensor

from bo_robust.acquisition import (
    GPUCB,
    Elimination,
    EliminationUCB,
    OnePointLogNoisyExpectedImprovement,
    StableOpt,
    ValueAtRiskKnowledgeGradient,
    ValueAtRiskUCB,
    eliminate,
)
from bo_robust.confidence import ConstantWidth, SelfNormalizedWidth
from bo_robust.models import CandidateEnsemble
from bo_robust.risk_measures.environments import FiniteEnvironment
from tests.problems import rand, rbf, unit_box

LENGTHSCALE, NOISE_VAR, WIDTH = 0.4, 0.05, 2.0


def single(X: Tensor, Y: Tensor) -> SingleTaskGP:
    kernel = rbf({"dtype": X.dtype, "device": X.device}, LENGTHSCALE, X.shape[:-2])
    return SingleTaskGP(X, Y, torch.full_like(Y, NOISE_VAR), None, kernel, ZeroMean(), outcome_transform=None)


def ensemble(X: Tensor, Y: Tensor) -> CandidateEnsemble:
    kinds = [{"kernel": "rbf", "lengthscale": scale, "noise_var": NOISE_VAR} for scale in (LENGTHSCALE, 0.3)]
    return CandidateEnsemble(X, Y, kinds)


def left(model: CandidateEnsemble) -> Elimination:
    return eliminate(model, width=SelfNormalizedWidth(1.0, 0.1, 0.05), noise_scale=0.5)


def conditions(model: Model) -> FiniteEnvironment:
    z = torch.linspace(0, 1, 5).to(model.train_targets).unsqueeze(-1)
    return FiniteEnvironment(z, z.new_tensor([0.1, 0.2, 0.4, 0.2, 0.1]))


def one_condition(model: Model) -> FiniteEnvironment:
    return FiniteEnvironment(model.train_targets.new_tensor([[0.5]]))


def noisy_improvement(model: Model, **options: Any) -> AcquisitionFunction:
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    X = model.train_inputs[0]
    return OnePointLogNoisyExpectedImprovement(model, X, sampler=sampler, prune_baseline=False, **options)


@dataclass(frozen=True)
class Row:
    """An acquisition function and what can be asked of it.

    Attributes:
        make: The acquisition of a model, with more keyword arguments.
        model: The model of data ``n x d`` and ``n x 1`` it is for.
        conditions: Columns of the model that it chooses itself.
        limit: The same where it is to equal mu + WIDTH sigma of the exact GP, at one condition; None: never.
        batches: Whether it takes a model of several trials.
    """

    make: Callable[..., AcquisitionFunction]
    model: Callable[[Tensor, Tensor], Model]
    limit: Callable[[Model], AcquisitionFunction] | None
    conditions: int = 0
    batches: bool = True


ROWS = {
    "gp-ucb": Row(
        lambda model, **options: GPUCB(model, ConstantWidth(WIDTH), **options),
        single,
        lambda model: GPUCB(model, ConstantWidth(WIDTH)),
    ),
    "v-ucb": Row(
        lambda model, **options: ValueAtRiskUCB(model, conditions(model), 0.2, WIDTH, **options),
        single,
        lambda model: ValueAtRiskUCB(model, one_condition(model), 0.2, WIDTH),
        conditions=1,
    ),
    "stable-opt": Row(
        lambda model, **options: StableOpt(model, conditions(model), WIDTH, **options),
        single,
        lambda model: StableOpt(model, one_condition(model), WIDTH),
        conditions=1,
    ),
    "v-ucb-candidates": Row(
        lambda model, **options: ValueAtRiskUCB(model, conditions(model), 0.2, elimination=left(model), **options),
        ensemble,
        None,
        conditions=1,
        batches=False,
    ),
    "stable-opt-candidates": Row(
        lambda model, **options: StableOpt(model, conditions(model), elimination=left(model), **options),
        ensemble,
        None,
        conditions=1,
        batches=False,
    ),
    "v-ucb-mixture": Row(
        lambda model, **options: ValueAtRiskUCB(model, conditions(model), 0.2, WIDTH, **options),
        ensemble,
        lambda model: ValueAtRiskUCB(model, one_condition(model), 0.2, WIDTH),
        conditions=1,
        batches=False,
    ),
    "knowledge-gradient": Row(
        lambda model, **options: ValueAtRiskKnowledgeGradient(model, conditions(model), 0.2, **options),
        single,
        None,
        batches=False,
    ),
    "elimination": Row(
        lambda model, **options: EliminationUCB(model, left(model), **options), ensemble, None, batches=False
    ),
}
BOUNDS = pytest.mark.parametrize("name", list(ROWS))  # which check their arguments, as BoTorch's function does not
ROWS["noisy-improvement"] = Row(noisy_improvement, single, None, batches=False)
EVERY = pytest.mark.parametrize("name", ROWS)


def data(name, tkwargs, batch=()):
    X = rand(tkwargs, *batch, 12, 2 + ROWS[name].conditions)
    return X, torch.sin(5.0 * X[..., :1]) * torch.cos(3.0 * X[..., -1:])


def make(name, tkwargs, **options):
    return ROWS[name].make(ROWS[name].model(*data(name, tkwargs)), **options)


@EVERY
def test_values_of_batches_are_those_of_their_rand(name, tkwargs):
    acqf, X = make(name, tkwargs), rand(tkwargs, 3, 4, 1, 2, seed=1)
    values = acqf(X)
    assert values.shape == (3, 4)
    assert values.dtype == torch.float64
    torch.testing.assert_close(acqf(X[2, 1]).squeeze(), values[2, 1], atol=1e-9, rtol=0)


@EVERY
def test_the_limit_is_the_upper_confidence_bound(name, tkwargs):
    row = ROWS[name]
    if row.limit is None:
        pytest.skip("it has no limit over a plain GP; its own tests have one candidate")
    model, X = row.model(*data(name, tkwargs)), rand(tkwargs, 7, 2, seed=2)
    inputs = torch.cat([X, torch.full_like(X[:, : row.conditions], 0.5)], -1)
    posterior = model.posterior(inputs)
    expected = (posterior.mean + WIDTH * posterior.variance.sqrt()).squeeze(-1)
    torch.testing.assert_close(row.limit(model)(X.unsqueeze(1)), expected, atol=1e-9, rtol=0)


@EVERY
def test_gradients_are_those_of_differences(name, tkwargs):
    for pending in (None, rand(tkwargs, 2, 2, seed=11)):
        acqf = make(name, tkwargs, X_pending=pending)
        torch.autograd.gradcheck(acqf, (rand(tkwargs, 2, 1, 2, seed=3).requires_grad_(),), atol=1e-5)


@EVERY
def test_points_under_evaluation_lower_their_own_bound(name, tkwargs):
    acqf, X = make(name, tkwargs), rand(tkwargs, 1, 1, 2, seed=4)
    before = acqf(X)
    acqf.set_X_pending(X[0])
    assert float(acqf(X)) < float(before) - 1e-3
    torch.testing.assert_close(make(name, tkwargs, X_pending=X[0])(X), acqf(X), atol=1e-9, rtol=0)
    acqf.set_X_pending(None)
    torch.testing.assert_close(acqf(X), before, atol=1e-12, rtol=0)


@BOUNDS
def test_a_joint_batch_is_the_sum_of_its_points_one_after_the_other(name, tkwargs):
    acqf, X = make(name, tkwargs), rand(tkwargs, 3, 2, seed=5)
    total = 0.0
    for j in range(3):
        acqf.set_X_pending(X[:j] if j else None)
        total += float(acqf(X[j : j + 1]))
    acqf.set_X_pending(None)
    assert float(acqf(X)) == pytest.approx(total, abs=1e-8)
    two = torch.stack([X, X.flip(0)])  # t-batches do not see each other
    torch.testing.assert_close(acqf(two), torch.cat([acqf(x) for x in two]), atol=1e-8, rtol=0)


@EVERY
def test_a_batch_of_trials_is_its_trials(name, tkwargs):
    row = ROWS[name]
    if not row.batches:
        pytest.skip("its model takes one trial")
    X, Y = data(name, tkwargs, (3,))
    together, x = row.make(row.model(X, Y)), rand(tkwargs, 5, 1, 1, 2, seed=6)
    for i in range(3):
        alone = row.make(row.model(X[i], Y[i]))
        torch.testing.assert_close(together(x)[:, i], alone(x[:, 0]), atol=1e-8, rtol=0)


@EVERY
def test_the_searches_of_botorch(name, tkwargs):
    acqf, arms = make(name, tkwargs), rand(tkwargs, 40, 2, seed=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadInitialCandidatesWarning)
        torch.manual_seed(0)
        x, value = optimize_acqf(acqf, unit_box(tkwargs), q=1, num_restarts=3, raw_samples=32)
        assert float(value) >= float(acqf(arms.unsqueeze(1)).max()) - 1e-6
        pair, _ = optimize_acqf(acqf, unit_box(tkwargs), q=2, num_restarts=2, raw_samples=16, sequential=True)
        mixed, _ = optimize_acqf_mixed(acqf, unit_box(tkwargs), 1, 2, [{0: 0.1}, {0: 0.9}], raw_samples=16)
    chosen, best = optimize_acqf_discrete(acqf, q=1, choices=arms)
    assert x.shape == (1, 2)
    assert float(torch.pdist(pair)) > 1e-3
    assert round(float(mixed[0, 0]), 6) in (0.1, 0.9)
    values = acqf(arms.unsqueeze(1))
    assert torch.equal(chosen[0], arms[int(values.argmax())])
    assert float(best) == pytest.approx(float(values.max()), abs=1e-9)
    assert acqf.X_pending is None


@EVERY
def test_minimizing_is_maximizing_the_negative(name, tkwargs):
    row = ROWS[name]
    if not row.batches:
        pytest.skip("over candidates `eliminate` has the sense")
    X, Y = data(name, tkwargs)
    minus = ScalarizedPosteriorTransform(torch.tensor([-1.0], **tkwargs))
    x = rand(tkwargs, 6, 1, 2, seed=8)
    turned = row.make(row.model(X, Y), posterior_transform=minus)
    torch.testing.assert_close(turned(x), row.make(row.model(X, -Y))(x), atol=1e-9, rtol=0)


@EVERY
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda acqf: pickle.loads(pickle.dumps(acqf))])
def test_copies_are_independent(name, copier, tkwargs):
    acqf, x = make(name, tkwargs), rand(tkwargs, 4, 1, 2, seed=9)
    before = acqf(x)
    other = copier(acqf)
    torch.testing.assert_close(other(x), before, atol=1e-12, rtol=0)
    other.set_X_pending(x[0])
    assert acqf.X_pending is None
    torch.testing.assert_close(acqf(x), before, atol=0, rtol=0)


@BOUNDS
def test_moving_takes_model_width_and_conditions_along(name, tkwargs):
    """Before the first evaluation, for GPyTorch's caches do not move."""
    x, pending = rand(tkwargs, 4, 1, 2, seed=9), rand(tkwargs, 2, 2, seed=11)
    expected = make(name, tkwargs, X_pending=pending)(x)
    moved = make(name, tkwargs).float()
    moved.set_X_pending(pending.float())
    torch.testing.assert_close(moved(x.float()).double(), expected, atol=5e-3, rtol=0)


@BOUNDS
def test_another_dtype_is_refused_and_leaves_the_model_alone(name, tkwargs):
    acqf, x = make(name, tkwargs), rand(tkwargs, 2, 1, 2, seed=10)
    before = acqf(x)
    with pytest.raises(ValueError, match="float32"):
        acqf(x.float())
    torch.testing.assert_close(acqf(x), before, atol=0, rtol=0)


@BOUNDS
def test_bad_pending_points_are_refused(name, tkwargs):
    acqf = make(name, tkwargs)
    for bad in (rand(tkwargs, 2), torch.full((1, 2), float("nan"), **tkwargs), rand(tkwargs, 1, 2).float()):
        with pytest.raises(ValueError, match=r"X_pending|float32"):
            acqf.set_X_pending(bad)
    assert acqf.X_pending is None


@EVERY
def test_botorch_can_construct_its_inputs(name, tkwargs):
    assert callable(get_acqf_input_constructor(type(make(name, tkwargs))))
