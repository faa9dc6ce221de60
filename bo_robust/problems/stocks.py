"""Quarter returns of 20 S&P 500 stocks, 1990-2022, with bad ticks if wanted: the quickstart problem.

The prices are the file inside skfolio's wheel; it is read in place, skfolio itself is never imported.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_robust.problems.base import Problem, RewardModel, trial_list
from bo_robust.problems.data import check_sha256
from bo_robust.problems.empirical import centred_problem, median_mad

__all__ = ["HeldReturns", "sp500"]

HOLD_DAYS = 63
BAD_TICK_FACTOR = 100.0
FILE = "datasets/data/sp500_dataset.csv.gz"
# The same file in skfolio 0.5.0, 0.8.0, 0.10.0 and 1.12.2.
SHA256 = "ee21cac28befb1d0a739a9ceb22184f995394726aa0cfde9a21941d1ac04ac0d"


@dataclass(frozen=True, eq=False)
class HeldReturns:
    """Return in % of buying at a random row's quote and selling HOLD_DAYS later, centred and scaled.

    Each of the two quotes is, with probability ``bad_ticks`` and independently, wrong by a factor 100, up or
    down with equal probability.

    Attributes:
        ratios: Selling over buying price, ``m x n``.
        centre: Subtracted from the return in %.
        scale: Divides the rest.
        bad_ticks: Probability in [0, 1].
    """

    ratios: Tensor
    centre: float
    scale: float
    bad_ticks: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.bad_ticks <= 1.0:
            raise ValueError(f"bad_ticks is a probability and must be in [0, 1], got {self.bad_ticks!r}.")

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """``rounds x 2``: row number, factor on the price ratio; rows do not depend on ``bad_ticks``."""
        rows = rng.integers(0, self.ratios.shape[0], rounds)
        u = rng.random((rounds, 2))
        power = np.where(u < 0.5 * self.bad_ticks, -1, np.where(u < self.bad_ticks, 1, 0))
        return np.stack([rows.astype(np.float64), BAD_TICK_FACTOR ** (power[:, 1] - power[:, 0])], axis=1)

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """Scaled returns of the arms, ``s``; f plays no part."""
        ratio = self.ratios[draws[:, 0].long(), arms] * draws[:, 1]
        return (100.0 * (ratio - 1.0) - self.centre) / self.scale

    def to(self, device: torch.device | str, dtype: torch.dtype) -> HeldReturns:
        """The same model with its table on ``device`` and in ``dtype``."""
        return dataclasses.replace(self, ratios=self.ratios.to(device, dtype))


def sp500(trials: Sequence[int], seed: int, *, bad_ticks: float = 0.0) -> Problem:
    """Which of 20 stocks gains most over 63 trading days from a random day of the second half of 1990-2022.

    f is the mean clean return over the second half; kernel (correlation of the first half's returns) and all
    constants come from the first half.

    Args:
        trials: Trial indices; all share f.
        seed: Unused: nothing of the problem is random.
        bad_ticks: Probability that a quote is wrong by a factor 100 (simulated), in [0, 1].

    Raises:
        ImportError: if skfolio, whose wheel holds the prices, is not installed.
        ValueError: if ``bad_ticks`` is no probability or the file is not the expected one.
    """
    indices = trial_list(trials)
    prices = _prices()
    quotes = prices.to_numpy(dtype=np.float64)
    half = len(quotes) // 2
    past, later = (q[HOLD_DAYS:] / q[:-HOLD_DAYS] for q in (quotes[:half], quotes[half:]))
    returns = 100.0 * (past - 1.0)
    centre, scale = median_mad(returns)
    rewards: RewardModel = HeldReturns(torch.from_numpy(later), centre, scale, bad_ticks)
    notes = (
        "20 S&P 500 stocks, daily prices 1990-2022 from skfolio's wheel (survivors: chosen with "
        "hindsight); reward = return in % over 63 trading days, overlapping windows, first half for kernel "
        "and constants, second for rewards."
    )
    if bad_ticks > 0.0:
        notes += (
            f" Bad ticks are SIMULATED: each quote wrong by a factor 100 with probability {bad_ticks:g}. f, "
            "v and regret refer to clean quotes; bad ticks are contamination that v does not bound."
        )
    problem = centred_problem(
        "sp500",
        returns,
        100.0 * (later - 1.0),
        indices,
        arm_names=tuple(str(name) for name in prices.columns),
        rewards=rewards,
        notes=notes,
    )
    return dataclasses.replace(problem, noise_scale=None) if bad_ticks > 0.0 else problem


def _prices() -> pd.DataFrame:
    """Daily prices, 8313 x 20."""
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
    check_sha256(path, content, SHA256, remedy="Install skfolio 1.12.2, whose file it is.")
    return pd.read_csv(io.BytesIO(content), index_col=0, compression="gzip")
