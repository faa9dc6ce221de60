"""Widths, levels and features of the papers' algorithms over arms, from what a problem states.

A configuration gives them to algorithms: ``lambda p: GPUCB(practical(p))``.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.problems.base import Problem
from bo_robust.bandits import ATAGPUCB, ArmAlgorithm
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import (
    ATAFourierWidth,
    ATANystromWidth,
    BayesianFiniteWidth,
    FiniteWidth,
    SelfNormalizedWidth,
    TGPWidth,
    Width,
)
from bo_robust.confidence.truncation import ATAFourierTruncation, ATANystromTruncation, TGPTruncation, Truncation
from bo_robust.features import FourierFeatures

Method = ArmAlgorithm | Callable[[Problem], ArmAlgorithm]
DELTA = 0.1  # failure probability of widths and levels
FIFTH = 0.4472135955  # times this a width has w^2 / 5


def finite(p: Problem, scale: float = 1.0) -> FiniteWidth:
    """Theorem 1 of Srinivas et al. 2010."""
    return FiniteWidth(p.num_arms, DELTA, scale=scale)


def practical(p: Problem) -> FiniteWidth:
    """That with w^2 / 5, as in the experiments of Srinivas et al."""
    return finite(p, FIFTH)


def bayesian(p: Problem, scale: float = 1.0) -> BayesianFiniteWidth:
    """The width of HE-GP-UCB where f is drawn from a candidate."""
    return BayesianFiniteWidth(p.num_arms, DELTA, scale=scale)


def self_normalized(p: Problem, norm_bound: float | None = None, noise_scale: float | None = None) -> Any:
    """The width of HE-GP-UCB with B of the problem unless given, and the half of delta that its test leaves."""
    B = p.norm_bound if norm_bound is None else norm_bound
    R = p.noise_scale if noise_scale is None else noise_scale
    assert B is not None
    assert R is not None
    return SelfNormalizedWidth(B, R, 0.5 * DELTA)


def moments(p: Problem) -> tuple[float, float]:
    """v and alpha of E|y|^(1 + alpha) <= v."""
    if p.moment_bound is None or p.alpha is None:
        raise ValueError(f"problem {p.name!r} states no moments of its rewards.")
    return p.moment_bound, p.alpha


def heavy_tails(p: Problem) -> tuple[float, float, float, float]:
    """B, v, alpha and lambda, with which every width for heavy tails begins."""
    if p.norm_bound is None:
        raise ValueError(f"problem {p.name!r} states no bound on the norm of f.")
    return p.norm_bound, *moments(p), p.noise_var


def tgp_width(p: Problem) -> TGPWidth:
    return TGPWidth(*heavy_tails(p), DELTA)


def tgp_level(p: Problem) -> TGPTruncation:
    return TGPTruncation(*moments(p))


def fourier_width(p: Problem, num_frequencies: int) -> ATAFourierWidth:
    return ATAFourierWidth(*heavy_tails(p), DELTA, p.rounds, num_frequencies)


def nystrom_width(p: Problem) -> ATANystromWidth:
    """With m_t for the number of features, and the accuracy of the published scripts."""
    return ATANystromWidth(*heavy_tails(p), DELTA, p.rounds, None, epsilon=0.1)


def fourier(p: Problem, nodes: int, lengthscale: float | None = None) -> FourierFeatures:
    """Fourier features of the problem's kernel on a box that holds all arms: the unit box, if that does."""
    assert p.arms is not None
    low, high = p.arms.amin(0), p.arms.amax(0)
    inside = bool((low >= 0).all() & (high <= 1).all())
    box = ((0.0, 1.0),) * len(low) if inside else tuple(zip(low.tolist(), high.tolist(), strict=True))
    kernel: Any = p.kernel
    return FourierFeatures(kernel.lengthscale if lengthscale is None else lengthscale, nodes, box)


def ata(
    p: Problem,
    width: Width,
    features: FourierFeatures | NystromDictionary,
    truncation: Truncation | None = None,
    **options: Any,
) -> ATAGPUCB:
    """ATA-GP-UCB with the level of the theorem for these features, unless another is given."""
    if truncation is None and isinstance(features, FourierFeatures):
        truncation = ATAFourierTruncation(*moments(p), DELTA, p.rounds, features.num_frequencies)
    elif truncation is None:
        truncation = ATANystromTruncation(*moments(p), DELTA, p.rounds, None)
    return ATAGPUCB(width, truncation, features, **options)
