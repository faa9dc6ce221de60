import math

import gpytorch
import pytest
import torch

from bo_robust.utils.covariance import GPyTorchCovariance, Matern, SquaredExponential, distances_by_differences


def test_by_hand(device):
    a = torch.tensor([[0.0, 0.0]], dtype=torch.float64, device=device)
    b = torch.tensor([[0.3, 0.8]], dtype=torch.float64, device=device)
    r = math.sqrt((0.3 / 0.5) ** 2 + (0.8 / 2.0) ** 2)
    scales = (0.5, 2.0)
    assert float(SquaredExponential(scales, 3.0)(a, b)) == pytest.approx(3 * math.exp(-(r**2) / 2), rel=1e-12)
    c = math.sqrt(3) * r
    assert float(Matern(1.5, scales)(a, b)) == pytest.approx((1 + c) * math.exp(-c), rel=1e-12)
    c = math.sqrt(5) * r
    assert float(Matern(2.5, scales)(a, b)) == pytest.approx((1 + c + c * c / 3) * math.exp(-c), rel=1e-12)
    assert float(Matern(0.5, scales, 2.0)(a, b)) == pytest.approx(2 * math.exp(-r), rel=1e-12)


@pytest.mark.parametrize("n1", [1, 5, 200])
def test_agrees_with_gpytorch(n1, device):
    g = torch.Generator().manual_seed(0)
    A, B = (torch.rand(n, 3, generator=g, dtype=torch.float64).to(device) for n in (n1, 150))
    ell = torch.tensor([0.2, 0.7, 1.5], dtype=torch.float64, device=device)
    pairs = [(SquaredExponential((0.2, 0.7, 1.5)), gpytorch.kernels.RBFKernel(ard_num_dims=3))]
    pairs += [
        (Matern(nu, (0.2, 0.7, 1.5)), gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=3)) for nu in (0.5, 1.5, 2.5)
    ]
    for ours, theirs in pairs:
        theirs = theirs.to(A)
        theirs.lengthscale = ell
        wrapped = GPyTorchCovariance(theirs)
        torch.testing.assert_close(ours(A, B), wrapped(A, B), rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(ours.diagonal(A), wrapped.diagonal(A))
        torch.testing.assert_close(ours(A, A).diagonal(), ours.diagonal(A), rtol=1e-6, atol=1e-7)
        assert not wrapped(A, B).requires_grad


def test_distances_by_differences(device):
    """What CUDA takes: those of cdist, batches too, and exactly zero where points meet."""
    points = torch.randn(22, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)
    first, second = points[:12].view(2, 6, 3), points[12:].view(2, 5, 3)
    expected = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(distances_by_differences(first, second), expected)
    torch.testing.assert_close(distances_by_differences(first, second[0])[0], expected[0])
    torch.testing.assert_close(distances_by_differences(first[0], second[0]), expected[0])
    assert distances_by_differences(points[:7], points[:4]).diagonal().tolist() == [0.0] * 4


def test_far_from_the_origin_distances_keep_their_digits(device):
    X = (torch.linspace(0, 1, 200, dtype=torch.float64, device=device) + 1e6).unsqueeze(1)
    near = X - 1e6
    torch.testing.assert_close(SquaredExponential(0.2)(X, X), SquaredExponential(0.2)(near, near), rtol=0, atol=1e-8)
