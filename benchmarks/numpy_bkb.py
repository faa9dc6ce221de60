"""BKB and BBKB as one would write them in NumPy: the baseline of ``benchmarks.bkb``.

Independent of the package. Everything is rebuilt from the arms at every redraw, by one pivoted Cholesky factor of the
dictionary. Within a batch, V^-1 follows each pull, and only bounds that can be the largest are computed again. It is
some three times faster than the code that the authors published (github.com/luigicarratino/batch-bkb).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack, solve_triangular

__all__ = ["Kernel", "numpy_bbkb"]

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]


def numpy_bbkb(
    arms: np.ndarray,
    kernel: Kernel,
    prior: np.ndarray,
    f: np.ndarray,
    noise: np.ndarray,
    first: int,
    draws: np.ndarray,
    width: Callable[[int], float],
    q: float,
    noise_var: float,
    batch_constant: float,
) -> list[int]:
    """Run all rounds of ``noise`` and return the arms pulled; a ``batch_constant`` c of zero is BKB.

    ``prior`` is k(x, x) of every arm, and ``draws`` has one row of uniform numbers per round, ``T x n``. A batch ends
    once the variances (of f, at its start) of its pulls add up to more than c.
    """
    counts, sums = np.zeros(len(arms)), np.zeros(len(arms))
    mean, variance = np.zeros(len(arms)), prior.copy()
    phi, rest, inverse = np.zeros((len(arms), 0)), prior.copy(), np.zeros((0, 0))
    now, spent, picks = variance, 0.0, []
    for t, eta in enumerate(noise):
        w = width(t + 1)
        arm = first
        if t:
            bounds = mean + w * np.sqrt(now)
            arm = int(bounds.argmax())
            if spent:  # a stale variance is at least the present one
                z = phi[arm]
                now[arm] = rest[arm] + noise_var * (z @ inverse @ z)
                few = (bounds >= mean[arm] + w * np.sqrt(now[arm])).nonzero()[0]
                z = phi[few]
                now[few] = rest[few] + noise_var * ((z @ inverse) * z).sum(1)
                arm = int(few[(mean[few] + w * np.sqrt(now[few])).argmax()])
        picks.append(arm)
        counts[arm] += 1.0
        sums[arm] += f[arm] + eta
        spent += variance[arm]
        if spent <= batch_constant and t:
            z = inverse @ phi[arm]
            inverse -= np.outer(z, z) / (1.0 + phi[arm] @ z)
            continue
        p = np.minimum(q * variance / noise_var, 1.0)
        p = 1.0 - (1.0 - p) ** counts
        kept = draws[t] < p
        kept[p.argmax()] |= not kept.any()
        chosen = arms[kept]
        K_D, k_D = kernel(chosen, chosen), kernel(arms, chosen)
        sd = np.sqrt(K_D.diagonal())
        L, order, rank, _ = lapack.dpstrf(K_D / np.outer(sd, sd), lower=1, tol=1e-11)
        order = order[:rank] - 1
        phi = solve_triangular(L[:rank, :rank], (k_D[:, order] / sd[order]).T, lower=True, check_finite=False).T
        pulled = counts.nonzero()[0]
        z = phi[pulled]
        V = z.T @ (counts[pulled, None] * z) + noise_var * np.eye(rank)
        inverse = np.linalg.inv(V)
        mean = phi @ (inverse @ (z.T @ sums[pulled]))
        rest = np.maximum(prior - (phi * phi).sum(1), 0.0)
        variance = rest + noise_var * ((phi @ inverse) * phi).sum(1)
        now, spent = variance.copy(), 0.0
    return picks
