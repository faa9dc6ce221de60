"""Table problems: a reward is the chosen arm's entry in a uniformly random row of real data.

djia29 and cmu_light are the data of Ray Chowdhury & Gopalan 2019, sec. 6; seattle_latency is an extra with
tails that are truly heavy. Files: :mod:`bo_robust.problems.data`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from bo_robust.covariance import SquaredExponential
from bo_robust.problems.base import Problem, trial_list
from bo_robust.problems.data import load_csv, load_npz
from bo_robust.problems.empirical import centred_problem, paper_problem

__all__ = ["cmu_light", "djia29", "seattle_latency"]

SCALINGS: dict[str, Callable[..., Problem]] = {"paper": paper_problem, "centred": centred_problem}
# Reward = minus RTT in seconds; the file counts 10 ms.
TEN_MS = 0.01


def djia29(trials: Sequence[int], seed: int, *, data_dir: Path | str | None = None, scaling: str = "paper") -> Problem:
    """Which of 29 DJIA stocks has the largest mean price: reward = price on a random day of 2016 to 2019.

    The kernel is the correlation of the prices over all 823 days, the same that rewards are drawn from (the
    paper keeps no history apart).

    Args:
        trials: Trial indices; all share f.
        seed: Unused: nothing of the problem is random.
        data_dir: Data folder, see :func:`bo_robust.problems.data.verified`.
        scaling: "paper" (:func:`.empirical.paper_problem`) or "centred" (:func:`.empirical.centred_problem`).

    Raises:
        ValueError: on an unknown scaling or a damaged file.
        FileNotFoundError: if the file is not there.
    """
    indices, build = trial_list(trials), _scaling(scaling)
    prices = load_csv("djia29", data_dir)
    table = prices.to_numpy(dtype=np.float64)
    return build(
        "djia29",
        table,
        table,
        indices,
        arm_names=tuple(str(name) for name in prices.columns),
        notes=(
            "29 DJIA adjusted closes, the paper's data. Kernel and constants come from the days the "
            "rewards are drawn from. Prices per stock trend but are light-tailed."
        ),
    )


def cmu_light(
    trials: Sequence[int],
    seed: int,
    *,
    data_dir: Path | str | None = None,
    scaling: str = "paper",
    kernel: str = "empirical",
) -> Problem:
    """Which of 41 light sensors reads most on average: reward = reading in a random one of 192 test rows.

    Args:
        trials: Trial indices; all share f.
        seed: Unused: nothing of the problem is random.
        data_dir: Data folder, see :func:`bo_robust.problems.data.verified`.
        scaling: "paper" or "centred" (by the 601 train rows), as in :func:`djia29`.
        kernel: "empirical", the correlation of the train rows; or "se", l^2 = 0.1 on the sensor locations
            with each axis scaled to [0, 1], which quadrature Fourier features need.

    Raises:
        ValueError: on an unknown scaling or kernel, or a damaged file.
        FileNotFoundError: if the file is not there.
    """
    indices, build = trial_list(trials), _scaling(scaling)
    if kernel not in ("empirical", "se"):
        raise ValueError(f"kernel must be 'empirical' or 'se', got {kernel!r}.")
    arrays = load_npz("cmu_light", data_dir)
    low, high = arrays["coords"].min(axis=0), arrays["coords"].max(axis=0)
    return build(
        "cmu_light",
        arrays["train"].astype(np.float64),
        arrays["test"].astype(np.float64),
        indices,
        arms=torch.from_numpy((arrays["coords"] - low) / (high - low)),
        kernel=SquaredExponential(math.sqrt(0.1)) if kernel == "se" else None,
        notes=(
            "CMU light sensors (raw A/D counts), the paper's data: kernel from 601 train rows, rewards "
            "from 192 test rows, which are far brighter. Readings per sensor are bimodal (day and night), "
            "not heavy-tailed."
        ),
    )


def seattle_latency(
    trials: Sequence[int],
    seed: int,
    *,
    data_dir: Path | str | None = None,
    view: str = "client",
    client: int = 0,
    alpha: float = 1.0,
) -> Problem:
    """Which node answers fastest on average: reward = -RTT in a random time slice of the second half.

    Args:
        trials: Trial indices; all share f.
        seed: Unused: nothing of the problem is random.
        data_dir: Data folder, see :func:`bo_robust.problems.data.verified`.
        view: "client", the 98 servers seen from ``client``; "node", the 99 nodes by their mean RTT to the
            others.
        client: Number of the client node, 0..98, for view "client".
        alpha: Tail index of the moment bound. The table is finite, so any will do; the Hill index of all RTTs
            is 1.3.

    Raises:
        ValueError: on an unknown view or client, or a damaged file.
        FileNotFoundError: if the file is not there.
    """
    indices = trial_list(trials)
    if view not in ("client", "node"):
        raise ValueError(f"view must be 'client' or 'node', got {view!r}.")
    if not 0 <= client < 99:
        raise ValueError(f"client must be a node number 0..98, got {client!r}.")
    rtt = load_npz("seattle_latency", data_dir)["rtt_10ms"].astype(np.float64) * TEN_MS
    nodes = np.arange(rtt.shape[1])
    if view == "client":
        nodes = np.delete(nodes, client)
        rewards = -rtt[:, client, nodes]
    else:
        np.einsum("tii->ti", rtt)[:] = 0.0
        rewards = -rtt.sum(axis=2) / (len(nodes) - 1)
    half = len(rewards) // 2
    return centred_problem(
        "seattle_latency",
        rewards[:half],
        rewards[half:],
        indices,
        alpha=alpha,
        arm_names=tuple(f"node {i}" for i in nodes),
        notes=(
            f"Round-trip times between 99 devices (Seattle platform), {view} "
            f"view{f' from node {client}' if view == 'client' else ''}; kernel: correlation over the first "
            "344 time slices, rewards from the last 344. Zeros (0.57 % of links, < 5 ms or missing, the "
            "source does not say) count as 0 s. Rewards are skewed towards bad: their mean lies far below "
            "their median."
        ),
    )


def _scaling(scaling: str) -> Callable[..., Problem]:
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {sorted(SCALINGS)}, got {scaling!r}.")
    return SCALINGS[scaling]
