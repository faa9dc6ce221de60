"""Problems from data tables: kernels and constants from past rows, rewards from later rows.

A table is ``m x n``: one row per time, one column per arm. Its kernel, centre, scale, lambda, B and v come
from ``history``; f and the rewards from ``table``, which the algorithm meets only through its rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bo_robust.covariance import Covariance
from bo_robust.problems.base import Problem, RewardModel
from bo_robust.problems.rewards import TableRewards
from bo_robust.validation import check_tail_index

__all__ = [
    "centred_problem",
    "correlation_kernel",
    "covariance_kernel",
    "half_range",
    "median_mad",
    "paper_problem",
]

SHARED_F = (
    "All trials share one f: a standard error over trials covers redrawn rewards (rows of the same table), not other "
    "periods or data sets."
)


def covariance_kernel(rows: np.ndarray) -> Tensor:
    """Empirical covariance of the columns (divisor m - 1) in their own units, ``n x n``, symmetric, PSD."""
    return _project(np.cov(rows, rowvar=False).reshape(rows.shape[1], rows.shape[1]))


def correlation_kernel(rows: np.ndarray) -> Tensor:
    """Empirical correlation of the columns, ``n x n``, k(x, x) = 1; 0 between a constant one and others."""
    deviation = rows - rows.mean(axis=0)
    constant = np.ptp(rows, axis=0) == 0
    standardised = np.where(constant, 0.0, deviation) / np.where(constant, 1.0, deviation.std(axis=0))
    C = standardised.T @ standardised / len(rows)
    C[constant, constant] = 1.0
    return _project(C)


def median_mad(rows: np.ndarray) -> tuple[float, float]:
    """Median, and median absolute deviation from it, of all entries.

    Raises:
        ValueError: if more than half of the entries are equal.
    """
    centre = float(np.median(rows))
    scale = float(np.median(np.abs(rows - centre)))
    if scale == 0.0:
        raise ValueError("more than half of the entries are equal: their MAD is 0 and cannot scale the rewards.")
    return centre, scale


def half_range(table: np.ndarray) -> float:
    """Half the largest range of any column: R of rewards from the table (Hoeffding's lemma)."""
    return 0.5 * float((table.max(axis=0) - table.min(axis=0)).max())


def centred_problem(
    name: str,
    history: np.ndarray,
    table: np.ndarray,
    trials: Sequence[int],
    *,
    notes: str,
    alpha: float = 1.0,
    arm_names: tuple[str, ...] = (),
    arms: Tensor | None = None,
    kernel: Tensor | Covariance | None = None,
    rewards: RewardModel | None = None,
) -> Problem:
    """Rewards and regret in units of MADs from the median, both of ``history``, all arms pooled.

    Constants, all from ``history``: lambda = median over arms of the within-arm variance; B = max over arms
    of |mean|; v = max over arms of mean |y|^(1+alpha). v is an estimate: ``notes`` tells what the table has.

    Args:
        name: Name of the problem.
        history: Past rewards, ``m1 x n``.
        table: Later rewards, ``m2 x n``; f is their mean.
        trials: Trial indices; all trials share f.
        notes: Source of the data.
        alpha: Tail index of v.
        arm_names: One per arm.
        arms: Locations.
        kernel: None is the correlation of ``history``.
        rewards: None draws uniform rows of the scaled ``table``.

    Raises:
        ValueError: if a row set cannot be scaled or alpha is outside (0, 1].
    """
    check_tail_index(alpha)
    centre, scale = median_mad(history)
    past, later = (history - centre) / scale, (table - centre) / scale
    v, v_table = (float((np.abs(y) ** (1.0 + alpha)).mean(axis=0).max()) for y in (past, later))
    return Problem(
        name=name,
        f=_shared(later.mean(axis=0), trials),
        kernel=correlation_kernel(history) if kernel is None else kernel,
        rewards=TableRewards(torch.from_numpy(later)) if rewards is None else rewards,
        noise_var=float(np.median(past.var(axis=0))),
        arms=arms,
        arm_names=arm_names,
        norm_bound=float(np.abs(past.mean(axis=0)).max()),
        moment_bound=v,
        alpha=alpha,
        noise_scale=half_range(later),
        notes=(
            f"{notes} Rewards and regret: (y - {centre:.6g}) / {scale:.6g}, median and MAD of the past "
            f"rows. v = {v:.4g} is the largest E|y|^{1 + alpha:g} of an arm in the past rows; in the rows "
            f"rewards are drawn from it is {v_table:.4g}. B is the largest |mean| of an arm in the past "
            f"rows, not an RKHS norm. {SHARED_F}"
        ),
    )


def paper_problem(
    name: str,
    history: np.ndarray,
    table: np.ndarray,
    trials: Sequence[int],
    *,
    notes: str,
    arm_names: tuple[str, ...] = (),
    arms: Tensor | None = None,
    kernel: Tensor | Covariance | None = None,
) -> Problem:
    """The constants of Ray Chowdhury & Gopalan 2019; rewards AND regret over the largest mean of ``table``.

    B = max f (here 1), v = mean of the squared entries, lambda = 1. The published scripts divide only f, and
    keep raw rewards, B and v; the paper's algorithms pull the same arms on either scale, as their posterior
    mean, width and truncation level scale alike. Arguments as :func:`centred_problem`.
    """
    top = float(table.mean(axis=0).max())
    rewards = table / top
    v, v_arm = float((rewards**2).mean()), float((rewards**2).mean(axis=0).max())
    return Problem(
        name=name,
        f=_shared(rewards.mean(axis=0), trials),
        kernel=correlation_kernel(history) if kernel is None else kernel,
        rewards=TableRewards(torch.from_numpy(rewards)),
        noise_var=1.0,
        arms=arms,
        arm_names=arm_names,
        norm_bound=1.0,
        moment_bound=v,
        alpha=1.0,
        noise_scale=half_range(rewards),
        notes=(
            f"{notes} Rewards and regret: y / {top:.6g}, the largest mean (the published script scales only "
            f"f). v = {v:.4g} is the mean of y^2 over all arms as in the paper; it is NOT a bound: the "
            f"largest arm has {v_arm:.4g}. B = max f, not an RKHS norm. Rewards are not centred, truncation "
            f"to 0 is biased. {SHARED_F}"
        ),
    )


def _shared(means: np.ndarray, trials: Sequence[int]) -> Tensor:
    return torch.from_numpy(means).repeat(len(trials), 1)


def _project(C: np.ndarray) -> Tensor:
    """C made exactly symmetric, its negative eigenvalues (rounding) clipped."""
    C = 0.5 * (C + C.T)
    eigenvalues, Q = np.linalg.eigh(C)
    if eigenvalues[0] < 0.0:
        C = (Q * eigenvalues.clip(min=0.0)) @ Q.T
        C = 0.5 * (C + C.T)
    return torch.from_numpy(C)
