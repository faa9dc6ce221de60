"""Functions whose kernel is known only to be one of a few: experiments (a), (b), (c) of HE-GP-UCB.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), section 7 and Appendix J. The paper states the functions, the candidates of (a) and (c), the initial
designs of (a) and (b), rounds and delta = 0.1; kernels, noise, R, B and grids are ours. (d) is
:mod:`bo_robust.problems.unknown_mean`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bo_robust.covariance import SquaredExponential
from bo_robust.problems.base import Candidates, Problem, trial_list
from bo_robust.problems.noise import Gaussian
from bo_robust.problems.synthetic import even_points, stationary
from bo_robust.validation import check_count, check_positive

__all__ = ["unknown_decomposition", "unknown_lengthscale", "unknown_period"]

LENGTHSCALES = (0.3, 0.4, 0.5, 0.7, 1.0)
# Of the whole, then of the sine waves: pieces 1 and 2, piece 3, piece 4. The lengthscales are those of largest evidence
# among .2, .3, .5, .7, 1, 1.5, 2, 3, 5 on the same stretch of f, lambda = .01, given the period.
PERIODS = (1.0, 1 / 4, 3 / 14, 2 / 7)
PERIODIC_LENGTHSCALES = (0.3, 2.0, 2.0, 3.0)
DECOMPOSITIONS = (((0,), (1,), (2,)), ((0, 1), (2,)), ((0,), (1, 2)), ((1,), (0, 2)))


def unknown_lengthscale(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 201,
    kernel: str = "se",
    lengthscales: Sequence[float] = LENGTHSCALES,
    noise_scale: float = 0.1,
    norm_bound: float = 8.0,
) -> Problem:
    """f(x) = 0.6 x + N(x; 0.2, 0.08) / 8 on [0, 1], unknown lengthscale (Ziomek et al. 2024, J.1; Berkenkamp 2019).

    A line with a bump where the maximum is: 0.7452 at 0.206 against 0.6 at 1. The paper prints 0.8 N, which would peak
    at 4.1; the authors' later code divides the density by 8. f is the same in all trials.

    Args:
        trials: Trial indices.
        seed: Seed of the experiment; f does not depend on it.
        num_arms: n even points of [0, 1].
        kernel: "se", "matern12", "matern32" or "matern52", with k(x, x) = 1.
        lengthscales: Of the candidates, > 0. Algorithms without candidates use the first of the shortest.
        noise_scale: R; Gaussian noise of variance R^2, which is lambda as well.
        norm_bound: B.

    Raises:
        ValueError: on bad parameters.
    """
    X = even_points(num_arms)
    f = 0.6 * X[:, 0] + _normal(X[:, 0], 0.2, 0.08) / 8.0
    scales = tuple(float(ell) for ell in lengthscales)
    if not scales:
        raise ValueError("lengthscales must hold at least one number.")
    kernels = torch.stack([stationary(kernel, ell)(X, X) for ell in scales])
    candidates = Candidates(tuple(f"l = {ell:g}" for ell in scales), kernels, lengthscales=scales)
    return _one_function(
        "unknown_lengthscale",
        trials,
        f,
        X,
        candidates,
        kernels[scales.index(min(scales))],
        noise_scale,
        norm_bound,
        notes=(
            f"Berkenkamp's line with a bump, all trials the same f; candidates: {kernel} kernels of lengthscales "
            f"{', '.join(f'{ell:g}' for ell in scales)}. None is known to be right; algorithms without candidates use "
            "the shortest, whose RKHS holds the others'."
        ),
    )


def unknown_period(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 201,
    periods: Sequence[float] = PERIODS,
    lengthscales: Sequence[float] = PERIODIC_LENGTHSCALES,
    noise_scale: float = 0.1,
    norm_bound: float = 10.0,
) -> Problem:
    """Four sine waves on [0, 1], repeated on [1, 2], unknown period (Ziomek et al. 2024, J.2): the right one is 1.

    The formula printed jumps and lacks an x; with two frequencies swapped it is continuous, one wave per piece, which
    is what stands here (inferred): sin 8 pi (x - 1/8) up to 1/4, 1.5 sin 8 pi x up to 1/2, 1.2 sin (28/3) pi
    (x - 11/28) up to 5/7, 0.8 sin 7 pi (x - 5/7) up to 1. The paper fitted the right candidate to the whole and the
    others to the waves, numbers not given; here they have the exact periods, 1 and 1/4 (twice), 3/14 and 2/7, and the
    lengthscales that such fits give, 0.3 and 2, 2, 3. Same f in all trials.

    Args:
        trials: Trial indices.
        seed: Seed of the experiment; f does not depend on it.
        num_arms: n even points of [0, 2].
        periods: Of the candidates k(x, x') = exp(-2 sin^2(pi (x - x') / p) / l^2), > 0; the first is the right one.
        lengthscales: Their l > 0, one each.
        noise_scale: R; Gaussian noise of variance R^2, which is lambda as well.
        norm_bound: B.

    Raises:
        ValueError: on bad parameters.
    """
    X = 2.0 * even_points(num_arms)
    if len(periods) == 0 or len(lengthscales) != len(periods):
        raise ValueError(f"periods and lengthscales must hold one number per candidate, got {periods}, {lengthscales}.")
    for period, ell in zip(periods, lengthscales, strict=True):
        check_positive(periods=period, lengthscales=ell)
    kernels = torch.stack([_periodic(X, float(p), float(ell)) for p, ell in zip(periods, lengthscales, strict=True)])
    names = tuple(f"period {period:.4g}" for period in periods)
    return _one_function(
        "unknown_period",
        trials,
        _waves(X[:, 0]),
        X,
        Candidates(names, kernels, true=(0,) * len(trial_list(trials))),
        kernels[0],
        noise_scale,
        norm_bound,
        notes=(
            f"Four sine waves repeated with period 1, all trials the same f; candidates: periodic kernels of periods "
            f"{', '.join(f'{period:.4g}' for period in periods)} and lengthscales "
            f"{', '.join(f'{ell:g}' for ell in lengthscales)}."
        ),
    )


def unknown_decomposition(
    trials: Sequence[int],
    seed: int,
    *,
    per_axis: int = 11,
    lengthscale: float = 0.1,
    noise_scale: float = 0.1,
    norm_bound: float = 8.5,
) -> Problem:
    """A function of (x1, x2) on a grid of [0, 1]^3, unknown additive decomposition (Ziomek et al. 2024, J.3).

    f = N2((x1, x2); (.8, .8), variances .02, correlation .75) / 3.5 + 2.5 / 3.5 sum_{i = 1, 2} exp(-(x_i - .3)^2 / .02)
    / (2 pi .1): maximum 3.437432 at (.8, .8), which is not additive; 2.276 at (.3, .3), where it looks so. The formula
    is that of the authors' public code (RDUCB). Same f in all trials.

    Args:
        trials: Trial indices.
        seed: Seed of the experiment; f does not depend on it.
        per_axis: Even points per axis, end points included; 11 have .3 and .8 among them.
        lengthscale: l > 0 of the SE kernel of every group (0.1: evidence under the right one is largest near it); a
            candidate is their mean, so that k(x, x) = 1.
        noise_scale: R; Gaussian noise of variance R^2, which is lambda as well.
        norm_bound: B.

    Raises:
        ValueError: on bad parameters.
    """
    check_count(2, per_axis=per_axis)
    axis = even_points(per_axis)[:, 0]
    X = torch.cartesian_prod(axis, axis, axis)
    covariance = SquaredExponential(lengthscale)
    kernels = torch.stack(
        [
            torch.stack([covariance(X[:, list(group)], X[:, list(group)]) for group in groups]).mean(0)
            for groups in DECOMPOSITIONS
        ]
    )
    names = tuple("".join(f"({','.join(str(i + 1) for i in group)})" for group in groups) for groups in DECOMPOSITIONS)
    return _one_function(
        "unknown_decomposition",
        trials,
        _correlated_mode(X),
        X,
        Candidates(names, kernels, true=(1,) * len(trial_list(trials))),
        kernels[1],
        noise_scale,
        norm_bound,
        notes=(
            f"A function of x1 and x2 together on {per_axis}^3 points of [0, 1]^3, all trials the same f; candidates: "
            f"means of {covariance} over groups of inputs, {', '.join(names)}."
        ),
    )


def _one_function(
    name: str,
    trials: Sequence[int],
    f: Tensor,
    X: Tensor,
    candidates: Candidates,
    kernel: Tensor,
    noise_scale: float,
    norm_bound: float,
    notes: str,
) -> Problem:
    check_positive(noise_scale=noise_scale)
    noise_var, K = noise_scale**2, candidates.kernels
    assert K is not None
    noisy = K + noise_var * torch.eye(len(X), dtype=K.dtype)
    seen = (f * torch.linalg.solve(noisy, f.expand(len(K), -1))).sum(1).sqrt().tolist()
    return Problem(
        name=name,
        f=f.repeat(len(trial_list(trials)), 1),
        kernel=kernel,
        rewards=Gaussian(noise_var),
        noise_var=noise_var,
        arms=X,
        norm_bound=norm_bound,
        noise_scale=noise_scale,
        candidates=candidates,
        notes=(
            f"{notes} Gaussian noise, R = {noise_scale:g}, lambda = R^2; regret on the scale of f. B = {norm_bound:g}; "
            "sqrt(f^T (K + lambda I)^-1 f), which is at most the RKHS norm of f, is "
            f"{', '.join(f'{norm:.3g}' for norm in seen)} under the candidates."
        ),
    )


def _normal(x: Tensor, mean: float, sd: float) -> Tensor:
    return torch.exp(-0.5 * ((x - mean) / sd).square()) / (sd * math.sqrt(2.0 * math.pi))


def _periodic(X: Tensor, period: float, lengthscale: float) -> Tensor:
    return torch.exp(-2.0 * torch.sin(math.pi * (X - X.T) / period).square() / lengthscale**2)


def _waves(x: Tensor) -> Tensor:
    x = x % 1.0
    pieces = (
        torch.sin(8.0 * math.pi * (x - 1 / 8)),
        1.5 * torch.sin(8.0 * math.pi * x),
        1.2 * torch.sin(28 / 3 * math.pi * (x - 11 / 28)),
        0.8 * torch.sin(7.0 * math.pi * (x - 5 / 7)),
    )
    which = torch.bucketize(x, torch.tensor([1 / 4, 1 / 2, 5 / 7], dtype=x.dtype), right=True)
    return torch.stack(pieces).gather(0, which.unsqueeze(0))[0]


def _correlated_mode(X: Tensor) -> Tensor:
    a, b = (X[:, :2] - 0.8).T
    variance, correlation = 0.02, 0.75
    rest = 1.0 - correlation**2
    mode = torch.exp(-(a.square() - 2.0 * correlation * a * b + b.square()) / (2.0 * variance * rest))
    mode = mode / (2.0 * math.pi * variance * math.sqrt(rest))
    decoys = torch.exp(-(X[:, :2] - 0.3).square() / 0.02).sum(1) / (2.0 * math.pi * 0.1)
    return (mode + 2.5 * decoys) / 3.5
