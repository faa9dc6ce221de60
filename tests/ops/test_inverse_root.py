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


def start(V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Eigenvectors, V in their basis, its root and the gaps: what the iteration goes on from."""
    d, E = torch.linalg.eigh(V)
    root = d.sqrt()
    return E, torch.diag_embed(d), torch.diag_embed(1 / root), 1 / (root.unsqueeze(-1) + root.unsqueeze(-2))


def test_small_steps_are_followed_without_drift(device):
    # 400 small rank-one terms on the same frozen numbers; the root is always the one of the current matrix
    g = torch.Generator().manual_seed(1)
    V, _ = matrix(torch.linspace(50.0, 100.0, 10, dtype=torch.float64))
    _, gram, X, gap = start(V.expand(3, -1, -1).to(device))
    for _ in range(400):
        z = 0.04 * torch.randn(3, 10, generator=g, dtype=torch.float64).to(device)
        gram += z.unsqueeze(2) * z.unsqueeze(1)
        assert not inverse_root.correct_(X, gram, gap).any()
        d, e = torch.linalg.eigh(gram)
        want = (e * d.rsqrt().unsqueeze(1)) @ e.mT
        assert float((X - want).norm() / want.norm()) < 1e-7
    assert float((X - X.mT).abs().max()) < 1e-12


@pytest.mark.parametrize("k", [1, 2, 16])
def test_what_is_accepted_is_the_positive_root(k, device):
    # From X = I the iteration takes V = I + 3 z z^T, ||z|| = 1, to X = I - 1.5 z z^T: X V X = I to rounding after one
    # step, but X has an eigenvalue -1/2. So is lambda = 1/3 and a first pull with k(x, x) = 1.
    jumps = torch.cat([torch.tensor([3.0], dtype=torch.float64), torch.logspace(-4, 2, 400, dtype=torch.float64)])
    z = torch.randn(jumps.numel(), k, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    z = (z / z.norm(dim=1, keepdim=True) * jumps.sqrt().unsqueeze(1)).to(device)
    _, gram, X, gap = start(torch.eye(k, dtype=torch.float64, device=device).expand(jumps.numel(), -1, -1))
    gram = gram + z.unsqueeze(2) * z.unsqueeze(1)
    late = inverse_root.correct_(X, gram, gap)
    assert late[0]
    assert not late.all()
    d, e = torch.linalg.eigh(gram[~late])
    torch.testing.assert_close(X[~late], (e * d.rsqrt().unsqueeze(1)) @ e.mT, rtol=0, atol=inverse_root.TOLERANCE)
