"""The scores in PyTorch on any device, as matrix products over chunks of arms that stay in the cache.

Triangles. R and F are lower triangular. Rows a..b of both are stacked into one factor, which multiplies only the first
b columns of k_D (:func:`layers`). At BLOCK = 96 this takes 3/4 of the 4 r^2 flops per arm at r = 200, 3/5 at r = 500.

Distances. ||x - y||^2 = ||x||^2 + ||y||^2 - 2 x.y, about the mean of the dictionaries, is one small matrix product,
with an absolute error of about eps ||x||^2, in units of the lengthscale. So it serves if k is smooth in the squared
distance: in the unit cube, at lengthscales of 0.1 to 0.5, ||R k_D||^2 is off by at most 1e-13 for the squared
exponential and 5e-12 for Matérn 3/2 and 5/2, but by 3e-7 for Matérn 1/2 (by differences 2e-15). Matérn 1/2 and float32
dictionaries take differences, one dimension after the other. On one thread at r = 200, d = 6 the distances of an arm
take 0.08 us by the product, 0.33 us by differences and 0.42 us by ``torch.cdist``, of 2.4 us in all.

Exponentials. The scale of the inputs contains log2(e), so that ``exp2`` serves: on a CPU it takes 0.4 ns per float64
number, ``exp`` 1.3 ns, at the same accuracy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bo_robust.utils.covariance import Covariance, Matern, SquaredExponential
from bo_robust.utils.linalg import entries_at_once

BLOCK = 96  # Rows of R (and as many of F) multiplied at once, measured on one thread
# Entries of k_D per chunk, on a CPU (measured on one thread) and a GPU, where every chunk costs a handful of launches.
CHUNK_ENTRIES = (1 << 18, 1 << 23)

# Maps the trials and arms of a chunk to k_D(x), ``t x c x r``, and k(x, x), broadcastable to ``t x c``.
Columns: TypeAlias = Callable[[slice, slice], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Dictionary:
    """What mean and variance at any arm need of the DTC posteriors of s trials.

    A trial may have a rank below r. Beyond it points are arbitrary and everything else is zero.
    """

    points: Tensor  # Locations of the dictionaries, `s x r x d`
    root: Tensor  # R = L_D^-1, lower triangular, `s x r x r`
    factor: Tensor  # F = L_V^-1 R, lower triangular, `s x r x r`
    weights: Tensor  # R^T V^-1 sum_a s_a z_a, `s x r`


@dataclass(frozen=True)
class Scores:
    """Posterior mean and variance (never negative) of f at a block of arms, ``s x B`` each."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True)
class Form:
    """k as this op evaluates it: scale 2^(-e^2) or scale 2^-e (1 + linear e + square e^2), e = ||scales * (x - y)||."""

    scales: Tensor  # `d`
    gaussian: bool  # Whether it is the first of the two
    linear: float
    square: float
    scale: float


@dataclass(frozen=True)
class Steps:
    """mean(x) += sum_j in_mean_j h_j and variance(x) += sum_j in_variance_j h_j^2, h_j = directions_j . k_D(x)."""

    directions: Tensor  # `s x c x r`
    in_mean: Tensor  # `s x c`
    in_variance: Tensor  # `s x c`


def form_of(covariance: Covariance, like: Tensor) -> Form | None:
    """The form of a covariance for points like ``like`` (``... x d``), None if it has none, as a subclass may.

    ``ValueError`` if there are several lengthscales, but not d.
    """
    if type(covariance) not in (SquaredExponential, Matern):
        return None
    assert isinstance(covariance, SquaredExponential | Matern)
    d, ell = like.shape[-1], covariance.lengthscale
    if isinstance(ell, tuple) and len(ell) != d:
        raise ValueError(f"{len(ell)} lengthscales for points of {d} dimensions.")
    gaussian = isinstance(covariance, SquaredExponential)
    nu = 0.0 if isinstance(covariance, SquaredExponential) else covariance.nu
    # exp(-c) = 2^-e with e = c / log(2), so that 1 + c + c^2 / 3 is 1 + linear e + square e^2.
    factor = math.sqrt(0.5 / math.log(2.0)) if gaussian else math.sqrt(2.0 * nu) / math.log(2.0)
    lengthscales = torch.tensor(ell, dtype=like.dtype, device=like.device).expand(d)
    linear = math.log(2.0) if nu > 1.0 else 0.0
    square = linear**2 / 3.0 if nu > 2.0 else 0.0
    return Form(factor / lengthscales, gaussian, linear, square, covariance.outputscale)


@torch.no_grad()
def dtc_scores(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """See :func:`bo_robust.ops.dtc_scores.dtc_scores`."""
    return scores_of_columns(len(arms), dictionary, noise_var, columns_of(arms, dictionary.points, covariance))


@torch.no_grad()
def steps_of_columns(B: int, columns: Columns, steps: Steps) -> tuple[Tensor, Tensor]:
    """The changes of mean and variance at B arms, ``s x B`` each, in one pass over the arms.

    One more reward, or one point more or less in the dictionary, changes the mean by multiples of c functions, and the
    variance by multiples of their squares (:mod:`bo_robust.bandits.posteriors.dtc_changes`). Besides k_D this takes 2 c
    r flops per arm. Scoring anew takes some 2.4 r^2.
    """
    mean, variance = steps.in_mean.new_empty(2, len(steps.in_mean), B)
    for trials, rows in chunks(steps.directions[:, 0], B):
        # With few directions twice as fast on a CPU as the transposed product.
        along = steps.directions[trials] @ columns(trials, rows)[0].mT
        mean[trials, rows] = (steps.in_mean[trials].unsqueeze(1) @ along).squeeze(1)
        variance[trials, rows] = (steps.in_variance[trials].unsqueeze(1) @ along.square_()).squeeze(1)
    return mean, variance


def layers(dictionary: Dictionary, block: int) -> list[Tensor]:
    """For each block a..b of rows, R above F without the zeros to the right of column b: ``s x 2(b-a) x b``."""
    r = dictionary.root.shape[-1]
    ends = [(start, min(start + block, r)) for start in range(0, r, block)]
    return [torch.cat([f[:, a:b, :b] for f in (dictionary.root, dictionary.factor)], 1) for a, b in ends]


def chunk_shape(like: Tensor, B: int) -> tuple[int, int]:
    """Trials and arms of a chunk of k_D (``s x B x r``): first as many arms as fit, then as many trials."""
    s, r = like.shape[:2]
    entries = entries_at_once(like, *CHUNK_ENTRIES)
    length = max(1, min(B, entries // max(1, r)))
    return max(1, min(s, entries // max(1, r * length))), length


def chunks(like: Tensor, B: int) -> Iterator[tuple[slice, slice]]:
    """Trials and arms of every chunk."""
    group, length = chunk_shape(like, B)
    for trial in range(0, like.shape[0], group):
        for start in range(0, B, length):
            yield slice(trial, min(trial + group, like.shape[0])), slice(start, min(start + length, B))


def columns_of(arms: Tensor, points: Tensor, covariance: Covariance) -> Columns:
    """k_D of ``arms`` (``B x d``) and ``points`` (``s x r x d``) chunk by chunk, in the dtype of the points."""
    form = form_of(covariance, points)
    if form is not None:
        return _FormColumns(arms, points, form)

    def columns(trials: slice, rows: slice) -> tuple[Tensor, Tensor]:
        x = arms[rows].to(points.dtype) if points.is_floating_point() else arms[rows]
        return torch.stack([covariance(x, of_trial) for of_trial in points[trials]]), covariance.diagonal(x)

    return columns


@torch.no_grad()
def scores_of_columns(B: int, dictionary: Dictionary, noise_var: Tensor, columns: Columns) -> Scores:
    """Scores of B arms from the columns of every chunk; the points of the dictionary are not read."""
    root, parts = dictionary.root, layers(dictionary, BLOCK)
    mean, variance = root.new_empty(2, root.shape[0], B)
    group, length = chunk_shape(root, B)
    # One buffer for all chunks: the system would clear freshly allocated memory again for each.
    buffer = root.new_empty(group * length * 2 * min(BLOCK, root.shape[-1]))
    for trials, rows in chunks(root, B):
        k, prior = columns(trials, rows)
        mean[trials, rows] = (k @ dictionary.weights[trials].unsqueeze(2)).squeeze(2)
        sums = k.new_zeros(*k.shape[:2], 2)
        for part in parts:
            width, end = part.shape[1:]
            z = buffer[: k.shape[:2].numel() * width].view(*k.shape[:2], width)
            torch.bmm(k[..., :end], part[trials].mT, out=z)
            norm = torch.linalg.vector_norm(z.unflatten(2, (2, width // 2)), dim=3)
            sums.addcmul_(norm, norm)
        explained, left = sums.unbind(2)
        rest = (prior - explained).clamp_(min=0.0)
        variance[trials, rows] = rest.addcmul_(left, noise_var[trials].unsqueeze(1))
    return Scores(mean, variance)


class _FormColumns:
    """:data:`Columns` of a :class:`Form`. They live in buffers, which the next chunk overwrites."""

    def __init__(self, arms: Tensor, points: Tensor, form: Form) -> None:
        self.arms, self.form = arms, form
        self.by_product = points.dtype == torch.float64 and (form.gaussian or form.linear > 0.0)
        self.center = points.mean((0, 1))
        y = (points - self.center).mul_(form.scales)
        if self.by_product:
            # (x, ||x||^2, 1) . (2 y, -1, -||y||^2) = -||x - y||^2
            y = torch.cat([2.0 * y, -torch.ones_like(y[..., :1]), -y.square().sum(2, keepdim=True)], 2)
        self.y = y.mT.contiguous()
        self.prior = points.new_full((), form.scale)
        self.buffers = points.new_empty(2, *chunk_shape(points, len(arms)), points.shape[1])

    def __call__(self, trials: slice, rows: slice) -> tuple[Tensor, Tensor]:
        form, y = self.form, self.y[trials]
        x = (self.arms[rows].to(y.dtype) - self.center).mul_(form.scales)
        k, e = self.buffers[:, : len(y), : len(x)].unbind()
        if self.by_product:
            x = torch.cat([x, x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1])], 1)
            torch.bmm(x.expand(len(y), -1, -1), y, out=k)
        else:
            torch.sub(x[:, :1], y[:, :1], out=e)
            torch.mul(e, e, out=k)
            for x_j, y_j in zip(x.T[1:], y.unbind(1)[1:], strict=True):
                torch.sub(x_j.unsqueeze(1), y_j.unsqueeze(1), out=e)
                k.addcmul_(e, e)
            k.neg_()
        # Here k is minus the squared distance.
        if form.gaussian:
            k.exp2_()
        else:  # e = sqrt(q) as q * rsqrt(q), which is faster; the clamp keeps zero and negative rounding out
            torch.neg(k, out=e).clamp_(min=torch.finfo(e.dtype).tiny)
            e.mul_(torch.rsqrt(e, out=k))
            torch.neg(e, out=k).exp2_()
            if form.square:
                e.addcmul_(e, e, value=form.square / form.linear)
            if form.linear:
                k.addcmul_(k, e, value=form.linear)
        return (k if form.scale == 1.0 else k.mul_(form.scale)), self.prior
