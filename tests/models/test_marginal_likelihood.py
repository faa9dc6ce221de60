import copy

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.models.transforms.input import Warp
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from scipy import stats

from bo_robust.models.marginal_likelihood import ModuleEvidence, StationaryEvidence, evidence_of

N, D = 14, 3
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")  # advice to standardize


def data():
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(N, D, generator=draws, dtype=torch.float64)
    noise = torch.randn(N, 1, generator=draws, dtype=torch.float64)
    return X, 3.0 + torch.sin(4.0 * X).sum(1, keepdim=True) + 0.1 * noise


def rbf(**options):
    return RBFKernel(ard_num_dims=D, lengthscale_prior=LogNormalPrior(0.0, 1.0), **options)


def fixed(module, name):
    getattr(module, name).requires_grad_(False)
    return module


def noisy(prior, constraint):
    return GaussianLikelihood(noise_prior=prior, noise_constraint=constraint)


def variances(Y):
    return 0.01 * (1.0 + torch.arange(N, dtype=Y.dtype).unsqueeze(-1))


# Arguments of SingleTaskGP; made anew for each test, as a model takes its modules as they are.
WRITTEN_OUT = {
    "default": lambda Y: {},
    "Matern 5/2": lambda Y: {"covar_module": get_covar_module_with_dim_scaled_prior(D, use_rbf_kernel=False)},
    "known noise": lambda Y: {"train_Yvar": variances(Y)},
    "normalized": lambda Y: {"input_transform": Normalize(D)},
    "no outcome transform": lambda Y: {"outcome_transform": None},
    "logarithm": lambda Y: {"outcome_transform": Log()},
    "softplus": lambda Y: {"covar_module": rbf(lengthscale_constraint=Positive())},
    "no prior": lambda Y: {"covar_module": RBFKernel(ard_num_dims=D)},
    "gamma prior": lambda Y: {"likelihood": noisy(GammaPrior(1.1, 0.05), GreaterThan(1e-4))},
    "scale": lambda Y: {"covar_module": ScaleKernel(rbf(), outputscale_prior=GammaPrior(2.0, 0.15))},
    "scale and known noise": lambda Y: {"covar_module": ScaleKernel(rbf()), "train_Yvar": variances(Y)},
    "fixed scale": lambda Y: {"covar_module": fixed(ScaleKernel(rbf()), "raw_outputscale")},
    "fixed lengthscale": lambda Y: {"covar_module": ScaleKernel(fixed(RBFKernel(), "raw_lengthscale"))},
    "no mean": lambda Y: {"mean_module": ZeroMean()},
}
OTHERS = {
    "Matern 3/2 with a scale": lambda Y: {"covar_module": ScaleKernel(MaternKernel(1.5, ard_num_dims=D))},
    "known noise, other kernel": lambda Y: {"covar_module": MaternKernel(1.5), "train_Yvar": variances(Y)},
    "active dimensions": lambda Y: {"covar_module": RBFKernel(ard_num_dims=2, active_dims=[0, 2])},
    "one lengthscale": lambda Y: {"covar_module": RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))},
    "a prior for each lengthscale": lambda Y: {
        "covar_module": RBFKernel(ard_num_dims=D, lengthscale_prior=LogNormalPrior(torch.zeros(D), torch.ones(D)))
    },
    "learned warping": lambda Y: {"input_transform": Warp(D, [0, 1])},
    "bounded noise": lambda Y: {
        "likelihood": noisy(LogNormalPrior(-4.0, 1.0), Interval(1e-4, 2e-2, initial_value=0.01))
    },
    "mean with a prior": lambda Y: {"mean_module": ConstantMean(constant_prior=GammaPrior(2.0, 2.0))},
    "bounded mean": lambda Y: {"mean_module": ConstantMean(constant_constraint=Interval(-1.0, 1.0))},
}
EVERY = WRITTEN_OUT | OTHERS


def make(name):
    X, Y = data()
    model = SingleTaskGP(X, Y, **EVERY[name](Y)).double()
    if name == "mean with a prior":
        model.mean_module.constant = 0.3  # where the prior has a density
    return model


def reference(model):
    """Minus BoTorch's evidence and log prior of all rows, and its gradient by the raw parameters."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model.train())
    loss = -N * mll(model(*model.train_inputs), model.train_targets)
    loss.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
    return float(loss.detach()), torch.cat(gradients).numpy()


def differences(evidence, theta, y, kept, unit=1.0, step=1e-6):
    def loss(at):
        return evidence.loss(at, y, kept, unit)[0]

    return np.array([(loss(theta + step * e) - loss(theta - step * e)) / (2 * step) for e in np.eye(len(theta))])


@pytest.mark.parametrize("name", EVERY)
def test_what_is_written_out_is_what_can_be(name):
    assert type(evidence_of(make(name))) is (StationaryEvidence if name in WRITTEN_OUT else ModuleEvidence)


@pytest.mark.parametrize("name", EVERY)
def test_module_evidence_is_botorchs(name):
    model = make(name)
    evidence = ModuleEvidence(copy.deepcopy(model))
    value, gradient = evidence.loss(evidence.start, model.train_targets.numpy(), np.arange(N))
    expected, slope = reference(model)
    assert value == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(np.sort(gradient), np.sort(slope), atol=1e-7)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_stationary_evidence_is_botorchs_up_to_a_constant(name):
    """So what changes from one set of hyperparameters to another is equal."""
    changes = []
    model, other = make(name), make(name)
    evidence = evidence_of(other)
    evidence.assign(evidence.start + np.linspace(-0.5, 0.4, len(evidence.start)))
    assert (evidence_of(other).start != evidence.start).all()
    for one in (model, other):
        evidence = evidence_of(copy.deepcopy(one))
        value, _ = evidence.loss(evidence.start, one.train_targets.numpy(), np.arange(N))
        changes.append(value - reference(one)[0])
    assert changes[0] == pytest.approx(changes[1], abs=1e-6)  # GPyTorch keeps parameters of priors in float32


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("unit", [1.0, 0.2])
def test_gradients_are_those_of_differences(name, unit):
    model = make(name)
    y, kept = model.train_targets.numpy() / unit, np.array([0, 2, 3, 7, 11, 12])
    evidence = evidence_of(model)
    _, gradient = evidence.loss(evidence.start, y, kept, unit)
    np.testing.assert_allclose(gradient, differences(evidence, evidence.start, y, kept, unit), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_the_density_of_hyperparameters_is_what_the_loss_has_beside_that_of_rewards(name):
    """Up to a constant, which is the same at the start and elsewhere."""
    model = make(name)
    evidence, y, constants = evidence_of(model), model.train_targets.numpy(), []
    for theta in (evidence.start, evidence.start * np.linspace(0.9, 1.2, len(evidence.start))):
        mean, covariance, noise, log_density = evidence.prior(theta)
        rewards = stats.multivariate_normal(mean, covariance + np.diag(noise)).logpdf(y)
        constants.append(evidence.loss(theta, y, np.arange(N))[0] + rewards + log_density)
    np.testing.assert_allclose(constants, 0.0, atol=1e-9)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_both_ways_have_one_prior_and_one_maximum(name):
    model = make(name)
    default, modules = evidence_of(copy.deepcopy(model)), ModuleEvidence(copy.deepcopy(model))
    for a, b in zip(default.prior(default.start, 0.5)[:3], modules.prior(modules.start, 0.5)[:3], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    y, kept = model.train_targets.numpy(), np.array([0, 2, 3, 7, 11, 12])
    gains = []
    for evidence in (default, modules):
        best = evidence.maximize(y, kept, 500)
        gains.append(evidence.loss(evidence.start, y, kept)[0] - evidence.loss(best, y, kept)[0])
    assert gains[0] > 0.1
    assert gains[0] == pytest.approx(gains[1], abs=1e-4)


def test_known_noise_is_in_the_units_of_the_targets():
    """Targets and known noise ten times as small in a unit ten times as large; learned noise has no unit."""
    X, Y = data()
    known = evidence_of(SingleTaskGP(X, Y, variances(Y), outcome_transform=None))
    np.testing.assert_allclose(known.prior(known.start, 10.0).noise, variances(Y).flatten().numpy() / 100.0)
    learned = evidence_of(SingleTaskGP(X, Y, outcome_transform=None))
    np.testing.assert_array_equal(learned.prior(learned.start, 10.0).noise, learned.prior(learned.start).noise)


def test_no_cholesky_factor_is_a_large_loss_without_slope():
    """All points equal and no noise: a matrix of ones. Without a lengthscale GPyTorch cannot add a linear kernel."""
    X, Y = data()
    model, added = (SingleTaskGP(torch.full_like(X, 0.5), Y, covar_module=k) for k in (None, rbf() + LinearKernel()))
    default, modules = evidence_of(copy.deepcopy(model)), ModuleEvidence(copy.deepcopy(model))
    names, others = ([name for name, _ in one.named_parameters()] for one in (model, added))
    for evidence, place, nothing in (
        (default, D, -1000.0),
        (modules, names.index("likelihood.noise_covar.raw_noise"), 0),
        (ModuleEvidence(added), others.index("covar_module.kernels.0.raw_lengthscale"), -1000.0),
    ):
        theta = evidence.start.copy()
        theta[place] = nothing
        value, slope = evidence.loss(theta, Y.numpy().ravel(), np.arange(N))
        assert value == 1e10 > np.abs(slope).sum() == 0.0
