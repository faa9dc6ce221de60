"""The round on CUDA: every row of the posterior is read once. Algorithm and buffers are those of :mod:`naive`.

A round is bound by reading: with m covariance rows and k pending rows of n arms, (m + k) n numbers. On an H100 it is
2.4 to 3.2 times as fast as :mod:`naive` (``benchmarks/GPU.md``), and as fast at n = 10^6, m = 1000.

- What depends on the arm alone comes first. ``_take_slots`` finds the place of the arm's row and K_Da, ``_times_root``
  R^T R K_Da, and ``_scalars`` the variance of the arm, scale, innovation and gain. Nothing is read back to the host.
- Then ``_stream`` forms the new row tile by tile, stores it and applies it to mean and variance in the same pass. It
  adds up counts and gain as well: should it fail, the round can be run on the naive path as if nothing had been. With
  few arms tiles are narrow and tall, so that enough programs run at once.
- Rows newer than the block have weight zero and are not read. How many are older is read on the device, so that no
  launch depends on it: a graph of a block serves until there must be space for more rows. The prior row of a known arm
  is not stored again.
- Tiles have a fixed shape for given s and n, and nothing is added atomically: every run gives the same to the bit.
- The end of a block stays in torch: cuBLAS is at the memory bound there.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.arm_update.naive import ArmBuffers, PriorRows, begin_round_

# A tile has TILE_BYTES and from NARROWEST to WIDEST float64 arms (twice as many in float32). PROGRAMS are the goal.
TILE_BYTES, WIDEST, NARROWEST, PROGRAMS, NUM_WARPS = 1 << 14, 256, 32, 512, 4
COLUMN = 256  # Rows read at a time where only one arm of each is needed
ROOT = 32  # Rows and columns of a tile of R
# Sizes that grow during a run: a kernel specialized to them would be compiled again and again.
GROWING = ["k", "capacity", "slots"]


@torch.no_grad()
def update_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel: PriorRows, counts: Tensor | None = None
) -> Tensor:
    """See :func:`bo_robust.ops.arm_update.naive.update_`. ``ValueError`` if a buffer is not contiguous.

    A trial whose arm is out of range is left as it is.
    """
    _check(buffers)
    begin_round_(buffers)
    s, n = buffers.mean.shape
    k, like = buffers.num_pending, buffers.mean
    arms, rewards = arms.contiguous(), rewards.contiguous()
    ok = torch.empty(s, dtype=torch.int8, device=like.device)
    at_arm, steps = like.new_empty(s, max(k, 1)), like.new_empty(s, 4)
    with torch.cuda.device_of(like):
        if buffers.dense:
            base, weights, new_slot = buffers.rows, at_arm, arms  # the last two are not read
        else:
            base, weights, new_slot = _low_rank(buffers, arms, kernel)
        read = (arms, base, weights, buffers.rows, buffers.pending, buffers.mean, buffers.block_filled)
        sizes = (n, k, buffers.rows.shape[1], buffers.pending.shape[1])
        shared = (*read, at_arm, steps, *sizes)
        counted = rewards if counts is None else counts.contiguous()
        own = (rewards, counted, buffers.noise_var, ok)
        _scalars[(s,)](
            *shared, *own, DENSE=buffers.dense, HAS_COUNTS=counts is not None, BLOCK=COLUMN, num_warps=NUM_WARPS
        )
        BJ, BN = _tile(s, n, like.element_size())
        blocks = s * triton.cdiv(n, BN)
        written = (new_slot, buffers.variance, buffers.counts, buffers.information_gain, ok)
        _stream[(blocks,)](*shared, *written, DENSE=buffers.dense, BJ=BJ, BN=BN, num_warps=NUM_WARPS)
    buffers.num_pending += 1
    return ok.view(torch.bool)


def _low_rank(buffers: ArmBuffers, arms: Tensor, kernel: PriorRows) -> tuple[Tensor, Tensor, Tensor]:
    """K[a, :], ``s x n``; R^T R K_Da, ``s x c``; and the row to store K[a, :] in, ``s``, -1 if it is stored already."""
    (s, n), capacity = buffers.mean.shape, buffers.rows.shape[1]
    buffers.num_rows = min(buffers.num_rows + 1, capacity)
    prior = kernel.rows(arms.clamp(0, n - 1)).contiguous()
    at_rows, products, weights = (prior.new_empty(s, capacity) for _ in range(3))
    new_slot = torch.empty_like(arms)
    given = (arms, prior, buffers.slots, buffers.row_arm, buffers.filled, buffers.block_filled, at_rows, new_slot)
    _take_slots[(s,)](*given, n, capacity, BLOCK=COLUMN, num_warps=NUM_WARPS)
    grid, shared = (s, triton.cdiv(capacity, ROOT)), (buffers.root, buffers.block_filled)
    for transposed, x, out in ((False, at_rows, products), (True, products, weights)):
        _times_root[grid](*shared, x, out, capacity, TRANSPOSED=transposed, B=ROOT, num_warps=NUM_WARPS)
    return prior, weights, new_slot


def _tile(s: int, n: int, item: int) -> tuple[int, int]:
    """Rows and arms of the widest tile that leaves at least PROGRAMS of them."""
    wide, narrow = WIDEST * 8 // item, NARROWEST * 8 // item
    while wide > narrow and s * triton.cdiv(n, wide) < PROGRAMS:
        wide //= 2
    return TILE_BYTES // item // wide, wide


def _check(buffers: ArmBuffers) -> None:
    for name in ("mean", "variance", "counts", "pending", "rows", "row_arm", "root", "slots"):
        if not getattr(buffers, name).is_contiguous():
            raise ValueError(f"{name} of the posterior is not contiguous; replace it by its `.contiguous()`.")


@triton.jit(do_not_specialize=GROWING)
def _take_slots(  # type: ignore[no-untyped-def]
    arms, prior, slots, row_arm, filled, block_filled, at_rows, new_slot, n, capacity, BLOCK: tl.constexpr
):
    """One program: the slot of one trial's arm, and K_Da of the rows older than the block."""
    trial = tl.program_id(0).to(tl.int64)
    arm = tl.load(arms + trial)
    arm = tl.minimum(tl.maximum(arm, 0), n - 1)  # keeps an arm out of range from reading elsewhere
    slot = tl.load(slots + trial * n + arm)
    next_slot = tl.load(filled + trial)
    old = tl.load(block_filled + trial).to(tl.int32)
    for start in range(0, old, BLOCK):
        j = start + tl.arange(0, BLOCK)
        row = tl.load(row_arm + trial * capacity + j, mask=j < old, other=0)
        value = tl.load(prior + trial * n + row, mask=j < old, other=0.0)
        tl.store(at_rows + trial * capacity + j, value, mask=j < old)
    place = tl.where(slot < 0, next_slot, slot)
    tl.store(slots + trial * n + arm, place)
    tl.store(row_arm + trial * capacity + place, arm)
    tl.store(filled + trial, tl.where(slot < 0, next_slot + 1, next_slot))
    tl.store(new_slot + trial, tl.where(slot < 0, next_slot, -1))


@triton.jit(do_not_specialize=GROWING)
def _times_root(  # type: ignore[no-untyped-def]
    root, block_filled, x, out, capacity, TRANSPOSED: tl.constexpr, B: tl.constexpr
):
    """One program: B entries of R x, or of R^T x, of one trial. R is lower triangular."""
    trial = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * B  # CUDA allows 65535 of these
    old = tl.load(block_filled + trial).to(tl.int32)
    i = first + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=x.dtype.element_ty)
    begin = first if TRANSPOSED else 0
    end = old if TRANSPOSED else tl.minimum(first + B, old)
    for start in range(begin, end, B):
        j = (start + tl.arange(0, B)).to(tl.int64)
        value = tl.load(x + trial * capacity + j, mask=j < old, other=0.0)
        inside = (i < old)[:, None] & (j < old)[None, :]
        row, column = (j[None, :], i[:, None]) if TRANSPOSED else (i[:, None], j[None, :])
        R = tl.load(root + (trial * capacity + row) * capacity + column, mask=inside, other=0.0)
        total += R * value[None, :]
    tl.store(out + trial * capacity + i, tl.sum(total, axis=1), mask=i < old)


@triton.jit
def log_of_one_plus(x):  # type: ignore[no-untyped-def]
    """log(1 + x) without cancellation for small x (Kahan), of float64, where the logarithm is exact to rounding."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _add_column(total, weights, column, count, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total`` and the products of ``count`` weights with a column of rows of n numbers, by block."""
    for start in range(0, count, BLOCK):
        j = start + tl.arange(0, BLOCK)
        w = tl.load(weights + j, mask=j < count, other=0.0)
        total += w * tl.load(column + j.to(tl.int64) * n, mask=j < count, other=0.0)
    return total


@triton.jit
def _store_steps(steps, scale, innovation, count, gain):  # type: ignore[no-untyped-def]
    tl.store(steps, scale)
    tl.store(steps + 1, innovation)
    tl.store(steps + 2, count)
    tl.store(steps + 3, gain)


@triton.jit
def _add_at(pointer, value):  # type: ignore[no-untyped-def]
    tl.store(pointer, tl.load(pointer) + value)


@triton.jit(do_not_specialize=GROWING)
def _scalars(  # type: ignore[no-untyped-def]
    arms, base, weights, rows, pending, mean, block_filled, at_arm, steps, n, k, capacity, slots,
    rewards, counts, noise_var, ok, DENSE: tl.constexpr, HAS_COUNTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: all single numbers of one trial's round.

    ``at_arm`` gets p_i[a]. ``steps`` gets the scale of the new row, its multiple in the mean, the count and the gain.
    """
    trial = tl.program_id(0).to(tl.int64)
    given = tl.load(arms + trial)
    arm = tl.minimum(tl.maximum(given, 0), n - 1)
    dtype = mean.dtype.element_ty
    explained = tl.zeros((BLOCK,), dtype=dtype)
    for start in range(0, k, BLOCK):
        i = start + tl.arange(0, BLOCK)
        p = tl.load(pending + (trial * slots + i) * n + arm, mask=i < k, other=0.0)
        tl.store(at_arm + trial * k + i, p, mask=i < k)
        explained += p * p
    if DENSE:
        prior_variance = tl.load(base + (trial * n + arm) * n + arm)
    else:
        prior_variance = tl.load(base + trial * n + arm)
        first, old = trial * capacity, tl.load(block_filled + trial).to(tl.int32)
        explained = _add_column(explained, weights + first, rows + first * n + arm, old, n, BLOCK)
    prior_variance -= tl.sum(explained, axis=0)
    prior_variance = tl.where(prior_variance < 0.0, 0.0, prior_variance)

    reward, noise = tl.load(rewards + trial), tl.load(noise_var + trial)
    taken = (tl.abs(reward) < float("inf")) & (given == arm)  # false for NaN
    count = tl.full((), 1.0, dtype=dtype)
    if HAS_COUNTS:
        count = tl.load(counts + trial)
        taken = taken & (count > 0.0)
        noise = noise / tl.where(taken, count, 1.0)
    scale = tl.where(taken, 1.0 / tl.sqrt(prior_variance + noise), 0.0)
    innovation = tl.where(taken, reward - tl.load(mean + trial * n + arm), 0.0) * scale
    gain = 0.5 * log_of_one_plus(tl.where(taken, prior_variance / noise, 0.0).to(tl.float64))
    _store_steps(steps + 4 * trial, scale, innovation, tl.where(taken, count, 0.0), gain.to(dtype))
    tl.store(ok + trial, taken.to(tl.int8))


@triton.jit
def _add_rows(total, weights, rows, count, n, b, BJ: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total`` and the sum of ``count`` weighted rows at arms ``b``, tile by tile."""
    for start in range(0, count, BJ):
        j = (start + tl.arange(0, BJ)).to(tl.int64)
        w = tl.load(weights + j, mask=j < count, other=0.0)
        mask = (j < count)[:, None] & (b < n)[None, :]
        total += w[:, None] * tl.load(rows + j[:, None] * n + b[None, :], mask=mask, other=0.0)
    return total


@triton.jit(do_not_specialize=GROWING)
def _stream(  # type: ignore[no-untyped-def]
    arms, base, weights, rows, pending, mean, block_filled, at_arm, steps, n, k, capacity, slots,
    new_slot, variance, counted, information_gain, ok, DENSE: tl.constexpr, BJ: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """One program: the new row at BN arms of one trial, from all rows. Offsets are 64 bit.

    It is the last op of a round, and before it nothing is written that the round on the naive path would add once more.
    """
    blocks = tl.cdiv(n, BN)
    program = tl.program_id(0).to(tl.int64)
    trial = program // blocks
    b = program % blocks * BN + tl.arange(0, BN)
    inside = b < n
    total = tl.zeros((BJ, BN), dtype=mean.dtype.element_ty)
    arm = tl.minimum(tl.maximum(tl.load(arms + trial), 0), n - 1)
    if DENSE:
        row = tl.load(base + (trial * n + arm) * n + b, mask=inside, other=0.0)
    else:
        row = tl.load(base + trial * n + b, mask=inside, other=0.0)
        slot = tl.load(new_slot + trial)
        if slot >= 0:
            tl.store(rows + (trial * capacity + slot) * n + b, row, mask=inside)
        old = tl.load(block_filled + trial).to(tl.int32)
        total = _add_rows(total, weights + trial * capacity, rows + trial * capacity * n, old, n, b, BJ)
    total = _add_rows(total, at_arm + trial * k, pending + trial * slots * n, k, n, b, BJ)
    new = (row - tl.sum(total, axis=0)) * tl.load(steps + 4 * trial)
    tl.store(pending + (trial * slots + k) * n + b, new, mask=inside)
    mu = tl.load(mean + trial * n + b, mask=inside, other=0.0) + new * tl.load(steps + 4 * trial + 1)
    tl.store(mean + trial * n + b, mu, mask=inside)
    left = tl.load(variance + trial * n + b, mask=inside, other=0.0) - new * new
    tl.store(variance + trial * n + b, tl.where(left < 0.0, 0.0, left), mask=inside)
    finite = (tl.abs(mu) < float("inf")) & (tl.abs(left) < float("inf"))  # false for NaN
    if tl.sum((inside & ~finite).to(tl.int32), axis=0) > 0:
        tl.store(ok + trial, 0)
    if program % blocks == 0:
        _add_at(counted + trial * n + arm, tl.load(steps + 4 * trial + 2))
        _add_at(information_gain + trial, tl.load(steps + 4 * trial + 3))
