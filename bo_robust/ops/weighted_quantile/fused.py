"""Order statistics of many short rows on CUDA. Every row is read once, kept in registers, and its result written once.

* ``kth_index`` sorts the values of a row, as whole numbers in the same order and without their places. Then it looks
  up the first place of the k-th. This takes some w log(w)^2 / 2 steps.
* ``sorted_masses`` counts ranks by w^2 comparisons per row. The rank of a value is the number of values before it:
  smaller ones, and equal ones further left. NaN is after every number. The masses before a value are added on the way.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.weighted_quantile import naive

# Longer rows take the plain path.
MAX_POINTS = 256
# Values per program.
TILE, NUM_WARPS = 1024, 4


@torch.no_grad()
def kth_index(values: Tensor, k: int) -> Tensor:
    """As :func:`naive.kth_index`; the first of equal values."""
    w = values.shape[-1]
    if w > MAX_POINTS:
        return naive.kth_index(values, k)
    place = torch.empty(values.shape[:-1], dtype=torch.long, device=values.device)
    values = values.reshape(-1, w)
    _launch(_kth, values, place, *values.stride(), k)
    return place


@torch.no_grad()
def sorted_masses(values: Tensor, masses: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`naive.sorted_masses`."""
    w = values.shape[-1]
    if w > MAX_POINTS:
        return naive.sorted_masses(values, masses)
    order, mass = torch.empty(2, *values.shape, dtype=torch.long, device=values.device).unbind()
    masses = masses.expand(values.shape).reshape(-1, w)
    values = values.reshape(-1, w)
    _launch(_ranks, values, order, *values.stride(), masses, mass, *masses.stride())
    return order, mass


def _launch(kernel: Any, values: Tensor, *more: Any) -> None:
    """Run a kernel on rows of values, ``r x w``: some rows per program, their length a power of two."""
    rows, w = values.shape
    W = max(2, triton.next_power_of_2(w))
    if rows:
        with torch.cuda.device_of(values):
            kernel[(triton.cdiv(rows, TILE // W),)](values, rows, w, *more, BR=TILE // W, W=W, num_warps=NUM_WARPS)


@triton.jit(do_not_specialize=["num_rows", "k"])
def _kth(  # type: ignore[no-untyped-def]
    values,
    num_rows,
    w,
    place,
    values_row,
    values_point,
    k,
    BR: tl.constexpr,
    W: tl.constexpr,
):
    """One program: the k-th smallest value of BR rows. Offsets are 64 bit."""
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    i = tl.arange(0, W)
    is_row = row < num_rows
    v = tl.load(
        values + row[:, None] * values_row + (i.to(tl.int64) * values_point)[None, :],
        mask=is_row[:, None] & (i < w)[None, :],
        other=0.0,
    )
    v += 0.0  # turns -0 into 0, which has other bits
    # Bits of a float as a signed integer: in order for positive numbers, in reverse for negative ones, which the
    # exclusive or puts right. NaN comes after every number, and what is beyond the row after NaN.
    if v.dtype == tl.float64:
        bits = v.to(tl.int64, bitcast=True)
        largest = tl.full((1, 1), 0x7FFFFFFFFFFFFFFF, dtype=tl.int64)
    else:
        bits = v.to(tl.int32, bitcast=True)
        largest = tl.full((1, 1), 0x7FFFFFFF, dtype=tl.int32)
    key = tl.where(bits < 0, bits ^ largest, bits)
    key = tl.where(v != v, largest - 1, key)
    key = tl.where((i < w)[None, :], key, largest)
    kth = tl.sum(tl.where((i == k - 1)[None, :], tl.sort(key), 0), axis=1)
    first = tl.min(tl.where(key == kth[:, None], i[None, :], W), axis=1)
    tl.store(place + row, first.to(tl.int64), mask=is_row)


@triton.jit(do_not_specialize=["num_rows"])
def _ranks(  # type: ignore[no-untyped-def]
    values,
    num_rows,
    w,
    order,
    values_row,
    values_point,
    masses,
    mass,
    masses_row,
    masses_point,
    BR: tl.constexpr,
    W: tl.constexpr,
):
    """One program: ranks and cumulative masses of BR rows. Offsets are 64 bit."""
    row = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    i = tl.arange(0, W)
    is_row = row < num_rows
    inside = is_row[:, None] & (i < w)[None, :]
    values += row * values_row
    masses += row * masses_row
    v = tl.load(values[:, None] + (i.to(tl.int64) * values_point)[None, :], mask=inside, other=0.0)
    total = tl.load(masses[:, None] + (i.to(tl.int64) * masses_point)[None, :], mask=inside, other=0)
    rank = tl.zeros((BR, W), dtype=tl.int32)
    v_is_nan = v != v
    for j in range(w):
        u = tl.load(values, mask=is_row, other=0.0)[:, None]
        equal = (u == v) | ((u != u) & v_is_nan)
        before = (u < v) | (v_is_nan & (u == u)) | (equal & (i > j)[None, :])
        rank += before.to(tl.int32)
        total += tl.where(before, tl.load(masses, mask=is_row, other=0)[:, None], 0)
        values += values_point  # pointers are 64 bit; j * values_point would be 32 bit and could overflow
        masses += masses_point
    place = row[:, None] * w + rank
    tl.store(order + place, tl.zeros((BR, W), dtype=tl.int64) + i[None, :], mask=inside)
    tl.store(mass + place, total, mask=inside)
