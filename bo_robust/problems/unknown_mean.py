"""Draws of a GP whose prior mean is known only to be one of eleven: experiment (d) of HE-GP-UCB.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), section 7 and Appendix J.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from bo_robust.covariance import SquaredExponential
from bo_robust.problems.base import Candidates, Problem, trial_list
from bo_robust.problems.noise import Gaussian
from bo_robust.problems.synthetic import even_points
from bo_robust.random import stream
from bo_robust.validation import check_positive

__all__ = ["unknown_mean"]

HILLS = 10


def unknown_mean(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 201,
    lengthscale: float = 0.1,
    outputscale: float = 1.0,
    hill: float = 1.0,
    tallest: float = 3.0,
    noise_scale: float = 0.1,
) -> Problem:
    """f ~ GP(m_u, SE) on [0, 1], m_u ten hills of which hill u, or none, is tallest; u unknown (Ziomek et al., J.4).

    Hill i is height (1 + cos(pi (x - c_i) / .04)) / 2 within .04 of c_i = (i - 1/2) / 10 and zero elsewhere; u is
    uniform among the eleven. A new u and f in every trial. The paper states ten hills, one taller, an RBF kernel, and
    shows a picture; the rest is ours.

    Args:
        trials: Trial indices.
        seed: Seed of the experiment.
        num_arms: n even points of [0, 1].
        lengthscale: l > 0.
        outputscale: k(x, x), in (0, 1].
        hill: Height of an ordinary hill.
        tallest: Height of the tallest, > ``hill``.
        noise_scale: R; Gaussian noise of variance R^2, which is lambda as well.

    Raises:
        ValueError: on bad parameters.
    """
    indices = trial_list(trials)
    check_positive(noise_scale=noise_scale)
    X, covariance = even_points(num_arms), SquaredExponential(lengthscale, outputscale)
    if outputscale > 1.0:
        raise ValueError(f"outputscale is k(x, x), which the method wants <= 1; got {outputscale!r}.")
    if not 0.0 < hill < tallest < math.inf:
        raise ValueError(f"hill and tallest must be numbers with 0 < hill < tallest, got {hill!r} and {tallest!r}.")
    centres = (torch.arange(HILLS, dtype=X.dtype) + 0.5) / HILLS
    away = (X - centres).abs()  # n x 10
    shapes = torch.where(away < 0.04, 0.5 * (1.0 + torch.cos(math.pi * away / 0.04)), 0.0).T
    heights = hill + (tallest - hill) * torch.eye(HILLS + 1, HILLS, dtype=X.dtype)
    means = heights @ shapes
    K = covariance(X, X)
    eigenvalues, Q = np.linalg.eigh(K.numpy())
    root = (Q * np.sqrt(eigenvalues.clip(min=0.0))) @ Q.T
    true, f = [], []
    for i in indices:
        rng = stream(seed, "problem", i)
        true.append(int(rng.integers(HILLS + 1)))
        f.append(means[true[-1]] + torch.from_numpy(root @ rng.standard_normal(num_arms)))
    names = (*(f"hill {i + 1}" for i in range(HILLS)), "none")
    return Problem(
        name="unknown_mean",
        f=torch.stack(f),
        kernel=K,
        rewards=Gaussian(noise_scale**2),
        noise_var=noise_scale**2,
        arms=X,
        noise_scale=noise_scale,
        candidates=Candidates(names, prior_means=means, true=tuple(true)),
        notes=(
            f"Draws from GP(m_u, {covariance}), m_u ten hills of height {hill:g} of which number u has {tallest:g}, or "
            f"none has; u is uniform among the eleven, which are the candidates. Gaussian noise, R = {noise_scale:g}, "
            "lambda = R^2: the Bayesian width holds. Algorithms without candidates are told u of every trial. A draw "
            "has no finite RKHS norm on the line, so no B."
        ),
    )
