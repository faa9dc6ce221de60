"""Every row of the table of shapes, in all that read it; a row added is fitted as what it is."""

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel

from bo_robust.features import maps
from bo_robust.models.candidate_gps import CandidateGPs
from bo_robust.models.candidate_priors import Candidate
from bo_robust.models.exact_moments import exact_moments
from bo_robust.models.marginal_likelihood import StationaryEvidence
from bo_robust.utils.covariance import RADIALS, Radial, shape_of
from tests.problems import points, rewards

D, N = 2, 7


def matern32(square):
    root = (3.0 * square).clamp_min(1e-30).sqrt()
    return (1.0 + root) * (-root).exp()


def matern32_slope(half, scale):
    root = np.sqrt(-6.0 * half)
    return scale * (1.0 + root) * np.exp(-root), 3.0 * scale * np.exp(-root)


ADDED = {(MaternKernel, 1.5): Radial(matern32, matern32_slope)}


@pytest.fixture(params=[*RADIALS, *ADDED], ids=lambda row: f"{row[0].__name__} {row[1]}")
def row(request, monkeypatch):
    if request.param in ADDED:
        monkeypatch.setitem(RADIALS, request.param, ADDED[request.param])
    return request.param


@pytest.fixture
def kernel(row, tkwargs):
    base, nu = row
    kernel = ScaleKernel(base(ard_num_dims=D) if nu is None else base(nu, ard_num_dims=D)).to(**tkwargs)
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor([0.3, 0.8], **tkwargs), 1.7
    return kernel


@pytest.fixture
def model(kernel, tkwargs):
    X = points(tkwargs, N, d=D)
    return SingleTaskGP(X, rewards(X), covar_module=kernel, outcome_transform=None)


def test_values_and_slopes_are_those_of_gpytorch(kernel, tkwargs):
    X, shape = points(tkwargs, N, d=D), shape_of(kernel)
    scaled = X / shape.lengthscale.detach()
    square = (scaled.unsqueeze(1) - scaled).square().sum(-1).add_(1e-3).requires_grad_()
    value = shape.radial.of(square.clone())
    (slope,) = torch.autograd.grad(value.sum(), square)
    in_numpy = shape.radial.with_slope(-0.5 * square.detach().cpu().numpy(), 1.7)
    for got, want in zip(in_numpy, (1.7 * value, -3.4 * slope), strict=True):
        np.testing.assert_allclose(got, want.detach().cpu().numpy(), rtol=1e-10)
    off = ~torch.eye(N, dtype=torch.bool)
    exact = shape.radial.of((scaled.unsqueeze(1) - scaled).square().sum(-1))
    torch.testing.assert_close(1.7 * exact[off], kernel(X).to_dense()[off], rtol=1e-6, atol=1e-8)


def test_the_evidence_has_the_kernel_and_its_slope(model, kernel):
    assert StationaryEvidence.fits(model)
    evidence, y, rows = StationaryEvidence(model), model.train_targets.cpu().numpy(), np.arange(N)
    want = kernel(model.train_inputs[0]).to_dense().detach().cpu().numpy()
    np.testing.assert_allclose(evidence.prior(evidence.start).covariance, want, rtol=1e-6, atol=1e-8)
    _, gradient = evidence.loss(evidence.start, y, rows)
    steps = 1e-6 * np.eye(len(gradient))
    ends = [[evidence.loss(evidence.start + sign * h, y, rows)[0] for sign in (-1.0, 1.0)] for h in steps]
    np.testing.assert_allclose(gradient, [(upper - lower) / 2e-6 for lower, upper in ends], atol=1e-6)


def test_exact_moments_are_the_posterior(model, tkwargs):
    X = points(tkwargs, 4, 2, seed=1, d=D)
    posterior = model.eval().posterior(X)
    for got, want in zip(exact_moments(model, X), (posterior.mean, posterior.variance), strict=True):
        torch.testing.assert_close(got, want.squeeze(-1), rtol=1e-6, atol=1e-8)


def test_candidates_at_once_are_each_alone(kernel, tkwargs):
    X = points(tkwargs, N, d=D)
    both = [Candidate(kernel, 0.1), Candidate(kernel.base_kernel, 0.1)]
    covariances = CandidateGPs.empty(both, X[:0]).kernels(X, X[:3])
    for got, each in zip(covariances, (kernel, kernel.base_kernel), strict=True):
        torch.testing.assert_close(got, each(X, X[:3]).to_dense(), rtol=1e-6, atol=1e-8)


def test_fourier_features_take_no_other_shape(row, kernel):
    if row[1] is None:
        assert float(maps._rbf(kernel).outputscale.detach()) == pytest.approx(1.7)
    else:
        with pytest.raises(ValueError, match="use NystromMap for other kernels"):
            maps._rbf(kernel)
