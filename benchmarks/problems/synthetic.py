"""Synthetic problems over arms: functions on even points of [0, 1], and many random arms."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.problems.base import OverArms, Problem, RewardModel, Trials
from benchmarks.problems.rewards import Gaussian, NoiseModel, OnePointSpikes, StudentT, mean_at, reward_fields
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.input_checks import check_count, check_positive, check_tail_index, quoted
from bo_robust.utils.random import stream

TERMS = 100  # a_i k(., x_i) of a random RKHS function (Ray Chowdhury & Gopalan 2019, sec. 6)
SUP_DELTA = 0.1  # a GP draw exceeds its stated sup bound somewhere with at most this probability
ARM_CHUNK = 1 << 14  # arms whose covariances with the centers of the bumps are held at once
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)  # quadrature on [-1, 1], the support of phi
PHI = np.exp(-1.0 / (1.0 - NODES**2))
HALF_WIDTH = 0.44647931378221695  # h(HALF_WIDTH) = h(0) / 2
T3 = StudentT(3.0)
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
    noise: NoiseModel = T3
    noise_var: float = 1.0  # lambda of the posterior (the paper: 1), not the variance of the noise
    alpha: float | None = None

    def make(self, trials: Trials) -> Problem:
        X, covariance = even_points(self.num_arms), stationary(self.kernel, self.lengthscale)
        K = covariance(X, X).numpy()
        drawn = [_random_function(K, rng, self.positive) for rng in trials.streams()]
        f, norms = (np.array(part) for part in zip(*drawn, strict=True))
        sups = np.abs(f).max(axis=1)
        means, norms = torch.from_numpy(f / sups[:, None]), norms / sups
        rewards = reward_fields(self.noise, means, 1.0, self.alpha)
        notes = (
            f"Random function of the RKHS of {covariance}, f / max|f|, "
            f"a_i ~ U[{0 if self.positive else -1}, 1]; rewards {rewards['rewards']}; regret on the scale of f. "
            "B = 1 bounds max|f| as in the paper's experiments; the RKHS norms of these trials "
            f"are {norms.min():.3g} to {norms.max():.3g}, and the theorems need a B of at least that."
        )
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": 1.0, "notes": notes}
        return Problem("rkhs_function", means, covariance, **constants | rewards)


@dataclass(frozen=True)
class GPDraw(OverArms):
    """A draw of a GP prior on even points of [0, 1] (Srinivas et al. 2010, Fig. 5a).

    The prior is GP(0, SE) with k(x, x) = 1. Every trial has a new f.
    """

    num_arms: int = 1000
    lengthscale: float = 0.2
    noise_var: float = 0.025
    design_share: float = 1.0  # in (0, 1]: an initial design is drawn from this share of the arms, the leftmost

    def make(self, trials: Trials) -> Problem:
        if not 0.0 < self.design_share <= 1.0:
            raise ValueError(f"design_share must be in (0, 1], got {self.design_share!r}.")
        X, covariance = even_points(self.num_arms), SquaredExponential(self.lengthscale)
        K = covariance(X, X).numpy()
        root = square_root(0.5 * (K + K.T))
        means = torch.from_numpy(np.stack([root @ rng.standard_normal(self.num_arms) for rng in trials.streams()]))
        sup = math.sqrt(2.0 * math.log(2.0 * self.num_arms / SUP_DELTA))
        rewards = reward_fields(Gaussian(self.noise_var), means, sup)
        notes = (
            f"Draw from the GP prior of {covariance}; rewards {rewards['rewards']}; regret on the scale of f. A "
            f"draw has no finite RKHS norm on the line, so no B; v uses max|f| <= sqrt(2 log(2n/{SUP_DELTA:g})) = "
            f"{sup:.3g}, which holds in a trial with probability >= {1 - SUP_DELTA:g}."
        )
        design = max(1, round(self.design_share * self.num_arms))
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "design_arms": design, "notes": notes}
        return Problem("gp_draw", means, covariance, **constants | rewards)


@dataclass(frozen=True)
class SpikedFunction(OverArms):
    """One RKHS function in [0, 1], with noise at one arm only (Ray Chowdhury & Gopalan 2019, Fig. 1f).

    All trials share f, because the paper averages over the noise alone. Every trial has its own spiked arm and, as "eta
    takes values in {-10, 10} ... averaged over 50 such randomizations" reads, one sign, unless it is drawn at
    ``every_pull``.
    """

    num_arms: int = 100  # n >= 2 even points of [0, 1]
    kernel: str = "se"
    lengthscale: float = 0.2
    magnitude: float = 10.0  # Size of the noise, > 0
    noise_var: float = 1.0
    every_pull: bool = False

    def make(self, trials: Trials) -> Problem:
        check_positive(magnitude=self.magnitude)
        if self.num_arms < 2:
            raise ValueError(f"num_arms must be at least 2 to scale f to [0, 1], got {self.num_arms}.")
        X, covariance = even_points(self.num_arms), stationary(self.kernel, self.lengthscale)
        f, _ = _random_function(covariance(X, X).numpy(), stream(trials.seed, "problem", 0), positive=False)
        # Block 0 of trial 0 is spent on f.
        drawn = [(int(rng.integers(self.num_arms)), float(rng.choice([-1.0, 1.0]))) for rng in trials.streams(block=1)]
        points = torch.tensor([point for point, _ in drawn])
        signs = None if self.every_pull else covariance(X, X).new_tensor([sign for _, sign in drawn])
        notes = (
            "One RKHS function scaled to [0, 1] in all trials, the spiked arm differs. B = max|f| = 1, not "
            "the RKHS norm. v = 1 + magnitude^2 is the true bound; the paper truncates at t^(1/4), the "
            "level of v = 1."
        )
        means, rewards = (
            trials.share((f - f.min()) / (f.max() - f.min())),
            OnePointSpikes(points, self.magnitude, signs),
        )
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": 1.0, "notes": notes}
        constants |= {"moment_bound": 1.0 + self.magnitude**2, "alpha": 1.0, "noise_scale": self.magnitude}
        return Problem("spiked_function", means, covariance, rewards, **constants)


@dataclass(frozen=True)
class ManyArms(OverArms):
    """Many arms, uniform in [0, 1]^d; f is a sum of 100 random bumps, max|f| = 1 (ours).

    f = sum of a_i k(., c_i), divided by its largest |value|, with c_i uniform in [0, 1]^d and a_i in [-1, 1]. All
    trials share the arms; every trial has a new f. The problem is for methods that scale (BKB, BBKB).
    """

    num_arms: int = 10_000
    dim: int = 6  # d
    lengthscale: float = 0.5
    noise_var: float = 0.01

    def make(self, trials: Trials) -> Problem:
        check_count(1, num_arms=self.num_arms, dim=self.dim)
        covariance = SquaredExponential(self.lengthscale)
        arms = torch.from_numpy(stream(trials.seed, "arms", 0).random((self.num_arms, self.dim)))
        means = arms.new_empty(len(trials), self.num_arms)
        norms = np.empty(len(trials))
        for row, rng in enumerate(trials.streams()):
            a = torch.from_numpy(rng.uniform(-1.0, 1.0, TERMS))
            centers = torch.from_numpy(rng.random((TERMS, self.dim)))
            for f, X in zip(means[row].split(ARM_CHUNK), arms.split(ARM_CHUNK), strict=True):
                f.copy_(covariance(X, centers) @ a)
            top = means[row].abs().max()
            means[row] /= top
            norms[row] = float((a @ covariance(centers, centers) @ a).sqrt() / top)
        rewards = reward_fields(Gaussian(self.noise_var), means, 1.0)
        notes = (
            f"{self.num_arms} arms uniform in [0, 1]^{self.dim}, one set for all trials; f / max|f| of {TERMS} "
            f"bumps of {covariance} per trial; rewards {rewards['rewards']}; regret on the scale of f. "
            f"B = max|f| = 1; the RKHS norms of these trials are {norms.min():.3g} to {norms.max():.3g}, and the "
            "theorems need a B of at least that."
        )
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": arms, "norm_bound": 1.0, "notes": notes}
        return Problem("many_arms", means, covariance, **constants | rewards)


@dataclass(frozen=True)
class HardRewards(RewardModel):
    """A reward is sgn(f) (v / 2 gap)^(1/alpha) with probability (2 gap / v)^(1/alpha) |f|, else 0.

    The mean is f, and E|y|^(1+alpha) = (v / 2 gap) |f| <= v for |f| <= 2 gap.
    """

    capturable: ClassVar[bool] = True

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
    """The lower bound for heavy tails: a bump at a random place, rewards that are almost always 0.

    Each trial has one bump on [0, 1], f_j(x) = g(x - x_j), at one of M even places (Ray Chowdhury & Gopalan 2019, Thm
    2). g is band limited as in Scarlett, Bogunovic & Cevher 2017: g(x) = 2 gap h(c x) / h(0), where h is the inverse
    Fourier transform of the bump phi(u) = exp(-1 / (1 - u^2)) on [-1, 1]. c makes g fall to gap at distance 1/(2M), so
    no arm is within gap of the best for two different j. With S the spectral density of k, B is exact for f on the
    line: ||g||_k^2 = int |g^|^2 / S = (2 gap / h(0))^2 / c * int phi(u)^2 / S(c u) du.
    """

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
        centers = (np.arange(self.peaks) + 0.5) / self.peaks
        c = 2.0 * self.peaks * HALF_WIDTH  # g(1 / (2 M)) = gap
        with np.errstate(all="ignore"):  # an overflow is reported below, with a remedy
            norm = _norm(covariance, c, self.gap)
        if not math.isfinite(norm):
            raise ValueError(
                f"peaks={self.peaks} are so narrow for lengthscale={self.lengthscale:g} that their norm is beyond "
                "float64; take fewer peaks or a smaller lengthscale."
            )
        bumps = 2.0 * self.gap * _h(c * (X[:, 0].numpy() - centers[:, None])) / _h(np.zeros(1))
        places = [int(rng.integers(self.peaks)) for rng in trials.streams()]
        notes = (
            f"Lower-bound instance: bump of height {2 * self.gap:g} at one of {self.peaks} places, norm exactly "
            f"{norm:.4g} in the RKHS of {covariance} on the line; rewards 0 or +-{rewards.value:g}; regret "
            "on the scale of f."
        )
        f, scale = torch.from_numpy(bumps[places]), 0.5 * rewards.value
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": norm, "noise_scale": scale}
        constants |= {"moment_bound": self.v, "alpha": self.alpha, "notes": notes}
        return Problem("hard_instance", f, covariance, rewards, **constants)


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


def even_points(num_arms: int) -> Tensor:
    """n even points of [0, 1], end points included, ``n x 1`` float64."""
    if num_arms < 1:
        raise ValueError(f"num_arms must be at least 1, got {num_arms}.")
    return torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64).unsqueeze(1)


def stationary(kernel: str, lengthscale: float) -> SquaredExponential | Matern:
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
    centers = rng.integers(0, len(K), TERMS)
    return K[:, centers] @ a, math.sqrt(a @ K[np.ix_(centers, centers)] @ a)
