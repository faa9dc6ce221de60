"""The scores on CUDA. For every chunk ``_columns`` writes k_D, cuBLAS multiplies, ``_squares`` reduces the products.

On an H100, for 10^6 arms, it takes 20 to 23 ms at r = 500 (naive 55 to 60 ms), 3 to 4 ms at r = 100 (naive 10 to 12).

- The rate of the products R k and F k decides, and cuBLAS is the fastest (Triton's ``tl.dot`` reaches 31 of its 54
  Tflop/s on an H100 according to triton-lang/triton#10313). Products of BLOCK rows read only the columns up to the
  diagonal (:func:`naive.layers`): at r = 500, 0.625 of the 4 r^2 flops per arm.
- k_D is written once. Four products read it, and reuse every entry at least 256 times. ``_columns`` takes the arms as
  they are (float32 or float64), takes differences, and sums the mean in the same pass.
- The products are written once and read once. A chunk is up to 64 MiB of k_D, whose work hides its six or so launches.

A float32 dictionary is multiplied as ``torch.backends.cuda.matmul.fp32_precision`` says: leave it at "ieee", with tf32
the variance would be wrong.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.dtc_scores.naive import Dictionary, Form, Scores, chunk_shape, chunks, layers

# Rows of R (and as many of F) per product. Rows and columns are padded to a multiple of ALIGNMENT for cuBLAS.
BLOCK, ALIGNMENT = 128, 16
# Arms and points of a tile of ``_columns``, arms of a tile of ``_squares``. Every row is 1 KiB of consecutive float64.
COLUMNS_ARMS, COLUMNS_POINTS, SQUARES_ARMS, NUM_WARPS = 16, 128, 16, 4
# Sizes that differ between dictionaries and chunks, and what starts inside a tensor: a kernel specialized to them would
# be compiled again and again.
GROWING = ["B", "r", "mean_trial", "variance_trial"]
INSIDE = ["arms", "points", "weights", "mean", "noise_var", "variance"]


@torch.no_grad()
def dtc_scores(arms: Tensor, dictionary: Dictionary, form: Form, noise_var: Tensor) -> Scores:
    """See :func:`bo_robust.ops.dtc_scores.dtc_scores`."""
    (s, r, d), B = dictionary.points.shape, arms.shape[0]
    like = dictionary.root
    extra = -r % ALIGNMENT
    root, factor = (torch.nn.functional.pad(f, (0, extra, 0, extra)) for f in (dictionary.root, dictionary.factor))
    width = r + extra
    points, weights = dictionary.points.mT.contiguous(), dictionary.weights.contiguous()
    parts = layers(Dictionary(dictionary.points, root, factor, weights), BLOCK)
    parameters = torch.cat([like.new_tensor([form.scale, form.linear, form.square]), form.scales])
    noise = noise_var.contiguous()
    mean, variance = like.new_empty(2, s, B)
    group, length = chunk_shape(root, B)
    columns, products = like.new_empty(group, length, width), like.new_empty(group, length, 2 * width)
    with torch.cuda.device_of(like):
        for trials, rows in chunks(root, B):
            x, t = arms[rows], trials.stop - trials.start
            k, z = columns[:t, : len(x)], products[:t, : len(x)]
            _columns[(triton.cdiv(len(x), COLUMNS_ARMS), t)](
                *(x, points[trials], weights[trials], parameters, k, mean[trials, rows]),
                *(len(x), r, d, width, *x.stride(), k.stride(0), mean.stride(0)),
                GAUSSIAN=form.gaussian,
                BB=COLUMNS_ARMS,
                BR=COLUMNS_POINTS,
                num_warps=NUM_WARPS,
            )
            filled = 0
            for part in parts:
                rows_of_part, end = part.shape[1:]
                torch.bmm(k[..., :end], part[trials].mT, out=z[..., filled : filled + rows_of_part])
                filled += rows_of_part
            _squares[(triton.cdiv(len(x), SQUARES_ARMS), t)](
                *(z, parameters, noise[trials], variance[trials, rows]),
                *(len(x), width, z.stride(0), variance.stride(0)),
                BLOCK=BLOCK,
                BB=SQUARES_ARMS,
                num_warps=NUM_WARPS,
            )
    return Scores(mean, variance)


@triton.jit(do_not_specialize=GROWING, do_not_specialize_on_alignment=INSIDE)
def _columns(  # type: ignore[no-untyped-def]
    arms, points, weights, parameters, k, mean,
    B, r, d, width, arms_row, arms_column, k_trial, mean_trial,
    GAUSSIAN: tl.constexpr, BB: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """One program: k_D (``width`` columns, zero beyond r) and the mean of BB arms of one trial."""
    trial = tl.program_id(1).to(tl.int64)  # CUDA allows 65535 of these
    b = tl.program_id(0).to(tl.int64) * BB + tl.arange(0, BB)
    is_arm = b < B
    dtype = k.dtype.element_ty
    stride = tl.cast(arms_column, tl.int64)  # j columns on may be 2^31 numbers and more
    scale, linear, square = tl.load(parameters), tl.load(parameters + 1), tl.load(parameters + 2)
    total = tl.zeros((BB,), dtype=dtype)
    for start in range(0, width, BR):
        i = start + tl.arange(0, BR)
        is_point = i < r
        q = tl.zeros((BB, BR), dtype=dtype)
        for j in range(d):
            x = tl.load(arms + b * arms_row + j * stride, mask=is_arm, other=0.0).to(dtype)
            y = tl.load(points + (trial * d + j) * r + i, mask=is_point, other=0.0)
            difference = (x[:, None] - y[None, :]) * tl.load(parameters + 3 + j)
            q += difference * difference
        if GAUSSIAN:
            column = scale * tl.exp2(-q)
        else:
            e = tl.sqrt(q)
            column = scale * tl.exp2(-e) * (1.0 + e * (linear + e * square))
        column = tl.where(is_point[None, :], column, 0.0)
        tl.store(
            k + trial * k_trial + b[:, None] * width + i[None, :], column, mask=is_arm[:, None] & (i < width)[None, :]
        )
        w = tl.load(weights + trial * r + i, mask=is_point, other=0.0)
        total += tl.sum(column * w[None, :], axis=1)
    tl.store(mean + trial * mean_trial + b, total, mask=is_arm)


@triton.jit(do_not_specialize=GROWING, do_not_specialize_on_alignment=INSIDE)
def _squares(  # type: ignore[no-untyped-def]
    z, parameters, noise_var, variance, B, width, z_trial, variance_trial, BLOCK: tl.constexpr, BB: tl.constexpr
):
    """One program: the variance of BB arms of one trial. R k and F k alternate in blocks of BLOCK columns of ``z``."""
    trial = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0).to(tl.int64) * BB + tl.arange(0, BB)
    is_arm = b < B
    explained = tl.zeros((BB,), dtype=z.dtype.element_ty)
    left = tl.zeros((BB,), dtype=z.dtype.element_ty)
    row = z + trial * z_trial + b[:, None] * (2 * width)
    for start in range(0, width, BLOCK):
        columns = tl.minimum(BLOCK, width - start)
        i = tl.arange(0, BLOCK)
        mask = is_arm[:, None] & (i < columns)[None, :]
        Rk = tl.load(row + (2 * start + i)[None, :], mask=mask, other=0.0)
        Fk = tl.load(row + (2 * start + columns + i)[None, :], mask=mask, other=0.0)
        explained += tl.sum(Rk * Rk, axis=1)
        left += tl.sum(Fk * Fk, axis=1)
    rest = tl.maximum(tl.load(parameters) - explained, 0.0)
    tl.store(variance + trial * variance_trial + b, rest + tl.load(noise_var + trial) * left, mask=is_arm)
