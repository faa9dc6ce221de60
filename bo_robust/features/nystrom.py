"""Nyström features of a dictionary D of points, for many independent dictionaries at once.

phi(x) = R k_D(x) with R^T R = K_D^+, so that phi(x)^T phi(x') = k_D(x)^T K_D^+ k_D(x') is the projection of k on the
span of the dictionary and never exceeds k in the PSD sense. Ray Chowdhury & Gopalan 2019 (section 5.1 b) and
Calandriello et al. 2019 (BKB) take the symmetric root R = (K_D^(1/2))^+.

Every root gives the same posterior mean and variance of the linear regression in phi, so the cheapest is the default:
R = L^-1 with K_D = L L^T (Cholesky) over as many points of D as are linearly independent. Only ATA's truncation, which
acts feature by feature, tells roots apart; :func:`symmetric_axes` turns the Cholesky features into the paper's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from bo_robust.utils.covariance import Covariance


@dataclass(frozen=True)
class DictionaryRoot:
    """Inverse Cholesky factors of the independent points of each dictionary; see :func:`dictionary_root`.

    Args:
        order: Positions in the dictionary of the points kept, ``... x r`` long; beyond a member's rank a valid position
            without effect.
        inverse: L^-1 with L L^T = K_D[order, order], lower triangular, ``... x r x r``; rows and columns beyond a
            member's rank are zero.
        rank: Number of points kept, ``...`` long.
    """

    order: Tensor
    inverse: Tensor
    rank: Tensor

    def features(self, K_XD: Tensor) -> Tensor:
        """phi(x) = L^-1 k_D(x), ``... x n x r``, from k_D(x), ``... x n x M``.

        Batch axes broadcast against those of the dictionaries. Columns of padding are not read. Features beyond a
        member's rank are zero.
        """
        (n, M), r = K_XD.shape[-2:], self.order.shape[-1]
        batch_shape = torch.broadcast_shapes(K_XD.shape[:-2], self.order.shape[:-1])
        kept = K_XD.expand(*batch_shape, n, M).gather(-1, self.order.unsqueeze(-2).expand(*batch_shape, n, r))
        return kept @ self.inverse.mT


def dictionary_root(K_D: Tensor, mask: Tensor | None = None, tol: float | None = None) -> DictionaryRoot:
    """The root of K_D^+ by Cholesky, of every dictionary of a batch.

    The matrix is first scaled to unit diagonal, so that every point counts by its own variance. A dictionary is
    factorized as it stands if every point keeps more than eps^(2/3) of its variance (3.7e-11 in float64) given all
    others. From the rest, with near duplicates or more points than the numerical rank, points are chosen by largest
    remaining variance until none has more than ``tol`` left: a diagonally pivoted Cholesky.

    What the point of a pivot p explains elsewhere is known to the share eps / p, and without it all of that would be
    missing: so every pivot above the rounding error is kept, ``tol`` is M eps as in LAPACK's pstrf. Half of ``tol``
    goes to the diagonal of a dictionary that is chosen from, as rounding of the last pivots would now and then explain
    more than there is (variances up to 300 times too small where points nearly coincide and noise_var = 1e-6).

    Accuracy: for points i, j of the dictionary |phi_i^T phi_j - K_ij| <= tol sqrt(K_ii K_jj) plus rounding. Elsewhere
    phi phi^T stays below k. Measured in float64, squared exponential with lengthscale 0.2, 20 draws of 100 points of
    [0, 1]: M eps keeps 22 points and errs by at most 2e-14 on D, 1e-8 keeps 15 and errs by 9e-9; no eigenvalue of
    K - phi phi^T on 401 points of [-0.3, 1.3] is below -5e-15.

    The host waits for the device once, and twice where some dictionary needs pivoting.

    Args:
        K_D: k(x, x') of the points of the dictionaries, ``... x M x M``. Points of zero variance are dropped.
        mask: Which points each dictionary has, ``... x M`` bool; entries of ``K_D`` elsewhere are not read. Default:
            all.
        tol: Share of its own variance below which a point counts as a combination of the others, in [eps, 1); M eps
            if that is larger, or by default.

    Returns:
        The root, with r the largest rank of the batch (at least 1).

    Raises:
        ValueError: if ``K_D`` is not finite.
    """
    batch_shape, M = K_D.shape[:-2], K_D.shape[-1]
    K = K_D.reshape(-1, M, M)
    mask = torch.ones_like(K[..., 0], dtype=torch.bool) if mask is None else mask.reshape(-1, M)
    C, sd, order, absent = _scaled(K, mask)
    rank = (~absent).sum(-1)

    L, info = torch.linalg.cholesky_ex(C)
    eye = torch.eye(M, dtype=K.dtype, device=K.device)
    inverse = torch.linalg.solve_triangular(L, eye, upper=False)
    unexplained = inverse.square().sum(-2).amax(-1).reciprocal()  # smallest 1 / diag(C^-1); NaN where L failed
    rounding = rounding_share(rank, K.dtype)
    spanned = rounding.clamp_min(tol or 0.0)
    dependent = (info > 0) | ~(unexplained > spanned.clamp_min(torch.finfo(K.dtype).eps ** (2.0 / 3.0)))
    num_dependent, r = _checked(K, mask, dependent, rank)
    if num_dependent:
        members = dependent.nonzero().squeeze(-1)
        group = (C[members], absent[members], spanned[members], 0.5 * rounding[members])
        pivots, inverses, rank[members] = pivoted_cholesky(*group)
        steps = pivots.shape[-1]
        inverse[members, :steps, :steps] = inverses
        order[members, :steps] = order[members].gather(-1, pivots)
        sd[members, :steps] = sd[members].gather(-1, pivots)
        r = int(rank.max())

    r = max(r, 1)
    kept = torch.arange(r, device=K.device) < rank.unsqueeze(-1)
    order = torch.where(kept, order[:, :r], order[:, :1])
    inverse = inverse[:, :r, :r] / sd[:, :r].unsqueeze(-2)
    inverse = torch.where(kept.unsqueeze(-1) & kept.unsqueeze(-2), inverse, 0.0)
    return DictionaryRoot(
        order.reshape(*batch_shape, r), inverse.reshape(*batch_shape, r, r), rank.reshape(batch_shape)
    )


def _scaled(K: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """K with unit diagonal, ``b x M x M``, the standard deviations, the order of points, and which places are empty.

    Points of the mask with a variance come first; the others are the identity.
    """
    variance = K.diagonal(dim1=-2, dim2=-1)
    present = mask & (variance > 0)
    order = (present.byte() + mask.byte()).argsort(dim=-1, descending=True, stable=True)
    absent = torch.arange(K.shape[-1], device=K.device) >= present.sum(-1, keepdim=True)
    sd = variance.gather(-1, order).masked_fill(absent, 1.0).sqrt()
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    C = torch.take_along_dim(torch.take_along_dim(K, order.unsqueeze(-1), -2), order.unsqueeze(-2), -1)
    C = torch.where(absent.unsqueeze(-1) | absent.unsqueeze(-2), eye, C / (sd.unsqueeze(-1) * sd.unsqueeze(-2)))
    return C, sd, order, absent


def _checked(K: Tensor, mask: Tensor, dependent: Tensor, rank: Tensor) -> tuple[int, int]:
    """How many dictionaries are dependent, and the largest rank; ``ValueError`` for what is not finite."""
    broken = ~torch.isfinite(K) & mask.unsqueeze(-1) & mask.unsqueeze(-2)
    num_broken, num_dependent, largest = torch.stack([broken.sum(), dependent.sum(), rank.max()]).tolist()
    if num_broken:
        raise ValueError(f"K_D has {num_broken} NaN or infinite entries inside the mask; remove those points first.")
    return num_dependent, largest


def root_of_one(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``order`` and ``inverse`` of :func:`dictionary_root` for one dictionary on a CPU, in LAPACK; always pivoted.

    There the calls of torch are what a small dictionary costs: one of ten points takes a tenth of the time.
    """
    order = (K.diagonal() > 0.0).nonzero()[0]
    if len(order) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros((1, 1), dtype=K.dtype)
    if len(order) < len(K):
        K = K[np.ix_(order, order)]
    sd, eps = np.sqrt(K.diagonal()), float(np.finfo(K.dtype).eps)
    C = K / sd
    C /= sd[:, None]
    rounding = len(C) * eps
    pivots, inverse = _pivoted(C, rounding, 0.0)
    if len(pivots) < len(C) or not inverse[-1, -1] ** -2 > eps ** (2.0 / 3.0):
        pivots, inverse = _pivoted(C, rounding, 0.5 * rounding)
    return order[pivots], inverse / sd[pivots]


def symmetric_axes(F_D: Tensor, mask: Tensor | None = None) -> Tensor:
    """Q with (K_D^(1/2))^+ k_D(x) = Q f(x), where f are the Cholesky features of :func:`dictionary_root`.

    Let F_D hold f of the points of the dictionary and F_D = U S W^T be its thin SVD. Then K_D = F_D F_D^T = U S^2 U^T
    and k_D(x) = F_D f(x), hence (K_D^(1/2))^+ k_D(x) = U S^-1 U^T U S W^T f(x) = U W^T f(x): Q = U W^T = F_D
    (F_D^T F_D)^(-1/2), the polar factor of F_D. Its columns are orthonormal, so phi^T phi' and every posterior quantity
    stay what they were; only the directions in which ATA truncates turn. With A = sum_t f(x_t) f(x_t)^T the paper's
    ``V^(-1/2) Phi^T`` is Q (A + noise_var I)^(-1/2) F^T, symmetric roots.

    W comes from ``eigh`` of F_D^T F_D (r x r). The columns of F_D W are then normalized by their own length and
    orthonormalized by Newton-Schulz steps, so that Q^T Q = I to rounding although F_D^T F_D squares the condition
    number (checked for point variances up to a factor of 1e4 apart; at 1e6, axes of tiny variance are off by 1e-3).

    ``F_D`` (``... x M x r``) comes from :meth:`DictionaryRoot.features`. ``mask`` says which points each dictionary has
    (``... x M`` bool, all by default); other rows of ``F_D`` are not read. Q is ``... x M x r``; its rows for padding
    and its columns for padded features are zero.
    """
    if mask is not None:
        F_D = torch.where(mask.unsqueeze(-1), F_D, 0.0)
    gram = F_D.mT @ F_D
    used = gram.diagonal(dim1=-2, dim2=-1) > 0
    # A negative eigenvalue marks the padding, so that eigh cannot mix it with the features.
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
    # On the host: cuSOLVER's eigenvectors of tiny eigenvalues are too coarse (variances off by 1e-3 on an H100).
    found = torch.linalg.eigh((gram - torch.diag_embed(torch.where(used, 0.0, trace))).cpu())
    eigenvalues, W = found.eigenvalues.to(F_D), found.eigenvectors.to(F_D)
    axes = F_D @ W
    axes = axes / torch.linalg.vector_norm(axes, dim=-2, keepdim=True)
    axes = torch.where((eigenvalues > -0.5 * trace).unsqueeze(-2), axes, 0.0)
    for _ in range(2):  # |Q^T Q - I| = e becomes 3/4 e^2; e is at most 1e-6 before the first where variances are alike
        axes = 1.5 * axes - 0.5 * axes @ (axes.mT @ axes)
    Q = torch.where(used.unsqueeze(-2), axes @ W.mT, 0.0)
    # Of a point that comes twice, rounding may leave a feature that eigh cannot tell from none; then by an SVD.
    off = (Q.mT @ Q - torch.diag_embed(used.to(Q))).abs().amax((-2, -1))
    for member in (~(off < torch.finfo(Q.dtype).eps ** 0.5)).nonzero().tolist():
        at = tuple(member)
        rows, columns = (F_D[at] != 0.0).any(-1), used[at]
        U, _, Wt = torch.linalg.svd(F_D[at][rows][:, columns], full_matrices=False)
        Q[at] = Q.new_zeros(Q[at].shape).masked_scatter(rows.unsqueeze(-1) & columns, U @ Wt)
    return Q


class NystromWeights(NamedTuple):
    """Nyström features of one dictionary: phi(x) = weights k(points, x), ``p x r`` weights of ``r x d`` points."""

    points: Tensor
    weights: Tensor


def nystrom_weights(
    covariance: Covariance,
    points: Tensor,
    root: Literal["cholesky", "symmetric"] = "cholesky",
    tol: float | None = None,
) -> NystromWeights:
    """The features of one dictionary, for any point x.

    Args:
        covariance: k.
        points: The dictionary, ``M x d``; may hold duplicates.
        root: "cholesky", with as many features as points are independent; or "symmetric", the papers' (K_D^(1/2))^+
            k_D(x) with M features in the order of ``points``.
        tol: As in :func:`dictionary_root`.
    """
    K_D = covariance(points, points)
    factor = dictionary_root(K_D, tol=tol)
    weights = factor.inverse
    if root == "symmetric":
        weights = symmetric_axes(factor.features(K_D)) @ weights
    return NystromWeights(points[factor.order], weights)


def rounding_share(count: Tensor, dtype: torch.dtype) -> Tensor:
    """M eps, the share of its variance that rounding may leave to one of M (``count``) points, spanned by the rest."""
    return count.to(dtype) * torch.finfo(dtype).eps


@functools.cache
def lapack(dtype: np.dtype) -> tuple[Callable[..., Any], ...]:
    """potrf, trtrs and pstrf of a dtype."""
    return tuple(get_lapack_funcs(("potrf", "trtrs", "pstrf"), dtype=dtype))


def _pivoted(C: np.ndarray, tol: float, jitter: float) -> tuple[np.ndarray, np.ndarray]:
    """A member of :func:`pivoted_cholesky`: the positions chosen, and L^-1. ``jitter`` stays on ``C``."""
    _, trtrs, pstrf = lapack(C.dtype)
    C.flat[:: len(C) + 1] += jitter
    L, pivots, rank, _ = pstrf(C, tol=tol + jitter, lower=1)
    return pivots[:rank] - 1, trtrs(L[:rank, :rank], np.eye(rank, dtype=C.dtype), lower=1)[0]


def pivoted_cholesky(C: Tensor, absent: Tensor, tol: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse Cholesky factors of the points chosen one by one, each the one of largest variance given those before.

    ``C`` has correlation matrices (``b x M x M``, at least one point in some member) and ``absent`` marks padding
    (``b x M``). A member stops at variance ``tol`` (``b``); ``jitter`` (``b``) is added to its diagonal. LAPACK does it
    on the host: a device would wait for every point, and cuBLAS loses half of the digits at pivots near rounding.
    Returns the positions chosen, ``b x r``; L^-1 with L L^T = C[pivots, pivots] + jitter I, ``b x r x r`` (the identity
    beyond a member's rank); ranks, ``b``.
    """
    chosen, factors = [], []
    on_host = (x.cpu().numpy() for x in (C, absent, tol, jitter))
    for matrix, padding, least, added in zip(*on_host, strict=True):
        present = np.flatnonzero(~padding)
        positions, L_inverse = _pivoted(matrix[np.ix_(present, present)], least, added)
        chosen.append(present[positions])
        factors.append(L_inverse)
    steps = max(map(len, chosen))
    pivots = np.zeros((len(C), steps), dtype=np.int64)
    inverse = np.tile(np.eye(steps, dtype=L_inverse.dtype), (len(C), 1, 1))
    for i, (positions, L_inverse) in enumerate(zip(chosen, factors, strict=True)):
        rank = len(positions)
        pivots[i, :rank] = positions
        inverse[i, :rank, :rank] = L_inverse
    ranks = torch.tensor([len(positions) for positions in chosen], device=C.device)
    return torch.from_numpy(pivots).to(C.device), torch.from_numpy(inverse).to(C.device), ranks
