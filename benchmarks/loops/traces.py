"""What a run over arms records of every round and trial."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.problems.base import Problem

# Columns by name, and their type; None is that of the rewards.
COLUMNS: dict[str, torch.dtype | None] = {
    "arm": torch.int32,
    "reward": None,  # before any truncation
    "recommended": torch.int32,  # arm of largest posterior mean after the round
    "width": None,  # confidence width used; NaN for rules without a width, and in the initial design
    "coverage": None,  # share of arms with |f - mu| <= w sigma before the pull; NaN where the width is
    "truncated": torch.bool,  # whether the reward was truncated
    "ok": torch.bool,  # whether the reward was finite
}
# Columns of algorithms with a dictionary: its arms, and the algorithm's estimate, after the round.
DICTIONARY_COLUMNS: dict[str, torch.dtype | None] = {"dictionary_size": torch.int32, "effective_dimension": None}


class Traces:
    """The columns of all trials, ``T x s`` each; rows beyond ``rounds`` are unwritten.

    ``dictionary`` says whether the algorithm has one, which adds :data:`DICTIONARY_COLUMNS`.
    """

    def __init__(self, horizon: int, problem: Problem, dictionary: bool = False) -> None:
        types = COLUMNS | (DICTIONARY_COLUMNS if dictionary else {})
        self.horizon, self.rounds = horizon, 0
        self._columns = {name: problem.f.new_zeros((horizon, problem.trials), dtype=of) for name, of in types.items()}

    def __getitem__(self, column: str) -> Tensor:
        return self._columns[column]

    def write(self, rounds: int = 1, /, **columns: Tensor | float) -> None:
        """Write the next ``rounds``: every column ``s`` or ``rounds x s``, or one number for all trials.

        ``ValueError`` names columns that are missing or unknown.
        """
        if wrong := columns.keys() ^ self._columns.keys():
            raise ValueError(f"a round has the columns {', '.join(self._columns)}; look at {', '.join(sorted(wrong))}.")
        rows = self.rounds if rounds == 1 else slice(self.rounds, self.rounds + rounds)  # one index is faster
        for name, values in columns.items():
            self._columns[name][rows] = values
        self.rounds += rounds

    def frame(self, problem: Problem, trials: Sequence[int]) -> pd.DataFrame:
        """The traces in long format, ordered by trial and then by round, which counts from 1, with their regret."""
        value, optimum = problem.value.cpu(), problem.optimum.cpu()
        host: dict[str, Any] = {name: values[: self.rounds].cpu() for name, values in self._columns.items()}
        T, s = host["arm"].shape
        columns: dict[str, Any] = {
            "trial": np.repeat(np.asarray(trials, dtype=np.int32), T),
            "round": np.tile(np.arange(1, T + 1, dtype=np.int32), s),
        }
        for name, values in host.items():
            columns[name] = (values.float() if name == "coverage" else values).T.reshape(-1).numpy()
            if regret := {"reward": "regret", "recommended": "simple_regret"}.get(name):
                arms = host["arm" if name == "reward" else name].long()
                columns[regret] = (optimum - value.gather(1, arms.T).T).T.reshape(-1).numpy()
        return pd.DataFrame(columns)
