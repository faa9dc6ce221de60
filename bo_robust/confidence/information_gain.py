"""Information gain of sets of points, and bounds on its maximum gamma_T.

gamma_T is the maximum of 1/2 logdet(I + K_A / noise_var) over T points, which may repeat. All gains are in nats.
Source: Srinivas et al. 2010, Section 5 and Appendix C.

All functions raise ``ValueError`` if ``noise_var`` is not positive, ``T`` is too small, or a matrix does not have the
shape, the dtype or the properties stated.
"""

import math

import torch
from torch import Tensor

from bo_robust.utils.input_checks import check_count, check_kernel_matrix, check_positive, check_tensor

# Greedy maximization of a monotone submodular function reaches this share of the maximum.
GREEDY_SHARE = 1.0 - math.exp(-1.0)


def exact(K: Tensor, noise_var: float) -> Tensor:
    """Information gain 1/2 logdet(I + K / noise_var) of chosen points, of shape ``...``.

    K is their kernel matrix, repeats included, ``... x t x t``, positive semi-definite, t >= 0. Raises
    ``torch.linalg.LinAlgError`` if I + K / noise_var is not positive definite.
    """
    check_positive(noise_var=noise_var)
    check_tensor("K", K, floating=False)
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or not K.is_floating_point():
        raise ValueError(f"K must be floating point, ... x t x t, got {K.dtype} of shape {tuple(K.shape)}.")
    identity = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    factor = torch.linalg.cholesky((K + noise_var * identity) / noise_var)
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def increments(variances: Tensor, noise_var: float) -> Tensor:
    """Gain 1/2 log(1 + sigma_{t-1}^2(x_t) / noise_var) of one more point given the earlier ones.

    ``variances`` are the posterior variances at the chosen points before each was chosen, any shape. The sum over a
    sequence of points is :func:`exact` of its kernel matrix (Lemma 5.3).
    """
    check_positive(noise_var=noise_var)
    return 0.5 * torch.log1p(variances / noise_var)


def greedy(K: Tensor, noise_var: float, T: int) -> tuple[Tensor, Tensor]:
    """Greedy experimental design: choose T points x_t = argmax sigma_{t-1}, repeats allowed (eq. 4).

    K is the kernel matrix of all n points, ``n x n``. Round t costs O(n min(t, n)). Posterior covariances come from
    cached factor rows, and n cached rows are folded into the matrix. Nothing is refactorized.

    Returns:
        The gains F(A_t) of the first t points for t = 1..T (``T``), and the points chosen (``T``, int64). Of equal
        points the first is chosen.
    """
    if K.ndim != 2:
        raise ValueError(f"greedy takes one kernel matrix n x n, got shape {tuple(K.shape)}.")
    check_kernel_matrix(K)
    check_positive(noise_var=noise_var)
    check_count(1, T=T)
    n = K.shape[0]
    rows = K.new_empty(min(T, n), n)
    covariance, variance, cached = K, K.diagonal().clamp(min=0.0), 0
    chosen, chosen_variances = [], []
    for _ in range(T):
        if cached == n:
            covariance, cached = covariance - rows.mT @ rows, 0
        point = variance.argmax(keepdim=True)
        column = covariance[point] - rows[:cached, point].mT @ rows[:cached]
        chosen.append(point)
        chosen_variances.append(variance[point])
        rows[cached] = column[0] / (variance[point] + noise_var).sqrt()
        variance = (variance - rows[cached].square()).clamp(min=0.0)
        cached += 1
    return increments(torch.cat(chosen_variances), noise_var).cumsum(0), torch.cat(chosen)


def greedy_bound(K: Tensor, noise_var: float, T: int) -> Tensor:
    """Upper bounds on gamma_1..gamma_T from the greedy design, F(A_t) / (1 - 1/e) (eq. 5), ``T``; as :func:`greedy`."""
    return greedy(K, noise_var, T)[0] / GREEDY_SHARE
