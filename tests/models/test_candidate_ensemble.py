import copy
import json
import math
import warnings

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AppendFeatures, ChainedInputTransform, Normalize
from botorch.models.transforms.outcome import Log, Standardize
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel, MaternKernel, MultitaskKernel, RBFKernel
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.acquisition import EliminationUCB
from bo_robust.algorithms import AGPUCB, CandidateAlgorithm, ExpectedUCB
from bo_robust.algorithms.elimination_algorithm import eliminations
from bo_robust.algorithms.he_gp_ucb import HEGPUCB
from bo_robust.confidence import (
    BayesianFiniteWidth,
    ConstantWidth,
    RKHSWidth,
    SelfNormalisedWidth,
)
from bo_robust.covariance import SquaredExponential
from bo_robust.models import Candidate, CandidateEnsemble, candidate
from bo_robust.posteriors.candidates import candidate_kernel
from tests.worlds import rand

NOISE_VAR, DELTA = 0.01, 0.1
KINDS = [
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR},
    {"kernel": "matern", "lengthscale": [0.5, 0.2], "nu": 1.5, "noise_var": 0.02},
    {"kernel": "periodic", "lengthscale": 0.5, "period": 0.4, "noise_var": NOISE_VAR, "outputscale": 0.5},
    {"kernel": "rbf", "lengthscale": 0.3, "noise_var": NOISE_VAR, "groups": [[0], [1]], "name": "additive"},
]


def f(X):
    return torch.sin(5 * X).sum(-1, keepdim=True)


def make(tkwargs, n=12, candidates=KINDS, width=None, noise_scale=0.1, delta=DELTA, **options):
    X = rand(tkwargs, n, 2)
    width = ConstantWidth(2.0) if width is None else width
    return CandidateEnsemble(X, f(X), candidates, width, noise_scale, delta, **options)


class Hill(Mean):
    """height exp(-(x - 0.2)^2 / 0.02)."""

    def __init__(self, height):
        super().__init__()
        self.height = height

    def forward(self, x):
        return self.height * torch.exp(-((x[..., 0] - 0.2) ** 2) / 0.02)


def rbf(lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def hills(sign=1):
    """One smooth, two with a hill that is not there, as the golden ones of the arm mode."""
    scales = [(0.15, 0.0), (0.15, 6.0), (0.6, 3.0)]
    return [Candidate(rbf(scale), NOISE_VAR, Hill(sign * height), f"hill {height}") for scale, height in scales]


def flat(mean, noise_var=0.01):
    """Prior mean ``mean``, one value of f for all points."""
    module = ConstantMean()
    module.constant.data.fill_(mean)
    return Candidate(rbf(1e6), noise_var, module, f"mean {mean}")


def state(model):
    return [(r["candidate"], r["round"], r["eliminated"]) for r in model.eliminations]


def assert_same_history(a, b, X, tol=1e-10):
    for name in ("alive", "evidence", "weights", "widths", "train_targets"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=tol, rtol=tol)
    for x, y in zip(a.moments(X), b.moments(X), strict=True):
        torch.testing.assert_close(x, y, atol=tol, rtol=tol)
    assert (a.t, a.leader, state(a)) == (b.t, b.leader, state(b))


@pytest.mark.parametrize("index", range(4))
def test_every_member_is_the_exact_gp(tkwargs, index):
    model, X = make(tkwargs), rand(tkwargs, 5, 3, 2, seed=1)
    c, Y = model.candidates[index], model.train_targets.unsqueeze(-1)
    plain = SingleTaskGP(
        model.train_inputs[0],
        Y,
        torch.full_like(Y, c.noise_var),
        covar_module=copy.deepcopy(c.covar_module),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    expected = plain.posterior(X)
    mean, variance = model.moments(X)
    assert mean.shape == variance.shape == (5, 4, 3)
    torch.testing.assert_close(mean[:, index], expected.mean.squeeze(-1), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(variance[:, index], expected.variance.squeeze(-1), atol=1e-9, rtol=1e-9)
    joint = model.posterior(X)
    assert joint.mean.shape == (5, 4, 3, 1)
    torch.testing.assert_close(joint.mean[:, index], expected.mean, atol=1e-9, rtol=1e-9)
    covariance = joint.distribution.covariance_matrix[:, index]
    torch.testing.assert_close(covariance, expected.distribution.covariance_matrix, atol=1e-9, rtol=1e-9)
    # a point after those before it in its batch, as if they were observed
    _, later = model.sequential_moments(X)
    known = model.condition_on_observations(X[0, :2], f(X[0, :2]))
    torch.testing.assert_close(later[0, :, 2], known.moments(X[:1, 2:])[1][0, :, 0], atol=1e-9, rtol=1e-9)
    # evidence and gain by their definitions
    K = c.covar_module(model.train_inputs[0]).to_dense() + c.noise_var * torch.eye(12, **tkwargs)
    normal = torch.distributions.MultivariateNormal(torch.zeros(12, **tkwargs), K)
    assert float(model.evidence[index]) == pytest.approx(float(normal.log_prob(Y[:, 0])), rel=1e-9)
    assert float(model._history.gains[0, index]) == pytest.approx(float(torch.logdet(K / c.noise_var)) / 2, rel=1e-9)


@pytest.mark.parametrize("num_initial", [0, 4])
@pytest.mark.parametrize("width", ["t", "gain", "each"])
def test_the_history_is_that_of_arm_mode(tkwargs, width, num_initial):
    n, T, noise_scale = 40, 45, 0.1
    arms = torch.linspace(0, 1, n, **tkwargs).unsqueeze(-1)
    widths = {
        "t": BayesianFiniteWidth(n, DELTA),
        "gain": SelfNormalisedWidth(1.0, noise_scale, DELTA / 2),
        "each": (ConstantWidth(1.0), SelfNormalisedWidth(0.5, noise_scale, DELTA / 2), ConstantWidth(3.0)),
    }
    matrices = candidate_kernel([SquaredExponential(0.15), SquaredExponential(0.15), SquaredExponential(0.6)], arms)
    U = hills()
    prior = torch.stack([c.mean_module(arms) for c in U])
    algorithm = HEGPUCB(widths[width], noise_scale, DELTA)
    engine = algorithm.init(matrices, NOISE_VAR, 1, prior_mean=prior)
    noise = noise_scale * torch.randn(T, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    reward = torch.sin(6 * arms[:, 0])
    chosen, rewards, candidates, no_draws = [], [], [], torch.zeros(1, **tkwargs)
    for t in range(T):
        pick = (
            torch.tensor([7 * t % n], device=arms.device)
            if t < num_initial
            else algorithm.select(engine, no_draws).arms
        )
        y = reward[pick] + noise[t].to(**tkwargs)
        info = (algorithm.observe_initial if t < num_initial else algorithm.observe)(engine, pick, y)
        candidates.append(getattr(info, "candidate", None))
        chosen.append(int(pick))
        rewards.append(y)
    X, Y = arms[chosen], torch.stack(rewards)
    model = CandidateEnsemble(X, Y, U, widths[width], noise_scale, DELTA, num_initial=num_initial)
    grown = CandidateEnsemble(X[:0], Y[:0], U, widths[width], noise_scale, DELTA, num_initial=num_initial)
    for t in range(T):
        # who is chosen at the arms is who arm mode says, and the arm is the best of all
        if t >= num_initial and t % 5 == 0:
            acqf = EliminationUCB(grown)
            values = acqf(arms.unsqueeze(-2))
            assert float(values[chosen[t]]) >= float(values.max()) - 1e-9
            assert acqf.chosen_member(X[t])[0] == int(candidates[t])
        grown, said = grown.observe(X[t], Y[t])
        assert (said.tested is None) if t < num_initial else (said.tested == int(candidates[t]))
    posterior = engine.posterior
    for m in (model, grown):
        assert torch.equal(m.alive, posterior.alive[0])
        assert not m.alive.all()
        for ours, theirs in zip(m.eliminations, eliminations(engine), strict=True):
            assert {k: ours[k] for k in ("candidate", "round", "eliminated")} == {
                k: theirs[k] for k in ("candidate", "round", "eliminated")
            }
            assert ours["left"] == pytest.approx(theirs["left"], rel=1e-8)
            assert ours["right"] == pytest.approx(theirs["right"], rel=1e-8)
            assert ours["name"] == U[ours["candidate"]].name
        torch.testing.assert_close(m.evidence, posterior.evidence[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(m._history.gains[0], posterior.gains[0], rtol=1e-8, atol=1e-8)
        mean, variance = m.moments(arms)
        torch.testing.assert_close(mean, posterior.means[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(variance, posterior.variances[0], rtol=1e-8, atol=1e-8)
        assert m.leader == int(posterior.leader)
        assert m.t == T + 1


def test_a_round_of_elimination_is_told_in_words(tkwargs):
    """Round 2 of the hand-made one of arm mode (``tests/algorithms/test_he_gp_ucb.py``), whose sides are there."""
    x = torch.zeros(1, 1, **tkwargs)
    model = CandidateEnsemble(x[:0], x[:0], [flat(2.2), flat(0.0)], ConstantWidth(2.0), 0.1, 0.1)
    assert model.moments(x)[0][:, 0].tolist() == pytest.approx([2.2, 0.0])
    model, first = model.observe(x, 0.0)
    assert (first.round, first.tested, first.eliminated) == (1, 0, ())
    assert str(first) == "round 1: candidate 0 (mean 2.2) tested, |sum of errors| 2.2 <= 2.289: kept; 2 of 2 alive"
    survivor, second = model.observe(x[0], torch.tensor(-1.0, **tkwargs))
    assert (second.tested, second.eliminated, second.names) == (0, (0,), ("mean 2.2",))
    assert str(second).endswith("3.222 > 2.671: eliminated; 1 of 2 alive")
    assert survivor.alive.tolist() == [False, True]
    assert model.alive.tolist() == [True, True]  # unchanged
    assert survivor.posterior(x).mean.shape == (1, 1, 1)
    assert not survivor.assumptions_violated
    # all that is left is wrong as well: kept, flagged, said once
    said = r"the last survivor, 1 \(mean 0.0\), is kept.*who failed when"
    with pytest.warns(UserWarning, match=said):
        violated, third = survivor.observe(x, 50.0)
    assert "50" in str(third)
    assert "kept, as the last one; 1 of 2 alive" in str(third)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        violated, _ = violated.observe(x, 50.0)
    assert violated.assumptions_violated
    assert violated.alive.tolist() == [False, True]
    assert state(violated) == [(0, 2, True), (1, 3, False)]
    with pytest.warns(UserWarning, match="last survivor"):  # a model built from the data says it again
        again = CandidateEnsemble(
            *violated.train_inputs,
            violated.train_targets.unsqueeze(-1),
            [flat(2.2), flat(0.0)],
            ConstantWidth(2.0),
            0.1,
            0.1,
        )
    assert_same_history(again, violated, x, tol=1e-9)
    record = json.loads(json.dumps(violated.record()))
    assert record["alive"] == [False, True]
    assert record["assumptions_violated"] is True
    assert [e["name"] for e in record["eliminations"]] == ["mean 2.2", "mean 0.0"]


def played(tkwargs, U, T=30, **options):
    arms = torch.linspace(0, 1, 40, **tkwargs).unsqueeze(-1)
    noise = 0.1 * torch.randn(T, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(**tkwargs)
    sign = 1 if options.get("maximize", True) else -1
    model = CandidateEnsemble(arms[:0], arms[:0], U, BayesianFiniteWidth(40, DELTA), 0.1, DELTA, **options)
    for t in range(T):
        x = arms[int(EliminationUCB(model)(arms.unsqueeze(-2)).argmax())]
        model = model.observe(x, sign * torch.sin(6 * x) + noise[t] * sign)[0]
    return model


def test_minimising_is_maximising_the_negative(tkwargs):
    up, down = played(tkwargs, hills()), played(tkwargs, hills(-1), maximize=False)
    torch.testing.assert_close(down.train_targets, -up.train_targets)
    assert state(down) == state(up)
    assert len(state(up)) == 2
    # with the sign wrong other candidates are tested
    X, Y = down.train_inputs[0], down.train_targets.unsqueeze(-1)
    wrong = CandidateEnsemble(X, Y, hills(-1), BayesianFiniteWidth(40, DELTA), 0.1, DELTA)
    assert state(wrong) != state(down)


def test_eliminating_by_hand(tkwargs):
    model = make(tkwargs)
    struck = model.eliminate(1)
    assert struck.alive.tolist() == [True, False, True, True]
    assert model.alive.all()
    assert struck.batch_shape == (3,)
    assert struck.eliminations == []
    assert struck.record()["struck_by_hand"] == [1]
    X = rand(tkwargs, 4, 2, seed=2)
    grown = struck.condition_on_observations(X, f(X))
    assert grown.alive.tolist() == [True, False, True, True]
    torch.testing.assert_close(grown.moments(X, alive_only=True)[0], grown.moments(X)[0][[0, 2, 3]])
    with pytest.raises(ValueError, match=r"candidate 1 is not alive; those alive are \[0, 2, 3\]"):
        struck.eliminate(1)
    with pytest.raises(ValueError, match="candidate 4 is not alive"):
        struck.eliminate(4)
    with pytest.raises(ValueError, match=r"candidate 3 \(additive\) is the last one alive"):
        struck.eliminate(0).eliminate(2).eliminate(3)


def test_stock_acquisitions_and_fitting(tkwargs):
    model = make(tkwargs).eliminate(2)
    assert is_ensemble(model)
    assert fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model)).model is model
    x = rand(tkwargs, 5, 1, 2, seed=2)
    expected = (model.posterior(x).mean + 2.0 * model.posterior(x).variance.sqrt())[..., 0, 0].mean(-1)
    torch.testing.assert_close(UpperConfidenceBound(model, beta=4.0)(x), expected)


def test_input_transforms(tkwargs):
    bounds = torch.tensor([[0.0, 0.0], [2.0, 3.0]], **tkwargs)
    transform = Normalize(d=2, bounds=bounds)
    model, X = make(tkwargs, input_transform=transform), rand(tkwargs, 4, 2, seed=2)
    plain = CandidateEnsemble(
        transform(model.train_inputs[0]), f(model.train_inputs[0]), KINDS, ConstantWidth(2.0), 0.1, DELTA
    )
    for mode in (model.train, model.eval):
        mode()
        for a, b in zip(model.moments(X), plain.moments(transform(X)), strict=True):
            torch.testing.assert_close(a, b)
    torch.testing.assert_close(
        model.observe(X[0], 1.0)[0].moments(X)[0], plain.observe(transform(X)[0], 1.0)[0].moments(transform(X))[0]
    )
    for learned in (Normalize(d=2), ChainedInputTransform(a=Normalize(d=2))):
        with pytest.raises(ValueError, match="learns its coefficients"):
            make(tkwargs, input_transform=learned)
    with pytest.raises(ValueError, match="adds points"):
        make(tkwargs, input_transform=AppendFeatures(torch.zeros(2, 1, **tkwargs)))


def test_construct_inputs(tkwargs):
    X = rand(tkwargs, 5, 2)
    data = SupervisedDataset(X, f(X), Yvar=torch.ones(5, 1, **tkwargs), feature_names=["a", "b"], outcome_names=["y"])
    options = {"candidates": KINDS, "noise_scale": 0.1, "delta": 0.2}
    built = CandidateEnsemble(
        **CandidateEnsemble.construct_inputs(
            data, **options, width={"kind": "bayesian_finite", "num_arms": 9}, num_initial=2, task_feature=0
        )
    )
    assert built._history.width == BayesianFiniteWidth(9, 0.2)
    assert built._history.num_initial == 2
    named = CandidateEnsemble.construct_inputs(
        data, **options, width={"kind": "self_normalised", "norm_bound": 1.0, "noise_scale": 0.1}
    )
    assert named["width"] == SelfNormalisedWidth(1.0, 0.1, 0.1)  # delta / 2
    with pytest.raises(ValueError, match="unknown width 'beta'"):
        CandidateEnsemble.construct_inputs(data, **options, width={"kind": "beta"})
    with pytest.raises(ValueError, match="width must be a mapping with a `kind`, got 'constant'"):
        CandidateEnsemble.construct_inputs(data, **options, width="constant")


def test_candidates_that_are_the_same_are_warned_of(tkwargs):
    twice = [KINDS[0], KINDS[1], {**KINDS[0], "name": "again"}]
    with pytest.warns(UserWarning, match=r"candidates 0 \(rbf.* and 2 \(again\) are the same"):
        make(tkwargs, candidates=twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(tkwargs, n=1, candidates=[{**KINDS[1], "nu": nu} for nu in (1.5, 2.5)])  # cannot be told apart yet
        make(tkwargs, candidates=[{**KINDS[1], "nu": nu} for nu in (0.5, 1.5)])
        make(tkwargs, candidates=[KINDS[0], {**KINDS[0], "noise_var": 0.5}])


class Indefinite(Kernel):
    """1 on the diagonal, -0.9 between points closer than 0.5."""

    def forward(self, x1, x2, diag=False, **params):
        distance = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(dim=-1)
        K = torch.where(distance < 1e-9, 1.0, torch.where(distance < 0.5, -0.9, 0.0)).to(x1)
        return K.diagonal(dim1=-2, dim2=-1) if diag else K


def test_kernels_that_are_not_positive_semi_definite_are_refused(tkwargs):
    candidates = [KINDS[0], Candidate(Indefinite(), 0.5, name="odd")]
    close, Y = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]], **tkwargs), torch.ones(3, 1, **tkwargs)
    with pytest.raises(ValueError, match=r"candidate 1 \(odd\): the kernel matrix is not positive semi-definite"):
        CandidateEnsemble(close, Y, candidates, ConstantWidth(2.0), 0.1, 0.1)
    model = CandidateEnsemble(close[:1], Y[:1], candidates, ConstantWidth(2.0), 0.1, 0.1)
    with pytest.raises(ValueError, match=r"candidate 1 \(odd\): its kernel is not positive semi-definite"):
        model.condition_on_observations(close[1:], Y[1:])


def test_widths_for_covariances_above_one(tkwargs):
    """k(x, x) <= 1 is what RKHS widths suppose: a larger one needs its own bound."""
    large = [KINDS[0], {**KINDS[0], "outputscale": 4.0, "name": "large"}]
    for width in (RKHSWidth(1.0, 0.1), (ConstantWidth(1.0), SelfNormalisedWidth(1.0, 0.1, 0.05))):
        with pytest.raises(ValueError, match=r"candidate 1 \(large\): k\(x, x\) goes up to c = 4"):
            make(tkwargs, candidates=large, width=width)
    make(tkwargs, candidates=large, width=(SelfNormalisedWidth(1.0, 0.1, 0.05), ConstantWidth(1.0)))


def test_hallucinated_points_keep_means_and_shrink_variances(tkwargs):
    model, X, pending = make(tkwargs).eliminate(0), rand(tkwargs, 5, 1, 2, seed=3), rand(tkwargs, 3, 2, seed=4)
    hallucinated = model.hallucinate(pending)
    torch.testing.assert_close(hallucinated.moments(X)[0], model.moments(X)[0])
    expected = model.condition_on_observations(pending, f(pending)).moments(X)[1]
    torch.testing.assert_close(hallucinated.moments(X)[1], expected)
    assert hallucinated.t == model.t
    assert torch.equal(hallucinated.widths, model.widths)
    assert hallucinated.alive.tolist() == model.alive.tolist()


def test_many_points_in_blocks(tkwargs, monkeypatch):
    import bo_robust.models.candidate_gps as module

    model, X = make(tkwargs), rand(tkwargs, 50, 1, 2, seed=3)
    whole = model.moments(X)
    monkeypatch.setattr(module, "BLOCK", 7)
    for a, b in zip(model.moments(X), whole, strict=True):
        torch.testing.assert_close(a, b)


def test_equal_bounds_are_the_first_candidate_s(device):
    """At round 1 all bounds of kernels with k(x, x) = 1 are equal, but from a factor up to rounding only."""
    for dtype in (torch.float64, torch.float32):
        for noise_var in (0.01, 0.02, 0.05):
            U = [{"kernel": "rbf", "lengthscale": ell, "noise_var": noise_var} for ell in (0.1, 0.2, 0.4, 0.8)]
            none = torch.zeros(0, 1, dtype=dtype, device=device)
            model = CandidateEnsemble(none, none, U, ConstantWidth(2.0), noise_scale=0.1, delta=0.1)
            x = none.new_tensor([[0.3]])
            assert EliminationUCB(model).chosen_member(x)[0] == 0
            assert model.observe(x, none.new_tensor([[0.1]]))[1].tested == 0


ARM_MODE = {
    "likelihood": lambda w: HEGPUCB(w, 0.1, DELTA, elimination="likelihood"),
    "likeliest": CandidateAlgorithm,
    "shrinking": lambda w: AGPUCB(w, (0.15, 0.2, 0.6)),
    None: ExpectedUCB,
}


@pytest.mark.parametrize("form", ARM_MODE)
def test_other_forms_choose_as_arm_mode_does(tkwargs, form):
    arms, width = torch.linspace(0, 1, 40, **tkwargs).unsqueeze(-1), ConstantWidth(1.5)
    U = [
        Candidate(rbf(0.15), NOISE_VAR, Hill(0.0)),
        Candidate(rbf(0.2), NOISE_VAR, Hill(3.0)),
        Candidate(rbf(0.6), 0.02),
    ]
    kernel = candidate_kernel([SquaredExponential(ell) for ell in (0.15, 0.2, 0.6)], arms)
    prior = torch.stack([0.0 * arms[:, 0] if c.mean_module is None else c.mean_module(arms) for c in U])
    algorithm = ARM_MODE[form](width)
    noise_var = torch.tensor([c.noise_var for c in U], **tkwargs)
    engine = algorithm.init(kernel, noise_var, 1, prior_mean=prior)
    noise = 0.1 * torch.randn(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(**tkwargs)
    model = CandidateEnsemble(arms[:0], arms[:0], U, width, 0.1, DELTA, num_initial=2, elimination=form)
    eliminated, changes = 0, set()
    for t, eta in enumerate(noise):
        acqf = EliminationUCB(model, average=form is None)
        pick = algorithm.select(engine, eta.new_zeros(1)).arms
        values = acqf(arms.unsqueeze(-2))
        assert float(values[pick]) == pytest.approx(float(values.max()), abs=1e-8)
        if form is not None:
            candidate = int(algorithm.select(engine, eta.new_zeros(1)).candidate)
            assert acqf.chosen_member(arms[pick])[0] == candidate
        else:
            with pytest.raises(ValueError, match="nobody's choice"):
                acqf.chosen_member(arms[pick])
        y = torch.sin(6 * arms[pick, 0]) + eta
        (algorithm.observe_initial if t < 2 else algorithm.observe)(engine, pick, y)
        model, said = model.observe(arms[pick], y)
        eliminated += len(said.eliminated)
        changes.add("no change" in str(said))
    torch.testing.assert_close(model.evidence, engine.posterior.evidence[0])
    X, Y = model.train_inputs[0], model.train_targets.unsqueeze(-1)
    again = CandidateEnsemble(X, Y, U, width, 0.1, DELTA, num_initial=2, elimination=form)
    assert_same_history(again, model, arms[:5].unsqueeze(1), tol=1e-8)
    assert torch.equal(again.choosing, model.choosing)
    if form is not None:
        assert torch.equal(model.alive, engine.posterior.alive[0]) or form == "likeliest"
        assert eliminated > 0
        assert changes == {True, False}
    if form == "likelihood":
        assert state(model) == [(r["candidate"], r["round"], r["eliminated"]) for r in eliminations(engine)]
        # the order of the rows is nothing to it
        order = torch.randperm(30, generator=torch.Generator().manual_seed(0)).to(tkwargs["device"])
        other = CandidateEnsemble(X[order], Y[order], U, width, 0.1, DELTA, elimination=form)
        assert torch.equal(other.alive, model.alive)
        struck = model.eliminate(model.leader)
        assert not struck.alive[model.leader]
        assert struck.alive.any()


@pytest.mark.parametrize("form", ["errors", "likelihood"])
def test_standardised_rewards_may_have_any_units(tkwargs, form):
    """Picks, survivors and evidence do not depend on the units; means, variances and bounds are in them."""
    arms = torch.linspace(0, 1, 40, **tkwargs).unsqueeze(-1)
    U = [{"kernel": "rbf", "lengthscale": ell, "noise_var": NOISE_VAR} for ell in (0.1, 0.3, 1.0)]
    noise = 0.1 * torch.randn(20, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(**tkwargs)
    settings = {"elimination": form, "outcome_transform": Standardize(m=1)}
    played = []
    for center, scale in ((0.0, 1.0), (-40.0, 1e-3), (7e5, 3e4)):
        model, picks = CandidateEnsemble(arms[:0], arms[:0], U, **settings), []
        for eta in noise:
            best = int(EliminationUCB(model)(arms.unsqueeze(-2)).argmax())
            picks.append([3, 17, 31][len(picks)] if len(picks) < 3 else best)
            y = center + scale * (torch.sin(9 * arms[picks[-1]]) + eta)
            model, _ = model.observe(arms[picks[-1]], y)
        bounds = (EliminationUCB(model)(arms.unsqueeze(-2)) - center) / scale
        mean, variance = model.moments(arms)
        joint = model.posterior(arms[:3], observation_noise=True).distribution.covariance_matrix / scale**2
        played.append((picks, model.alive, model.evidence, bounds, (mean - center) / scale, variance / scale**2, joint))
    for other in played[1:]:
        assert other[0] == played[0][0]
        for ours, theirs in zip(other[1:], played[0][1:], strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert bool(model.alive.all()) == (form == "errors")
    # grown or built at once, and by hand
    Y = model.train_targets.unsqueeze(-1)
    assert_same_history(CandidateEnsemble(model.train_inputs[0], Y, U, **settings), model, arms, tol=1e-9)
    by_hand = CandidateEnsemble(model.train_inputs[0], (Y - Y.mean()) / Y.std(), U, elimination=form)
    torch.testing.assert_close(by_hand.evidence, model.evidence)
    assert torch.equal(by_hand.alive, model.alive)
    torch.testing.assert_close(Y.mean() + Y.std() * by_hand.moments(arms)[0], model.moments(arms)[0])
    constant = CandidateEnsemble(arms[:3], torch.full_like(arms[:3], 0.1), U, **settings)
    assert constant.evidence.isfinite().all()
    assert not model.eliminate(model.leader).observe(arms[0], Y[0])[0].alive[model.leader]


def test_defaults_and_what_is_refused(tkwargs):
    assert make(tkwargs, candidates=[Candidate(MaternKernel(), 0.1)]).names == ("candidate 0",)
    model = CandidateEnsemble(rand(tkwargs, 3, 2), rand(tkwargs, 3, 1), KINDS)
    assert model._history.noise_scale == pytest.approx(math.sqrt(0.02))
    assert model._history.width == BayesianFiniteWidth(1000, 0.1)
    smaller = CandidateEnsemble(rand(tkwargs, 3, 2), rand(tkwargs, 3, 1), KINDS, elimination="likeliest")
    torch.testing.assert_close(5.0 * smaller.widths**2, model.widths**2)
    for no_list in ("smooth", 4):
        with pytest.raises(ValueError, match=f"candidates must be a list .*, got {no_list!r}"):
            make(tkwargs, candidates=no_list)
    with pytest.raises(ValueError, match="'shrinking', None, got 'mle'"):
        make(tkwargs, elimination="mle")
    with pytest.raises(ValueError, match=r"outcome_transform must be Standardize\(m=1\) of BoTorch or None"):
        make(tkwargs, outcome_transform=Log())
    with pytest.raises(ValueError, match=r"candidate 1 .* has not one lengthscale"):
        make(tkwargs, elimination="shrinking")


def test_candidates_that_do_not_fit_the_points_are_refused(tkwargs):
    for wrong in (
        candidate("rbf", [0.1, 0.2, 0.3], 0.1),
        candidate("rbf", 0.1, 0.1, groups=[[0], [5]]),
        Candidate(RBFKernel(active_dims=(7,)), 0.1),
        Candidate(MultitaskKernel(RBFKernel(), 2), 0.1),
        Candidate(RBFKernel(), 0.1, LinearMean(3)),
        Candidate(RBFKernel(), 0.1, ConstantMean(batch_shape=torch.Size([2]))),
    ):
        for rows in (0, 3):
            X, Y = rand(tkwargs, 3, 2)[:rows], rand(tkwargs, 3, 1)[:rows]
            with pytest.raises(ValueError, match=r"candidate 1 .* does not fit points of 2 columns"):
                CandidateEnsemble(X, Y, [Candidate(RBFKernel(), 0.1), wrong])


def test_settings_of_candidates_and_of_the_model_are_named_where_they_are_wrong(tkwargs):
    good = {"kernel": "rbf", "lengthscale": 0.1, "noise_var": 0.1}
    for wrong, message in (
        (good | {"lengthscales": 0.1}, "have no 'lengthscales'; did you mean 'lengthscale'"),
        ({"kernel": "rbf"}, "need 'lengthscale'"),
        ({3: "rbf"}, "have no 3; choose one of"),
    ):
        with pytest.raises(ValueError, match=f"the settings of candidate 1 {message}"):
            make(tkwargs, candidates=[good, wrong])
    for maximize in (None, "no", 1):
        with pytest.raises(ValueError, match="maximize must be True or False"):
            make(tkwargs, maximize=maximize)
    with pytest.raises(ValueError, match="width must be a schedule"):
        make(tkwargs, width=ConstantWidth)
    for transform in ("normalize", Normalize):
        with pytest.raises(ValueError, match="input_transform must be one of BoTorch"):
            make(tkwargs, input_transform=transform)


def test_points_and_rewards_of_a_call_are_checked_and_change_nothing(tkwargs):
    model = make(tkwargs)
    acqf, x, before = EliminationUCB(model), model.train_inputs[0][:1], model.evidence
    listed = x.tolist()
    for call in (
        lambda: model.observe(listed, 1.0),
        lambda: acqf.observe(listed, 1.0),
        lambda: acqf.chosen_member(listed[0]),
        lambda: acqf(listed),
        lambda: model.posterior(listed),
        lambda: model.moments(listed),
        lambda: model.hallucinate(listed),
        lambda: EliminationUCB(model, X_pending=listed),
    ):
        with pytest.raises(TypeError, match="must be a torch tensor, got list"):
            call()
    for y in (None, "1", [1.0], math.nan, True, model.train_targets[:2]):
        with pytest.raises(ValueError, match="y must be one finite number"):
            model.observe(x, y)
    with pytest.raises(ValueError, match="observe takes one point"):
        model.observe(x[0, 0], 1.0)
    with pytest.raises(ValueError, match="chosen_member takes one point"):
        acqf.chosen_member(x[0, 0])
    assert torch.equal(model.evidence, before)
