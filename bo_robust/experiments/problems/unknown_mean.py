"""Draws of a GP whose prior mean is one of eleven: experiment (d) of HE-GP-UCB.

Source: Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of
Any Type" (ICML 2024), section 7 and Appendix J.4.
"""

import math
from dataclasses import dataclass

import torch

from bo_robust.covariance import SquaredExponential
from bo_robust.experiments.problems.base import CandidatePriors, Problem, Trials
from bo_robust.experiments.problems.noise import Gaussian
from bo_robust.experiments.problems.synthetic import even_points, square_root
from bo_robust.validation import check_positive

HILLS = 10


@dataclass(frozen=True)
class UnknownMean:
    """A GP draw around ten hills; which of them is tallest, if any, is unknown (Ziomek et al. 2024, J.4).

    f ~ GP(m_u, SE) on [0, 1]. Hill i of m_u is height (1 + cos(pi (x - c_i) / .04)) / 2 within .04 of
    c_i = (i - 1/2) / 10 and zero elsewhere. Hill u is tallest, or none is; u is uniform among the eleven. Every trial
    has a new u and f. The paper states ten hills, one of them taller, and an RBF kernel, and shows a picture. The rest
    is ours.

    ``hill`` and ``tallest`` are heights with 0 < hill < tallest; ``outputscale`` is k(x, x), in (0, 1].
    """

    num_arms: int = 201
    lengthscale: float = 0.1
    outputscale: float = 1.0
    hill: float = 1.0
    tallest: float = 3.0
    noise_scale: float = 0.1

    def make(self, trials: Trials) -> Problem:
        """The problem; its kernel and prior mean are those of the right candidate."""
        hill, tallest, noise_scale = self.hill, self.tallest, self.noise_scale
        check_positive(noise_scale=noise_scale)
        X, covariance = even_points(self.num_arms), SquaredExponential(self.lengthscale, self.outputscale)
        if self.outputscale > 1.0:
            raise ValueError(f"outputscale is k(x, x), which the method wants <= 1; got {self.outputscale!r}.")
        if not 0.0 < hill < tallest < math.inf:
            raise ValueError(f"hill and tallest must be numbers with 0 < hill < tallest, got {hill!r} and {tallest!r}.")
        centres = (torch.arange(HILLS, dtype=X.dtype) + 0.5) / HILLS
        away = (X - centres).abs()  # n x 10
        shapes = torch.where(away < 0.04, 0.5 * (1.0 + torch.cos(math.pi * away / 0.04)), 0.0).T
        # Row u raises hill u; the last row raises none.
        means = (hill + (tallest - hill) * torch.eye(HILLS + 1, HILLS, dtype=X.dtype)) @ shapes
        K = covariance(X, X)
        root = square_root(K.numpy())
        true, f = [], []
        for rng in trials.streams():
            true.append(int(rng.integers(HILLS + 1)))
            f.append(means[true[-1]] + torch.from_numpy(root @ rng.standard_normal(self.num_arms)))
        names = (*(f"hill {i + 1}" for i in range(HILLS)), "none")
        return Problem(
            name="unknown_mean",
            f=torch.stack(f),
            kernel=K,
            rewards=Gaussian(noise_scale**2),
            noise_var=noise_scale**2,
            arms=X,
            noise_scale=noise_scale,
            candidates=CandidatePriors(names, prior_means=means, true=tuple(true)),
            notes=(
                f"Draws from GP(m_u, {covariance}), m_u ten hills of height {hill:g} of which number u has "
                f"{tallest:g}, or none has; u is uniform among the eleven, which are the candidates. Gaussian noise, "
                f"R = {noise_scale:g}, lambda = R^2: the Bayesian width holds. Algorithms without candidates are told "
                "u of every trial. A draw has no finite RKHS norm on the line, so no B."
            ),
        )
