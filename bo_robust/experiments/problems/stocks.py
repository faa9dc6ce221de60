"""Quarter returns of 20 S&P 500 stocks, 1990-2022, with bad ticks or without: the quickstart problem.

The prices are read from a file inside skfolio's wheel; skfolio itself is never imported.
"""

from __future__ import annotations

import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_robust.confidence.truncation import median_mad
from bo_robust.experiments.problems.base import OverArms, Problem, RewardModel, Trials
from bo_robust.experiments.problems.data import check_content
from bo_robust.experiments.problems.empirical import centred_problem

# A quarter has about 63 trading days.
HOLD_DAYS = 63
BAD_TICK_FACTOR = 100.0
FILE = "datasets/data/sp500_dataset.csv.gz"
# The same file in skfolio 0.5.0, 0.8.0, 0.10.0 and 1.12.2.
SHA256 = "7952031298be02abafa1c284ca20f0b3bef98095e02ff05f179d4bd3747e705b"


@dataclass(frozen=True, eq=False)
class HeldReturns(RewardModel):
    """A reward is the return in % of buying on a random day and selling HOLD_DAYS later, centred and scaled.

    Each of the two quotes is wrong with probability ``bad_ticks``, independently. A wrong quote is off by a factor of
    100, up or down with equal probability. ``ratios`` holds selling price / buying price, ``m x n``. The return in %
    has ``centre`` subtracted and is then divided by ``scale``.
    """

    ratios: Tensor
    centre: float
    scale: float
    bad_ticks: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.bad_ticks <= 1.0:
            raise ValueError(f"bad_ticks is a probability and must be in [0, 1], got {self.bad_ticks!r}.")

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Row number and factor on the price ratio, ``rounds x 2``; the rows do not depend on ``bad_ticks``."""
        rows = rng.integers(0, self.ratios.shape[0], rounds)
        u = rng.random((rounds, 2))
        power = np.where(u < 0.5 * self.bad_ticks, -1, np.where(u < self.bad_ticks, 1, 0))
        # Column 0 is the buying price, by which the ratio divides.
        return np.stack([rows.astype(np.float64), BAD_TICK_FACTOR ** (power[:, 1] - power[:, 0])], axis=1)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        ratio = self.ratios[draws[:, 0].long(), arms] * draws[:, 1]
        return (100.0 * (ratio - 1.0) - self.centre) / self.scale


@dataclass(frozen=True)
class SP500(OverArms):
    """Which of 20 stocks gains most over 63 trading days, with bad ticks or without (quickstart).

    f is the mean clean return over the second half of 1990-2022. The kernel (correlation of returns) and the constants
    come from the first half. All trials share f. ``bad_ticks`` is the probability that a quote is wrong by a factor of
    100 (simulated). The prices need skfolio installed.
    """

    bad_ticks: float = 0.0

    def make(self, trials: Trials) -> Problem:
        prices = _prices()
        quotes = prices.to_numpy(dtype=np.float64)
        half = len(quotes) // 2
        past, later = (q[HOLD_DAYS:] / q[:-HOLD_DAYS] for q in (quotes[:half], quotes[half:]))
        returns = 100.0 * (past - 1.0)
        centre, scale = median_mad(returns)
        notes = (
            "20 S&P 500 stocks, daily prices 1990-2022 from skfolio's wheel (survivors: chosen with "
            "hindsight); reward = return in % over 63 trading days, overlapping windows, first half for kernel "
            "and constants, second for rewards."
        )
        fields: dict[str, Any] = {"rewards": HeldReturns(torch.from_numpy(later), centre, scale, self.bad_ticks)}
        if self.bad_ticks > 0.0:
            fields["noise_scale"] = None
            notes += (
                f" Bad ticks are SIMULATED: each quote wrong by a factor 100 with probability {self.bad_ticks:g}. f, "
                "v and regret refer to clean quotes; bad ticks are contamination that v does not bound."
            )
        return centred_problem(
            "sp500",
            returns,
            100.0 * (later - 1.0),
            trials,
            arm_names=tuple(str(name) for name in prices.columns),
            notes=notes,
            **fields,
        )


def _prices() -> pd.DataFrame:
    """Daily prices of the 20 stocks, 8313 x 20."""
    # Finds the folder without importing the package.
    spec = importlib.util.find_spec("skfolio")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "problem 'sp500' reads stock prices bundled in skfolio, which is not installed: run "
            'pip install "bo-robust[data]".'
        )
    path = Path(spec.submodule_search_locations[0], FILE)
    if not path.is_file():
        raise ImportError(f"skfolio is installed but has no {FILE}; install skfolio 1.12.2.")
    content = path.read_bytes()
    check_content(path, content, SHA256, remedy="Install skfolio 1.12.2, whose file it is.")
    return pd.read_csv(io.BytesIO(content), index_col=0, compression="gzip")
