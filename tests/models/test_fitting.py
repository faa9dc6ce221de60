import numpy as np
import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import GammaPrior

from bo_robust import BKBModel, TruncatedGP
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.models import evidence_fit
from bo_robust.models.evidence_fit import fit_evidence, fit_rows
from bo_robust.models.marginal_likelihood import StationaryEvidence
from tests.problems import fit

ORDERS = [[0, 1, 2], [2, 0, 1]]


def data(n=40, d=2):
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(n, d, generator=draws, dtype=torch.float64)
    return X, torch.sin(5.0 * X).sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=draws, dtype=torch.float64)


def scaled():
    base = get_covar_module_with_dim_scaled_prior(2, use_rbf_kernel=False)
    return ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15))


MODELS = {
    "default": lambda X, Y: SingleTaskGP(X, Y),
    "known noise": lambda X, Y: SingleTaskGP(X, Y, torch.full_like(Y, 0.01)),
    "scaled Matern": lambda X, Y: TruncatedGP(X, Y, TGPTruncation(4.0, 1.0), covar_module=scaled()),
}


@pytest.mark.filterwarnings("ignore:.*are truncated")
@pytest.mark.parametrize("name", MODELS)
def test_the_hyperparameters_are_those_of_botorchs_fit(name):
    ours, theirs = fit(MODELS[name](*data()), optimizer=fit_evidence), fit(MODELS[name](*data()))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.01, atol=1e-4)
    before = MODELS[name](*data())
    assert any((a != b).any() for a, b in zip(ours.parameters(), before.parameters(), strict=True))


def test_other_modules_are_fitted_by_botorch():
    X, Y = data()
    made = [SingleTaskGP(X, Y, covar_module=ScaleKernel(MaternKernel(1.5))) for _ in range(2)]
    ours, theirs = fit(made[0], optimizer=fit_evidence), fit(made[1])
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))


def test_many_rewards_are_fitted_by_some_first(monkeypatch):
    np.testing.assert_array_equal(fit_rows(800), np.arange(800))
    rows = fit_rows(5000)
    assert len(set(rows)) == 800
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, fit_rows(5000))
    X, Y = data()
    whole = fit(SingleTaskGP(X, Y), optimizer=fit_evidence)
    monkeypatch.setattr(evidence_fit, "MOST", 15)
    ours = fit(SingleTaskGP(X, Y), optimizer=fit_evidence)
    for one, other in zip(ours.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_fit_that_ends_nowhere_is_said():
    """Equal points and hardly any noise: no covariance matrix has a Cholesky factor."""
    X, Y = data()
    model = SingleTaskGP(torch.full_like(X, 0.5), Y, likelihood=GaussianLikelihood(noise_constraint=GreaterThan(1e-30)))
    model.likelihood.noise_covar.initialize(noise=2e-30)
    model.likelihood.noise_covar.raw_noise.requires_grad_(False)
    with pytest.raises(ModelFittingError, match="All attempts"):
        fit(model, optimizer=fit_evidence)


def test_hyperparameters_of_bkb_are_those_of_the_exact_gp_and_the_dictionary_is_drawn_for_them():
    X, Y = data(200)
    model = fit(BKBModel(X, Y, max_size=60, min_size=20))
    exact = fit(SingleTaskGP(X, Y), optimizer=fit_evidence)
    torch.testing.assert_close(model.covar_module.lengthscale, exact.covar_module.lengthscale)
    torch.testing.assert_close(model.likelihood.noise, exact.likelihood.noise)
    new = BKBModel(X, Y, max_size=60, min_size=20, likelihood=model.likelihood, covar_module=model.covar_module)
    assert torch.equal(model.dictionary, new.dictionary)


def test_inputs_far_from_zero_lose_nothing():
    X, Y = data()
    found = []
    for shift in (0.0, 1e6):
        model = fit(SingleTaskGP(X + shift, Y), optimizer=fit_evidence)
        found.append(model.covar_module.lengthscale.detach())
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=0.0)


def test_known_noise_is_no_start():
    """The order of columns does not matter."""
    X, Y = data(30, 3)
    fits = [fit(SingleTaskGP(X[:, order], Y, torch.full_like(Y, 0.01)), optimizer=fit_evidence) for order in ORDERS]
    lengthscales = [one.covar_module.lengthscale.detach()[0] for one in fits]
    torch.testing.assert_close(lengthscales[0][ORDERS[1]], lengthscales[1], rtol=0.01, atol=0.0)
    assert not StationaryEvidence(fits[0]).is_noise.any()


def test_a_model_with_a_prior_of_its_own_is_fitted_by_botorch():
    class Twice(SingleTaskGP):
        def forward(self, x):
            return super().forward(2.0 * x)

    X, Y = data()
    ours, theirs = fit(Twice(X, Y), optimizer=fit_evidence), fit(Twice(X, Y))
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))


@pytest.mark.filterwarnings("ignore")
def test_targets_whose_squares_overflow_are_no_success():
    X, Y = data()
    with pytest.raises(ModelFittingError):
        fit(SingleTaskGP(X, 1e160 * Y, outcome_transform=None), optimizer=fit_evidence)
