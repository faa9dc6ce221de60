"""Covariances against their formulas and against GPyTorch's kernels."""

import math

import pytest
import torch

from bo_robust.utils.covariance import Matern, SquaredExponential, distances_by_differences


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


def test_distancesdistances_by_differences(device):
    """What CUDA takes: those of cdist, and exactly zero where points meet."""
    X = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)
    found = distances_by_differences(X, X[:4])
    torch.testing.assert_close(found, torch.cdist(X, X[:4], compute_mode="donot_use_mm_for_euclid_dist"))
    assert found.diagonal().tolist() == [0.0] * 4
