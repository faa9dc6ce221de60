from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.ops import arm_update, naive_ops
from bo_robust.ops.arm_update import naive
from bo_robust.ops.arm_update.naive import ArmBuffers
from bo_robust.utils.covariance import Matern, SquaredExponential

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}
# What a round or the end of a block may change; rows and pending rows only as far as they are in use.
WHOLE = ("mean", "variance", "counts", "information_gain", "slots", "filled", "block_filled")


@pytest.fixture
def fused(fused_module):
    return fused_module("arm_update")


def start(s, n, dense, dtype, device, block=None):
    """The prior and its kernel; every trial has a noise variance of its own."""
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(n), dtype=dtype).to(device)
    kernel = ArmKernel.from_covariance(Matern(2.5, 0.4, 1.5), X)
    noise = torch.linspace(0.05, 0.2, s, dtype=dtype, device=device)
    return arm_states.init(kernel, noise, s, dense=dense, block=block), kernel


def pulls(rounds, s, n, dtype, device):
    """Arms (one in three is the last arm but one again), and rewards, some of which failed."""
    g = torch.Generator().manual_seed(rounds)
    arms = torch.randint(n, (rounds, s), generator=g)
    arms[2::3] = arms[1:-1:3]
    rewards = torch.randn(rounds, s, generator=g, dtype=dtype)
    rewards[3, 0], rewards[7, s - 1] = torch.nan, torch.inf
    return arms.to(device), rewards.to(device)


def copy_of(buffers: ArmBuffers) -> ArmBuffers:
    return replace(
        buffers, **{f.name: x.clone() for f in fields(buffers) if isinstance(x := getattr(buffers, f.name), Tensor)}
    )


def assert_same(a: ArmBuffers, b: ArmBuffers, dtype):
    assert (a.num_pending, a.num_rows) == (b.num_pending, b.num_rows)
    for name in WHOLE:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    k = a.num_pending
    torch.testing.assert_close(a.pending[:, :k], b.pending[:, :k], rtol=0, atol=TOLERANCE[dtype])
    for i, m in enumerate(b.filled.tolist()):
        m = a.rows.shape[1] if a.dense else m
        torch.testing.assert_close(a.rows[i, :m], b.rows[i, :m], rtol=0, atol=TOLERANCE[dtype])
        assert torch.equal(a.row_arm[i, :m], b.row_arm[i, :m])


def run_rounds(fused, s, n, dense, dtype, device, rounds=20, block=6, counts=None):
    """Both paths through the same rounds; the buffers of both."""
    plain, kernel = start(s, n, dense, dtype, device, block)
    buffers = copy_of(plain)
    for t, (arms, rewards) in enumerate(zip(*pulls(rounds, s, n, dtype, device), strict=True)):
        c = None if counts is None else counts[t]
        ok = fused.update_(buffers, arms, rewards, kernel, c)
        expected = naive.update_(plain, arms, rewards, kernel, c)
        assert ok.dtype == torch.bool
        assert torch.equal(ok, expected)
    assert_same(buffers, plain, dtype)
    return buffers, plain


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("s", "n"), [(1, 1), (2, 3), (1, 63), (2, 100)])
def test_twenty_rounds_and_three_blocks(fused, s, n, dense, dtype, device):
    run_rounds(fused, s, n, dense, dtype, device)


@pytest.mark.parametrize("dense", [True, False])
def test_tiles_of_every_shape(fused, dense, device, monkeypatch):
    """400 arms by tiles of 32, 256 and, with fewer rows than are pending, 1024; R by tiles of 4."""
    monkeypatch.setattr(fused, "ROOT", 4)
    for wide, programs, rounds in ((256, 10**9, 16), (256, 1, 8), (1024, 1, 9)):
        monkeypatch.setattr(fused, "WIDEST", wide)
        monkeypatch.setattr(fused, "PROGRAMS", programs)
        run_rounds(fused, 1, 400, dense, torch.float64, device, rounds, block=7)


@pytest.mark.parametrize("name", ["mean", "variance", "pending", "rows"])
def test_buffers_must_be_contiguous(fused, name, device):
    buffers, kernel = start(2, 30, False, torch.float64, device)
    setattr(buffers, name, getattr(buffers, name).mT.contiguous().mT)
    zero = torch.zeros(2, dtype=torch.float64, device=device)
    with pytest.raises(ValueError, match=f"{name} of the posterior is not contiguous"):
        fused.update_(buffers, zero.long(), zero, kernel)


@pytest.mark.parametrize("dense", [True, False])
def test_an_arm_out_of_range_changes_nothing(fused, dense, device):
    """The kernel is asked for rows of arms that exist only."""
    plain, kernel = start(3, 10, dense, torch.float64, device)
    buffers = copy_of(plain)
    before = copy_of(plain)
    arms = torch.tensor([10, -1, 2], device=device)
    rewards = torch.ones(3, dtype=torch.float64, device=device)
    ok = fused.update_(buffers, arms, rewards, kernel)
    assert torch.equal(ok, naive.update_(plain, arms, rewards, kernel))
    assert ok.tolist() == [False, False, True]
    assert torch.equal(buffers.mean[:2], before.mean[:2])
    assert torch.equal(buffers.variance[:2], before.variance[:2])
    assert buffers.counts.sum(1).tolist() == [0.0, 0.0, 1.0]
    assert_same(buffers, plain, torch.float64)


def test_tiny_gains_keep_their_digits_in_float32(fused, device):
    """log(1 + x) of x = 1e-6: log in float32 of 1 + x would be 5 % off."""
    X = torch.rand(5, 2, generator=torch.Generator().manual_seed(0)).to(device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), X)
    buffers = arm_states.init(kernel, 1e6, 1, dense=True)
    fused.update_(buffers, torch.zeros(1, dtype=torch.long, device=device), X[:1, 0], kernel)
    assert float(buffers.information_gain) == pytest.approx(0.5e-6, rel=1e-5)


@pytest.mark.parametrize("dense", [True, False])
def test_twenty_rounds_without_waiting_for_the_device(fused, dense, device):
    """On CUDA, where any read-back raises; and by the op that users call."""
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    plain, kernel = start(2, 500, dense, torch.float64, device)
    buffers = copy_of(plain)
    arms, rewards = pulls(20, 2, 500, torch.float64, device)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for t in range(20):
            arm_update.update_(buffers, arms[t], rewards[t], kernel)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with naive_ops():
        for t in range(20):
            arm_update.update_(plain, arms[t], rewards[t], kernel)
    assert_same(buffers, plain, torch.float64)


def test_fused_at_scale(fused, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    for dtype in (torch.float64, torch.float32):
        run_rounds(fused, 3, 100_003, False, dtype, device, rounds=80, block=16)
