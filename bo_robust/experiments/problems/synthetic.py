"""Synthetic problems: RKHS functions, GP draws and one-point spikes on even points of [0, 1], and many random arms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.experiments.problems.base import OverArms, Problem, Trials
from bo_robust.experiments.problems.rewards import Gaussian, OnePointSpikes, StudentT, reward_fields
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.input_checks import check_count, check_positive
from bo_robust.utils.random import stream
from bo_robust.utils.specs import quoted

TERMS = 100  # a_i k(., x_i) of a random RKHS function (Ray Chowdhury & Gopalan 2019, sec. 6)
SUP_DELTA = 0.1  # a GP draw exceeds its stated sup bound somewhere with at most this probability
ARM_CHUNK = 1 << 14  # arms whose covariances with the centres of the bumps are held at once
NUS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


@dataclass(frozen=True)
class RKHSFunction(OverArms):
    """A random function of an RKHS: 100 terms a_i k(., x_i) (Ray Chowdhury & Gopalan 2019).

    x_i are uniform among the arms, a_i uniform in [-1, 1] or [0, 1]. Every trial has a new f, divided by max|f| as in
    the authors' scripts.
    """

    num_arms: int = 100
    kernel: str = "se"
    lengthscale: float = 0.2
    positive: bool = False  # Whether a_i are from U[0, 1], so that f > 0 (Pareto rewards need it)
    noise: Mapping[str, Any] | None = None  # None is Student-t noise of 3 degrees of freedom
    noise_var: float = 1.0  # lambda of the posterior (the paper: 1), not the variance of the noise
    alpha: float | None = None

    def make(self, trials: Trials) -> Problem:
        X, covariance = even_points(self.num_arms), stationary(self.kernel, self.lengthscale)
        K = covariance(X, X).numpy()
        drawn = [_random_function(K, rng, self.positive) for rng in trials.streams()]
        f, norms = (np.array(part) for part in zip(*drawn, strict=True))
        sups = np.abs(f).max(axis=1)
        means, norms = torch.from_numpy(f / sups[:, None]), norms / sups
        rewards = reward_fields(self.noise, StudentT(3.0), means, 1.0, self.alpha)
        notes = (
            f"Random function of the RKHS of {covariance}, f / max|f|, "
            f"a_i ~ U[{0 if self.positive else -1}, 1]; rewards {rewards['rewards']}; regret on the scale of f. "
            "B = 1 bounds max|f| as in the paper's experiments; the RKHS norms of these trials "
            f"are {norms.min():.3g} to {norms.max():.3g}, and the theorems need a B of at least that."
        )
        known: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": 1.0, "notes": notes}
        return Problem("rkhs_function", means, covariance, **known | rewards)


@dataclass(frozen=True)
class GPDraw(OverArms):
    """A draw of a GP prior on even points of [0, 1] (Srinivas et al. 2010, Fig. 5a).

    The prior is GP(0, SE) with k(x, x) = 1. Every trial has a new f.
    """

    num_arms: int = 1000
    lengthscale: float = 0.2
    noise: Mapping[str, Any] | None = None
    noise_var: float = 0.025
    alpha: float | None = None
    design_share: float = 1.0  # in (0, 1]: an initial design is drawn from this share of the arms, the leftmost

    def make(self, trials: Trials) -> Problem:
        if not 0.0 < self.design_share <= 1.0:
            raise ValueError(f"design_share must be in (0, 1], got {self.design_share!r}.")
        X, covariance = even_points(self.num_arms), SquaredExponential(self.lengthscale)
        K = covariance(X, X).numpy()
        root = square_root(0.5 * (K + K.T))
        means = torch.from_numpy(np.stack([root @ rng.standard_normal(self.num_arms) for rng in trials.streams()]))
        sup = math.sqrt(2.0 * math.log(2.0 * self.num_arms / SUP_DELTA))
        rewards = reward_fields(self.noise, Gaussian(self.noise_var), means, sup, self.alpha)
        notes = (
            f"Draw from the GP prior of {covariance}; rewards {rewards['rewards']}; regret on the scale of f. A "
            f"draw has no finite RKHS norm on the line, so no B; v uses max|f| <= sqrt(2 log(2n/{SUP_DELTA:g})) = "
            f"{sup:.3g}, which holds in a trial with probability >= {1 - SUP_DELTA:g}."
        )
        design = max(1, round(self.design_share * self.num_arms))
        known: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "design_arms": design, "notes": notes}
        return Problem("gp_draw", means, covariance, **known | rewards)


@dataclass(frozen=True)
class SpikedFunction(OverArms):
    """One RKHS function in [0, 1], with noise at one arm only (Ray Chowdhury & Gopalan 2019, Fig. 1f).

    All trials share f, because the paper averages over the noise alone. Every trial has its own spiked arm.
    """

    num_arms: int = 100  # n >= 2 even points of [0, 1]
    kernel: str = "se"
    lengthscale: float = 0.2
    magnitude: float = 10.0  # Size of the noise, > 0; its sign is random
    noise_var: float = 1.0

    def make(self, trials: Trials) -> Problem:
        check_positive(magnitude=self.magnitude)
        if self.num_arms < 2:
            raise ValueError(f"num_arms must be at least 2 to scale f to [0, 1], got {self.num_arms}.")
        X, covariance = even_points(self.num_arms), stationary(self.kernel, self.lengthscale)
        f, _ = _random_function(covariance(X, X).numpy(), stream(trials.seed, "problem", 0), positive=False)
        # Block 0 of trial 0 is spent on f.
        points = torch.tensor([int(rng.integers(self.num_arms)) for rng in trials.streams(block=1)])
        notes = (
            "One RKHS function scaled to [0, 1] in all trials, the spiked arm differs. B = max|f| = 1, not "
            "the RKHS norm. v = 1 + magnitude^2 is the true bound; the paper truncates at t^(1/4), the "
            "level of v = 1."
        )
        means, rewards = trials.share((f - f.min()) / (f.max() - f.min())), OnePointSpikes(points, self.magnitude)
        known: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": 1.0, "notes": notes}
        known |= {"moment_bound": 1.0 + self.magnitude**2, "alpha": 1.0, "noise_scale": self.magnitude}
        return Problem("spiked_function", means, covariance, rewards, **known)


@dataclass(frozen=True)
class ManyArms(OverArms):
    """Many arms, uniform in [0, 1]^d; f is a sum of 100 random bumps, max|f| = 1 (ours).

    f = sum of a_i k(., c_i), divided by its largest |value|, with c_i uniform in [0, 1]^d and a_i in [-1, 1]. All
    trials share the arms; every trial has a new f. The problem is for methods that scale (BKB, BBKB).
    """

    num_arms: int = 10_000
    dim: int = 6  # d
    lengthscale: float = 0.5
    noise: Mapping[str, Any] | None = None
    noise_var: float = 0.01
    alpha: float | None = None

    def make(self, trials: Trials) -> Problem:
        check_count(1, num_arms=self.num_arms, dim=self.dim)
        covariance = SquaredExponential(self.lengthscale)
        arms = torch.from_numpy(stream(trials.seed, "arms", 0).random((self.num_arms, self.dim)))
        means = arms.new_empty(len(trials), self.num_arms)
        norms = np.empty(len(trials))
        for row, rng in enumerate(trials.streams()):
            a = torch.from_numpy(rng.uniform(-1.0, 1.0, TERMS))
            centres = torch.from_numpy(rng.random((TERMS, self.dim)))
            for f, X in zip(means[row].split(ARM_CHUNK), arms.split(ARM_CHUNK), strict=True):
                f.copy_(covariance(X, centres) @ a)
            top = means[row].abs().max()
            means[row] /= top
            norms[row] = float((a @ covariance(centres, centres) @ a).sqrt() / top)
        rewards = reward_fields(self.noise, Gaussian(self.noise_var), means, 1.0, self.alpha)
        notes = (
            f"{self.num_arms} arms uniform in [0, 1]^{self.dim}, one set for all trials; f / max|f| of {TERMS} "
            f"bumps of {covariance} per trial; rewards {rewards['rewards']}; regret on the scale of f. "
            f"B = max|f| = 1; the RKHS norms of these trials are {norms.min():.3g} to {norms.max():.3g}, and the "
            "theorems need a B of at least that."
        )
        known: dict[str, Any] = {"noise_var": self.noise_var, "arms": arms, "norm_bound": 1.0, "notes": notes}
        return Problem("many_arms", means, covariance, **known | rewards)


def even_points(num_arms: int) -> Tensor:
    """n even points of [0, 1], end points included, ``n x 1`` float64."""
    if num_arms < 1:
        raise ValueError(f"num_arms must be at least 1, got {num_arms}.")
    return torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64).unsqueeze(1)


def stationary(kernel: str, lengthscale: float) -> SquaredExponential | Matern:
    """The covariance of a name: "se", "matern12", "matern32" or "matern52"."""
    if kernel == "se":
        return SquaredExponential(lengthscale)
    if kernel not in NUS:
        raise ValueError(f"kernel must be one of {['se', *NUS]}, got {quoted(kernel)}.")
    return Matern(NUS[kernel], lengthscale)


def square_root(K: np.ndarray) -> np.ndarray:
    """The symmetric root R of a kernel matrix, R R = K, ``n x n``. R times standard normals is a draw of the GP.

    R is the same on every machine up to rounding; a Cholesky factor of a near-singular matrix is not.
    """
    eigenvalues, Q = np.linalg.eigh(K)
    return (Q * np.sqrt(eigenvalues.clip(min=0.0))) @ Q.T


def _random_function(K: np.ndarray, rng: np.random.Generator, positive: bool) -> tuple[np.ndarray, float]:
    """f at the arms ``n``, and its RKHS norm sqrt(a^T K a)."""
    a = rng.uniform(0.0 if positive else -1.0, 1.0, TERMS)
    centres = rng.integers(0, len(K), TERMS)
    return K[:, centres] @ a, math.sqrt(a @ K[np.ix_(centres, centres)] @ a)
