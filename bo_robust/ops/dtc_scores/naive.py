"""The scores in plain torch, on any device: chunks of arms that stay in the cache, nearly all of it matrix products.

R and F are lower triangular. Rows a..b of both are stacked into one factor that multiplies the first b columns of k_D
only (:func:`layers`): at BLOCK = 96 this is 3/4 of the 4 r^2 flops an arm of the full products at r = 200, 3/5 at 500.

Distances. ||x - y||^2 = ||x||^2 + ||y||^2 - 2 x.y about the mean of the dictionaries is one small matrix product, with
an absolute error of about eps ||x||^2 (lengths in lengthscales). Against extended precision, on 2000 arms of which a
tenth lie within 1e-7 of a point of the dictionary, d = 1, 2 and 6, lengthscales 0.1 to 0.5 in the unit cube, the
largest error of ||R k_D||^2 (k(x, x) = 1):

=================== ========= ==============
covariance          this form by differences
=================== ========= ==============
squared exponential 1e-13     5e-14
Matérn 3/2, 5/2     5e-12     5e-13
Matérn 1/2          3e-7      2e-15
=================== ========= ==============

So it serves where k is smooth in the squared distance; Matérn 1/2, which is not at distance zero, and float32
dictionaries take differences, one dimension after the other. On one thread at r = 200, d = 6 an arm costs 0.08 us in
this form, 0.33 us by differences (0.42 us by ``torch.cdist``), of 2.4 us in all.

``exp2`` is used with log2(e) folded into the scale of the inputs: on a CPU torch's takes 0.4 ns a number in float64,
its ``exp`` 1.3 ns, at the same accuracy. Chunks go through the same buffers: memory given back to the system between
two of them would have to be cleared anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bo_robust.covariance import Covariance, Matern, SquaredExponential
from bo_robust.linalg import row_argmax

__all__ = [
    "Dictionary",
    "Form",
    "Scores",
    "chunk_shape",
    "chunks",
    "columns_of",
    "dtc_scores",
    "dtc_scores_direct",
    "form_of",
    "layers",
    "scores_of_columns",
]

# Rows of R (and as many of F) multiplied at once, and entries of k_D of a chunk: by measurement on one thread.
BLOCK, CPU_ENTRIES = 96, 1 << 18
# On CUDA a chunk costs a handful of launches: 64 MiB of k_D in float64.
CUDA_ENTRIES = 1 << 23

# Trials and arms of a chunk to k_D(x), ``t x c x r``, and k(x, x), broadcastable to ``t x c``.
Columns: TypeAlias = Callable[[slice, slice], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Dictionary:
    """The DTC posteriors of s trials, as far as their mean and variance at any arm need them.

    Attributes:
        points: Locations of the dictionaries, ``s x r x d``; beyond a trial's rank any location.
        root: R = L_D^-1, lower triangular, ``s x r x r``; rows and columns beyond a trial's rank are zero.
        factor: F = L_V^-1 R, as ``root``.
        weights: R^T V^-1 sum_a s_a z_a, ``s x r``; zero beyond a trial's rank.
    """

    points: Tensor
    root: Tensor
    factor: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Scores:
    """Posterior of f at a block of arms.

    Attributes:
        mean: ``s x B``.
        variance: ``s x B``, never negative.
    """

    mean: Tensor
    variance: Tensor

    def best(self, width: float | Tensor) -> tuple[Tensor, Tensor]:
        """The arm of largest mean + width sqrt(variance), first of equals: its place in the block and its bound.

        Args:
            width: One number or one per trial, ``s``.

        Returns:
            ``s`` long, and ``s``.
        """
        bound = self.variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) and width.ndim else width)
        bound += self.mean
        index = row_argmax(bound)
        return index, bound.gather(1, index.unsqueeze(1)).squeeze(1)


@dataclass(frozen=True)
class Form:
    """k as this op evaluates it: scale 2^-e (1 + linear e + square e^2) with e = ||scales * (x - y)||.

    Attributes:
        scales: ``d``.
        gaussian: scale 2^-e^2 instead.
        linear: See above; zero for the squared exponential and Matérn 1/2.
        square: See above.
        scale: k(x, x).
    """

    scales: Tensor
    gaussian: bool
    linear: float
    square: float
    scale: float


def form_of(covariance: Covariance, like: Tensor) -> Form | None:
    """The covariance in that form, scales ``d`` as the last axis of ``like``; None if it is of another kind.

    Raises:
        ValueError: if there are lengthscales for another number of dimensions.
    """
    if not isinstance(covariance, SquaredExponential | Matern):
        return None
    d, ell = like.shape[-1], covariance.lengthscale
    if isinstance(ell, tuple) and len(ell) != d:
        raise ValueError(f"{len(ell)} lengthscales for points of {d} dimensions.")
    gaussian = isinstance(covariance, SquaredExponential)
    nu = 0.0 if isinstance(covariance, SquaredExponential) else covariance.nu
    factor = math.sqrt(0.5 / math.log(2.0)) if gaussian else math.sqrt(2.0 * nu) / math.log(2.0)
    lengthscales = torch.tensor(ell, dtype=like.dtype, device=like.device).expand(d)
    linear = math.log(2.0) if nu > 1.0 else 0.0
    square = linear**2 / 3.0 if nu > 2.0 else 0.0
    return Form(factor / lengthscales, gaussian, linear, square, covariance.outputscale)


@torch.no_grad()
def dtc_scores(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """See :func:`bo_robust.ops.dtc_scores.dtc_scores`."""
    return _scores(arms.shape[0], dictionary, noise_var, columns_of(arms, dictionary.points, covariance))


@torch.no_grad()
def scores_of_columns(k: Tensor, dictionary: Dictionary, prior_variance: Tensor, noise_var: Tensor) -> Scores:
    """See :func:`bo_robust.ops.dtc_scores.scores_of_columns`."""
    prior = prior_variance.expand(k.shape[:2])
    return _scores(k.shape[1], dictionary, noise_var, lambda trials, rows: (k[trials, rows], prior[trials, rows]))


@torch.no_grad()
def dtc_scores_direct(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """:func:`dtc_scores` from its definition, with all ``s x B x r`` entries of k_D in memory: the oracle."""
    x = arms.to(dictionary.root.dtype)
    k = torch.stack([covariance(x, points) for points in dictionary.points])
    explained = (k @ dictionary.root.mT).square().sum(2)
    left = (k @ dictionary.factor.mT).square().sum(2)
    variance = (covariance.diagonal(x) - explained).clamp(min=0.0) + noise_var.unsqueeze(1) * left
    return Scores((k @ dictionary.weights.unsqueeze(2)).squeeze(2), variance)


def layers(dictionary: Dictionary, block: int) -> list[Tensor]:
    """Rows a..b of R above those of F, without the zeros right of the diagonal block: ``s x 2(b-a) x b`` each."""
    r = dictionary.root.shape[-1]
    ends = [(start, min(start + block, r)) for start in range(0, r, block)]
    return [torch.cat([f[:, a:b, :b] for f in (dictionary.root, dictionary.factor)], 1) for a, b in ends]


def chunk_shape(like: Tensor, B: int) -> tuple[int, int]:
    """Trials and arms of which k_D (``s x B x r``) is evaluated at once: as many arms as there are, then trials."""
    s, r = like.shape[:2]
    entries = CUDA_ENTRIES if like.is_cuda else CPU_ENTRIES
    length = max(1, min(B, entries // max(1, r)))
    return max(1, min(s, entries // max(1, r * length))), length


def chunks(like: Tensor, B: int) -> Iterator[tuple[slice, slice]]:
    """Which trials, and which of B arms, of every chunk."""
    group, length = chunk_shape(like, B)
    for trial in range(0, like.shape[0], group):
        for start in range(0, B, length):
            yield slice(trial, min(trial + group, like.shape[0])), slice(start, min(start + length, B))


def columns_of(arms: Tensor, points: Tensor, covariance: Covariance) -> Columns:
    """k_D of chunks of ``arms`` (``B x d``) with the ``points`` (``s x r x d``), of the dtype of these."""
    form = form_of(covariance, points)
    return _EvaluatedColumns(arms, points, covariance) if form is None else _FormColumns(arms, points, form)


def _scores(B: int, dictionary: Dictionary, noise_var: Tensor, columns: Columns) -> Scores:
    """The scores of B arms whose columns come chunk by chunk."""
    root, parts = dictionary.root, layers(dictionary, BLOCK)
    mean, variance = root.new_empty(2, root.shape[0], B)
    group, length = chunk_shape(root, B)
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


class _EvaluatedColumns:
    """Columns of any covariance, trial by trial."""

    def __init__(self, arms: Tensor, points: Tensor, covariance: Covariance) -> None:
        self.arms, self.points, self.covariance = arms, points, covariance

    def __call__(self, trials: slice, rows: slice) -> tuple[Tensor, Tensor]:
        x = self.arms[rows]
        x = x.to(self.points.dtype) if self.points.is_floating_point() else x
        k = [self.covariance(x, points) for points in self.points[trials]]
        return torch.stack(k), self.covariance.diagonal(x)


class _FormColumns:
    """Columns of the stationary covariances, in buffers of one chunk; what concerns the dictionary is done once."""

    def __init__(self, arms: Tensor, points: Tensor, form: Form) -> None:
        self.arms, self.form = arms, form
        self.by_product = points.dtype == torch.float64 and (form.gaussian or form.linear > 0.0)
        self.centre = points.mean((0, 1))
        y = (points - self.centre).mul_(form.scales)
        if self.by_product:
            y = torch.cat([2.0 * y, -torch.ones_like(y[..., :1]), -y.square().sum(2, keepdim=True)], 2)
        self.y = y.mT.contiguous()
        self.prior = points.new_full((), form.scale)
        self.buffers = points.new_empty(2, *chunk_shape(points, len(arms)), points.shape[1])

    def __call__(self, trials: slice, rows: slice) -> tuple[Tensor, Tensor]:
        form, y = self.form, self.y[trials]
        x = (self.arms[rows].to(y.dtype) - self.centre).mul_(form.scales)
        k, e = self.buffers[:, : len(y), : len(x)].unbind()
        if self.by_product:
            x = torch.cat([x, x.square().sum(1, keepdim=True), torch.ones_like(x[:, :1])], 1)
            torch.bmm(x.expand(len(y), -1, -1), y, out=k)  # -||x - y||^2
        else:
            torch.sub(x[:, :1], y[:, :1], out=e)
            torch.mul(e, e, out=k)
            for x_j, y_j in zip(x.T[1:], y.unbind(1)[1:], strict=True):
                torch.sub(x_j.unsqueeze(1), y_j.unsqueeze(1), out=e)
                k.addcmul_(e, e)
            k.neg_()
        if form.gaussian:
            k.exp2_()
        else:  # e = sqrt(q) as q / sqrt(q), which is faster
            torch.neg(k, out=e).clamp_(min=torch.finfo(e.dtype).tiny)
            e.mul_(torch.rsqrt(e, out=k))
            torch.neg(e, out=k).exp2_()
            if form.square:
                e.addcmul_(e, e, value=form.square / form.linear)
            if form.linear:
                k.addcmul_(k, e, value=form.linear)
        return (k if form.scale == 1.0 else k.mul_(form.scale)), self.prior
