import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.loops.conditions import initial_pairs
from benchmarks.methods import shared_gp as module
from benchmarks.methods.shared_gp import MIN_NOISE_VAR, SharedGP
from benchmarks.problems.conditions.synthetic import Branin


def data(device, n=20):
    problem = Branin().make(device)
    X = initial_pairs(problem, n, 0, 0)
    return SharedGP(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=X.dtype, device=device)), X, problem.f(X)


def likelihood(surrogate, X, Y):
    model = surrogate.model(X, Y)
    model.train()
    with torch.no_grad():
        mll = ExactMarginalLogLikelihood(surrogate.likelihood, model)
        return float(mll(model(*model.train_inputs), model.train_targets))


def test_fits_by_maximum_likelihood_with_a_floor_on_the_noise(device):
    surrogate, X, Y = data(device)
    before = likelihood(surrogate, X, Y)
    assert surrogate.fit(X, Y)
    assert likelihood(surrogate, X, Y) > before
    assert float(surrogate.likelihood.noise.detach()) == pytest.approx(MIN_NOISE_VAR, rel=1e-3)  # there is none
    assert surrogate.covariance.base_kernel.lengthscale.shape == (1, 2)


def test_a_failed_fit_keeps_the_hyperparameters(device, monkeypatch):
    surrogate, X, Y = data(device)
    surrogate.fit(X, Y)
    before = {name: value.clone() for name, value in surrogate.state_dict().items()}

    def fails(mll):
        raise ModelFittingError("no")

    monkeypatch.setattr(module, "fit_gpytorch_mll", fails)
    assert not surrogate.fit(X[:3], Y[:3])
    after = surrogate.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_appended_conditions_are_those_points(device):
    surrogate, X, Y = data(device)
    assert surrogate.fit(X, Y)
    z = torch.tensor([[0.2], [0.7]], dtype=X.dtype, device=device)
    x = torch.tensor([[0.4]], dtype=X.dtype, device=device)
    with torch.no_grad():
        appended = surrogate.model(X, Y, append=z).posterior(x).mean
        plain = surrogate.model(X, Y).posterior(torch.cat([x.expand(2, 1), z], -1)).mean
    assert appended.shape == (2, 1)
    torch.testing.assert_close(appended, plain)


def test_fits_of_observations_of_large_variance_succeed(device, monkeypatch):
    """Round 15 of a portfolio run: in raw units the first step leaves a kernel matrix that is not positive definite."""
    surrogate, X, Y = data(device)
    attempts, maximized, expected = [], module.maximized, SharedGP(surrogate.bounds)
    assert expected.fit(X, 10.0 * Y)

    def first_fails(model):
        attempts.append(float(model.train_targets.var()))
        return len(attempts) > 1 and maximized(model)

    monkeypatch.setattr(module, "maximized", first_fails)
    assert surrogate.fit(X, 10.0 * Y)
    assert attempts[0] > 10.0
    assert attempts[1] == pytest.approx(20 / 19)  # standardized
    assert likelihood(surrogate, X, 10.0 * Y) == pytest.approx(likelihood(expected, X, 10.0 * Y), abs=1e-3)
