import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.warnings import BadInitialCandidatesWarning
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.means import ZeroMean

from bo_robust.acquisition import GPUCB, EliminationUCB
from bo_robust.confidence import ConstantWidth, SelfNormalisedWidth
from bo_robust.models import CandidateEnsemble
from tests.worlds import rand, unit_box

NOISE_VAR = 0.01
KINDS = [
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR},
    {"kernel": "matern", "lengthscale": 0.2, "noise_var": 0.02},
    {"kernel": "periodic", "lengthscale": 0.5, "period": 0.4, "noise_var": NOISE_VAR},
]


def f(X):
    return torch.sin(5 * X).sum(-1, keepdim=True)


def make(tkwargs, candidates=KINDS, n=10, width=None, **options):
    X = rand(tkwargs, n, 2)
    width = SelfNormalisedWidth(1.0, 0.1, 0.05) if width is None else width
    return CandidateEnsemble(X, f(X), candidates, width, 0.1, 0.1, **options)


def plain_gp(model, index=0):
    """BoTorch's GP with the prior of one candidate."""
    c, Y = model.candidates[index], model.train_targets.unsqueeze(-1)
    noise = torch.full_like(Y, c.noise_var)
    X = model.train_inputs[0]
    return SingleTaskGP(X, Y, noise, covar_module=c.covar_module, mean_module=ZeroMean(), outcome_transform=None)


@pytest.mark.parametrize("kind", range(3))
def test_one_candidate_is_gp_ucb(tkwargs, kind):
    model = make(tkwargs, [KINDS[kind]])
    width, arms, pending = (
        SelfNormalisedWidth(1.0, 0.1, 0.05),
        rand(tkwargs, 60, 2, seed=1),
        rand(tkwargs, 2, 2, seed=2),
    )
    for X_pending in (None, pending):
        ours = EliminationUCB(model, X_pending=X_pending)
        theirs = GPUCB(plain_gp(model), width, X_pending=X_pending)
        assert float(ours.widths) == pytest.approx(float(theirs.width), rel=1e-12)
        for X in (arms.unsqueeze(-2), arms.view(20, 3, 2), arms[:2]):
            torch.testing.assert_close(ours(X), theirs(X), atol=1e-8, rtol=1e-8)
        for q in (1, 3):
            picks = [optimize_acqf_discrete(a, q=q, choices=arms)[0] for a in (ours, theirs)]
            assert torch.equal(*picks)


def test_the_largest_bound_of_those_alive_and_who_has_it(tkwargs):
    widths = (2.0, 1.5, 1.0)
    width = tuple(ConstantWidth(w) for w in widths)
    model, X = make(tkwargs, width=width), rand(tkwargs, 40, 1, 2, seed=1)
    bounds = []
    for u, w in enumerate(widths):
        posterior = plain_gp(model, u).posterior(X)
        bounds.append((posterior.mean + w * posterior.variance.sqrt())[:, 0, 0])
    bounds = torch.stack(bounds)
    alive = model.alive
    assert alive.tolist() == [True, True, True]
    acqf = EliminationUCB(model)
    torch.testing.assert_close(acqf(X), bounds.amax(0), atol=1e-9, rtol=1e-9)
    who = [acqf.chosen_member(x) for x in X]
    assert [u for u, _ in who] == bounds.argmax(0).tolist()
    assert {u for u, _ in who} == {0, 1, 2}
    assert all(name == model.names[u] for u, name in who)
    # of the others when one is gone, by its index in U
    fewer = EliminationUCB(model.eliminate(1))
    torch.testing.assert_close(fewer(X), bounds[[0, 2]].amax(0), atol=1e-9, rtol=1e-9)
    assert [fewer.chosen_member(x)[0] for x in X] == [[0, 2][i] for i in bounds[[0, 2]].argmax(0).tolist()]
    with pytest.raises(ValueError, match="one point"):
        acqf.chosen_member(X)
    # who has it is who is tested
    for x in X[:5]:
        grown, said = acqf.observe(x, float(f(x)))
        assert said.tested == acqf.chosen_member(x)[0]
        assert grown.t == model.t + 1


def test_pending_points_by_hand(tkwargs):
    """Under every candidate the mean stays, and the variance is that after observing."""
    model, X, pending = make(tkwargs), rand(tkwargs, 6, 1, 2, seed=1), rand(tkwargs, 2, 2, seed=2)
    acqf = EliminationUCB(model, X_pending=pending)
    mean = model.moments(X)[0]
    variance = model.condition_on_observations(pending, f(pending)).moments(X)[1]
    bounds = mean + model.widths.unsqueeze(-1) * variance.sqrt()
    torch.testing.assert_close(acqf(X), bounds.amax(1)[:, 0])


def test_before_any_reward(tkwargs):
    acqf = EliminationUCB(make(tkwargs, n=0))
    assert acqf(rand(tkwargs, 3, 1, 2)).tolist() == pytest.approx([float(acqf.widths.max())] * 3)
    with pytest.warns(BadInitialCandidatesWarning):  # all are equal
        x, _ = optimize_acqf(acqf, unit_box(tkwargs), q=1, num_restarts=1, raw_samples=4)
    assert acqf.observe(x, 1.0)[0].t == 2


def test_senses(tkwargs):
    model, X = make(tkwargs), rand(tkwargs, 6, 1, 2, seed=1)
    least = make(tkwargs, maximize=False)
    mean, variance = least.moments(X)
    alive = least.alive
    weight = ScalarizedPosteriorTransform(torch.tensor([-1.0], **tkwargs))
    bounds = -mean + least.widths.unsqueeze(-1) * variance.sqrt()
    torch.testing.assert_close(EliminationUCB(least, weight)(X), bounds[:, alive].amax(1)[:, 0])
    EliminationUCB(model, ScalarizedPosteriorTransform(torch.tensor([2.0], **tkwargs)))


def test_input_constructor(tkwargs):
    model, pending = make(tkwargs), rand(tkwargs, 2, 2, seed=3)
    build = get_acqf_input_constructor(EliminationUCB)
    inputs = build(model=model, training_data=None, bounds=None, objective=None, X_baseline=None, X_pending=pending)
    acqf = EliminationUCB(**inputs)
    assert torch.equal(acqf.X_pending, pending)
