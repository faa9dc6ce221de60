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


def matrix(eigenvalues: torch.Tensor, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix with these eigenvalues, and its V^{-1/2}."""
    k = eigenvalues.numel()
    Q = torch.linalg.qr(torch.randn(k, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))[0]
    return (Q * eigenvalues) @ Q.T, (Q * eigenvalues.rsqrt()) @ Q.T


@pytest.mark.parametrize("kind", ["even", "one small", "one large"])
@pytest.mark.parametrize("condition", [1.0, 2.0, 10.0, 1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("k", [1, 6, 64, 256])
def test_newton_schulz_reaches_rounding(k, condition, kind, device):
    # rounding: eps times the condition number, as an eigendecomposition has it too
    V, root = matrix(spectrum(kind, condition, k))
    got = inverse_root.newton_schulz(V.unsqueeze(0).to(device), 1.0 / condition, 1.0)[0].cpu()
    assert float((got - root).norm() / root.norm()) < 1e-14 * max(10.0, 10.0 * condition)
    torch.testing.assert_close(got.mT @ got @ V, torch.eye(k).to(V), rtol=0, atol=1e-14 * max(10.0, condition))


def test_the_bounds_of_newton_schulz_may_be_far(device):
    V, root = matrix(torch.tensor([2.0, 3.0, 5.0, 5.0], dtype=torch.float64))
    got = inverse_root.newton_schulz(V.unsqueeze(0).to(device), 1e-3, 1e5)[0].cpu()
    torch.testing.assert_close(got, root, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan), (2.0, 1.0)])
def test_bounds_that_newton_schulz_could_not_end_with(bounds):
    with pytest.raises(ValueError, match="eigenvalues of V"):
        inverse_root.newton_schulz(torch.eye(2).unsqueeze(0), *bounds)
