"""The arm of largest upper confidence bound: by hand, ties, NaN, and the Triton op to the bit."""

import math

import numpy as np
import pytest
import torch

from bo_robust.ops import naive_ops
from bo_robust.ops.ucb_argmax import naive, ucb_argmax


@pytest.fixture
def fused(fused_module):
    return fused_module("ucb_argmax")


def reference(mean, variance, width):
    """By NumPy, whose square root is the nearest number as on CUDA (torch's on a CPU is one rounding off at times)."""
    w = np.broadcast_to(np.asarray(torch.as_tensor(width).cpu(), mean.cpu().numpy().dtype), mean.shape[:1])
    with np.errstate(invalid="ignore"):
        bound = np.sqrt(variance.cpu().numpy()) * w[:, None] + mean.cpu().numpy()
    arms = bound.argmax(1)
    found = torch.from_numpy(arms), torch.from_numpy(bound[np.arange(len(arms)), arms])
    return tuple(x.to(mean.device) for x in found)


def same(a, b):
    assert torch.equal(a[0], b[0])
    assert a[0].dtype == torch.long
    torch.testing.assert_close(a[1], b[1], rtol=0, atol=0, equal_nan=True)


def test_by_hand(device):
    mean = torch.tensor([[1.0, 2.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64, device=device)
    variance = torch.tensor([[1.0, 0.25, 4.0], [0.0, 9.0, 9.0]], dtype=torch.float64, device=device)
    for width, arms, bounds in (
        (1.0, [1, 1], [2.5, 4.0]),  # 2, 2.5, 2 and 1, 4, 4
        (0.0, [1, 0], [2.0, 1.0]),
        (2.0, [2, 1], [4.0, 7.0]),
        (torch.tensor([3.0, -1.0], dtype=torch.float64, device=device), [2, 0], [6.0, 1.0]),
        (torch.tensor(2.0, dtype=torch.float64, device=device), [2, 1], [4.0, 7.0]),
    ):
        for found in (ucb_argmax(mean, variance, width), naive.ucb_argmax(mean, variance, width)):
            assert found[0].tolist() == arms
            assert found[1].tolist() == bounds
        with naive_ops():
            assert ucb_argmax(mean, variance, width)[0].tolist() == arms


def test_nan_is_largest_and_the_first_wins(device):
    mean = torch.tensor([[1.0, math.nan, math.inf, math.nan]], device=device)
    arm, bound = ucb_argmax(mean, torch.ones_like(mean), 1.0)
    assert arm.tolist() == [1]
    assert bound.isnan().all()


def test_no_gradient(device):
    mean = torch.zeros(1, 3, device=device, requires_grad=True)
    assert not ucb_argmax(mean, torch.ones_like(mean), 1.0)[1].requires_grad


@pytest.mark.parametrize(
    ("mean", "variance", "width", "message"),
    [
        (torch.zeros(3), torch.zeros(3), 1.0, "mean must be s x n"),
        (torch.zeros(2, 0), torch.zeros(2, 0), 1.0, "n >= 1"),
        (torch.zeros(2, 3).half(), torch.zeros(2, 3).half(), 1.0, "float32 or float64"),
        (torch.zeros(2, 3), torch.zeros(2, 4), 1.0, "variance must be as mean"),
        (torch.zeros(2, 3), torch.zeros(2, 3).double(), 1.0, "variance must be as mean"),
        (torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(3), "width must be one number or 2"),
    ],
)
def test_mistakes(mean, variance, width, message):
    with pytest.raises(ValueError, match=message):
        ucb_argmax(mean, variance, width)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("s", [1, 5])
@pytest.mark.parametrize("n", [1, 3, 63, 100, 1000, 1024, 5000])
def test_fused(fused, n, s, dtype, device, monkeypatch):
    """Real numbers, then small whole ones, of which many are equal; several parts and tiles at n = 5000."""
    monkeypatch.setattr(fused, "PARTS", 2)
    g = torch.Generator().manual_seed(n)
    width = (torch.rand(s, generator=g, dtype=dtype) + 1).to(device)
    mean, variance = torch.randn(s, n, generator=g, dtype=dtype), torch.rand(s, n, generator=g, dtype=dtype)
    for data in ((mean, variance), (mean.round(), (2 * variance).round())):
        m, v = (x.to(device) for x in data)
        for w in (width, 2.0, width[0]):
            same(fused.ucb_argmax(m, v, w), reference(m, v, w))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fused_extremes(fused, dtype, device, monkeypatch):
    monkeypatch.setattr(fused, "PARTS", 2)
    for n in (3, 3000):
        mean = torch.zeros(6, n, dtype=dtype, device=device)
        mean[1] = -math.inf
        mean[2, n // 2], mean[2, n - 1] = math.inf, math.nan
        mean[3, n // 2 :] = math.nan
        mean[4] = math.nan
        variance = torch.zeros_like(mean)
        variance[5, n - 1] = -1.0  # no variance: its bound is NaN
        found = fused.ucb_argmax(mean, variance, 1.0)
        same(found, reference(mean, variance, 1.0))
        assert torch.equal(found[0], naive.ucb_argmax(mean, variance, 1.0)[0])
        assert found[0].tolist() == [0, 0, n - 1, n // 2, 0, n - 1]
    assert fused.ucb_argmax(mean[:0], variance[:0], 1.0)[0].shape == (0,)


def test_fused_reads_strided_input_and_nothing_beside_it(fused, device):
    around = torch.full((9, 2060), torch.nan, dtype=torch.float64, device=device)
    mean, variance = around[1:4, 7:2057:2], around.clone()[2:8:2, 9:1034]
    mean.copy_(torch.randn(mean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    variance.copy_(torch.rand(mean.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    same(fused.ucb_argmax(mean, variance, 2.0), reference(mean, variance, 2.0))


def test_fused_at_scale(fused, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    mean = torch.randn(2, 3_000_001, device=device)
    same(fused.ucb_argmax(mean, mean.square(), 1.5), naive.ucb_argmax(mean, mean.square(), 1.5))
