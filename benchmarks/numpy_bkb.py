"""BKB and BBKB as one would write them in NumPy: the baseline of ``benchmarks.bkb``.

Independent of the package. Everything is rebuilt from the arms at every redraw, by one pivoted Cholesky factor of the
dictionary. Within a batch, V^-1 follows each pull, and only bounds that can be the largest are computed again. It is
some three times faster than the code that the authors published (github.com/luigicarratino/batch-bkb).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    now = Posterior(np.zeros(len(arms)), prior.copy(), np.zeros((len(arms), 0)), prior.copy(), np.zeros((0, 0)))
    variance, spent, picks = prior, 0.0, []  # of the start of the batch
    for t, eta in enumerate(noise):
        arm = now.best(width(t + 1), noise_var, stale=bool(spent)) if t else first
        picks.append(arm)
        counts[arm] += 1.0
        sums[arm] += f[arm] + eta
        spent += variance[arm]
        if spent <= batch_constant and t:
            z = now.inverse @ now.phi[arm]
            now.inverse -= np.outer(z, z) / (1.0 + now.phi[arm] @ z)
            continue
        p = np.minimum(q * variance / noise_var, 1.0)
        p = 1.0 - (1.0 - p) ** counts
        kept = draws[t] < p
        kept[p.argmax()] |= not kept.any()
        now = rebuilt(arms, kernel, prior, arms[kept], counts, sums, noise_var)
        variance, spent = now.variance.copy(), 0.0
    return picks


@dataclass
class Posterior:
    """Of the dictionary: mean and variance of every arm, its features and what they miss of k(x, x), and V^-1."""

    mean: np.ndarray
    variance: np.ndarray
    phi: np.ndarray
    rest: np.ndarray
    inverse: np.ndarray

    def best(self, w: float, noise_var: float, stale: bool) -> int:
        """The arm of largest bound. A stale variance is at least the present one."""
        bounds = self.mean + w * np.sqrt(self.variance)
        arm = int(bounds.argmax())
        if not stale:
            return arm
        self._update(np.array([arm]), noise_var)
        few = (bounds >= self.mean[arm] + w * np.sqrt(self.variance[arm])).nonzero()[0]
        self._update(few, noise_var)
        return int(few[(self.mean[few] + w * np.sqrt(self.variance[few])).argmax()])

    def _update(self, few: np.ndarray, noise_var: float) -> None:
        z = self.phi[few]
        self.variance[few] = self.rest[few] + noise_var * ((z @ self.inverse) * z).sum(1)


def rebuilt(
    arms: np.ndarray,
    kernel: Kernel,
    prior: np.ndarray,
    chosen: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray,
    noise_var: float,
) -> Posterior:
    """The posterior of all rewards with the dictionary ``chosen``, by a pivoted Cholesky factor."""
    K_D, k_D = kernel(chosen, chosen), kernel(arms, chosen)
    sd = np.sqrt(K_D.diagonal())
    L, order, rank, _ = lapack.dpstrf(K_D / np.outer(sd, sd), lower=1, tol=1e-11)
    order = order[:rank] - 1
    phi = solve_triangular(L[:rank, :rank], (k_D[:, order] / sd[order]).T, lower=True, check_finite=False).T
    pulled = counts.nonzero()[0]
    z = phi[pulled]
    inverse = np.linalg.inv(z.T @ (counts[pulled, None] * z) + noise_var * np.eye(rank))
    mean = phi @ (inverse @ (z.T @ sums[pulled]))
    rest = np.maximum(prior - (phi * phi).sum(1), 0.0)
    return Posterior(mean, rest + noise_var * ((phi @ inverse) * phi).sum(1), phi, rest, inverse)
