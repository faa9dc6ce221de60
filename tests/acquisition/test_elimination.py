import math
import warnings

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.optim import optimize_acqf_discrete
from gpytorch.means import ConstantMean, Mean

from bo_robust.acquisition import GPUCB, EliminationUCB, eliminate
from bo_robust.bandits import HEGPUCB, CandidateAlgorithm
from bo_robust.bandits.elimination_algorithm import eliminations
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import BayesianFiniteWidth, ConstantWidth, SelfNormalizedWidth
from bo_robust.models import Candidate, CandidateEnsemble
from bo_robust.utils.covariance import SquaredExponential
from tests.problems import gp_of_candidate, rand, rbf

NOISE_VAR, DELTA = 0.01, 0.1
WIDTH = SelfNormalizedWidth(1.0, 0.1, 0.05)
KINDS = [
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR},
    {"kernel": "matern", "lengthscale": 0.2, "noise_var": 0.02},
    {"kernel": "periodic", "lengthscale": 0.5, "period": 0.4, "noise_var": NOISE_VAR},
]


def f(X):
    return torch.sin(5 * X).sum(-1, keepdim=True)


def make(tkwargs, candidates=KINDS, n=10):
    X = rand(tkwargs, n, 2)
    return CandidateEnsemble(X, f(X), candidates)


def run_test(model, width=WIDTH, **options):
    return eliminate(model, width=width, noise_scale=0.1, **options)


def observe(model, x, y):
    return model.condition_on_observations(x.reshape(1, -1), torch.as_tensor(y).to(x).reshape(1, 1))


class Hill(Mean):
    """height exp(-(x - 0.2)^2 / 0.02)."""

    def __init__(self, height):
        super().__init__()
        self.height = height

    def forward(self, x):
        return self.height * torch.exp(-((x[..., 0] - 0.2) ** 2) / 0.02)


def hills(sign=1):
    """One smooth, two with a hill that is not there, as the golden ones of the bandits."""
    double = {"dtype": torch.float64}
    scales = [(0.15, 0.0), (0.15, 6.0), (0.6, 3.0)]
    return [Candidate(rbf(double, scale), NOISE_VAR, Hill(sign * height), f"hill {height}") for scale, height in scales]


def flat(mean):
    """Prior mean ``mean``, one value of f for all points."""
    module = ConstantMean()
    module.constant.data.fill_(mean)
    return Candidate(rbf({"dtype": torch.float64}, 1e6), NOISE_VAR, module, f"mean {mean}")


def failures(rows):
    return [(row["candidate"], row["round"], row["eliminated"]) for row in rows]


class TestEliminationUCB:
    @pytest.mark.parametrize("kind", range(3))
    def test_one_candidate_is_gp_ucb(self, tkwargs, kind):
        model = make(tkwargs, [KINDS[kind]])
        arms, pending = rand(tkwargs, 60, 2, seed=1), rand(tkwargs, 2, 2, seed=2)
        for X_pending in (None, pending):
            ours = EliminationUCB(model, run_test(model), X_pending=X_pending)
            theirs = GPUCB(gp_of_candidate(model), WIDTH, X_pending=X_pending)
            assert float(ours.width) == pytest.approx(float(theirs.width), rel=1e-12)
            for X in (arms.unsqueeze(-2), arms.view(20, 3, 2), arms[:2]):
                torch.testing.assert_close(ours(X), theirs(X), atol=1e-8, rtol=1e-8)
            for q in (1, 3):
                chosen = [optimize_acqf_discrete(a, q=q, choices=arms)[0] for a in (ours, theirs)]
                assert torch.equal(*chosen)

    def test_the_largest_bound_of_the_active_and_who_has_it(self, tkwargs):
        widths = (2.0, 1.5, 1.0)
        model, X = make(tkwargs), rand(tkwargs, 40, 1, 2, seed=1)
        bounds = []
        for u, w in enumerate(widths):
            posterior = gp_of_candidate(model, u).posterior(X)
            bounds.append((posterior.mean + w * posterior.variance.sqrt())[:, 0, 0])
        bounds = torch.stack(bounds)
        width = tuple(ConstantWidth(w) for w in widths)
        acqf = EliminationUCB(model, run_test(model, width))
        torch.testing.assert_close(acqf(X), bounds.amax(0), atol=1e-9, rtol=1e-9)
        who = [acqf.chosen_candidate(x) for x in X]
        assert who == bounds.argmax(0).tolist()
        assert set(who) == {0, 1, 2}
        with pytest.raises(ValueError, match="one point"):
            acqf.chosen_candidate(X)
        # who has it is who is tested
        for x in X[:5]:
            grown = observe(model, x, f(x))
            assert int(run_test(grown, width).tested[-1]) == acqf.chosen_candidate(x)

    def test_senses(self, tkwargs):
        model, X = make(tkwargs), rand(tkwargs, 6, 1, 2, seed=1)
        least = run_test(model, maximize=False)
        mean, variance = model.member_moments(X)
        weight = ScalarizedPosteriorTransform(torch.tensor([-1.0], **tkwargs))
        bounds = -mean + least.widths.unsqueeze(-1) * variance.sqrt()
        torch.testing.assert_close(EliminationUCB(model, least, weight)(X), bounds[:, least.active].amax(1)[:, 0])
        EliminationUCB(model, run_test(model), ScalarizedPosteriorTransform(torch.tensor([2.0], **tkwargs)))

    def test_input_constructor(self, tkwargs):
        model, pending = make(tkwargs), rand(tkwargs, 2, 2, seed=3)
        build = get_acqf_input_constructor(EliminationUCB)
        ignored = {"training_data": None, "bounds": None, "objective": None, "X_baseline": None}
        spec = {"kind": "self_normalized", "norm_bound": 1.0, "noise_scale": 0.1}
        inputs = build(model=model, **ignored, X_pending=pending, width=spec, noise_scale=0.1, delta=0.1)
        acqf = EliminationUCB(**inputs)
        assert torch.equal(acqf.X_pending, pending)
        assert torch.equal(inputs["elimination"].widths, run_test(model).widths)  # delta / 2 in the width


@pytest.mark.parametrize("num_initial", [0, 4])
@pytest.mark.parametrize("width", ["t", "gain", "each"])
def test_the_test_is_that_over_arms(tkwargs, width, num_initial):
    n, T, noise_scale = 40, 45, 0.1
    arms = torch.linspace(0, 1, n, **tkwargs).unsqueeze(-1)
    width = {
        "t": BayesianFiniteWidth(n, DELTA),
        "gain": SelfNormalizedWidth(1.0, noise_scale, DELTA / 2),
        "each": (ConstantWidth(1.0), SelfNormalizedWidth(0.5, noise_scale, DELTA / 2), ConstantWidth(3.0)),
    }[width]
    matrices = candidate_kernel([SquaredExponential(0.15), SquaredExponential(0.15), SquaredExponential(0.6)], arms)
    U = hills()
    prior = torch.stack([c.mean_module(arms) for c in U])
    algorithm = HEGPUCB(width, noise_scale, DELTA)
    state = algorithm.init(matrices, NOISE_VAR, 1, prior_mean=prior)
    noise = noise_scale * torch.randn(T, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    model, candidates = CandidateEnsemble(arms[:0], arms[:0], U), []
    for t, eta in enumerate(noise.to(**tkwargs)):
        initial = t < num_initial
        choice = torch.tensor([7 * t % n], device=arms.device)
        if not initial:
            choice = select_over_arms(algorithm, state, arms, t % 5 == 0 and (model, width, num_initial))
        y = torch.sin(6 * arms[choice, 0]) + eta
        info = (algorithm.observe_initial if initial else algorithm.observe)(state, choice, y)
        candidates.append(-1 if initial else int(info.candidate))
        model = observe(model, arms[choice], y)
    rebuilt = CandidateEnsemble(model.train_inputs[0], model.train_targets.unsqueeze(-1), U)
    for m, options in ((model, {"num_initial": num_initial}), (rebuilt, {"chosen": torch.tensor(candidates)})):
        left = run_test(m, width, **options)
        assert left.tested[:, 0].tolist() == candidates
        check_as_over_arms(m, left, state, arms)


def select_over_arms(algorithm, state, arms, compared):
    """The arm selected; it and its candidate are those of the acquisition function, if that is compared."""
    selection = algorithm.select(state, arms.new_zeros(1))
    if compared:
        model, width, num_initial = compared
        acqf = EliminationUCB(model, run_test(model, width, num_initial=num_initial))
        values = acqf(arms.unsqueeze(-2))
        assert float(values[selection.arms]) >= float(values.max()) - 1e-9
        assert acqf.chosen_candidate(arms[selection.arms]) == int(selection.candidate)
    return selection.arms


def check_as_over_arms(model, left, state, arms):
    """Some candidates failed; who, when and why is the same over arms, and so are evidence and moments."""
    posterior = state.posterior
    assert torch.equal(left.active, posterior.active[0])
    assert not left.active.all()
    assert left.map_candidate == int(posterior.map_candidate)
    for ours, theirs in zip(left.removed, eliminations(state), strict=True):
        assert failures([ours]) == failures([theirs])
        assert ours["left"] == pytest.approx(theirs["left"], rel=1e-8)
        assert ours["right"] == pytest.approx(theirs["right"], rel=1e-8)
        assert ours["name"] == model.names[ours["candidate"]]
    same = {"rtol": 1e-8, "atol": 1e-8}
    torch.testing.assert_close(model.evidence, posterior.evidence[0], **same)
    torch.testing.assert_close(model.member_moments(arms), (posterior.means[0], posterior.variances[0]), **same)


def test_rounds_by_hand(tkwargs):
    """The hand-made rounds of the bandits (``tests/bandits/test_he_gp_ucb.py``), whose sides are there."""
    X, Y = torch.zeros(4, 1, **tkwargs), torch.tensor([[0.0], [-1.0], [50.0], [50.0]], **tkwargs)

    def after(t):
        return run_test(CandidateEnsemble(X[:t], Y[:t], [flat(2.2), flat(0.0)]), ConstantWidth(2.0))

    assert after(1).removed == []
    second = after(2)
    assert failures(second.removed) == [(0, 2, True)]
    assert not second.assumptions_violated
    # all that is left is wrong as well: kept, flagged, and a warning says so
    for t in (3, 4):
        with pytest.warns(UserWarning, match=r"the last active one \(mean 0.0\) is kept.*who failed when"):
            last = after(t)
        assert last.assumptions_violated
        assert last.active.tolist() == [False, True]
        assert failures(last.removed) == [(0, 2, True), (1, 3, False)]


OVER_ARMS = {"likelihood": lambda w: HEGPUCB(w, 0.1, DELTA, elimination="likelihood"), "likeliest": CandidateAlgorithm}


@pytest.mark.parametrize("form", OVER_ARMS)
def test_by_likelihood_it_chooses_as_over_arms(tkwargs, form):
    arms, width = torch.linspace(0, 1, 40, **tkwargs).unsqueeze(-1), ConstantWidth(1.5)
    kernels = [rbf({"dtype": torch.float64}, ell) for ell in (0.15, 0.2, 0.6)]
    U = [Candidate(kernels[0], 0.01, Hill(0.0)), Candidate(kernels[1], 0.01, Hill(3.0)), Candidate(kernels[2], 0.02)]
    kernel = candidate_kernel([SquaredExponential(ell) for ell in (0.15, 0.2, 0.6)], arms)
    prior = torch.stack([0.0 * arms[:, 0] if c.mean_module is None else c.mean_module(arms) for c in U])
    algorithm = OVER_ARMS[form](width)
    state = algorithm.init(kernel, torch.tensor([0.01, 0.01, 0.02], **tkwargs), 1, prior_mean=prior)
    noise = 0.1 * torch.randn(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(**tkwargs)
    model, seen, sizes = CandidateEnsemble(arms[:0], arms[:0], U), [], set()
    for t, eta in enumerate(noise):
        left = run_test(model, width, elimination=form, num_initial=2)
        acqf, selection = EliminationUCB(model, left), algorithm.select(state, eta.new_zeros(1))
        values = acqf(arms.unsqueeze(-2))
        assert float(values[selection.arms]) == pytest.approx(float(values.max()), abs=1e-8)
        assert acqf.chosen_candidate(arms[selection.arms]) == int(selection.candidate)
        y = torch.sin(6 * arms[selection.arms, 0]) + eta
        (algorithm.observe_initial if t < 2 else algorithm.observe)(state, selection.arms, y)
        model = observe(model, arms[selection.arms], y)
        seen.append(left.active.tolist())
        sizes.add(int(left.active.sum()))
    left = run_test(model, width, elimination=form)
    torch.testing.assert_close(model.evidence, state.posterior.evidence[0])
    assert (left.tested == -1).all()
    if form == "likelihood":
        assert len(sizes) > 1
        assert torch.equal(left.active, state.posterior.active[0])
        assert failures(left.removed) == failures(eliminations(state))
        check_order_is_nothing_to_it(model, left, U, width)
    else:
        assert sizes == {1}
        assert len(set(map(tuple, seen))) > 1


def check_order_is_nothing_to_it(model, left, U, width):
    X, Y = model.train_inputs[0], model.train_targets.unsqueeze(-1)
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).to(X.device)
    other = run_test(CandidateEnsemble(X[order], Y[order], U), width, elimination="likelihood")
    assert torch.equal(other.active, left.active)


def test_equal_bounds_are_the_first_candidate_s(device):
    """At round 1 all bounds of kernels with k(x, x) = 1 are equal, but from a factor up to rounding only."""
    for dtype in (torch.float64, torch.float32):
        for noise_var in (0.01, 0.02, 0.05):
            U = [{"kernel": "rbf", "lengthscale": ell, "noise_var": noise_var} for ell in (0.1, 0.2, 0.4, 0.8)]
            none = torch.zeros(0, 1, dtype=dtype, device=device)
            model, x = CandidateEnsemble(none, none, U), none.new_tensor([[0.3]])
            assert EliminationUCB(model, run_test(model, ConstantWidth(2.0))).chosen_candidate(x) == 0
            assert run_test(observe(model, x, 0.1), ConstantWidth(2.0)).tested.tolist() == [[0]]


def test_defaults(tkwargs):
    model = make(tkwargs)
    torch.testing.assert_close(
        eliminate(model).widths, model.evidence.new_full((3,), float(BayesianFiniteWidth(1000, 0.1)(11)))
    )
    torch.testing.assert_close(5.0 * eliminate(model, "likeliest").widths ** 2, eliminate(model).widths ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = eliminate(model, noise_scale=math.sqrt(0.02))  # the default
    assert same.removed == eliminate(model).removed
