"""From traces to tables: one parquet part per algorithm, the joined file, and the summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bo_robust.problems import Problem
from bo_robust.runner.checkpoint import write_atomic
from bo_robust.runner.config import RunConfig
from bo_robust.runner.loop import Traces

__all__ = ["load_traces", "mean_and_error", "part_path", "summarise", "traces_frame", "write_frame"]

# An arm is reported when at least this many of its pulls, and more than half, were set to zero.
MIN_TRUNCATED = 10


def part_path(folder: Path, panel: int, algorithm: int) -> Path:
    """Where the finished traces of one algorithm of one panel lie."""
    return folder / "parts" / f"{panel:02d}-{algorithm:02d}.parquet"


def traces_frame(traces: Traces, problem: Problem, panel: str, label: str, trials: Sequence[int]) -> pd.DataFrame:
    """Long format, one row per trial and round, ordered by trial then round (rounds count from 1)."""
    f, optimum = problem.f.cpu(), problem.optimum.cpu()
    host = {k: v[: traces.rounds].cpu() for k, v in traces.tensors().items()}
    T, s = host["arms"].shape
    regret = optimum - f.gather(1, host["arms"].long().T).T
    simple = optimum - f.gather(1, host["recommended"].long().T).T
    columns = {
        "arm": host["arms"],
        "reward": host["rewards"],
        "regret": regret,
        "recommended": host["recommended"],
        "simple_regret": simple,
        "width": host["width"],
        "coverage": host["coverage"].float(),
        "truncated": host["truncated"],
        "ok": host["ok"],
    }
    frame = pd.DataFrame({k: v.T.reshape(-1).numpy() for k, v in columns.items()})
    frame.insert(0, "round", np.tile(np.arange(1, T + 1, dtype=np.int32), s))
    frame.insert(0, "trial", np.repeat(np.asarray(trials, dtype=np.int32), T))
    frame.insert(0, "algorithm", label)
    frame.insert(0, "panel", panel)
    return frame.astype({"panel": "category", "algorithm": "category"})


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write parquet atomically."""
    write_atomic(path, lambda temporary: frame.to_parquet(temporary, index=False, compression="zstd"))


def load_traces(folder: Path) -> pd.DataFrame:
    """All finished parts of a result folder, joined in order."""
    parts = sorted((folder / "parts").glob("*.parquet"))
    frames = [pd.read_parquet(part) for part in parts]
    joined = pd.concat([f.astype({"panel": str, "algorithm": str}) for f in frames], ignore_index=True)
    return joined.astype({"panel": "category", "algorithm": "category"})


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error over trials; the error of a single trial is NaN."""
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def summarise(config: RunConfig, traces: pd.DataFrame, facts: dict[str, Any]) -> dict[str, Any]:
    """Numbers of every panel and algorithm, comparisons and warnings, as plain data.

    Args:
        config: The run.
        traces: From :func:`load_traces`.
        facts: Per panel name: ``notes``, ``arm_names``, ``regret_scale``; per algorithm: ``seconds``, ``level``.
    """
    panels = []
    for panel in config.panels:
        rows = traces[traces["panel"] == panel.name]
        known = facts[panel.name]
        entries, per_trial = {}, {}
        for algorithm in panel.algorithms:
            of = rows[rows["algorithm"] == algorithm.label]
            by_trial = of.groupby("trial", sort=True)
            average = by_trial["regret"].mean().to_numpy()
            final = by_trial["simple_regret"].last().to_numpy()
            per_trial[algorithm.label] = (average, final)
            covered = of["coverage"].dropna()
            entries[algorithm.label] = {
                "average_regret": mean_and_error(average),
                "simple_regret": mean_and_error(final),
                "coverage": float(covered.mean()) if len(covered) else None,
                "final_coverage": float(by_trial["coverage"].last().mean()) if len(covered) else None,
                "mean_width": float(of["width"].mean()) if len(covered) else None,
                "truncated": float(of["truncated"].mean()),
                "failed_pulls": int((~of["ok"]).sum()),
                "first_failed": _first_failed(of),
                "seconds": known["seconds"][algorithm.label],
            }
        comparisons = [
            {
                "pair": list(pair),
                "average_regret_saved": mean_and_error(per_trial[pair[1]][0] - per_trial[pair[0]][0]),
                "simple_regret_saved": mean_and_error(per_trial[pair[1]][1] - per_trial[pair[0]][1]),
            }
            for pair in panel.compare
        ]
        panels.append(
            {
                "name": panel.name,
                "trials": panel.trials,
                "horizon": panel.horizon,
                "notes": known["notes"],
                "algorithms": entries,
                "comparisons": comparisons,
                "warnings": _truncation_warnings(rows, known),
            }
        )
    return {"name": config.name, "description": config.description, "panels": panels}


def _first_failed(rows: pd.DataFrame) -> list[int] | None:
    """Trial and round of the first failed pull."""
    failed = rows[~rows["ok"]]
    if failed.empty:
        return None
    first = failed.sort_values(["round", "trial"]).iloc[0]
    return [int(first["trial"]), int(first["round"])]


def _truncation_warnings(rows: pd.DataFrame, known: dict[str, Any]) -> list[str]:
    """One line per algorithm in which some arm lost more than half of its rewards to truncation."""
    lines = []
    for label, of in rows.groupby("algorithm", observed=True, sort=False):
        by_arm = of.groupby("arm")["truncated"]
        lost, pulls = by_arm.sum(), by_arm.size()
        reported = lost[(lost > 0.5 * pulls) & (lost >= MIN_TRUNCATED)]
        if reported.empty:
            continue
        arm = int(reported.index.to_numpy()[reported.to_numpy().argmax()])
        name = known["arm_names"][arm] if known["arm_names"] else str(arm)
        scale = float(of.loc[of["arm"] == arm, "reward"].abs().median())
        lines.append(
            f"{label}: {len(reported)} arm(s) lost more than half of their rewards to truncation; worst is arm {name} "
            f"with {lost[arm]} of {pulls[arm]}. Final b_t = {known['level'][label]:.3g}, median |reward| of that arm = "
            f"{scale:.3g}: v (moment_bound) is too small for these rewards, or they are not centred."
        )
    return lines
