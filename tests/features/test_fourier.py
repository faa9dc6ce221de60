import dataclasses
import json
import math

import pytest
import torch

from bo_robust.features import FourierFeatures, fourier_features, hermite_frequencies
from bo_robust.utils.covariance import SquaredExponential

UNIT = (0.0, 1.0)


def points(n, dim, device, seed=0, dtype=torch.float64):
    return torch.rand(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device, dtype)


def gram(features, X):
    phi = features(X)
    return phi @ phi.mT


@pytest.mark.parametrize("nodes", [6, 10])
def test_golden_gram(nodes, golden, device):
    X = torch.tensor(golden["data"]["X"], dtype=torch.float64, device=device)
    want = torch.tensor(golden[f"qff_gram_m{nodes}"], dtype=torch.float64, device=device)
    got = gram(FourierFeatures(0.4, nodes, (UNIT, UNIT)), X)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("nodes", [5, 6, 12])
def test_error_along_the_axis_of_the_shortest_lengthscale(nodes):
    features = FourierFeatures((0.9, 0.3), nodes, ((0.0, 1.0), (3.0, 4.5)), 1.7)
    X = torch.full((65, 2), 0.5, dtype=torch.float64)
    X[:, 1] = torch.linspace(3.0, 4.5, 65)
    brute = (features.covariance(X, X[:1]) - features(X) @ features(X[:1]).mT).abs().max()
    assert features.error_along_axis() == pytest.approx(float(brute), rel=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("nodes", [1, 2, 5, 6])
def test_half_is_the_same_covariance(dim, nodes, device):
    X = points(20, dim, device)
    grids = (hermite_frequencies(nodes, dim, half=half, device=device) for half in (False, True))
    full, half = (fourier_features(X, *grid, 0.4, 2.0) for grid in grids)
    torch.testing.assert_close(half @ half.mT, full @ full.mT, rtol=0, atol=1e-12)
    assert full.shape[-1] == FourierFeatures(0.4, nodes, (UNIT,) * dim).num_features == 2 * nodes**dim
    assert half.shape[-1] == 2 * math.ceil(nodes**dim / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_device_and_batches(dtype, device):
    X = points(12, 2, device, dtype=dtype)
    features = FourierFeatures((0.4, 0.9), 8, (UNIT, UNIT), outputscale=1.5)
    phi = features(X)
    assert (phi.dtype, phi.device) == (dtype, X.device)
    torch.testing.assert_close(features(X.reshape(3, 4, 2)), phi.reshape(3, 4, -1))
    tol = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(phi, features(X.double()).to(dtype), rtol=tol, atol=tol)
    assert all(t.dtype == torch.float32 for t in hermite_frequencies(4, 2, dtype=torch.float32, device=device))


def test_ard_and_another_box_are_the_unit_box_rescaled(device):
    U = points(20, 2, device)
    lower, side = U.new_tensor([-3.0, 100.0]), U.new_tensor([4.0, 0.5])
    there = FourierFeatures((1.2, 0.4), 7, ((-3.0, 1.0), (100.0, 100.5)))
    here = FourierFeatures((0.3, 0.8), 7, (UNIT, UNIT))
    torch.testing.assert_close(there(lower + side * U), here(U), rtol=0, atol=1e-11)
    assert there.relative_lengthscales == pytest.approx((0.3, 0.8))
    same = FourierFeatures((0.3, 0.3), 7, (UNIT, UNIT))
    torch.testing.assert_close(FourierFeatures(0.3, 7, (UNIT, UNIT))(U), same(U), rtol=0, atol=1e-14)


@pytest.mark.parametrize("half", [False, True])
def test_gradients(half, device):
    frequencies, weights = hermite_frequencies(3, 2, half=half, device=device)
    X = points(3, 2, device).requires_grad_()
    ell = torch.tensor([0.5, 0.9], dtype=torch.float64, device=device, requires_grad=True)
    scale = torch.tensor(1.4, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, l, s: fourier_features(x, frequencies, weights, l, s), (X, ell, scale))
    (grad,) = torch.autograd.grad(gram(FourierFeatures(0.5, 6, (UNIT, UNIT)), X)[0, 1], X)
    (want,) = torch.autograd.grad(torch.exp(-(X[0] - X[1]).square().sum() / 0.5), X)
    torch.testing.assert_close(grad, want, rtol=0, atol=2e-2)


def test_weights_that_underflow_leave_gradients_finite(device):
    frequencies, weights = hermite_frequencies(400, 1, dtype=torch.float32, device=device)
    assert bool((weights == 0).any())
    X = points(3, 1, device, dtype=torch.float32)
    scale = torch.tensor(2.0, device=device, requires_grad=True)
    fourier_features(X, frequencies, weights, 0.1, scale).square().sum().backward()
    assert float(scale.grad) == pytest.approx(3.0, rel=1e-4)


def test_batched_lengthscales(device):
    frequencies, weights = hermite_frequencies(6, 2, device=device)
    X = points(5, 2, device)
    ell = torch.tensor([[0.4, 0.6], [1.0, 0.5]], dtype=torch.float64, device=device).unsqueeze(-2)
    scale = torch.tensor([1.0, 3.0], dtype=torch.float64, device=device).reshape(2, 1, 1)
    got = fourier_features(X, frequencies, weights, ell, scale)
    want = [fourier_features(X, frequencies, weights, *hyper) for hyper in zip(ell[:, 0], (1.0, 3.0), strict=True)]
    torch.testing.assert_close(got, torch.stack(want))


@pytest.mark.parametrize("nodes", [300, 301, 1000])
def test_many_nodes(nodes):
    # NumPy's Gauss-Hermite weights overflow from about 370 nodes on.
    features = FourierFeatures(1.5 / math.sqrt(nodes), nodes, (UNIT,))
    assert features.error_along_axis() < 1e-12
    frequencies, weights = hermite_frequencies(nodes, 1)
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-14)
    assert torch.equal(frequencies, -frequencies.flip(0))


def test_results_are_the_callers_own():
    for index in (0, 1):
        hermite_frequencies(4, 1)[index].zero_()
    frequencies, weights = hermite_frequencies(4, 1)
    assert bool((frequencies != 0).all())
    assert float(weights.sum()) == pytest.approx(1.0)


def test_json_round_trip():
    features = FourierFeatures((0.3, 0.4), 5, (UNIT, (-1.0, 2.0)), outputscale=2.0)
    again = type(features)(**json.loads(json.dumps(dataclasses.asdict(features))))
    assert again == features
    assert hash(again) == hash(features)
    assert features.covariance == SquaredExponential((0.3, 0.4), 2.0)


def test_a_whole_number_may_be_a_float():
    """As JSON and YAML may give it back."""
    features = FourierFeatures(0.2, 8.0, ((0.0, 1.0),))
    assert features == FourierFeatures(0.2, 8, ((0.0, 1.0),))
    assert isinstance(features.num_features, int)
    X = points(3, 1, "cpu")
    assert torch.equal(features(X), FourierFeatures(0.2, 8, (UNIT,))(X))
    assert torch.equal(hermite_frequencies(8.0, 2)[0], hermite_frequencies(8, 2)[0])


def test_points_outside_the_box(device):
    features = FourierFeatures(0.3, 4, (UNIT, (10.0, 20.0)))
    X = torch.tensor([[0.5, 15.0], [1.0, 20.0]], dtype=torch.float64, device=device)
    assert bool(features(X + 1e-9).isfinite().all())  # rounding; more is refused
    assert features(X[:0]).shape == (0, 32)
