import math

import pytest
import torch

from bo_robust.ops import inverse_root


def spectrum(kind: str, condition: float, k: int) -> torch.Tensor:
    """Eigenvalues from 1 / condition to 1: even in the logarithm, or all but one at an end."""
    d = torch.logspace(-math.log10(condition), 0, k, dtype=torch.float64)
    if kind == "one small":
        d[1:] = 1.0
    elif kind == "one large":
        d[:-1] = 1.0 / condition
    return d


def problem(eigenvalues: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A of V = A^T A with these eigenvalues, whose last rows are lambda^{1/2} I, lambda the smallest; and V^{-1/2}."""
    k = eigenvalues.numel()
    Q = torch.linalg.qr(torch.randn(k, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    rows = (eigenvalues - eigenvalues.min()).sqrt().unsqueeze(1) * Q.T
    ridge = eigenvalues.min().sqrt() * torch.eye(k).to(rows)
    return torch.cat([rows, ridge]), (Q * eigenvalues.rsqrt()) @ Q.T


def root_of(A, smallest, largest, device):
    k = A.shape[1]
    return inverse_root.newton_schulz(A.unsqueeze(0).to(device), smallest, largest)[0, -k:].cpu() / A[-1, -1]


@pytest.mark.parametrize("kind", ["even", "one small", "one large"])
@pytest.mark.parametrize("condition", [1.0, 2.0, 10.0, 1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("k", [1, 6, 64, 256])
def test_newton_schulz_reaches_rounding(k, condition, kind, device):
    """eps times the root of the condition number: an eigendecomposition of V has the condition number itself."""
    A, root = problem(spectrum(kind, condition, k))
    got = root_of(A, 1.0 / condition, 1.0, device)
    assert float((got - root).norm() / root.norm()) < 1e-14 * max(10.0, math.sqrt(condition))


def test_the_bounds_of_newton_schulz_may_be_far(device):
    A, root = problem(torch.tensor([2.0, 3.0, 5.0, 5.0], dtype=torch.float64))
    got = root_of(A, 1e-3, 1e5, device)
    torch.testing.assert_close(got, root, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan), (2.0, 1.0)])
def test_bounds_that_newton_schulz_could_not_end_with(bounds):
    with pytest.raises(ValueError, match="eigenvalues of A"):
        inverse_root.newton_schulz(torch.eye(2).unsqueeze(0), *bounds)
