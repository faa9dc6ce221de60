"""From traces to numbers: one part per panel, method and repetition, the joined table, and the summary."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bo_robust.runner.errors import RunError
from bo_robust.runner.results import parquet_bytes
from bo_robust.runner.robust.config import MethodConfig, RobustPanelConfig, RobustRunConfig

__all__ = [
    "CONFIDENCE",
    "FLOOR",
    "curves",
    "facts_path",
    "load_part",
    "load_parts",
    "log_regret",
    "mean_interval",
    "part_bytes",
    "part_path",
    "summarise",
]

# Regrets below count as this much: the noise has standard deviation 0.1, the optimum is known to a few 1e-6.
FLOOR = 1e-5
# Of the intervals around means, as in the paper's figures.
CONFIDENCE = 0.7


def part_path(folder: Path, panel: int, method: int, repetition: int) -> Path:
    """Where one repetition of one method of one panel lies."""
    return folder / "parts" / f"{panel:02d}-{method:02d}-{repetition:03d}.parquet"


def facts_path(folder: Path, panel: int) -> Path:
    """Where lies what is known of a panel's problem: ``notes``, ``alpha``, the optimum's ``x`` and ``value``.

    Also ``values``, f at the optimum over the points of Z, and their ``probabilities``
    (:func:`bo_robust.problems.robust.over_environment`); not in folders from before they were stored.
    """
    return folder / "parts" / f"{panel:02d}.json"


def part_bytes(rows: dict[str, list[Any]], panel: str, label: str, repetition: int) -> bytes:
    """The rows of :func:`bo_robust.runner.robust.play.play` as the content of a part."""
    frame = pd.DataFrame(rows)
    frame.insert(0, "repetition", repetition)
    frame.insert(0, "method", label)
    frame.insert(0, "panel", panel)
    return parquet_bytes(frame)


def load_parts(folder: Path, config: RobustRunConfig) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """All traces of a finished run, and the facts of each panel's problem.

    Raises:
        RunError: when a part is missing, damaged or of another run.
    """
    frames, facts = [], []
    for i, panel in enumerate(config.panels):
        path = facts_path(folder, i)
        try:
            facts.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise RunError(
                f"cannot read {path} ({error}); `bo-robust resume {folder}` writes it with the first repetition played."
            ) from None
        for j, method in enumerate(panel.methods):
            for k in range(panel.repetitions):
                path = part_path(folder, i, j, k)
                frames.append(load_part(folder, path, (panel.name, method.label, k), panel.rounds + 1))
    return pd.concat(frames, ignore_index=True), facts


def log_regret(regret: Any) -> np.ndarray:
    """log10 of regrets, those below :data:`FLOOR` counted as it."""
    return np.log10(np.maximum(np.asarray(regret, dtype=float), FLOOR))


def mean_interval(values: np.ndarray, axis: int = 0) -> tuple[Any, Any, Any]:
    """Mean, and the 70 % confidence interval of the mean by Student's t; of one value the mean three times."""
    mean, n = values.mean(axis), values.shape[axis]
    reach = 0.0 * mean
    if n > 1:
        reach = stats.t.ppf(0.5 + CONFIDENCE / 2.0, n - 1) * values.std(axis, ddof=1) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def summarise(config: RobustRunConfig, traces: pd.DataFrame, facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``summary.json`` holds.

    Per panel the optimum found, and per label: ``log10_regret`` after the last round (mean) with its ``interval``
    (70 %; None of one repetition), ``median_regret``, ``initial_log10_regret``, median ``seconds`` per acquisition,
    median final ``certificate`` and ``interval_length``, the share of rounds in which the certificate and the bound
    2 w sigma held (None where a method has none; the bound is one for V-UCB only), failed fits, and the
    ``curve``. ``comparisons``: paired differences of the final log10 regret.
    """
    panels = []
    for panel, known in zip(config.panels, facts, strict=True):
        rows = traces[traces["panel"] == panel.name]
        final = {m.label: log_regret(_table(rows, m.label, "regret")[:, -1]) for m in panel.methods}
        best = min(final, key=lambda label: final[label].mean())
        panels.append(
            {
                "name": panel.name,
                "problem": panel.problem,
                "notes": known["notes"],
                "optimum": {"x": known["x"], "value": known["value"]},
                "alpha": known["alpha"],
                "rounds": panel.rounds,
                "repetitions": panel.repetitions,
                "methods": {m.label: _entry(rows, m) for m in panel.methods},
                "best": best,
                "not_distinguishable_from_best": [
                    label
                    for label in final
                    if label != best and _compared(final[label], final[best])["significant"] is False
                ],
                "comparisons": [
                    {"pair": list(pair), **_compared(final[pair[0]], final[pair[1]])} for pair in panel.compare
                ],
            }
        )
    return {"name": config.name, "description": config.description, "regret_floor": FLOOR, "panels": panels}


def curves(rows: pd.DataFrame, panel: RobustPanelConfig, column: str) -> dict[str, np.ndarray]:
    """A column of a panel's traces, per label: ``repetitions x (rounds + 1)``."""
    return {m.label: _table(rows, m.label, column) for m in panel.methods}


def _entry(rows: pd.DataFrame, method: MethodConfig) -> dict[str, Any]:
    certifies = method.build().certifies
    regret = _table(rows, method.label, "regret")
    logs = log_regret(regret)
    mean, low, high = mean_interval(logs)
    seconds = _table(rows, method.label, "seconds")
    held: dict[str, Any] = {"certificate": None, "certificate_held": None, "bound_held": None}
    if certifies:
        certificate = _table(rows, method.label, "certificate")
        bound, chosen = (_table(rows, method.label, name)[:, :-1] for name in ("bound", "chosen_regret"))
        held = {
            "certificate": float(np.median(certificate[:, -1])),
            "certificate_held": float((certificate >= regret).mean()),
            "bound_held": float((bound >= chosen).mean()),
        }
    return {
        "log10_regret": float(mean[-1]),
        "interval": [float(low[-1]), float(high[-1])] if len(logs) > 1 else None,
        "median_regret": float(np.median(regret[:, -1])),
        "initial_log10_regret": float(mean[0]),
        "final": logs[:, -1].tolist(),
        "seconds": float(np.nanmedian(seconds)),
        "interval_length": float(np.median(_table(rows, method.label, "interval")[:, -1])),
        **held,
        "failed_fits": int((~rows.loc[rows["method"] == method.label, "fit_ok"]).sum()),
        "curve": {"log10_regret": mean.tolist(), "low": low.tolist(), "high": high.tolist()},
    }


def _compared(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Paired difference of log10 regrets, standard error and whether a t test at 5 % sees it."""
    difference = ours - theirs
    n, mean = len(difference), float(difference.mean())
    if n == 1:
        return {"difference": mean, "error": None, "significant": None}
    error = float(difference.std(ddof=1)) / math.sqrt(n)
    significant = abs(mean) > float(stats.t.ppf(0.975, n - 1)) * error
    return {"difference": mean, "error": error, "significant": bool(significant)}


def _table(rows: pd.DataFrame, label: str, column: str) -> np.ndarray:
    """One column of one method, ``repetitions x (rounds + 1)``."""
    of = rows[rows["method"] == label]
    return of[column].to_numpy(dtype=float).reshape(of["repetition"].nunique(), -1)


def load_part(folder: Path, path: Path, key: tuple[str, str, int], length: int) -> pd.DataFrame:
    """The rows of one repetition of a method.

    Args:
        folder: The result folder, for messages.
        path: The part.
        key: Panel, label and repetition it is of.
        length: Rows it has.

    Raises:
        RunError: when it is missing, damaged or of another run.
    """
    if not path.exists():
        raise RunError(
            f"{folder} has no results of {key[1]} in panel {key[0]!r}, repetition {key[2]}, yet; `bo-robust resume "
            f"{folder}` finishes the run."
        )
    try:
        frame = pd.read_parquet(path)
        whole = len(frame) == length and frame["round"].tolist() == list(range(length))
        if not whole or any({*frame[c]} != {v} for c, v in zip(("panel", "method", "repetition"), key, strict=True)):
            raise ValueError("it holds other rows than this run's")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({error}). Delete it and run `bo-robust resume {folder}`: that repetition is played "
            "again, the others are kept."
        ) from None
    return frame
