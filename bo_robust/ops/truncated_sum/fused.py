"""The truncated sums in one Triton op, which never writes the ``p x t`` products to memory.

A program owns BI directions of one trial and PART_TILES tiles of BT observations. For each tile it forms R Phi^T
(``BI x BT``) in registers, multiplies by the rewards, sets products beyond the level to zero and adds up the rows. It
writes BI partial sums, which a second pass adds up. There are no atomic additions and tiles have fixed sizes, so every
run gives the same result to the bit.

Each of the t p features takes part in p multiplications, 2 p flops per 8 bytes in float64 (4 in float32). So arithmetic
is the bound from about p = 60 (float32: 30).

``tl.dot`` multiplies float64 in float64. Compiled for sm_90 it becomes ``mma.sync.m16n8k16.f64`` with Triton 3.6 and
``m8n8k4`` with Triton 3.9 (31 of the 54 Tflop/s of cuBLAS on an H100 according to triton-lang/triton#10313). Devices
without float64 tensor units use fused multiply-add. Float32 is multiplied in float32 ("ieee", no tensor units), never
in tf32, which would move products across the level.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.truncated_sum.naive import level_tensor

# A tile has BT observations and BI directions (64, or 32 for small p), and is formed from BK features at a time (16 is
# the least that Triton 3.6 takes). Compiled for sm_90 it fits in the registers in both dtypes: two programs per
# multiprocessor in float64, three in float32. Not tuned at run time, so that results do not depend on a timing.
BT, BK, NUM_WARPS, NUM_STAGES = 64, 16, 4, 3
# Tiles of observations per program.
PART_TILES = 16


@torch.no_grad()
def truncated_sum(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """See :func:`bo_robust.ops.truncated_sum.truncated_sum`."""
    return _launch(root, features, rewards, level, root.dtype).sum(-2)


@torch.no_grad()
def truncated_count(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor) -> Tensor:
    """See :func:`bo_robust.ops.truncated_sum.truncated_count`."""
    return _launch(root, features, rewards, level, torch.int32).sum((-2, -1))


def _launch(root: Tensor, features: Tensor, rewards: Tensor, level: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Partial sums, or counts if ``dtype`` is int32, of every part of the observations: ``... x parts x p``."""
    batch, p, t = root.shape[:-2], root.shape[-1], rewards.shape[-1]
    BI = 32 if p <= 32 else 64
    s, blocks, parts = batch.numel(), triton.cdiv(p, BI), triton.cdiv(t, BT * PART_TILES)
    out = torch.empty(s, parts, p, dtype=dtype, device=root.device)
    if out.numel():
        root = root.reshape(s, p, p).contiguous()
        features = features.reshape(-1, t, p)
        rewards = rewards.reshape(s, t)
        bounds = level_tensor(level, root).expand(batch).reshape(s).contiguous()
        with torch.cuda.device_of(root):
            _truncated_sum[(s * parts * blocks,)](
                root,
                features,
                rewards,
                bounds,
                out,
                p,
                t,
                features.stride(0) if len(features) > 1 else 0,  # zero where all trials share them
                *features.stride()[1:],
                *rewards.stride(),
                COUNT=dtype == torch.int32,
                PART_TILES=PART_TILES,
                BI=BI,
                BT=BT,
                BK=BK,
                num_warps=NUM_WARPS,
                num_stages=NUM_STAGES,
            )
    return out.reshape(*batch, parts, p)


@triton.jit
def _truncated_sum(  # type: ignore[no-untyped-def]
    root,
    features,
    rewards,
    bounds,
    out,
    p,
    t,
    features_trial,
    features_row,
    features_column,
    rewards_trial,
    rewards_row,
    COUNT: tl.constexpr,
    PART_TILES: tl.constexpr,
    BI: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
):
    """One program: BI directions, PART_TILES tiles of observations, one trial. Offsets are 64 bit."""
    # Neighbouring programs read the same observations, so that these are shared in the cache.
    blocks, parts = tl.cdiv(p, BI), tl.cdiv(t, BT * PART_TILES)
    program = tl.program_id(0).to(tl.int64)
    part, trial = program // blocks % parts, program // (blocks * parts)
    i = program % blocks * BI + tl.arange(0, BI)
    k = tl.arange(0, BK).to(tl.int64)
    root += trial * p * p
    features += trial * features_trial
    rewards += trial * rewards_trial
    bound = tl.load(bounds + trial)
    total = tl.zeros((BI,), dtype=out.dtype.element_ty)
    first = part * PART_TILES
    for tile in range(first, tl.minimum(first + PART_TILES, tl.cdiv(t, BT))):
        tau = tile * BT + tl.arange(0, BT)
        products = tl.zeros((BI, BT), dtype=root.dtype.element_ty)
        for start in range(0, p, BK):
            # Zeros outside the data make products of zero, which are within every level.
            column = start + k
            R = tl.load(
                root + i[:, None] * p + column[None, :],
                mask=(i[:, None] < p) & (column[None, :] < p),
                other=0.0,
            )
            Phi = tl.load(
                features + column[:, None] * features_column + tau[None, :] * features_row,
                mask=(column[:, None] < p) & (tau[None, :] < t),
                other=0.0,
            )
            products = tl.dot(R, Phi, products, input_precision="ieee", out_dtype=root.dtype.element_ty)
        products *= tl.load(rewards + tau * rewards_row, mask=tau < t, other=0.0)[None, :]
        truncated = tl.abs(products) > bound
        if COUNT:
            total += tl.sum(truncated.to(tl.int32), axis=1)
        else:
            total += tl.sum(tl.where(truncated, 0.0, products), axis=1)
    tl.store(out + (trial * parts + part) * p + i, total, mask=i < p)
