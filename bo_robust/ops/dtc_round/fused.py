"""A round of BKB at static sizes on CUDA, in one launch for each function of :mod:`naive`.

A root of r points takes r steps, each of which reads all rows before it from the L2 cache, at most 2 R r numbers. By
estimate a step takes 2 us at R = 32 and 5 us at R = 256.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.arm_update.fused import log_of_one_plus

ARMS, ROWS, NUM_WARPS = 1024, 32, 8  # Arms of a tile of ``_draw``, rows of a tile of ``_root``


@torch.no_grad()
def draw_(slots: int, oversampling: float, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`bo_robust.ops.dtc_round.naive.draw_`."""
    arms, _, uniforms, _, variance, *_, dictionary, most = given
    (s, n), ok = variance.shape, torch.empty_like(arms, dtype=torch.int8)
    points, size, bits = arms.new_empty(s, slots), torch.empty_like(most), 53 if variance.element_size() == 8 else 24
    parts = *(x.contiguous() for x in given[:-2]), dictionary.view(torch.int8), most, points, size, ok
    how = {"R": slots, "OWN": uniforms.ndim == 2, "BITS": bits, "B": ARMS, "num_warps": NUM_WARPS}
    with torch.cuda.device_of(variance):
        _draw[(s,)](*parts, oversampling, n, s, **how)
    return ok.view(torch.bool), points, size


@torch.no_grad()
def inverse_root(C: Tensor, size: Tensor, pivoting: bool) -> Tensor:
    """See :func:`bo_robust.ops.dtc_round.naive.inverse_root`."""
    (s, R), rounding = C.shape[:2], torch.finfo(C.dtype).eps if pivoting else 0.0
    X = C.new_empty(s, R, 2 * R)
    with torch.cuda.device_of(C):
        _root[(s,)](C.contiguous(), size, X, EPS=rounding, PIVOT=pivoting, R=R, B=min(R, ROWS), num_warps=NUM_WARPS)
    return X[..., R:]


# Rows of a block of rounds, of which every second or fourth starts at 16 bytes: a capture can load no other binary.
@triton.jit(do_not_specialize_on_alignment=["arms", "rewards", "uniforms"])
def _draw(  # type: ignore[no-untyped-def]  # noqa: PLR0915
    arms, rewards, uniforms, noise_var, variance, totals, learnt, pulled, dictionary, most, points, size, ok,
    oversampling: tl.float64, n, s, R: tl.constexpr, OWN: tl.constexpr, BITS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """One program: all of ``draw_`` in one trial. Logarithms are float64; the bits are those of ``spread``."""
    trial = tl.program_id(0).to(tl.int64)
    sums, counts = trial * n, (s + trial) * n
    given, reward, noise = tl.load(arms + trial), tl.load(rewards + trial), tl.load(noise_var + trial)
    arm = tl.minimum(tl.maximum(given, 0), n - 1)
    taken = (tl.abs(reward) < float("inf")) & (given == arm)  # false for NaN
    sum_of_arm = tl.load(totals + sums + arm) + tl.where(taken, reward, 0.0)
    count_of_arm = tl.load(totals + counts + arm) + tl.where(taken, 1.0, 0.0)
    gain = 0.5 * log_of_one_plus((tl.load(variance + sums + arm) / noise).to(tl.float64))
    tl.store(pulled + 2 * trial, tl.load(pulled + 2 * trial) + tl.where(taken, gain, 0.0).to(noise.dtype))
    tl.store(pulled + 2 * trial + 1, 0.0)
    tl.store(points + trial * R + tl.arange(0, R), tl.zeros((R,), dtype=tl.int64))
    tl.debug_barrier()
    filled, least, best = tl.zeros((), tl.int64), tl.zeros((), tl.float64), tl.zeros((), tl.int64)
    for start in range(0, n, B):
        i = start + tl.arange(0, B).to(tl.int64)
        inside = i < n
        count = tl.where(i == arm, count_of_arm, tl.load(totals + counts + i, mask=inside, other=0.0))
        v = tl.load(variance + sums + i, mask=inside, other=0.0) / noise
        p = v.to(tl.float64) * oversampling
        log = count.to(tl.float64) * log_of_one_plus(-tl.where(p > 1.0, 1.0, p))  # ``tl.minimum`` drops NaN
        log = tl.where(log < 0.0, log, 0.0)
        if OWN:
            uniform = tl.load(uniforms + sums + i, mask=inside, other=0.0).to(tl.float64)
        else:
            seed = (tl.load(uniforms + trial + 0 * i).to(tl.float64) * 9007199254740992.0).to(tl.int64)
            z = seed * -3372029247567499371 + (i + 1) * -7046029254386353131
            z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
            z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
            z = z ^ ((z >> 31) & 0x1FFFFFFFF)
            uniform = ((z >> (64 - BITS)) & ((1 << BITS) - 1)).to(tl.float64) / (1 << BITS)
        keep = inside & (log < tl.log(1.0 - uniform))
        place = filled + tl.cumsum(keep.to(tl.int64), axis=0) - 1
        tl.store(points + trial * R + place, i, mask=keep & (place < R))
        tl.store(dictionary + sums + i, keep.to(tl.int8), mask=inside)
        filled += tl.sum(keep.to(tl.int64), axis=0)
        first = tl.min(tl.where(log == tl.min(log, axis=0), i, n), axis=0)
        best = tl.where(tl.min(log, axis=0) < least, first, best)
        least = tl.minimum(tl.min(log, axis=0), least)
    tl.debug_barrier()
    if filled == 0:
        tl.store(points + trial * R, best)
        tl.store(dictionary + sums + best, 1)
    filled = tl.maximum(filled, 1)
    tl.store(size + trial, tl.minimum(filled, R))
    tl.store(most + trial, tl.maximum(tl.load(most + trial), filled))
    tl.store(ok + trial, taken.to(tl.int8))
    tl.store(totals + sums + arm, sum_of_arm)
    tl.store(totals + counts + arm, count_of_arm)
    tl.store(learnt + sums + arm, sum_of_arm)
    tl.store(learnt + counts + arm, count_of_arm)


@triton.jit
def _root(  # type: ignore[no-untyped-def]
    C, size, X, EPS: tl.constexpr, PIVOT: tl.constexpr, R: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """One program: all of ``inverse_root`` in one trial. X gets L^T and W."""
    trial = tl.program_id(0).to(tl.int64)
    C += trial * R * R
    X += trial * 2 * R * R
    points, i = tl.load(size + trial).to(tl.int32), tl.arange(0, R)
    diagonal = tl.load(C + i * (R + 1), mask=i < points, other=0.0)
    present = diagonal > 0.0
    scale = tl.where(present, 1.0 / tl.sqrt(tl.where(present, diagonal, 1.0)), 0.0)
    rounding = (tl.sum(present.to(tl.int32), axis=0) * EPS).to(diagonal.dtype)
    left = tl.where(present, 1.0 + 0.5 * rounding, -1.0)
    for k in range(points):
        p = tl.argmax(left, axis=0) if PIVOT else k
        d, of_p = tl.sum(tl.where(i == p, left, 0.0), axis=0), tl.sum(tl.where(i == p, scale, 0.0), axis=0)
        row = tl.load(C + p * R + i, mask=present, other=0.0) * scale * of_p
        inverse = tl.where(i == p, of_p, 0.0)
        for start in range(0, k, B):
            j = start + tl.arange(0, B)
            e = tl.load(X + j * (2 * R) + p, mask=j < k, other=0.0)[:, None]
            at, before = X + j[:, None] * (2 * R) + i[None, :], (j < k)[:, None] & (i < R)[None, :]
            row -= tl.sum(e * tl.load(at, mask=before, other=0.0), axis=0)
            inverse -= tl.sum(e * tl.load(at + R, mask=before, other=0.0), axis=0)
        go = d > 1.5 * rounding
        root = tl.where(go, 1.0 / tl.sqrt(tl.where(go, d, 1.0)), 0.0)
        tl.store(X + k * (2 * R) + i, row * root)
        tl.store(X + k * (2 * R) + R + i, inverse * root)
        left = tl.where(i == p, -1.0, left - row * root * (row * root))
        tl.debug_barrier()  # the next step reads these
    for k in range(points, R):
        tl.store(X + k * (2 * R) + R + i, tl.zeros((R,), dtype=diagonal.dtype))
