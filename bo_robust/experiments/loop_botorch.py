"""BoTorch's loop over designs: fit a model, choose by it, observe, recommend.

All methods of a trial start from the same design and get the same noise and the same wrong readings, by the number of
the evaluation. They use the same random numbers too: models that predict the same choose the same.
"""

import math
import re
import warnings
from typing import Any

import torch

from bo_robust.experiments.config import Panel
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.outliers import draw
from bo_robust.experiments.problems import DesignProblem
from bo_robust.utils.specs import quoted

# RobustGP's warnings: outliers are many, or too many to distinguish them from the others.
MANY_OUTLIERS = re.compile(r"RobustGP flags|the others explain")


def run_trial(problem: DesignProblem, method: Any, panel: Panel, trial: int) -> dict[str, list[Any]]:
    """Run one trial of one method; trial i of seed s has the random numbers of trial 0 of seed s + i.

    Row t, from 1 to ``horizon``, is that of an evaluation. Columns, all but ``x`` in standard deviations of f:

    - ``x``: the point, as a list in the unit cube; ``y``: the reading there; ``outlier``: whether it is wrong;
    - ``flagged``: whether the reading is flagged as an outlier at the end;
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
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = design[t] if t < initial else problem.nearest(loop.ask())
            y = problem.center + draws.reading(problem, x, t)
            loop.tell(x, y)
            regret, last = math.nan, t + 1 == panel.horizon
            if last or (t + 1 >= initial and (t + 1) % method.every == 0):
                value = problem.value(problem.nearest(loop.recommend()).unsqueeze(0))
                regret = max(problem.best - float(value), 0.0)
        warned = any(MANY_OUTLIERS.search(str(warning.message)) for warning in said)
        rows.append({"round": t + 1, "x": x.tolist(), "y": y, "regret": regret, "warned": warned})
    of_end = {"outlier": draws.outlier.tolist(), "flagged": loop.flagged().tolist()}
    return {key: [row[key] for row in rows] for key in rows[0]} | of_end


def metadata(problem: DesignProblem) -> dict[str, Any]:
    """What a summary says of the problem beside its notes: nothing."""
    return {}


def settings_used(panel: Panel, problem: DesignProblem, device: torch.device) -> dict[str, Any]:
    """What a panel takes from its problem; ``RunError`` where both do not fit together, or the device."""
    if device.type != "cpu":
        raise RunError(f"panel {panel.name!r}: `loop: botorch` runs on a CPU, not on {device}.")
    initial = initial_size(panel, problem)
    where, horizon = f"panel {panel.name!r}: horizon must be", panel.horizon
    if horizon <= initial:
        raise RunError(f"{where} above the {initial} points of the initial design, got {horizon}.")
    if problem.candidates is not None and horizon > len(problem.candidates):
        raise RunError(f"{where} at most the {len(problem.candidates)} designs of its table, got {horizon}.")
    return {"initial": initial}


def initial_size(panel: Panel, problem: DesignProblem) -> int:
    """Points of the initial design; ``RunError`` unless there are two, which a model needs."""
    initial = 2 * problem.d + 2 if panel.initial is None else panel.initial
    if initial < 2:
        raise RunError(f"initial of panel {quoted(panel.name)} must be at least 2 points.")
    return initial
