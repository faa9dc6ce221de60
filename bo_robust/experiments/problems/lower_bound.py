"""The hard functions behind the lower bound for heavy tails (Ray Chowdhury & Gopalan 2019, Thm 2).

Each trial has one bump on [0, 1], f_j(x) = g(x - x_j), at one of M even places. g is band limited as in Scarlett,
Bogunovic & Cevher 2017: g(x) = 2 gap h(c x) / h(0), where h is the inverse Fourier transform of the bump
phi(u) = exp(-1 / (1 - u^2)) on [-1, 1]. c makes g fall to gap at distance 1/(2M), so no arm is within gap of the best
for two different j. With S the spectral density of k, B is exact for f on the line:
||g||_k^2 = int |g^|^2 / S = (2 gap / h(0))^2 / c * int phi(u)^2 / S(c u) du.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.experiments.problems.base import OverArms, Problem, RewardModel, Trials
from bo_robust.experiments.problems.rewards import mean_at
from bo_robust.experiments.problems.synthetic import even_points
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.input_checks import check_positive, check_tail_index

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)  # quadrature on [-1, 1], the support of phi
PHI = np.exp(-1.0 / (1.0 - NODES**2))
HALF_WIDTH = 0.44647931378221695  # h(HALF_WIDTH) = h(0) / 2


@dataclass(frozen=True)
class HardRewards(RewardModel):
    """A reward is sgn(f) (v / 2 gap)^(1/alpha) with probability (2 gap / v)^(1/alpha) |f|, else 0.

    The mean is f, and E|y|^(1+alpha) = (v / 2 gap) |f| <= v for |f| <= 2 gap.
    """

    gap: float
    v: float
    alpha: float

    def __post_init__(self) -> None:
        check_positive(gap=self.gap, v=self.v)
        check_tail_index(self.alpha)
        largest = 2.0 * self.gap / self.value
        if largest > 1.0:
            raise ValueError(
                f"(2 gap / v)^(1/alpha) |f| reaches {largest:.3g} > 1 and is no probability; "
                f"take a smaller gap (now {self.gap:g}) or a larger v (now {self.v:g})."
            )

    @property
    def value(self) -> float:
        """(v / 2 gap)^(1/alpha), the size of a nonzero reward."""
        return (self.v / (2.0 * self.gap)) ** (1.0 / self.alpha)

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        return rng.random((rounds, 1))

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        mean = mean_at(f, arms)
        return self.value * mean.sign() * (draws[:, 0] < mean.abs() / self.value)


@dataclass(frozen=True)
class HardInstance(OverArms):
    """The lower bound for heavy tails: a bump at a random place, rewards that are almost always 0."""

    num_arms: int = 100
    lengthscale: float = 0.2
    peaks: int = 5  # M >= 1, the number of places. The norm bound grows fast with it.
    gap: float = 0.1  # Delta > 0; f is in [-2 gap, 2 gap]
    v: float = 1.0  # Moment bound. v, gap and alpha give the probability of a nonzero reward, which must be <= 1.
    alpha: float = 1.0  # Tail index in (0, 1]
    noise_var: float = 1.0

    def make(self, trials: Trials) -> Problem:
        rewards = HardRewards(gap=self.gap, v=self.v, alpha=self.alpha)
        if self.peaks < 1:
            raise ValueError(f"peaks must be at least 1, got {self.peaks}.")
        X, covariance = even_points(self.num_arms), SquaredExponential(self.lengthscale)
        centres = (np.arange(self.peaks) + 0.5) / self.peaks
        c = 2.0 * self.peaks * HALF_WIDTH  # g(1 / (2 M)) = gap
        with np.errstate(all="ignore"):  # an overflow is reported below, with a remedy
            norm = _norm(covariance, c, self.gap)
        if not math.isfinite(norm):
            raise ValueError(
                f"peaks={self.peaks} are so narrow for lengthscale={self.lengthscale:g} that their norm is beyond "
                "float64; take fewer peaks or a smaller lengthscale."
            )
        bumps = 2.0 * self.gap * _h(c * (X[:, 0].numpy() - centres[:, None])) / _h(np.zeros(1))
        places = [int(rng.integers(self.peaks)) for rng in trials.streams()]
        notes = (
            f"Lower-bound instance: bump of height {2 * self.gap:g} at one of {self.peaks} places, norm exactly "
            f"{norm:.4g} in the RKHS of {covariance} on the line; rewards 0 or +-{rewards.value:g}; regret "
            "on the scale of f."
        )
        f, scale = torch.from_numpy(bumps[places]), 0.5 * rewards.value
        known: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": norm, "noise_scale": scale}
        known |= {"moment_bound": self.v, "alpha": self.alpha, "notes": notes}
        return Problem("hard_instance", f, covariance, rewards, **known)


def spectral_density(covariance: SquaredExponential, frequency: np.ndarray) -> np.ndarray:
    """S(w) with k(r) = int S(w) exp(2 pi i w r) dw, in one dimension."""
    l = float(covariance.lengthscale)  # type: ignore[arg-type]
    w2 = (2.0 * math.pi * frequency) ** 2
    return math.sqrt(2.0 * math.pi) * l * np.exp(-0.5 * l**2 * w2)


def _h(x: np.ndarray) -> np.ndarray:
    """int_{-1}^{1} phi(u) cos(2 pi x u) du, elementwise."""
    return np.cos(2.0 * math.pi * x[..., None] * NODES) @ (WEIGHTS * PHI)


def _norm(covariance: SquaredExponential, c: float, gap: float) -> float:
    """||g||_k on the real line."""
    integral = float((WEIGHTS * PHI**2 / spectral_density(covariance, c * NODES)).sum())
    return 2.0 * gap / float(_h(np.zeros(1))[0]) * math.sqrt(integral / c)
