"""One Triton program per trial, one launch for all T rounds: mu, sigma^2 and the n x n matrix C stay in registers.

Memory is read once and written at the end, except for the tables (3 numbers in and 5 out per round). The steps of a
round depend on each other, so the time is latency: 2,000 rounds of 128 trials and 100 arms take 7 ms on an H100, 1.2 s
on the naive path. 128 x 128 float64 numbers take 64 registers per thread of 16 warps.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bo_robust.ops.fused_rounds.naive import SLACK, FusedRounds


@torch.no_grad()
def fused_rounds(
    covariance: Tensor, mean: Tensor, f: Tensor, noise_var: Tensor, noise: Tensor, widths: Tensor, levels: Tensor
) -> FusedRounds:
    """See :func:`bo_robust.ops.fused_rounds.fused_rounds`."""
    s, n = f.shape
    T = len(noise)
    N = max(16, triton.next_power_of_2(n))
    inputs = [x.contiguous() for x in (mean, f, noise_var, noise, widths, levels)]
    arms = torch.empty(T, s, dtype=torch.int32, device=f.device)
    recommended, rewards, coverage = torch.empty_like(arms), torch.empty_like(noise), torch.empty_like(noise)
    C, mu = torch.empty(s, n, n, dtype=f.dtype, device=f.device), torch.empty_like(f)
    variance, counts, ratios = torch.empty_like(f), torch.empty_like(f), torch.empty_like(noise)
    outputs = (arms, rewards, recommended, coverage, ratios, C, mu, variance, counts)
    trial, *rest = covariance.stride()
    strides = (trial if s > 1 else 0, *rest)  # zero also where all trials share one matrix
    if s:
        with torch.cuda.device_of(f):
            _fused_rounds[(s,)](
                *(covariance, *inputs, *outputs, s, n, T, *strides, SLACK[f.dtype]),
                N=N,
                num_warps=16 if N == 128 else 4,
                enable_fp_fusion=False,  # rounded as torch rounds, so that near ties fall alike
            )
    gain = 0.5 * ratios.log1p_().sum(0)  # not in the op: there a call of log spills all registers to memory
    return FusedRounds(arms, rewards, recommended, coverage, mu, variance, counts, gain, C)


@triton.jit
def _fused_rounds(  # type: ignore[no-untyped-def]
    prior, mean, f, noise_var, noise, widths, levels,
    arms, rewards, recommended, coverage, ratios, covariance_out, mean_out, variance_out, counts_out,
    s, n, T, trial_stride, row_stride, column_stride, slack, N: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    x = tl.arange(0, N)
    valid = x < n
    square = valid[:, None] & valid[None, :]
    at = i * trial_stride + x[:, None].to(tl.int64) * row_stride + x[None, :] * column_stride
    C = tl.load(prior + at, mask=square, other=0.0)
    mu = tl.load(mean + i * n + x, mask=valid, other=0.0)
    own = tl.load(f + i * n + x, mask=valid, other=0.0)
    lam = tl.load(noise_var + i)
    variance = tl.maximum(tl.sum(tl.where(x[:, None] == x[None, :], C, 0.0), axis=0), 0.0)
    counts = tl.zeros_like(mu)
    lowest = float("-inf")
    k = i  # place of round t in the tables: t s + i
    for t in range(T):
        w = tl.load(widths + k)
        if mean.dtype.element_ty == tl.float32:  # where tl.sqrt is not rounded to nearest
            reach = w * tl.sqrt_rn(variance)
        else:
            reach = w * tl.sqrt(variance)
        covered = valid & (tl.abs(own - mu) <= reach + slack)
        tl.store(coverage + k, tl.sum(covered.to(mu.dtype), axis=0) / n)
        arm = tl.argmax(tl.where(valid, mu + reach, lowest), axis=0, tie_break_left=True)
        here = x == arm
        y = tl.sum(tl.where(here, own, 0.0), axis=0) + tl.load(noise + k)
        kept = tl.where(tl.abs(y) <= tl.load(levels + t), y, 0.0)
        row = tl.sum(tl.where(here[:, None], C, 0.0), axis=0)
        var_here = tl.maximum(tl.sum(tl.where(here, row, 0.0), axis=0), 0.0)
        scale = 1.0 / tl.sqrt(var_here + lam)
        new = row * scale
        mu += new * ((kept - tl.sum(tl.where(here, mu, 0.0), axis=0)) * scale)
        variance = tl.maximum(variance - new * new, 0.0)
        C -= new[:, None] * new[None, :]
        counts += here.to(mu.dtype)
        tl.store(ratios + k, var_here / lam)
        tl.store(arms + k, arm.to(tl.int32))
        tl.store(rewards + k, y)
        best = tl.argmax(tl.where(valid, mu, lowest), axis=0, tie_break_left=True)
        tl.store(recommended + k, best.to(tl.int32))
        k += s
    out = i * n * n + x[:, None].to(tl.int64) * n + x[None, :]
    tl.store(covariance_out + out, C, mask=square)
    tl.store(mean_out + i * n + x, mu, mask=valid)
    tl.store(variance_out + i * n + x, variance, mask=valid)
    tl.store(counts_out + i * n + x, counts, mask=valid)
