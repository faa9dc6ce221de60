"""Synthetic problems: RKHS functions, GP draws and one-point spikes on even points of [0, 1], and many random arms.

Sources: Ray Chowdhury & Gopalan 2019, sec. 6 (:func:`rkhs_function`, :func:`spiked_function`); Srinivas et
al. 2010, sec. 6 (:func:`gp_draw`); :func:`many_arms` is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bo_robust.covariance import Matern, SquaredExponential
from bo_robust.problems.base import Problem, trial_list
from bo_robust.problems.noise import build_noise
from bo_robust.problems.rewards import OnePointSpikes
from bo_robust.random import stream
from bo_robust.validation import check_count, check_positive

__all__ = ["even_points", "gp_draw", "many_arms", "rkhs_function", "spiked_function", "stationary"]

# Number p of terms a_i k(., x_i) of a random RKHS function (Ray Chowdhury & Gopalan 2019, sec. 6).
TERMS = 100
# A GP draw exceeds its stated sup bound somewhere with at most this probability.
SUP_DELTA = 0.1
# Arms whose covariances with the centres of the bumps are held at once.
ARM_BLOCK = 1 << 14
NUS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def rkhs_function(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 100,
    kernel: str = "se",
    lengthscale: float = 0.2,
    positive: bool = False,
    normalise: bool = True,
    noise: Mapping[str, Any] | None = None,
    noise_var: float = 1.0,
    alpha: float | None = None,
    norm_bound: float | None = None,
) -> Problem:
    """f = sum of 100 terms a_i k(., x_i), x_i uniform among the arms, a_i ~ U[-1, 1] or U[0, 1].

    Args:
        trials: Trial indices, a new f for each.
        seed: Seed of the experiment.
        num_arms: n even points of [0, 1].
        kernel: "se", "matern12", "matern32" or "matern52", with k(x, x) = 1.
        lengthscale: l > 0.
        positive: a_i from U[0, 1], so that f > 0 (Pareto rewards need it).
        normalise: f / max|f| as in the authors' scripts; otherwise f as it is (the paper's text).
        noise: Reward model by name, e.g. ``{"kind": "pareto"}``; None is Student-t of 3 degrees of freedom.
        noise_var: lambda of the posterior (the paper: 1), not the variance of the noise.
        alpha: Tail index; None takes the noise model's own.
        norm_bound: B; None is max|f| = 1, the paper's choice, and possible only with ``normalise``.

    Raises:
        ValueError: on bad parameters, or a ``norm_bound`` below max|f|.
    """
    indices = trial_list(trials)
    X, covariance = even_points(num_arms), stationary(kernel, lengthscale)
    K = covariance(X, X).numpy()
    f = np.empty((len(indices), num_arms))
    norms = np.empty(len(indices))
    for row, trial in enumerate(indices):
        f[row], norms[row] = _random_function(K, seed, trial, positive)
    sups = np.abs(f).max(axis=1)
    if normalise:
        f, norms, sups = f / sups[:, None], norms / sups, np.ones_like(sups)
    if norm_bound is None and normalise:
        norm_bound = 1.0
    if norm_bound is None or sups.max() > norm_bound:
        raise ValueError(
            f"norm_bound (B) must be at least max|f|, which is {sups.max():.4g} over these trials, and has "
            f"no default with normalise=False; got {norm_bound}."
        )
    model = build_noise({"kind": "student_t", "df": 3.0} if noise is None else noise)
    means = torch.from_numpy(f)
    model.check_means(means)
    alpha = model.default_alpha if alpha is None else alpha
    return Problem(
        name="rkhs_function",
        f=means,
        kernel=covariance,
        rewards=model,
        noise_var=noise_var,
        arms=X,
        norm_bound=norm_bound,
        moment_bound=model.moment_bound(alpha, 1.0 if normalise else norm_bound),
        alpha=alpha,
        noise_scale=model.noise_scale,
        notes=(
            f"Random function of the RKHS of {covariance}, {'f / max|f|' if normalise else 'f not scaled'}, "
            f"a_i ~ U[{0 if positive else -1}, 1]; rewards {model}; regret on the scale of f. B = "
            f"{norm_bound:g} bounds max|f| as in the paper's experiments; the RKHS norms of these trials "
            f"are {norms.min():.3g} to {norms.max():.3g}, and the theorems need a B of at least that."
        ),
    )


def gp_draw(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 1000,
    lengthscale: float = 0.2,
    noise: Mapping[str, Any] | None = None,
    noise_var: float = 0.025,
    alpha: float | None = None,
) -> Problem:
    """f ~ GP(0, SE) with k(x, x) = 1 on even points of [0, 1] (Srinivas et al. 2010, Fig. 5a).

    The draw is the symmetric root of the kernel matrix times standard normals, which is the same on every
    machine up to rounding (a Cholesky factor of a near-singular matrix, or eigenvectors, are not).

    Args:
        trials: Trial indices, a new f for each.
        seed: Seed of the experiment.
        num_arms: n even points of [0, 1].
        lengthscale: l > 0.
        noise: Reward model by name; None is Gaussian noise of variance ``noise_var``.
        noise_var: lambda of the posterior.
        alpha: Tail index; None takes the noise model's own.

    Raises:
        ValueError: on bad parameters.
    """
    indices = trial_list(trials)
    X, covariance = even_points(num_arms), SquaredExponential(lengthscale)
    K = covariance(X, X).numpy()
    eigenvalues, Q = np.linalg.eigh(0.5 * (K + K.T))
    root = (Q * np.sqrt(eigenvalues.clip(min=0.0))) @ Q.T
    f = np.stack([root @ stream(seed, "problem", i).standard_normal(num_arms) for i in indices])
    means = torch.from_numpy(f)
    model = build_noise({"kind": "gaussian", "noise_var": noise_var} if noise is None else noise)
    model.check_means(means)
    alpha = model.default_alpha if alpha is None else alpha
    sup = math.sqrt(2.0 * math.log(2.0 * num_arms / SUP_DELTA))
    return Problem(
        name="gp_draw",
        f=means,
        kernel=covariance,
        rewards=model,
        noise_var=noise_var,
        arms=X,
        moment_bound=model.moment_bound(alpha, sup),
        alpha=alpha,
        noise_scale=model.noise_scale,
        notes=(
            f"Draw from the GP prior of {covariance}; rewards {model}; regret on the scale of f. A draw has "
            f"no finite RKHS norm on the line, so no B; v uses max|f| <= sqrt(2 log(2n/{SUP_DELTA:g})) = "
            f"{sup:.3g}, which holds in a trial with probability >= {1 - SUP_DELTA:g}."
        ),
    )


def spiked_function(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 100,
    kernel: str = "se",
    lengthscale: float = 0.2,
    magnitude: float = 10.0,
    noise_var: float = 1.0,
) -> Problem:
    """ONE RKHS function in [0, 1], noise +-magnitude at one arm (Ray Chowdhury & Gopalan 2019, Fig. 1f).

    f is the function of trial 0 in every trial, the spiked arm is the trial's own: the paper averages over
    randomisations of the noise.

    Args:
        trials: Trial indices, a new spiked arm for each.
        seed: Seed of the experiment.
        num_arms: n even points of [0, 1].
        kernel: As in :func:`rkhs_function`.
        lengthscale: l > 0.
        magnitude: Size of the noise, > 0.
        noise_var: lambda of the posterior.

    Raises:
        ValueError: on bad parameters.
    """
    indices = trial_list(trials)
    check_positive(magnitude=magnitude)
    if num_arms < 2:
        raise ValueError(f"num_arms must be at least 2 to scale f to [0, 1], got {num_arms}.")
    X, covariance = even_points(num_arms), stationary(kernel, lengthscale)
    f, _ = _random_function(covariance(X, X).numpy(), seed, 0, positive=False)
    f = (f - f.min()) / (f.max() - f.min())
    points = [int(stream(seed, "problem", i, block=1).integers(num_arms)) for i in indices]
    return Problem(
        name="spiked_function",
        f=torch.from_numpy(f).repeat(len(indices), 1),
        kernel=covariance,
        rewards=OnePointSpikes(torch.tensor(points), magnitude),
        noise_var=noise_var,
        arms=X,
        norm_bound=1.0,
        moment_bound=1.0 + magnitude**2,
        alpha=1.0,
        noise_scale=magnitude,
        notes=(
            "One RKHS function scaled to [0, 1] in all trials, the spiked arm differs. B = max|f| = 1, not "
            "the RKHS norm. v = 1 + magnitude^2 is the true bound; the paper truncates at t^(1/4), the "
            "level of v = 1."
        ),
    )


def many_arms(
    trials: Sequence[int],
    seed: int,
    *,
    num_arms: int = 10_000,
    dim: int = 6,
    lengthscale: float = 0.5,
    noise: Mapping[str, Any] | None = None,
    noise_var: float = 0.01,
    alpha: float | None = None,
) -> Problem:
    """Many arms, uniform in [0, 1]^d; f = sum of 100 bumps a_i k(., c_i), c_i uniform in [0, 1]^d, a_i ~ U[-1, 1].

    For methods that scale (BKB, BBKB): f is evaluated block by block, so memory is O(n) beside f itself. max|f| = 1.

    Args:
        trials: Trial indices, a new f for each; all share the arms.
        seed: Seed of the experiment.
        num_arms: n.
        dim: d.
        lengthscale: l > 0 of the squared exponential kernel, k(x, x) = 1.
        noise: Reward model by name; None is Gaussian noise of variance ``noise_var``.
        noise_var: lambda of the posterior.
        alpha: Tail index; None takes the noise model's own.

    Raises:
        ValueError: on bad parameters.
    """
    indices = trial_list(trials)
    check_count(1, num_arms=num_arms, dim=dim)
    covariance = SquaredExponential(lengthscale)
    arms = torch.from_numpy(stream(seed, "arms", 0).random((num_arms, dim)))
    means = arms.new_empty(len(indices), num_arms)
    norms = np.empty(len(indices))
    for row, trial in enumerate(indices):
        rng = stream(seed, "problem", trial)
        a = torch.from_numpy(rng.uniform(-1.0, 1.0, TERMS))
        centres = torch.from_numpy(rng.random((TERMS, dim)))
        for part, X in zip(means[row].split(ARM_BLOCK), arms.split(ARM_BLOCK), strict=True):
            part.copy_(covariance(X, centres) @ a)
        top = means[row].abs().max()
        means[row] /= top
        norms[row] = float((a @ covariance(centres, centres) @ a).sqrt() / top)
    model = build_noise({"kind": "gaussian", "noise_var": noise_var} if noise is None else noise)
    model.check_means(means)
    alpha = model.default_alpha if alpha is None else alpha
    return Problem(
        name="many_arms",
        f=means,
        kernel=covariance,
        rewards=model,
        noise_var=noise_var,
        arms=arms,
        norm_bound=1.0,
        moment_bound=model.moment_bound(alpha, 1.0),
        alpha=alpha,
        noise_scale=model.noise_scale,
        notes=(
            f"{num_arms} arms uniform in [0, 1]^{dim}, one set for all trials; f / max|f| of {TERMS} bumps of "
            f"{covariance} per trial; rewards {model}; regret on the scale of f. B = max|f| = 1; the RKHS norms of "
            f"these trials are {norms.min():.3g} to {norms.max():.3g}, and the theorems need a B of at least that."
        ),
    )


def even_points(num_arms: int) -> torch.Tensor:
    """n even points of [0, 1], end points included, ``n x 1`` float64."""
    if num_arms < 1:
        raise ValueError(f"num_arms must be at least 1, got {num_arms}.")
    return torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64).unsqueeze(1)


def stationary(kernel: str, lengthscale: float) -> SquaredExponential | Matern:
    """The covariance of a name: "se", "matern12", "matern32" or "matern52"."""
    if kernel == "se":
        return SquaredExponential(lengthscale)
    if kernel not in NUS:
        raise ValueError(f"kernel must be one of {['se', *NUS]}, got {kernel!r}.")
    return Matern(NUS[kernel], lengthscale)


def _random_function(K: np.ndarray, seed: int, trial: int, positive: bool) -> tuple[np.ndarray, float]:
    """f at the arms and its RKHS norm sqrt(a^T K a)."""
    rng = stream(seed, "problem", trial)
    a = rng.uniform(0.0 if positive else -1.0, 1.0, TERMS)
    centres = rng.integers(0, len(K), TERMS)
    return K[:, centres] @ a, math.sqrt(a @ K[np.ix_(centres, centres)] @ a)
