"""Table problems: a reward is the chosen arm's entry in a uniformly random row of real data.

:class:`DJIA29` and :class:`CMULight` use the data of Ray Chowdhury & Gopalan 2019, sec. 6. :class:`SeattleLatency` is
an extra whose tails are truly heavy. All trials share f.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bo_robust.experiments.problems.base import OverArms, Problem, Trials
from bo_robust.experiments.problems.data import load_csv, load_npz
from bo_robust.experiments.problems.empirical import centred_problem, paper_problem
from bo_robust.utils.specs import quoted

SCALINGS: dict[str, Callable[..., Problem]] = {"paper": paper_problem, "centred": centred_problem}
# Reward = minus RTT in seconds; the file counts 10 ms.
TEN_MS = 0.01


@dataclass(frozen=True)
class DJIA29(OverArms):
    """Which of 29 DJIA stocks has the largest mean price, on a random day of 2016 to 2019.

    The kernel is the correlation of the prices over all 823 days. Rewards are drawn from the same days, because the
    paper sets no history apart.
    """

    # "paper" (:func:`.empirical.paper_problem`) or "centred" (:func:`.empirical.centred_problem`)
    scaling: str = "paper"
    data_dir: Path | str | None = None

    def make(self, trials: Trials) -> Problem:
        scaled = _scaling(self.scaling)
        prices = load_csv("djia29", self.data_dir).iloc[:, 1:]  # but for the day
        table = prices.to_numpy(dtype=np.float64)
        return scaled(
            "djia29",
            table,
            table,
            trials,
            arm_names=tuple(str(name) for name in prices.columns),
            notes=(
                "29 DJIA adjusted closes, the paper's data. Kernel and constants come from the days the "
                "rewards are drawn from. Prices per stock trend but are light-tailed."
            ),
        )


@dataclass(frozen=True)
class CMULight(OverArms):
    """Which of 41 light sensors reads most on average, in a random one of 192 test rows."""

    scaling: str = "paper"  # "paper" or "centred" (by the 601 train rows), as in :class:`DJIA29`
    data_dir: Path | str | None = None

    def make(self, trials: Trials) -> Problem:
        scaled = _scaling(self.scaling)
        arrays = load_npz("cmu_light", self.data_dir)
        low, high = arrays["coords"].min(axis=0), arrays["coords"].max(axis=0)
        return scaled(
            "cmu_light",
            arrays["train"].astype(np.float64),
            arrays["test"].astype(np.float64),
            trials,
            arms=torch.from_numpy((arrays["coords"] - low) / (high - low)),
            notes=(
                "CMU light sensors (raw A/D counts), the paper's data: kernel from 601 train rows, rewards "
                "from 192 test rows, which are far brighter. Readings per sensor are bimodal (day and night), "
                "not heavy-tailed."
            ),
        )


@dataclass(frozen=True)
class SeattleLatency(OverArms):
    """Which network node answers fastest on average: reward = -RTT in a random time slice.

    Kernel and constants come from the first half of the time slices, rewards from the second.
    """

    # "client" has the 98 servers as seen from node 0; "node" has the 99 nodes with their mean RTT to the others
    view: str = "client"
    data_dir: Path | str | None = None

    def make(self, trials: Trials) -> Problem:
        view = self.view
        if view not in ("client", "node"):
            raise ValueError(f"view must be 'client' or 'node', got {quoted(view)}.")
        rtt = load_npz("seattle_latency", self.data_dir)["rtt_10ms"].astype(np.float64) * TEN_MS
        nodes = np.arange(rtt.shape[1])
        if view == "client":
            nodes = nodes[1:]
            rewards = -rtt[:, 0, nodes]
        else:
            # A writable view of every diagonal: the RTT of a node to itself must not count.
            np.einsum("tii->ti", rtt)[:] = 0.0
            rewards = -rtt.sum(axis=2) / (len(nodes) - 1)
        half = len(rewards) // 2
        return centred_problem(
            "seattle_latency",
            rewards[:half],
            rewards[half:],
            trials,
            arm_names=tuple(f"node {i}" for i in nodes),
            notes=(
                f"Round-trip times between 99 devices (Seattle platform), {view} "
                f"view{' from node 0' if view == 'client' else ''}; kernel: correlation over the first "
                "344 time slices, rewards from the last 344. Zeros (0.57 % of links, < 5 ms or missing, the "
                "source does not say) count as 0 s. Rewards are skewed towards bad: their mean lies far below "
                "their median."
            ),
        )


def _scaling(scaling: str) -> Callable[..., Problem]:
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {sorted(SCALINGS)}, got {quoted(scaling)}.")
    return SCALINGS[scaling]
