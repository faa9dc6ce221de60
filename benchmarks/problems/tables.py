"""Problems over arms from data tables.

A table is ``m x n``: one row per time, one column per arm. Kernel, center, scale, lambda, B and v come from
``history``. f and the rewards come from ``table``, which algorithms see only through rewards: a reward is the chosen
arm's entry in a uniformly random row. All trials share f.

:class:`DJIA29` and :class:`CMULight` use the data of Ray Chowdhury & Gopalan 2019, sec. 6. :class:`Abalone` has
features instead of rows: Calandriello et al. 2019 (BKB) print no such experiment, and the settings of BBKB (2020) were
not available, so they are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.problems.base import OverArms, Problem, Trials
from benchmarks.problems.data import load_csv, load_npz
from benchmarks.problems.rewards import Gaussian, TableRewards, reward_fields
from bo_robust.confidence.truncation import median_mad
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.input_checks import quoted

SHARED_F = (
    "All trials share one f: a standard error over trials covers redrawn rewards (rows of the same table), not other "
    "periods or data sets."
)
MEASUREMENTS = ["length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight"]


def covariance_kernel(rows: np.ndarray) -> Tensor:
    """Empirical covariance of the columns (divisor m - 1) in their own units, ``n x n``, symmetric, PSD."""
    return _projected(np.cov(rows, rowvar=False).reshape(rows.shape[1], rows.shape[1]))


def correlation_kernel(rows: np.ndarray) -> Tensor:
    """Empirical correlation of the columns, ``n x n``, k(x, x) = 1; constant columns have correlation 0 with others."""
    deviation = rows - rows.mean(axis=0)
    constant = np.ptp(rows, axis=0) == 0
    standardized = np.where(constant, 0.0, deviation) / np.where(constant, 1.0, deviation.std(axis=0))
    C = standardized.T @ standardized / len(rows)
    C[constant, constant] = 1.0  # two masks index in pairs: the diagonal alone
    return _projected(C)


def centered_problem(
    name: str, history: np.ndarray, table: np.ndarray, trials: Trials, *, notes: str, **fields: Any
) -> Problem:
    """A problem whose rewards and regret are in MADs from the median of ``history``, all arms pooled.

    lambda is the median over arms of the within-arm variance, B the largest |mean| of an arm, v the largest mean y^2 of
    an arm. v is an estimate from ``history``; the notes also give its value in ``table``. f is the mean of ``table``.

    ``fields`` replace those of the :class:`Problem`. By default the kernel is the correlation of ``history``, and
    rewards are uniform rows of the scaled ``table``. ``notes`` name the source. ``ValueError`` is raised if ``history``
    cannot be scaled.
    """
    center, scale = median_mad(history)
    past, later = (history - center) / scale, (table - center) / scale
    v, v_table = (float(np.square(y).mean(axis=0).max()) for y in (past, later))
    found = {
        "noise_var": float(np.median(past.var(axis=0))),
        "norm_bound": float(np.abs(past.mean(axis=0)).max()),
        "moment_bound": v,
        "notes": (
            f"{notes} Rewards and regret: (y - {center:.6g}) / {scale:.6g}, median and MAD of the past "
            f"rows. v = {v:.4g} is the largest E|y|^2 of an arm in the past rows; in the rows "
            f"rewards are drawn from it is {v_table:.4g}. B is the largest |mean| of an arm in the past "
            f"rows, not an RKHS norm. {SHARED_F}"
        ),
    }
    return _problem(name, history, later, trials, found | fields)


def paper_problem(
    name: str, history: np.ndarray, table: np.ndarray, trials: Trials, *, notes: str, **fields: Any
) -> Problem:
    """A problem with the constants of Ray Chowdhury & Gopalan 2019: B = max f, v = mean squared entry, lambda = 1.

    Rewards AND regret are divided by the largest mean of ``table``, so B = 1. The published scripts divide only f. The
    paper's algorithms pull the same arms on either scale. Arguments are those of :func:`centered_problem`.
    """
    top = float(table.mean(axis=0).max())
    rewards = table / top
    v, v_arm = float((rewards**2).mean()), float((rewards**2).mean(axis=0).max())
    found = {
        "noise_var": 1.0,
        "norm_bound": 1.0,
        "moment_bound": v,
        "notes": (
            f"{notes} Rewards and regret: y / {top:.6g}, the largest mean (the published script scales only "
            f"f). v = {v:.4g} is the mean of y^2 over all arms as in the paper; it is NOT a bound: the "
            f"largest arm has {v_arm:.4g}. B = max f, not an RKHS norm. Rewards are not centered, truncation "
            f"to 0 is biased. {SHARED_F}"
        ),
    }
    return _problem(name, history, rewards, trials, found | fields)


def _problem(name: str, history: np.ndarray, rewards: np.ndarray, trials: Trials, fields: dict[str, Any]) -> Problem:
    """A problem whose rewards are rows of a table ``rewards``, ``m x n``, and f its mean, unless ``fields`` differ."""
    found: dict[str, Any] = {
        "f": trials.share(rewards.mean(axis=0)),
        "kernel": correlation_kernel(history),
        "rewards": TableRewards(torch.from_numpy(rewards)),
        "alpha": 1.0,
        # R by Hoeffding's lemma: half the largest range of an arm.
        "noise_scale": 0.5 * float(np.ptp(rewards, axis=0).max()),
    }
    return Problem(name=name, **found | fields)


def _projected(C: np.ndarray) -> Tensor:
    """Make C exactly symmetric and clip negative eigenvalues, which come from rounding."""
    C = 0.5 * (C + C.T)
    eigenvalues, Q = np.linalg.eigh(C)
    if eigenvalues[0] < 0.0:
        C = (Q * eigenvalues.clip(min=0.0)) @ Q.T
        C = 0.5 * (C + C.T)
    return torch.from_numpy(C)


SCALINGS: dict[str, Callable[..., Problem]] = {"paper": paper_problem, "centered": centered_problem}


def _scaling(scaling: str) -> Callable[..., Problem]:
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {sorted(SCALINGS)}, got {quoted(scaling)}.")
    return SCALINGS[scaling]


@dataclass(frozen=True)
class DJIA29(OverArms):
    """Which of 29 DJIA stocks has the largest mean price, on a random day of 2016 to 2019.

    The kernel is the correlation of the prices over all 823 days. Rewards are drawn from the same days, because the
    paper sets no history apart.
    """

    scaling: str = "paper"  # "paper" (:func:`paper_problem`) or "centered" (:func:`centered_problem`)

    def make(self, trials: Trials) -> Problem:
        scaled = _scaling(self.scaling)
        prices = load_csv("djia29").iloc[:, 1:]  # but for the day
        table = prices.to_numpy(dtype=np.float64)
        notes = (
            "29 DJIA adjusted closes, the paper's data. Kernel and constants come from the days the "
            "rewards are drawn from. Prices per stock trend but are light-tailed."
        )
        return scaled("djia29", table, table, trials, arm_names=tuple(map(str, prices.columns)), notes=notes)


@dataclass(frozen=True)
class CMULight(OverArms):
    """Which of 41 light sensors reads most on average, in a random one of 192 test rows."""

    scaling: str = "paper"  # "paper" or "centered" (by the 601 train rows), as in :class:`DJIA29`

    def make(self, trials: Trials) -> Problem:
        scaled = _scaling(self.scaling)
        arrays = load_npz("cmu_light")
        train, test = (arrays[name].astype(np.float64) for name in ("train", "test"))
        low, high = arrays["coords"].min(axis=0), arrays["coords"].max(axis=0)
        places = torch.from_numpy((arrays["coords"] - low) / (high - low))
        notes = (
            "CMU light sensors (raw A/D counts), the paper's data: kernel from 601 train rows, rewards "
            "from 192 test rows, which are far brighter. Readings per sensor are bimodal (day and night), "
            "not heavy-tailed."
        )
        return scaled("cmu_light", train, test, trials, arms=places, notes=notes)


@dataclass(frozen=True)
class Abalone(OverArms):
    """Which of 4,177 abalones has the most rings, from 8 standardized features (UCI data).

    The features are sex (1 for adults, 0 for infants) and seven measurements. Each has its mean subtracted and is
    divided by its standard deviation, because outlying heights would squeeze a scale of [0, 1]. f = (rings - 1) / 28,
    so the worst arm has regret 1.
    """

    # l > 0 of the squared exponential kernel. The default is about the median distance of two arms (3.01); it is chosen
    # without the target.
    lengthscale: float = 3.0
    noise_var: float = 0.01

    def make(self, trials: Trials) -> Problem:
        covariance = SquaredExponential(self.lengthscale)
        table = load_csv("abalone")
        adult = (table["sex"] != "I").to_numpy(dtype=np.float64)
        features = np.column_stack([adult, table[MEASUREMENTS].to_numpy(dtype=np.float64)])
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        rings = table["rings"].to_numpy(dtype=np.float64)
        f = (rings - rings.min()) / (rings.max() - rings.min())
        means, X = trials.share(f), torch.from_numpy(features)
        rewards = reward_fields(Gaussian(self.noise_var), means, 1.0)
        notes = (
            f"UCI abalone (Nash et al. 1994), {covariance} on standardized features; rewards "
            f"{rewards['rewards']}; f is the real target, (rings - {rings.min():g}) / "
            f"{rings.max() - rings.min():g}. A random arm loses {1.0 - f.mean():.3f} a round on average: divide "
            "by it for the regret relative to random arms. The features explain about half the variance of the "
            "rings, so the best arm (one shell of 29 rings) is partly a needle in a haystack, and B = max|f| = 1 "
            "is not the RKHS norm of f, which is far larger. All trials share one f: a standard error over trials "
            "covers redrawn noise, not other data."
        )
        constants: dict[str, Any] = {"noise_var": self.noise_var, "arms": X, "norm_bound": 1.0, "notes": notes}
        return Problem("abalone", means, covariance, **constants | rewards)
