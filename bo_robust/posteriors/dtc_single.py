"""The posterior of :mod:`bo_robust.posteriors.dtc` for a single trial over the matrix of a kernel, in NumPy.

With a few points and some thousand arms, a torch call costs more than its work, and NumPy calls cost a fraction of it.
The formulas are those of :mod:`.dtc`; the tensors of the posterior are written in place. Dictionaries are factorised by
LAPACK's pivoted Cholesky in one call, so that dependent points (any beyond the d-th of a linear kernel) cost nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from bo_robust.features.nystrom import rounding_share
from bo_robust.linalg import on_cuda

if TYPE_CHECKING:
    from bo_robust.posteriors.dtc import DTCPosterior

# The routines of each precision: pivoted Cholesky, Cholesky, solution of a triangular system.
LAPACK = {
    torch.float64: (lapack.dpstrf, lapack.dpotrf, lapack.dtrtrs),
    torch.float32: (lapack.spstrf, lapack.spotrf, lapack.strtrs),
}


def is_single(posterior: DTCPosterior) -> bool:
    """Whether this is one trial on a CPU whose kernel is a matrix."""
    matrix = posterior.kernel.matrix
    return matrix is not None and posterior.weights.shape[0] == 1 and not on_cuda(matrix)


def _matrix(posterior: DTCPosterior) -> np.ndarray:
    matrix = posterior.kernel.matrix
    assert matrix is not None
    K: np.ndarray = matrix.numpy()
    return K if K.ndim == 2 else K[0]


def count(posterior: DTCPosterior, arm: int, reward: float) -> bool:
    """See :func:`.dtc.count`."""
    if not math.isfinite(reward):
        return False
    p = posterior
    p.information_gain.numpy()[0] += 0.5 * math.log1p(p.variance.numpy()[0, arm] / p.noise_var.item())
    p.counts.numpy()[0, arm] += 1.0
    p.sums.numpy()[0, arm] += reward
    return True


def rebuild(posterior: DTCPosterior, keep: Tensor) -> None:
    """See :func:`.dtc.rebuild`."""
    p, K, dtype = posterior, _matrix(posterior), posterior.mean.dtype
    pstrf, potrf, trtrs = LAPACK[dtype]
    arms = keep.numpy()[0].nonzero()[0]
    C = K[arms[:, None], arms]
    sd = np.sqrt(C.diagonal().clip(0.0))
    sd[sd == 0.0] = 1.0  # a point of variance zero is never a pivot
    C = C / sd / sd[:, None]
    rounding = rounding_share(float(len(arms)), dtype)
    C.flat[:: len(arms) + 1] += 0.5 * rounding
    L, order, r, _ = pstrf(C, lower=1, tol=1.5 * rounding)  # this and the jitter as in dictionary_root
    order = order[: max(r, 1)] - 1
    points = arms[order]
    # No point at all has variance: one slot, empty.
    R = trtrs(L[:r, :r], np.eye(r, dtype=C.dtype), lower=1)[0] / sd[order] if r else np.zeros((1, 1), C.dtype)
    k = K[points]
    Z = R @ k
    counts, noise = p.counts.numpy()[0], p.noise_var.numpy()[0]
    pulled = counts.nonzero()[0]
    own = Z[:, pulled]
    V = (own * counts[pulled]) @ own.T
    V.flat[:: len(V) + 1] += noise
    L = potrf(V, lower=1)[0]
    F = trtrs(L, R, lower=1)[0]
    weights = F.T @ trtrs(L, own @ p.sums.numpy()[0, pulled], lower=1)[0]
    np.dot(weights, k, out=p.mean.numpy()[0])
    left, rest = F @ k, _rest(p, Z, slice(None))
    np.add(rest, noise * np.einsum("ij,ij->j", left, left), out=p.variance.numpy()[0])
    p.dictionary.copy_(keep)
    p.changes.zero_()
    p.learnt_counts.copy_(p.counts)
    p.learnt_sums.copy_(p.sums)
    p.points, p.weights = torch.from_numpy(points[None]), torch.from_numpy(weights[None])
    p.root, p.factor = torch.from_numpy(R[None]), torch.from_numpy(np.ascontiguousarray(F)[None])
    p.ahead, p.columns = None, (k, rest)


def _columns(posterior: DTCPosterior, arms: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """k_D(x), ``r x f``, and k(x, x) - ||z(x)||^2, ``f``, of f arms; those of all arms are kept from a rebuild."""
    if posterior.columns is not None:
        k, rest = posterior.columns
        return k[:, arms], rest[arms]
    places = np.atleast_1d(arms)
    k = _matrix(posterior)[posterior.points.numpy()[0][:, None], places]
    return k, _rest(posterior, posterior.root.numpy()[0] @ k, places)


def _rest(posterior: DTCPosterior, Z: np.ndarray, arms: np.ndarray | slice) -> np.ndarray:
    rest: np.ndarray = posterior.kernel.diagonal.numpy().reshape(-1)[arms] - np.einsum("ij,ij->j", Z, Z)
    return np.maximum(rest, 0.0, out=rest)


def downdate(posterior: DTCPosterior, arm: int) -> None:
    """See :func:`.dtc.downdate`."""
    assert posterior.ahead is not None
    F = posterior.ahead.numpy()[0]
    u = (F @ _columns(posterior, arm)[0]).reshape(-1)
    size = math.sqrt(1.0 + u @ u)
    F -= (u / (size * (size + 1.0)))[:, None] * (u @ F)


def variance_of(posterior: DTCPosterior, arms: np.ndarray) -> np.ndarray:
    """See :func:`.dtc.variance_of`; ``arms`` is ``f``, and so is the result."""
    p, (k, rest) = posterior, _columns(posterior, arms)
    left = (p.factor if p.ahead is None else p.ahead).numpy()[0] @ k
    found: np.ndarray = rest + p.noise_var.item() * np.einsum("ij,ij->j", left, left)
    return found


def draw_past(posterior: DTCPosterior, oversampling: float, past: Tensor, uniforms: Tensor) -> Tensor:
    """The dictionary (``1 x n`` bool) of :func:`bo_robust.features.leverage.draw_dictionary` from the ``past`` arms.

    ``uniforms`` are theirs (``1 x k``). Without a past arm it is arm 0.
    """
    p, arms = posterior, past.numpy()
    share = np.minimum(p.variance.numpy()[0, arms] * (oversampling / p.noise_var.numpy()[0]), 1.0)
    with np.errstate(divide="ignore"):
        at_least_one = -np.expm1(p.counts.numpy()[0, arms] * np.log1p(-share))
    chosen = arms[uniforms.numpy()[0] < at_least_one]
    if not len(chosen):
        chosen = arms[at_least_one.argmax()] if len(arms) else 0
    keep = np.zeros(p.mean.shape, dtype=bool)
    keep[0, chosen] = True
    return torch.from_numpy(keep)
