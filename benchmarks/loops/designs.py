"""BoTorch's loop over designs: fit a model, choose by it, observe, recommend; and what is shown of it.

All methods of a trial start from the same design and get the same noise and the same wrong observations, by the number
of the evaluation. They use the same random numbers too: models that predict the same choose the same.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from benchmarks.loops.outliers import Outliers, draw
from benchmarks.panel import Metadata, Summary, TrialPanel, shared
from benchmarks.pictures import LOG_TITLE, band, looks_of, values_of
from benchmarks.problems.designs import DesignProblem
from benchmarks.statistics import CONFIDENCE, log_mean, log_regret, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# RobustGP's warnings: outliers are many, or too many to distinguish them from the others.
MANY_OUTLIERS = re.compile(r"RobustGP flags|the others explain|look like outliers")


@dataclass(frozen=True)
class DesignsPanel(TrialPanel):
    """Models of BoTorch's loop over designs. A round is an evaluation, and the initial design is 2 d + 2 by default."""

    outliers: Outliers | None = None  # which observations are wrong; None: all are right

    unit: ClassVar[str] = "evaluation"
    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "simple regret": ("simple_regret", "{:.3g}"),
        "log10 regret": ("log10_regret", "{:.2f}"),
        "found": ("found", "{:.0%}"),
        "false": ("false_alarms", "{:.1%}"),
        "sec.": ("seconds", "{:.3g}"),
    }
    legend = (
        "simple regret: f at its best less f at the recommendation after the last evaluation, in sd of f, mean ± "
        "standard error over trials; log10 regret: mean and 70 % confidence interval. found: share of the wrong "
        "observations that are flagged as outliers at the end; false: share of the right ones. sec.: time a trial."
    )

    def built(self, device: torch.device) -> DesignProblem:
        made: DesignProblem = shared(self.problem.make, self.problem)
        return made

    def made(self, device: torch.device) -> Self:
        if device.type != "cpu":
            raise ValueError(f"panel {self.name!r}: BoTorch's loop runs on a CPU, not on {device}.")
        if wrong := [label for label, method in self.methods.items() if not hasattr(method, "begin")]:
            raise ValueError(f"panel {self.name!r}: {wrong[0]!r} is no method of benchmarks.methods.designs.")
        problem = self.built(device)
        initial, candidates = self.initial_size(problem), problem.candidates
        most = math.inf if candidates is None else len(candidates)
        if not 2 <= initial < self.rounds <= most:
            raise ValueError(
                f"panel {self.name!r}: give two points or more to the initial design (now {initial}), more rounds than "
                f"that (now {self.rounds}), and not more than there are designs ({most})."
            )
        return self

    def initial_size(self, problem: DesignProblem) -> int:
        return 2 * problem.d + 2 if self.initial is None else self.initial

    def run_trial(self, problem: DesignProblem, method: Any, trial: int) -> dict[str, list[Any]]:
        """Run one trial of one method; trial i of seed s has the random numbers of trial 0 of seed s + i.

        Row t, from 1 to ``rounds``, is that of an evaluation. Columns, all but ``x`` in standard deviations of f:

        - ``x``: the point, as a list in the unit cube; ``y``: the observation there; ``outlier``: whether it is wrong;
        - ``flagged``: whether the observation is flagged as an outlier at the end;
        - ``regret``: simple regret, without noise, of what is recommended after the evaluation. NaN within the initial
          design;
        - ``warned``: whether the model warned after the evaluation that outliers are many.
        """
        initial, seed = self.initial_size(problem), self.seed + trial
        draws = draw(problem.name, self.outliers, seed, self.rounds)
        design = problem.initial_design(initial, seed)
        loop = method.begin(problem, seed, draws.outlier)
        rows: list[dict[str, Any]] = []
        for t in range(self.rounds):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                x = design[t] if t < initial else problem.nearest(loop.ask())
                y = problem.center + draws.observation(problem, x, t)
                loop.tell(x, y)
                regret, last = math.nan, t + 1 == self.rounds
                if last or (t + 1 >= initial and (t + 1) % method.every == 0):
                    value = problem.value(problem.nearest(loop.recommend()).unsqueeze(0))
                    regret = max(problem.best - float(value), 0.0)
            warned = any(MANY_OUTLIERS.search(str(warning.message)) for warning in caught)
            rows.append({"round": t + 1, "x": x.tolist(), "y": y, "regret": regret, "warned": warned})
        of_end = {"outlier": draws.outlier.tolist(), "flagged": loop.flagged().tolist()}
        return {key: [row[key] for row in rows] for key in rows[0]} | of_end

    def summary(self, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
        """Numbers after the last evaluation: ``final`` is the simple regret of every trial.

        ``found`` is the share of the outliers that are flagged, ``false_alarms`` that of the other observations; None
        without such observations.
        """
        methods: dict[str, Any] = {}
        measures: dict[str, dict[str, np.ndarray]] = {"simple_regret": {}, "log10_regret": {}}
        for label, frame in rows.items():
            final = frame.groupby("trial", sort=True)["regret"].last().to_numpy()
            measures["simple_regret"][label], measures["log10_regret"][label] = final, log_regret(final)
            flagged, outlier = frame["flagged"].to_numpy(dtype=bool), frame["outlier"].to_numpy(dtype=bool)
            methods[label] = {
                "simple_regret": mean_and_error(final),
                **log_mean(final),
                "final": final.tolist(),
                "found": float(flagged[outlier].mean()) if outlier.any() else None,
                "false_alarms": float(flagged[~outlier].mean()) if not outlier.all() else None,
                "seconds": metadata[label]["seconds"] / self.trials,
            }
        return Summary(methods, measures, {})

    def draw(self, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Simple regret of the recommendation and its logarithm, after the initial design."""
        axes[0].set_title("simple regret in sd of f: mean ± standard error")
        axes[1].set_title(LOG_TITLE)
        regret = values_of(traces, self.labels, self.trials, "regret")
        for label, look in looks_of(self.labels).items():
            at = np.flatnonzero(~np.isnan(regret[label]).any(0))
            values = regret[label][:, at]
            band(axes[0], at + 1, values, label, look)
            band(axes[1], at + 1, log_regret(values), label, look, CONFIDENCE)
        axes[0].set_ylim(bottom=0.0)
