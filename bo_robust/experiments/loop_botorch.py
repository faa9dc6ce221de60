"""BoTorch's loop over designs: fit a model, choose by it, observe, recommend; and what is shown of it.

All methods of a trial start from the same design and get the same noise and the same wrong observations, by the number
of the evaluation. They use the same random numbers too: models that predict the same choose the same.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch

from bo_robust.experiments.botorch_methods import BOTORCH_METHODS
from bo_robust.experiments.curves import LOG_TITLE, band, looks_of, values_of
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.loop import Metadata, Summary, TrialLoop, check_initial
from bo_robust.experiments.outliers import draw
from bo_robust.experiments.problems import DESIGN_PROBLEMS, DesignProblem
from bo_robust.experiments.statistics import CONFIDENCE, log_mean, log_regret, mean_and_error, mean_interval
from bo_robust.utils.specs import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bo_robust.experiments.config import Panel

# RobustGP's warnings: outliers are many, or too many to distinguish them from the others.
MANY_OUTLIERS = re.compile(r"RobustGP flags|the others explain")


class DesignsLoop(TrialLoop):
    """Models of BoTorch's loop over designs."""

    over = "designs"
    problems = DESIGN_PROBLEMS
    methods = BOTORCH_METHODS
    defaults: ClassVar[Mapping[str, int]] = {"trials": 5, "horizon": 40}
    keys = frozenset({"outliers"})
    unit = "evaluation"
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

    def check(self, panel: Panel) -> None:
        check_initial(panel)
        super().check(panel)

    def make_problem(self, kind: Any, panel: Panel, trials: Sequence[int], device: torch.device) -> DesignProblem:
        problem: DesignProblem = kind.make()
        return problem

    def run_trial(self, problem: DesignProblem, method: Any, panel: Panel, trial: int) -> dict[str, list[Any]]:
        """Run one trial of one method; trial i of seed s has the random numbers of trial 0 of seed s + i.

        Row t, from 1 to ``horizon``, is that of an evaluation. Columns, all but ``x`` in standard deviations of f:

        - ``x``: the point, as a list in the unit cube; ``y``: the observation there; ``outlier``: whether it is wrong;
        - ``flagged``: whether the observation is flagged as an outlier at the end;
        - ``regret``: simple regret, without noise, of what is recommended after the evaluation. NaN within the initial
          design;
        - ``warned``: whether the model warned after the evaluation that outliers are many.
        """
        initial, seed = initial_size(panel, problem), panel.seed + trial
        draws = draw(problem.name, panel.outliers, seed, panel.horizon)
        design = problem.initial_design(initial, seed)
        loop = method.begin(problem, seed, draws.outlier)
        rows: list[dict[str, Any]] = []
        for t in range(panel.horizon):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                x = design[t] if t < initial else problem.nearest(loop.ask())
                y = problem.center + draws.observation(problem, x, t)
                loop.tell(x, y)
                regret, last = math.nan, t + 1 == panel.horizon
                if last or (t + 1 >= initial and (t + 1) % method.every == 0):
                    value = problem.value(problem.nearest(loop.recommend()).unsqueeze(0))
                    regret = max(problem.best - float(value), 0.0)
            warned = any(MANY_OUTLIERS.search(str(warning.message)) for warning in caught)
            rows.append({"round": t + 1, "x": x.tolist(), "y": y, "regret": regret, "warned": warned})
        of_end = {"outlier": draws.outlier.tolist(), "flagged": loop.flagged().tolist()}
        return {key: [row[key] for row in rows] for key in rows[0]} | of_end

    def of_problem(self, panel: Panel, problem: DesignProblem, device: torch.device) -> dict[str, Any]:
        if device.type != "cpu":
            raise RunError(f"panel {panel.name!r}: `loop: botorch` runs on a CPU, not on {device}.")
        initial = initial_size(panel, problem)
        where, horizon = f"panel {panel.name!r}: horizon must be", panel.horizon
        if horizon <= initial:
            raise RunError(f"{where} above the {initial} points of the initial design, got {horizon}.")
        if problem.candidates is not None and horizon > len(problem.candidates):
            raise RunError(f"{where} at most the {len(problem.candidates)} designs of its table, got {horizon}.")
        return {"initial": initial}

    def summary(self, panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
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
                "seconds": metadata[label]["seconds"] / panel.trials,
            }
        return Summary(methods, measures, {})

    def draw(self, panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Simple regret of the recommendation and its logarithm, after the initial design."""
        axes[0].set_title("simple regret in sd of f: mean ± standard error")
        axes[1].set_title(LOG_TITLE)
        regret = values_of(panel, traces, "regret")
        for label, look in looks_of(panel.labels).items():
            at = np.flatnonzero(~np.isnan(regret[label]).any(0))
            values = regret[label][:, at]
            band(axes[0], at + 1, mean_interval(values), label, look)
            band(axes[1], at + 1, mean_interval(log_regret(values), CONFIDENCE), label, look)
        axes[0].set_ylim(bottom=0.0)


def initial_size(panel: Panel, problem: DesignProblem) -> int:
    """Points of the initial design; ``RunError`` unless there are two, which a model needs."""
    initial = 2 * problem.d + 2 if panel.initial is None else panel.initial
    if initial < 2:
        raise RunError(f"initial of panel {quoted(panel.name)} must be at least 2 points.")
    return initial
