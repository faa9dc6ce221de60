"""The posterior of :mod:`bo_robust.bandits.posteriors.dtc` for a single trial over the matrix of a kernel, in NumPy.

With a few points and some thousand arms, a torch call costs more than its work, and NumPy calls cost a fraction of it.
The formulas are those of :mod:`.dtc`; the tensors of the posterior are written in place. Dictionaries are factorised by
LAPACK's pivoted Cholesky in one call, so that dependent points (any beyond the d-th of a linear kernel) cost nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from bo_robust.features.nystrom import rounding_share
from bo_robust.utils.linalg import on_cuda

if TYPE_CHECKING:
    from bo_robust.bandits.posteriors.dtc import DTCPosterior

# The routines of each precision: pivoted Cholesky, Cholesky, solution of a triangular system.
LAPACK = {
    torch.float64: (lapack.dpstrf, lapack.dpotrf, lapack.dtrtrs),
    torch.float32: (lapack.spstrf, lapack.spotrf, lapack.strtrs),
}


def is_single(posterior: DTCPosterior) -> bool:
    """Whether this is one trial on a CPU whose kernel is a matrix."""
    matrix = posterior.kernel.matrix
    return matrix is not None and posterior.weights.shape[0] == 1 and not on_cuda(matrix)


class DTCViews(NamedTuple):
    """NumPy views of the tensors that a posterior keeps for good; whoever replaces one makes ``views`` None."""

    noise_var: np.ndarray  # `1`, as the next one; the others are `n`
    information_gain: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    counts: np.ndarray
    sums: np.ndarray

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """A copy, or what is pickled, is None: views of the original would not follow the copy's tensors."""
        return type(None), ()


def views_of(posterior: DTCPosterior) -> DTCViews:
    """The views, made when first asked for."""
    p = posterior
    if p.views is None:
        rows = (x.numpy()[0] for x in (p.mean, p.variance, p.counts, p.sums))
        p.views = DTCViews(p.noise_var.numpy(), p.information_gain.numpy(), *rows)
    views: DTCViews = p.views
    return views


def _matrix(posterior: DTCPosterior) -> np.ndarray:
    matrix = posterior.kernel.matrix
    assert matrix is not None
    K: np.ndarray = matrix.numpy()
    return K if K.ndim == 2 else K[0]


def count(posterior: DTCPosterior, arm: int, reward: float) -> bool:
    """See :func:`.dtc.count`."""
    if not math.isfinite(reward):
        return False
    views = views_of(posterior)
    views.information_gain[0] += 0.5 * math.log1p(views.variance[arm] / views.noise_var.item())
    views.counts[arm] += 1.0
    views.sums[arm] += reward
    return True


def rebuild(posterior: DTCPosterior, keep: Tensor) -> None:
    """See :func:`.dtc.rebuild`."""
    p, K, dtype, views = posterior, _matrix(posterior), posterior.mean.dtype, views_of(posterior)
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
    counts, noise = views.counts, views.noise_var.item()
    pulled = counts.nonzero()[0]
    own = R.dot(k[:, pulled])
    V = (own * counts[pulled]).dot(own.T)
    V.flat[:: len(V) + 1] += noise
    L = potrf(V, lower=1)[0]
    F = np.ascontiguousarray(trtrs(L, R, lower=1)[0])
    weights = trtrs(L, own.dot(views.sums[pulled]), lower=1)[0].dot(F)
    np.dot(weights, k, out=views.mean)
    views.variance[:] = _variance(p, R, F, k)
    p.dictionary.copy_(keep)
    p.changes.zero_()
    p.learnt_counts.copy_(p.counts)
    p.learnt_sums.copy_(p.sums)
    p.points, p.weights = torch.from_numpy(points[None]), torch.from_numpy(weights[None])
    p.root, p.factor = torch.from_numpy(R[None]), torch.from_numpy(F[None])
    p.ahead = p.present = None


def _variance(posterior: DTCPosterior, R: np.ndarray, F: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Posterior variance of all arms, ``n``: k(x, x) - ||R k_D(x)||^2, not below 0, + lambda ||F k_D(x)||^2."""
    both = np.concatenate([R, F]).dot(k).reshape(2, *k.shape)
    explained, left = np.einsum("irn,irn->in", both, both)
    rest: np.ndarray = posterior.kernel.diagonal.numpy().reshape(-1) - explained
    np.maximum(rest, 0.0, out=rest)
    left *= views_of(posterior).noise_var.item()
    rest += left
    return rest


def present(posterior: DTCPosterior) -> tuple[np.ndarray, np.ndarray]:
    """k_D(x) of all arms, ``r x n``, and their variance with :func:`downdate` included, ``n``."""
    p = posterior
    if p.present is None:
        k = _matrix(p)[p.points.numpy()[0]]
        if p.ahead is None:
            p.present = k, views_of(p).variance.copy()
        else:
            p.present = k, _variance(p, p.root.numpy()[0], p.ahead.numpy()[0], k)
    return p.present


def downdate(posterior: DTCPosterior, arm: int) -> None:
    """See :func:`.dtc.downdate`; the variance of all arms follows, so that none has to be looked up."""
    k, now = present(posterior)
    if posterior.ahead is None:
        posterior.ahead = posterior.factor.clone()
    F = posterior.ahead.numpy()[0]
    u = F.dot(k[:, arm])
    h, grown = u.dot(F), 1.0 + float(u.dot(u))
    root = math.sqrt(grown)
    F -= (u / (root * (root + 1.0)))[:, None] * h
    fall = h.dot(k)
    fall *= fall
    fall *= views_of(posterior).noise_var.item() / grown
    now -= fall
    if not now[now.argmin()] >= 0.0:  # rounding, or no number
        np.maximum(now, 0.0, out=now)
