"""A whole run in one call: the Triton op against PyTorch (``tests/experiments`` has it against rounds)."""

import pytest
import torch

from bo_robust.confidence import ConstantWidth
from bo_robust.ops.fused_rounds import fused_rounds, naive
from bo_robust.utils.covariance import Matern, SquaredExponential


@pytest.fixture
def fused(fused_module):
    return fused_module("fused_rounds")


def tables(n, s, T, device, dtype=torch.float64, own_kernels=False, seed=0):
    """Prior, f and the tables of a run, with heavy noise; levels that truncate some of it."""
    g = torch.Generator().manual_seed(seed)
    x = torch.linspace(0, 1, n, dtype=torch.float64).unsqueeze(1)
    kernels = [SquaredExponential(0.1) if i % 2 == 0 or not own_kernels else Matern(2.5, 0.3) for i in range(s)]
    C = torch.stack([k(x, x) for k in kernels]) if own_kernels else kernels[0](x, x).expand(s, n, n)
    f = torch.sin(7.0 * x.T + torch.rand(s, 1, generator=g, dtype=torch.float64))
    noise = 0.3 * torch.randn(T, s, generator=g, dtype=torch.float64) / torch.rand(T, s, generator=g).double()
    widths = torch.rand(T, s, generator=g, dtype=torch.float64) + 1.0
    levels = 1.0 + 0.05 * torch.arange(T, dtype=torch.float64)
    mean = 0.1 * torch.cos(3.0 * x.T).expand(s, n)
    lam = 0.1 + 0.1 * torch.arange(s, dtype=torch.float64)
    return tuple(z.to(device, dtype) for z in (C, mean, f, lam, noise, widths, levels))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "s", "own"), [(1, 1, False), (3, 2, True), (20, 3, True), (100, 2, False)])
def test_fused_is_naive(n, s, own, dtype, fused, device):
    given = tables(n, s, 12, device, dtype, own)
    before = [x.clone() for x in given]
    ours, theirs = fused.fused_rounds(*given), naive.fused_rounds(*given)
    for x, y in zip(given, before, strict=True):
        assert torch.equal(x, y)
    assert torch.equal(ours.arms, theirs.arms)
    assert torch.equal(ours.recommended, theirs.recommended)
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for name in ("rewards", "coverage", "mean", "variance", "counts", "information_gain", "covariance"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), **tolerance)


def test_bad_input(device):
    C, mean, f, lam, noise, widths, levels = tables(5, 2, 3, device)
    with pytest.raises(ValueError, match="noise must be"):
        fused_rounds(C, mean, f, lam, noise[:, :1], widths, levels)
    with pytest.raises(ValueError, match=r"levels is torch\.float32"):
        fused_rounds(C, mean, f, lam, noise, widths, levels.float())
    with pytest.raises(ValueError, match="at most 128 arms, got 200"):
        fused_rounds(*tables(200, 1, 2, device))
    with pytest.raises(ValueError, match="float32 or float64"):
        fused_rounds(*(x.half() for x in (C, mean, f, lam, noise, widths, levels)))
    assert fused_rounds(C, mean, f, lam, noise, 0.0 * widths + ConstantWidth(1.0)(1), levels).arms.shape == (3, 2)
