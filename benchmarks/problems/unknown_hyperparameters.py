"""Functions with one of a few kernels, and draws with one of a few prior means: experiments (a) to (d) of HE-GP-UCB.

Source: Ziomek, Adachi & Osborne (ICML 2024), section 7 and Appendix J. The paper states the functions, the candidates
of (a) and (c), the initial designs of (a) and (b), rounds and delta = 0.1. Kernels, noise, R, B and grids are ours. In
(a) to (c) f is the same in all trials and for all seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.problems.base import CandidatePriors, OverArms, Problem, Trials
from benchmarks.problems.rewards import Gaussian
from benchmarks.problems.synthetic import even_points, square_root, stationary
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.input_checks import check_count, check_positive

LENGTHSCALES = (0.3, 0.4, 0.5, 0.7, 1.0)
# p and l of k(x, x') = exp(-2 sin^2(pi (x - x') / p) / l^2): of the whole, which is right, then of its sine waves (1
# and 2, 3, 4). l has the largest evidence among .2, .3, .5, .7, 1, 1.5, 2, 3, 5 there, lambda .01.
PERIODS = (1.0, 1 / 4, 3 / 14, 2 / 7)
PERIODIC_LENGTHSCALES = (0.3, 2.0, 2.0, 3.0)
HILLS = 10
# Groups of inputs of every candidate; the second is right.
DECOMPOSITIONS = (((0,), (1,), (2,)), ((0, 1), (2,)), ((0,), (1, 2)), ((1,), (0, 2)))


@dataclass(frozen=True)
class UnknownLengthscale(OverArms):
    """A line with a narrow bump, the lengthscale unknown (Ziomek et al. 2024, J.1; Berkenkamp 2019).

    f(x) = 0.6 x + N(x; 0.2, 0.08) / 8 on [0, 1]. The maximum is the bump, 0.7452 at 0.206, against 0.6 at 1. The paper
    prints 0.8 N, which would peak at 4.1; the authors' later code divides the density by 8. No candidate is known to be
    right.
    """

    num_arms: int = 201
    kernel: str = "se"
    # Lengthscales > 0 of the candidates. Algorithms without candidates use the shortest.
    lengthscales: Sequence[float] = LENGTHSCALES
    noise_scale: float = 0.1
    norm_bound: float = 8.0

    def make(self, trials: Trials) -> Problem:
        X = even_points(self.num_arms)
        f = 0.6 * X[:, 0] + _normal(X[:, 0], 0.2, 0.08) / 8.0
        scales = self.lengthscales
        candidates = CandidatePriors.of_lengthscales(scales, lambda l: stationary(self.kernel, l)(X, X))
        notes = (
            f"Berkenkamp's line with a bump, all trials the same f; candidates: {self.kernel} kernels of "
            f"lengthscales {_listed(scales)}. None is known to be right; algorithms without candidates use "
            "the shortest, whose RKHS holds the others'."
        )
        return _problem("unknown_lengthscale", self, trials.share(f), X, candidates, scales.index(min(scales)), notes)


@dataclass(frozen=True)
class UnknownPeriod(OverArms):
    """Four sine waves on [0, 1], repeated on [1, 2], the period unknown (Ziomek et al. 2024, J.2).

    The right period is 1. The printed formula jumps and lacks an x. It is continuous, one wave per piece, with the
    frequencies of the second and third piece swapped, and 7 pi for the 8 pi of the fourth. So this is what we use
    (inferred): sin 8 pi (x - 1/8) up to 1/4, 1.5 sin 8 pi x up to 1/2, 1.2 sin (28/3) pi (x - 11/28) up to 5/7,
    0.8 sin 7 pi (x - 5/7) up to 1.

    The paper fitted the right candidate to the whole function and the others to the waves, and gives no numbers. Our
    candidates have the exact periods and the lengthscales that such fits give. The points are even in [0, 2].
    """

    num_arms: int = 201
    noise_scale: float = 0.1
    norm_bound: float = 10.0

    def make(self, trials: Trials) -> Problem:
        X = 2.0 * even_points(self.num_arms)
        kernels = torch.stack([_periodic(X, p, l) for p, l in zip(PERIODS, PERIODIC_LENGTHSCALES, strict=True)])
        names = tuple(f"period {period:.4g}" for period in PERIODS)
        candidates = CandidatePriors(names, kernels, true=(0,) * len(trials))
        notes = (
            f"Four sine waves repeated with period 1, all trials the same f; candidates: periodic kernels of "
            f"periods {_listed(PERIODS, '.4g')} and lengthscales {_listed(PERIODIC_LENGTHSCALES)}."
        )
        return _problem("unknown_period", self, trials.share(_waves(X[:, 0])), X, candidates, 0, notes)


@dataclass(frozen=True)
class UnknownDecomposition(OverArms):
    """A function on a grid of [0, 1]^3, its additive decomposition unknown (Ziomek et al. 2024, J.3).

    f = N2((x1, x2); (.8, .8), variances .02, correlation .75) / 3.5 + 2.5 / 3.5 sum_{i = 1, 2} exp(-(x_i - .3)^2 / .02)
    / (2 pi .1). The maximum is 3.437432 at (.8, .8), where f is not additive. At (.3, .3) f looks additive, with value
    2.276. The formula is that of the authors' public code (RDUCB).

    The kernel of a candidate is the mean of SE kernels over its groups of inputs, so that k(x, x) = 1. The second
    candidate, (1,2)(3), is right.
    """

    per_axis: int = 11  # Even points per axis, end points included; 11 have .3 and .8 among them
    # l > 0 of every SE kernel. The evidence under the right candidate is largest near the default.
    lengthscale: float = 0.1
    noise_scale: float = 0.1
    norm_bound: float = 8.5

    def make(self, trials: Trials) -> Problem:
        check_count(2, per_axis=self.per_axis)
        axis = even_points(self.per_axis)[:, 0]
        X = torch.cartesian_prod(axis, axis, axis)
        covariance = SquaredExponential(self.lengthscale)

        def mean_of(groups: Sequence[tuple[int, ...]]) -> Tensor:
            inputs = [X[:, list(group)] for group in groups]
            return torch.stack([covariance(x, x) for x in inputs]).mean(0)

        kernels = torch.stack([mean_of(groups) for groups in DECOMPOSITIONS])
        names = tuple(
            "".join(f"({','.join(str(i + 1) for i in group)})" for group in groups) for groups in DECOMPOSITIONS
        )
        candidates = CandidatePriors(names, kernels, true=(1,) * len(trials))
        notes = (
            f"A function of x1 and x2 together on {self.per_axis}^3 points of [0, 1]^3, all trials the same f; "
            f"candidates: means of {covariance} over groups of inputs, {', '.join(names)}."
        )
        return _problem("unknown_decomposition", self, trials.share(_correlated_mode(X)), X, candidates, 1, notes)


def _problem(
    name: str, settings: Any, f: Tensor, X: Tensor, candidates: CandidatePriors, guess: int, notes: str
) -> Problem:
    """f (``s x n``, one function for all trials) at X with Gaussian noise; its kernel is that of candidate ``guess``.

    ``settings`` have ``noise_scale`` and ``norm_bound``. The notes end in a lower bound on the norm of f under every
    candidate.
    """
    check_positive(noise_scale=settings.noise_scale)
    R, B, K = settings.noise_scale, settings.norm_bound, candidates.kernels
    assert K is not None
    noisy = K + R**2 * torch.eye(len(X), dtype=K.dtype)
    norms = (f[0] * torch.linalg.solve(noisy, f[0].expand(len(K), -1))).sum(1).sqrt().tolist()
    notes = (
        f"{notes} Gaussian noise, R = {R:g}, lambda = R^2; regret on the scale of f. B = {B:g}; "
        "sqrt(f^T (K + lambda I)^-1 f), which is at most the RKHS norm of f, is "
        f"{_listed(norms, '.3g')} under the candidates."
    )
    constants: dict[str, Any] = {"arms": X, "norm_bound": B, "noise_scale": R, "candidates": candidates, "notes": notes}
    return Problem(name, f, K[guess], Gaussian(R**2), R**2, **constants)


def _listed(numbers: Sequence[float], form: str = "g") -> str:
    return ", ".join(format(number, form) for number in numbers)


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


@dataclass(frozen=True)
class UnknownMean(OverArms):
    """A GP draw around ten hills; which of them is tallest, if any, is unknown (Ziomek et al. 2024, J.4).

    f ~ GP(m_u, SE) on [0, 1]. Hill i of m_u is height (1 + cos(pi (x - c_i) / .04)) / 2 within .04 of
    c_i = (i - 1/2) / 10 and zero elsewhere. Hill u is tallest, or none is; u is uniform among the eleven. Every trial
    has a new u and f. The paper states ten hills, one of them taller, and an RBF kernel, and shows a picture. The rest
    is ours.
    """

    num_arms: int = 201
    lengthscale: float = 0.1
    outputscale: float = 1.0  # k(x, x), in (0, 1]
    hill: float = 1.0  # heights, 0 < hill < tallest
    tallest: float = 3.0
    noise_scale: float = 0.1

    def make(self, trials: Trials) -> Problem:
        hill, tallest, R = self.hill, self.tallest, self.noise_scale
        check_positive(noise_scale=R)
        X, covariance = even_points(self.num_arms), SquaredExponential(self.lengthscale, self.outputscale)
        if self.outputscale > 1.0:
            raise ValueError(f"outputscale is k(x, x), which the method wants <= 1; got {self.outputscale!r}.")
        if not 0.0 < hill < tallest < math.inf:
            raise ValueError(f"hill and tallest must be numbers with 0 < hill < tallest, got {hill!r} and {tallest!r}.")
        centers = (torch.arange(HILLS, dtype=X.dtype) + 0.5) / HILLS
        away = (X - centers).abs()  # n x 10
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
        candidates = CandidatePriors(names, prior_means=means, true=tuple(true))
        notes = (
            f"Draws from GP(m_u, {covariance}), m_u ten hills of height {hill:g} of which number u has "
            f"{tallest:g}, or none has; u is uniform among the eleven, which are the candidates. Gaussian noise, "
            f"R = {R:g}, lambda = R^2: the Bayesian width holds. Algorithms without candidates are given "
            "u of every trial. A draw has no finite RKHS norm on the line, so no B."
        )
        constants: dict[str, Any] = {"arms": X, "noise_scale": R, "candidates": candidates, "notes": notes}
        return Problem("unknown_mean", torch.stack(f), K, Gaussian(R**2), R**2, **constants)
