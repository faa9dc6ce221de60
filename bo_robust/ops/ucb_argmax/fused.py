"""The choice on CUDA in one pass over mean and variance. Plain torch makes four passes and writes the bound twice.

Up to TILE arms take one launch, more take two.

Sums, products and square roots are rounded one by one (no fused multiply-add), as torch does on CUDA, so that bounds
and arms equal those of :mod:`naive` to the bit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# TILE arms are read at once; a trial has at most PARTS programs.
TILE, PARTS, NUM_WARPS = 1024, 1024, 4


@torch.no_grad()
def ucb_argmax(mean: Tensor, variance: Tensor, width: float | Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`bo_robust.ops.ucb_argmax.ucb_argmax`."""
    s, n = mean.shape
    if isinstance(width, Tensor):
        widths = width.to(mean.dtype).expand(s).contiguous()
    else:
        widths = mean.new_full((s,), width)
    tiles = triton.cdiv(n, TILE)
    part_tiles = triton.cdiv(tiles, PARTS)
    parts = triton.cdiv(tiles, part_tiles)
    arms, bounds = torch.empty(s, parts, dtype=torch.long, device=mean.device), mean.new_empty(s, parts)
    if s == 0:
        return arms[:, 0], bounds[:, 0]
    sizes, strides = (n, parts, part_tiles), (*mean.stride(), *variance.stride())
    with torch.cuda.device_of(mean):
        _best_of_part[(s * parts,)](
            *(mean, variance, widths, arms, bounds),
            *sizes,
            *strides,
            TILE=TILE,
            num_warps=NUM_WARPS,
            enable_fp_fusion=False,
        )
        if parts > 1:
            part_arms, part_bounds = arms, bounds
            arms, bounds = arms.new_empty(s, 1), bounds.new_empty(s, 1)
            _best_of_parts[(s,)](part_arms, part_bounds, arms, bounds, n, parts, PARTS=PARTS, num_warps=NUM_WARPS)
    return arms[:, 0], bounds[:, 0]


@triton.jit
def _first_of_largest(bound, b, n):  # type: ignore[no-untyped-def]
    """The largest bound and the least of its arms ``b``. NaN is largest; arms beyond n have the bound -inf."""
    is_nan = bound != bound
    first_nan = tl.min(tl.where(is_nan, b, n), axis=0)
    top = tl.max(tl.where(is_nan, float("-inf"), bound), axis=0)
    first = tl.min(tl.where(bound == top, b, n), axis=0)
    return tl.where(first_nan < n, first_nan, first), tl.where(first_nan < n, float("nan"), top)


@triton.jit
def _best_of_part(  # type: ignore[no-untyped-def]
    mean,
    variance,
    widths,
    arms,
    bounds,
    n,
    parts,
    part_tiles,
    mean_trial,
    mean_arm,
    variance_trial,
    variance_arm,
    TILE: tl.constexpr,
):
    """One program: the best arm of ``part_tiles`` tiles of one trial. Offsets are 64 bit."""
    program = tl.program_id(0).to(tl.int64)
    trial, part = program // parts, program % parts
    w = tl.load(widths + trial)
    first = part * part_tiles * TILE + tl.arange(0, TILE)
    best = tl.full((TILE,), float("-inf"), dtype=mean.dtype.element_ty)
    arm = first
    for tile in range(part_tiles):
        b = first + tile * TILE
        inside = b < n
        v = tl.load(variance + trial * variance_trial + b * variance_arm, mask=inside, other=0.0)
        mu = tl.load(mean + trial * mean_trial + b * mean_arm, mask=inside, other=0.0)
        if mean.dtype.element_ty == tl.float32:  # where tl.sqrt is not rounded to nearest
            sigma = tl.sqrt_rn(v)
        else:
            sigma = tl.sqrt(v)
        bound = tl.where(inside, sigma * w + mu, float("-inf"))
        better = (bound > best) | ((bound != bound) & (best == best))
        best = tl.where(better, bound, best)
        arm = tl.where(better, b, arm)
    arm, top = _first_of_largest(best, arm, n)
    tl.store(arms + program, arm)
    tl.store(bounds + program, top)


@triton.jit
def _best_of_parts(  # type: ignore[no-untyped-def]
    part_arms,
    part_bounds,
    arms,
    bounds,
    n,
    parts,
    PARTS: tl.constexpr,
):
    """One program: the best of all parts of one trial."""
    trial = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, PARTS)
    arm = tl.load(part_arms + trial * parts + i, mask=i < parts, other=n)
    bound = tl.load(part_bounds + trial * parts + i, mask=i < parts, other=float("-inf"))
    arm, top = _first_of_largest(bound, arm, n)
    tl.store(arms + trial, arm)
    tl.store(bounds + trial, top)
