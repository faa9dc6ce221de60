"""The knowledge gradient against BoTorch's own fantasies, model by model."""

import copy

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bo_robust import CandidateEnsemble, RobustGP
from bo_robust.acquisition import ValueAtRiskKnowledgeGradient, knowledge_gradient
from bo_robust.models.robust.outcome_scale import IDENTITY
from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment, PerturbationEnvironment
from bo_robust.risk_measures.functionals import CVaR, MeanVariance, ValueAtRisk, WorstCase
from tests.problems import fit, gp_of_candidate, outliers, rand

BOX = torch.tensor([[0.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
SOME = {"num_fantasies": 4, "num_samples": 3}


class Unknown(SingleTaskGP):
    """A model whose posterior may be another one, so that it is asked for it."""


class Member(SingleTaskGP):
    """One of an ensemble of BoTorch."""

    def of(self, many, i):
        self.posterior = lambda X, **options: GPyTorchPosterior(many.posterior(X, **options).distribution[..., i, :])
        return self


def data(n=9):
    X = BOX[1] * rand({}, n, 2, seed=3)
    return X, 20.0 + 3.0 * torch.sin(3.0 * X[:, :1]) * torch.cos(2.0 * X[:, 1:]) + 0.3 * X[:, :1]


def gp(kernel=None, kind=SingleTaskGP, Y=None, **options):
    X, values = data()
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)) if kernel is None else kernel
    model = kind(
        X, values if Y is None else Y, covar_module=kernel, input_transform=Normalize(2, bounds=BOX), **options
    )
    base = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    base.lengthscale = torch.tensor([0.3, 0.4], dtype=torch.float64)
    if "train_Yvar" not in options:
        model.likelihood.noise = torch.tensor([0.05], dtype=torch.float64)
    return model.double().eval()


def state_of(acqf):
    acqf(at(1))
    return acqf._state


def environment(p=(0.3, 0.1, 0.6)):
    z = torch.tensor([[0.2], [1.6], [2.9]], dtype=torch.float64)
    return FiniteEnvironment(z, None if p is None else torch.tensor(p, dtype=torch.float64))


def make(model, functional=0.35, where=None, **options):
    return ValueAtRiskKnowledgeGradient(model, where or environment(), functional, **{**SOME, **options})


def gaussian(model, X, **options):
    """Mean, covariance and variance of f, or of its latent values."""
    posterior = model.posterior(X, **options)
    distribution = getattr(posterior, "latent", posterior).distribution
    return distribution.mean, distribution.covariance_matrix, distribution.variance


def reference(acqf, model, X, sign=1.0, **noise):
    """The same of ``sign`` f from BoTorch's posteriors, one fantasy of one point at a time."""
    state, F, where = state_of(acqf), acqf.functional, acqf.environment
    scale, values = getattr(model, "outcome_scale", IDENTITY), []
    for xz in X:
        points = where.points(torch.cat([acqf.X_evaluated, xz[:, :1]]))
        R = torch.linalg.cholesky(gaussian(model, points)[1])
        mean, _, variance = gaussian(model, xz, observation_noise=True)
        best = []
        for epsilon in sign * state.fantasies.flatten():
            y = scale.untransform(mean + epsilon * variance.sqrt())
            after = gaussian(model.condition_on_observations(xz, y.unsqueeze(-1), **noise), points)
            inner = torch.linalg.solve_triangular(R, after[1], upper=False)
            inner = torch.linalg.solve_triangular(R, inner.mT, upper=False)
            share, basis = torch.linalg.eigh(inner)
            root = R @ basis @ torch.diag_embed(share.clamp_min(0.0).sqrt()) @ basis.mT
            samples = scale.untransform(after[0].unsqueeze(-2) + sign * state.samples @ root.mT)
            best.append(F(sign * samples, where.probabilities).mean(-1).max())
        values.append(torch.stack(best).mean())
    return torch.stack(values)


def at(n=3, seed=8):
    return BOX[1] * rand({}, n, 1, 2, seed=seed)


KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "rbf without a scale": lambda: RBFKernel(ard_num_dims=2),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(2.5, ard_num_dims=2)),
    "matern 3/2, by GPyTorch": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=2)),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kind", [SingleTaskGP, Unknown])
def test_every_kernel_and_a_model_of_another_kind_against_fantasies(name, kind):
    model = gp(KERNELS[name](), kind)
    acqf = make(model)
    assert (state_of(acqf).joint.gp is None) == (kind is Unknown)
    torch.testing.assert_close(acqf(at()), reference(acqf, model, at()), atol=1e-8, rtol=0)


@pytest.mark.parametrize("functional", ["worst", "mean", {"kind": "cvar", "alpha": 0.4}, MeanVariance(0.1), 0.2])
def test_functionals_against_fantasies(functional):
    model = gp()
    acqf = make(model, functional)
    torch.testing.assert_close(acqf(at()), reference(acqf, model, at()), atol=1e-8, rtol=0)


def test_known_noise_against_fantasies():
    model = gp(train_Yvar=torch.full((9, 1), 0.5, dtype=torch.float64))
    acqf = make(model)
    noise = 0.5 / model.outcome_transform.stdvs.square()  # BoTorch takes it in the units of the model
    torch.testing.assert_close(acqf(at()), reference(acqf, model, at(), noise=noise), atol=1e-8, rtol=0)


def test_one_condition_without_noise_by_hand():
    """Designs far apart: f(0.5) is known to be 0 and f(5) is N(0, 1), so its observation makes max(0, y) known."""
    X, Y = torch.tensor([[0.5, 0.0]]).double(), torch.zeros(1, 1).double()
    noise = torch.full_like(Y, 1e-6)
    model = SingleTaskGP(X, Y, noise, covar_module=RBFKernel().double(), outcome_transform=None).eval()
    model.mean_module.constant.data.fill_(0.0)
    only = FiniteEnvironment(torch.zeros(1, 1).double())
    acqf = ValueAtRiskKnowledgeGradient(model, only, 0.5, num_fantasies=512, num_samples=1)
    value = acqf(torch.tensor([[[50.0, 0.0]]]).double())
    assert float(value) == pytest.approx((2.0 * torch.pi) ** -0.5, abs=5e-3)


@pytest.mark.parametrize("functional", [ValueAtRisk(0.35), CVaR(0.4)])
def test_gradients_are_those_of_differences(functional):
    acqf, x = make(gp(), functional), at(2).requires_grad_()
    torch.autograd.gradcheck(acqf, (x,), atol=1e-5)
    torch.autograd.gradcheck(acqf, (at(2).reshape(1, 2, 2).requires_grad_(),), atol=1e-5)


@pytest.mark.parametrize("functional", [ValueAtRisk(0.35), CVaR(0.4), MeanVariance(0.1)])
def test_designs_that_cannot_be_the_best_change_nothing(functional):
    acqf = make(gp(), functional)
    left = acqf._contenders
    value = acqf(at(20))
    shares = list[float]()

    def every(state, c):
        shares.append(float(left(state, c).double().mean()))
        return torch.ones_like(left(state, c))

    acqf._contenders = every
    torch.testing.assert_close(acqf(at(20)), value, atol=1e-12, rtol=0)
    assert 0.0 < shares[0] < 0.9


def test_probabilities_are_repeated_conditions():
    """Of two equal conditions only one has a base sample of its own, so there is no noise in what is repeated."""
    model, z = gp(), environment().z
    few = make(model, where=FiniteEnvironment(z, torch.tensor([0.5, 0.25, 0.25]).double()), num_samples=1)
    many = make(model, where=FiniteEnvironment(z[[0, 0, 1, 2]]), num_samples=1)
    state, more = state_of(few), state_of(many)
    samples = torch.cat([state.samples[:, :1], state.samples], -1)
    again = more.known._replace(drawn=samples @ more.known.root.mT)
    selected = few.functional(again.mean.unsqueeze(-2) + again.drawn)
    many._state = more._replace(samples=samples, known=again, selected=selected)
    torch.testing.assert_close(many(at()), few(at()), atol=1e-4, rtol=0)


def test_many_conditions_are_drawn_by_their_probabilities():
    z = torch.arange(40).double().unsqueeze(-1)
    p = torch.where(z[:, 0] < 20, 0.04, 0.01).double()
    acqf = make(gp(), where=FiniteEnvironment(z, p / p.sum()), num_conditions=10)
    rows = state_of(acqf).rows
    assert int((rows < 20).sum()) == 8
    assert state_of(acqf).probabilities is None
    wide = ContinuousEnvironment(BOX[:, :1], sampler=lambda n: rand({}, n, 1, seed=2))
    assert make(gp(), where=wide)(at()).shape == (3,)
    ball = PerturbationEnvironment(lambda x: 0.1 * rand({}, 30, 2, seed=4).expand(*x.shape[:-1], 30, 2))
    assert make(gp(), where=ball)(at()).shape == (3,)


def test_pending_points_are_observed_at_their_means():
    for kind in (SingleTaskGP, Unknown):
        model, pending = gp(kind=kind), at(2, seed=5).squeeze(1)
        with torch.no_grad():
            seen = model.condition_on_observations(pending, model.posterior(pending).mean)
        expected = reference(make(model), seen, at())
        torch.testing.assert_close(make(model, X_pending=pending)(at()), expected, atol=1e-8, rtol=0)


def test_pending_designs_get_the_condition_of_the_largest_value():
    model, x = gp(), at(2, seed=5)[:, 0, :1]
    acqf = make(model, X_pending=x)
    first = make(model).select_condition(x[:1])
    assert make(model)(first.point.unsqueeze(1)) == make(model)(environment().points(x[0]).unsqueeze(-2)).max()
    second = make(model, X_pending=first.point).select_condition(x[1:])
    torch.testing.assert_close(acqf(at()), make(model, X_pending=torch.cat([first.point, second.point]))(at()))


def test_impossible_conditions_are_not_selected():
    acqf = make(gp(), where=environment((0.0, 0.0, 1.0)), functional="worst")
    assert acqf.select_condition(at(4)[:, 0, :1]).index.tolist() == [2] * 4


def test_an_ensemble_is_the_mean_of_its_members():
    X, Y = data()
    kinds = [{"kernel": kind, "lengthscale": 1.0, "noise_var": 0.3} for kind in ("rbf", "matern52")]
    model = CandidateEnsemble(X, Y - 20.0, kinds)
    members = torch.stack([make(gp_of_candidate(model, i))(at()) for i in range(2)])
    torch.testing.assert_close(make(model)(at()), model.weights @ members, atol=1e-8, rtol=0)
    pending = at(2, seed=5).squeeze(1)
    members = torch.stack([make(gp_of_candidate(model, i), X_pending=pending)(at()) for i in range(2)])
    torch.testing.assert_close(make(model, X_pending=pending)(at()), model.weights @ members, atol=1e-8, rtol=0)


def test_an_ensemble_of_botorch_is_the_mean_of_its_members():
    X, Y = data()
    many = EnsembleMapSaasSingleTaskGP(X, Y, num_taus=2, input_transform=None, outcome_transform=None)
    many.covar_module.base_kernel.lengthscale = torch.tensor([[[0.5, 0.8]], [[1.0, 0.6]]])
    many.eval()
    members = torch.stack([make(Member(X, Y, outcome_transform=None).of(many, i))(at()) for i in range(2)])
    torch.testing.assert_close(make(many)(at()), members.mean(0), atol=1e-8, rtol=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_robust_gp_in_a_learnt_scale(sign):
    """Values are those of f, from samples of log f; the outlier counts for nothing."""
    X = BOX[1] * rand({}, 24, 2, seed=3)
    Y = torch.exp(2.0 * torch.sin(2.0 * X[:, :1]) + 1.5 * torch.cos(X[:, 1:]) + 0.3 * X[:, :1])
    Y[4] = 1e5
    model = fit(RobustGP(X, Y, input_transform=Normalize(2, bounds=BOX)))
    assert not model.outcome_scale.is_identity
    assert outliers(model) == [4]
    weight = ScalarizedPosteriorTransform(torch.tensor([sign]).double())
    for functional in (0.35, "mean"):
        acqf = make(model, functional, posterior_transform=weight)
        expected = reference(acqf, model, at(), sign)
        torch.testing.assert_close(acqf(at()), expected, atol=0, rtol=1e-6)


def test_minimizing_is_maximizing_the_negative():
    minus = ScalarizedPosteriorTransform(torch.tensor([-1.0]).double())
    for functional in (ValueAtRisk(0.35), CVaR(0.4), WorstCase()):
        for kind in (SingleTaskGP, Unknown):
            turned = make(gp(kind=kind), functional, posterior_transform=minus)
            negative = make(gp(kind=kind, Y=-data()[1]), functional)
            torch.testing.assert_close(turned(at()), negative(at()), atol=1e-8, rtol=0)


def test_a_fixed_condition_and_the_same_seed():
    for seed in (1, 1, 2):
        acqf = make(gp(), seed=seed)
        torch.manual_seed(0)
        xz, value = optimize_acqf(acqf, BOX, q=1, num_restarts=2, raw_samples=16, fixed_features={1: 1.6})
        assert float(xz[0, 1]) == 1.6
        assert float(acqf(xz)) == pytest.approx(float(value), abs=1e-12)
    assert float(make(gp(), seed=1)(xz)) != float(value)


def float32_models():
    X, Y = data()
    kinds = [{"kernel": kind, "lengthscale": 1.0, "noise_var": 0.3} for kind in ("rbf", "matern52")]
    taus = EnsembleMapSaasSingleTaskGP(X, Y, num_taus=2, input_transform=None, outcome_transform=None)
    yield "exact", gp(Y=Y + 1000.0)
    yield "of another kind", gp(kind=Unknown)
    yield "robust", RobustGP(X, Y, input_transform=Normalize(2, bounds=BOX)).eval()
    yield "candidates", CandidateEnsemble(X, Y - 20.0, kinds)
    yield "of BoTorch", taus.eval()
    yield "variational", SingleTaskVariationalGP(X, Y - 20.0).double().eval()


@pytest.mark.parametrize("name", dict(float32_models()))
def test_a_float32_model_gives_the_values_of_float64(name):
    """Under many conditions, whose probabilities reach alpha; also where it has computed a posterior before."""
    model, minus = dict(float32_models())[name].float(), ScalarizedPosteriorTransform(torch.tensor([-1.0]))
    p = 0.7, 0.3, *[0.0] * 17
    where = FiniteEnvironment(torch.linspace(0.0, 3.0, 19)[:, None], torch.tensor(p))
    exact = FiniteEnvironment(where.z.double(), torch.tensor(p, dtype=torch.float64))
    assert float(where.probabilities[0]) < 0.7 - 1e-9
    designs, x = data()[0][:, :1].float(), at(12).float()
    with torch.no_grad():
        model.posterior(x[0])  # a variational one begins with random numbers
    double = copy.deepcopy(model).train().double().eval(), 0.7, exact
    reference = make(*double, posterior_transform=copy.deepcopy(minus).double(), X_evaluated=designs.double())
    model.posterior(x[0].clone().requires_grad_()).mean.sum().backward()
    acqf = make(model, 0.7, where, posterior_transform=minus, X_evaluated=designs)
    value = acqf(x)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, reference(x.double()).float(), atol=0, rtol=2e-6)
    chosen, expected = acqf.select_condition(x[:, 0, :1]), reference.select_condition(x[:, 0, :1].double())
    assert chosen.index.tolist() == expected.index.tolist()
    assert chosen.point.dtype == chosen.regret_bound.dtype == torch.float32


def test_a_float32_model_is_copied_once_for_all_that_is_pending(monkeypatch):
    copies, copied = [], knowledge_gradient._in_double
    monkeypatch.setattr(knowledge_gradient, "_in_double", lambda module: copies.append(module) or copied(module))
    acqf = make(gp().float(), 0.35, FiniteEnvironment(environment().z.float(), environment().probabilities.float()))
    acqf(at(4).float().reshape(2, 2, 2))
    assert len(copies) == 3
