"""Problems from data tables: kernel and constants from past rows, rewards from later rows.

A table is ``m x n``: one row per time, one column per arm. Kernel, centre, scale, lambda, B and v come from
``history``. f and the rewards come from ``table``, which algorithms see only through rewards.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.confidence.truncation import median_mad
from bo_robust.experiments.problems.base import Problem, Trials
from bo_robust.experiments.problems.rewards import TableRewards

SHARED_F = (
    "All trials share one f: a standard error over trials covers redrawn rewards (rows of the same table), not other "
    "periods or data sets."
)


def covariance_kernel(rows: np.ndarray) -> Tensor:
    """Empirical covariance of the columns (divisor m - 1) in their own units, ``n x n``, symmetric, PSD."""
    return _projected(np.cov(rows, rowvar=False).reshape(rows.shape[1], rows.shape[1]))


def correlation_kernel(rows: np.ndarray) -> Tensor:
    """Empirical correlation of the columns, ``n x n``, k(x, x) = 1; constant columns have correlation 0 with others."""
    deviation = rows - rows.mean(axis=0)
    constant = np.ptp(rows, axis=0) == 0
    standardised = np.where(constant, 0.0, deviation) / np.where(constant, 1.0, deviation.std(axis=0))
    C = standardised.T @ standardised / len(rows)
    # Two masks index in pairs, so this sets the diagonal alone.
    C[constant, constant] = 1.0
    return _projected(C)


def centred_problem(
    name: str,
    history: np.ndarray,
    table: np.ndarray,
    trials: Trials,
    *,
    notes: str,
    **fields: Any,
) -> Problem:
    """A problem whose rewards and regret are in MADs from the median of ``history``, all arms pooled.

    lambda is the median over arms of the within-arm variance, B the largest |mean| of an arm, v the largest mean y^2 of
    an arm. v is an estimate from ``history``; the notes also give its value in ``table``. f is the mean of ``table`` in
    all trials.

    ``fields`` replace those of the :class:`Problem`. By default the kernel is the correlation of ``history``, and
    rewards are uniform rows of the scaled ``table``. ``notes`` name the source.

    Raises:
        ValueError: if ``history`` cannot be scaled.
    """
    centre, scale = median_mad(history)
    past, later = (history - centre) / scale, (table - centre) / scale
    v, v_table = (float(np.square(y).mean(axis=0).max()) for y in (past, later))
    found = {
        "noise_var": float(np.median(past.var(axis=0))),
        "norm_bound": float(np.abs(past.mean(axis=0)).max()),
        "moment_bound": v,
        "alpha": 1.0,
        "notes": (
            f"{notes} Rewards and regret: (y - {centre:.6g}) / {scale:.6g}, median and MAD of the past "
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

    Rewards AND regret are divided by the largest mean of ``table``, so B = 1. The published scripts divide only f, and
    keep raw rewards, B and v. The paper's algorithms pull the same arms on either scale, because their posterior mean,
    width and truncation level scale alike. Arguments are those of :func:`centred_problem`.
    """
    top = float(table.mean(axis=0).max())
    rewards = table / top
    v, v_arm = float((rewards**2).mean()), float((rewards**2).mean(axis=0).max())
    found = {
        "noise_var": 1.0,
        "norm_bound": 1.0,
        "moment_bound": v,
        "alpha": 1.0,
        "notes": (
            f"{notes} Rewards and regret: y / {top:.6g}, the largest mean (the published script scales only "
            f"f). v = {v:.4g} is the mean of y^2 over all arms as in the paper; it is NOT a bound: the "
            f"largest arm has {v_arm:.4g}. B = max f, not an RKHS norm. Rewards are not centred, truncation "
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
