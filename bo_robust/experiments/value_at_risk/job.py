"""Play repetitions of one method of a panel: build the problem, play the method, make the shard."""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bo_robust.experiments.config import ValueAtRiskPanelConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem, optimum, over_environment
from bo_robust.experiments.provenance import find_device
from bo_robust.experiments.store import Shard
from bo_robust.experiments.value_at_risk.methods import build_method
from bo_robust.experiments.value_at_risk.play import play

# Arguments of problems that are no parameters of the problem, and where they are set instead.
RESERVED = {
    "device": "use --device",
    "dtype": "value-at-risk runs are in float64",
    "data_dir": "use --data-dir",
}


def build_problem(
    panel: ValueAtRiskPanelConfig, data_dir: Path | None, device: torch.device | str
) -> ConditionsProblem:
    """Build the problem of a panel; ``RunError`` names the panel where the problem is unknown, bad or lacks data."""
    where = f"panel {panel.name!r}"
    options = {key: value for key, value in panel.problem.items() if key != "kind"}
    for key in options:
        if key in RESERVED:
            raise RunError(f"{where}: {key!r} is no parameter of a problem; {RESERVED[key]}.")
    try:
        return make_conditions_problem(panel.problem["kind"], data_dir=data_dir, device=device, **options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise RunError(f"{where}: {error}") from None


def settings_used(panel: ValueAtRiskPanelConfig, data_dir: Path | None, device: torch.device) -> dict[str, Any]:
    """Everything a panel uses, with every constant filled in, as plain data; errors as in :func:`build_problem`."""
    problem = _problem(panel.model_dump_json(), None if data_dir is None else str(data_dir.resolve()), str(device))
    methods = {m.label: build_method(m.name, m.options) for m in panel.methods}
    used = {label: {"class": type(method).__name__, **vars(method)} for label, method in methods.items()}
    return {"noise_var": problem.noise_var, "alpha": problem.alpha, "methods": used}


def play_shard(
    panel: ValueAtRiskPanelConfig,
    j: int,
    trials: Sequence[int],
    data_dir: str | None,
    device: str,
    watch: Callable[[int], None] = lambda rounds: None,
) -> Shard:
    """Play the repetitions ``trials`` of method number ``j``; ``watch`` is as in :func:`~.play.play`.

    The shard holds the traces (columns of :func:`~.play.play`) and metadata. The metadata are ``seconds``, the
    problem's ``notes`` and ``alpha``, and its optimum: ``x``, its ``value``, f there over the points of Z (``values``),
    and their ``probabilities``.
    """
    problem = _problem(panel.model_dump_json(), data_dir, device)
    method, began = panel.methods[j], time.perf_counter()
    frames = []
    for repetition in trials:
        frame = pd.DataFrame(play(problem, build_method(method.name, method.options), panel, repetition, watch))
        frame.insert(0, "repetition", repetition)
        frame.insert(0, "method", method.label)
        frame.insert(0, "panel", panel.name)
        frames.append(frame)
    best = optimum(problem)
    values, probabilities = over_environment(problem, best.x)
    metadata = {
        "seconds": time.perf_counter() - began,
        "notes": problem.notes,
        "alpha": problem.alpha,
        "x": best.x.tolist(),
        "value": best.value,
        "values": values.tolist(),
        "probabilities": probabilities.tolist(),
    }
    return Shard(pd.concat(frames, ignore_index=True), metadata)


@functools.lru_cache(maxsize=1)
def _problem(panel: str, data_dir: str | None, device: str) -> ConditionsProblem:
    """The problem of a panel given as JSON. Kept, so that data are read and the optimum is searched once."""
    made = ValueAtRiskPanelConfig.model_validate_json(panel)
    return build_problem(made, None if data_dir is None else Path(data_dir), find_device(device))
