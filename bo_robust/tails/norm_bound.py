"""B by guess and double: start with a small bound on ||f||_k and double it when data contradict it.

The widths of the theorems are w_t = B + c_t, where c_t covers the noise (:class:`.SelfNormalisedWidth`,
:class:`.TGPWidth`). In feature space the posterior mean is V^{-1} Phi^T f + V^{-1} S, with V = Phi^T Phi + lambda I and
S = Phi^T (y - f). The norm of the first part is at most ||f||_k. That of the second is at most ||S||_{V^-1} /
sqrt(lambda). This is what c_t bounds with probability 1 - delta, for all t at once and points chosen adaptively (TGP: y
truncated, delta < 0.7). So ||mu_t||_k <= ||f||_k + c_t: B is contradicted when ||mu_t||_k > w_t, and ||mu_t||_k - c_t
is a lower bound on ||f||_k. In a loop::

    w = float(width(t, gain))
    lower = float(norm_lower_bound(K, y, noise_var, slack=w - width.norm_bound))
    width = dataclasses.replace(width, norm_bound=guess_and_double(width.norm_bound, lower))

Here K and y are those of the t - 1 points played, y as the posterior sees them (truncated, where rewards are). The gain
is 1/2 logdet(I + K / noise_var). width.scale must be 1: a scaled-down c_t does not cover the noise.

What remains of the guarantee: with probability 1 - delta the guess ends below 2 ||f||_k (or at its start, if that was
larger), after at most log2(||f||_k / B_0) + 1 doublings. Before the last of them B may be too small, and the intervals
need not cover f. A B that is never contradicted is not proved large enough either, because data show a part of f only.
A wrong kernel, or noise heavier than c_t assumes, makes ||mu_t||_k grow and the guess with it.
"""

import torch
from torch import Tensor

from bo_robust.validation import check_finite, check_positive, check_tensor


def norm_lower_bound(K: Tensor, y: Tensor, noise_var: float, slack: float | Tensor = 0.0) -> Tensor:
    """||mu_t||_k - slack, at least 0, with ||mu_t||_k = sqrt(a^T K a), a = (K + noise_var I)^{-1} y.

    With ``slack`` = c_t it is a lower bound on ||f||_k with probability 1 - delta, see the head of this module. With
    ``slack`` = 0 it is one only for rewards without noise. Independent noise of variance R^2 adds R^2 tr(K (K +
    noise_var I)^{-2}) to the expected ||mu_t||_k^2: the sum over eigenvalues e of K of R^2 e / (e + noise_var)^2, up to
    R^2 t / (4 noise_var). So at ``slack`` = 0 the result exceeds ||f||_k for small f or many points.

    Args:
        K: Kernel matrix of the points played, ``t x t``, or ``s x t x t`` for ``s`` results.
        y: Rewards the posterior sees, ``t`` or ``s x t``, in dtype and device of ``K``.
        noise_var: lambda > 0.
        slack: c_t >= 0, a number or ``s`` of them.

    Raises:
        ValueError: on shapes that do not match, entries that are not finite, noise_var <= 0, or a matrix K +
            noise_var I that is not positive definite.
    """
    for name, x in (("K", K), ("y", y)):
        check_tensor(name, x)
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or y.shape != K.shape[:-1]:
        shapes = f"{tuple(K.shape)} and {tuple(y.shape)}"
        raise ValueError(f"K must be t x t (or s x t x t) and y have t (or s x t) entries, got {shapes}.")
    check_positive(noise_var=noise_var)
    check_finite("K", K)
    check_finite("y", y)
    noisy = K + noise_var * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    L, info = torch.linalg.cholesky_ex(noisy)
    if bool((info > 0).any()):
        raise ValueError("K + noise_var I is not positive definite; K must be a kernel matrix, or raise noise_var.")
    a = torch.cholesky_solve(y.unsqueeze(-1), L)
    square = (a * (K @ a)).sum((-2, -1))
    # The inner clamp: rounding may make the square of a zero norm negative.
    return (square.clamp_min(0.0).sqrt() - slack).clamp_min(0.0)


def guess_and_double(B: float, lower: float) -> float:
    """Return the smallest of B, 2 B, 4 B, ... that is at least ``lower``; B must be > 0, and ``lower`` finite."""
    check_positive(B=B)
    # Not `>=`: NaN must be refused too, and the loop below would not end at infinity.
    if not abs(lower) < float("inf"):
        raise ValueError(f"lower must be a finite number, got {lower!r}.")
    while lower > B:
        B *= 2.0
    return B
