"""From traces to numbers: the parts of all algorithms, the joined table, and the summary."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor

from bo_robust.problems import Problem
from bo_robust.runner.checkpoint import write_bytes
from bo_robust.runner.config import PanelConfig, RunConfig
from bo_robust.runner.dictionaries import DICTIONARY_COLUMNS
from bo_robust.runner.eliminations import elimination_warnings, summarise_eliminations
from bo_robust.runner.errors import RunError
from bo_robust.runner.loop import Traces

__all__ = [
    "collect",
    "load_final",
    "load_part",
    "load_parts",
    "mean_and_error",
    "parquet_bytes",
    "part_path",
    "summarise",
    "traces_frame",
    "write_frame",
]

OF_ALL = ("seconds", "level", "notes", "arm_names")  # facts of every part, whatever version wrote it
# An arm is reported when more than half of its rewards, and at least so many, were set to zero.
MIN_TRUNCATED = 3
MEASURES = {"average_regret": "mean", "simple_regret": "last"}


def part_path(folder: Path, panel: int, algorithm: int) -> Path:
    """Where the finished traces of one algorithm of one panel lie."""
    return folder / "parts" / f"{panel:02d}-{algorithm:02d}.parquet"


def traces_frame(traces: Traces, problem: Problem, panel: str, label: str, trials: Sequence[int]) -> pd.DataFrame:
    """Long format, one row per trial and round, ordered by trial then round (rounds count from 1).

    Of algorithms with a dictionary it has two columns more, :data:`bo_robust.runner.dictionaries.DICTIONARY_COLUMNS`.
    """
    f, optimum = problem.f.cpu(), problem.optimum.cpu()
    host = {k: v[: traces.rounds].cpu() for k, v in traces.tensors().items()}
    T, s = host["arms"].shape
    columns = {
        "arm": host["arms"],
        "reward": host["rewards"],
        "regret": optimum - f.gather(1, host["arms"].long().T).T,
        "recommended": host["recommended"],
        "simple_regret": optimum - f.gather(1, host["recommended"].long().T).T,
        "width": host["width"],
        "coverage": host["coverage"].float(),
        "truncated": host["truncated"],
        "ok": host["ok"],
    }
    columns |= {name: host[name] for name in DICTIONARY_COLUMNS if name in host}
    frame = pd.DataFrame({k: v.T.reshape(-1).numpy() for k, v in columns.items()})
    frame.insert(0, "round", np.tile(np.arange(1, T + 1, dtype=np.int32), s))
    frame.insert(0, "trial", np.repeat(np.asarray(trials, dtype=np.int32), T))
    frame.insert(0, "algorithm", label)
    frame.insert(0, "panel", panel)
    return frame.astype({"panel": "category", "algorithm": "category"})


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """A parquet file of a table."""
    table = io.BytesIO()
    frame.to_parquet(table, index=False, compression="zstd")
    return table.getvalue()


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write parquet atomically."""
    write_bytes(parquet_bytes(frame), path)


def load_parts(folder: Path, config: RunConfig) -> tuple[pd.DataFrame, dict[str, Any]]:
    """All traces of a finished run, and per panel what :func:`collect` makes of the facts of its parts.

    Raises:
        RunError: when a part is missing, damaged or of another run.
    """
    frames, facts = [], {}
    for i, panel in enumerate(config.panels):
        known: dict[str, Any] = {}
        for j, algorithm in enumerate(panel.algorithms):
            if not part_path(folder, i, j).exists():
                raise RunError(
                    f"{folder} has no results of {algorithm.label} in panel {panel.name!r} yet; `bo-robust resume "
                    f"{folder}` finishes the run."
                )
            frame, one = load_part(folder, i, j, panel)
            collect(known, algorithm.label, one)
            frames.append(frame)
        facts[panel.name] = known
    joined = pd.concat(frames, ignore_index=True)
    return joined.astype({"panel": "category", "algorithm": "category"}), facts


def load_part(folder: Path, i: int, j: int, panel: PanelConfig) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Traces and facts of algorithm ``j`` of panel ``i``; facts that earlier versions did not store are None.

    Raises:
        RunError: when the part is damaged or of another run.
    """
    path, label = part_path(folder, i, j), panel.algorithms[j].label
    try:
        frame = pd.read_parquet(path).astype({"panel": str, "algorithm": str})
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        facts = {name: facts[name] for name in OF_ALL} | {"eliminations": None, "dictionary": None} | facts
        whole = len(frame) == panel.trials * panel.horizon
        if not whole or {*frame["panel"]} != {panel.name} or {*frame["algorithm"]} != {label}:
            raise ValueError("it holds other rows than this run's")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, path, error) from None
    return frame, facts


def collect(known: dict[str, Any], label: str, facts: dict[str, Any]) -> None:
    """Add the facts of a part to those of its panel.

    ``notes`` and ``arm_names`` are the panel's; by label: ``seconds``, ``level``, ``eliminations``
    (:func:`bo_robust.runner.eliminations.elimination_facts`), ``dictionary``
    (:func:`bo_robust.runner.dictionaries.dictionary_facts`).
    """
    known |= {name: facts[name] for name in ("notes", "arm_names")}
    for name in ("seconds", "level", "eliminations", "dictionary"):
        known.setdefault(name, {})[label] = facts[name]


def load_final(folder: Path, panel: int, algorithm: int) -> dict[str, Tensor]:
    """Final mean, reach (width times sigma) and f of the worst-covered trial.

    Raises:
        RunError: when the file is missing or damaged.
    """
    path = part_path(folder, panel, algorithm)
    try:
        return load_file(path.with_suffix(".safetensors"))
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, path, error) from None


def _damaged(folder: Path, path: Path, error: Exception) -> RunError:
    """What to raise where a part of a run over arms, at ``path``, cannot be read."""
    reason = " ".join(str(error).split())
    return RunError(
        f"{path.with_suffix('.*')} is damaged ({reason}); delete these files and `bo-robust resume {folder}` plays "
        "that algorithm again."
    )


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error over trials; a single trial has no error."""
    mean = float(np.mean(values))
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Paired difference ours - theirs with its standard error, and whether it is significant (t test, 5 %)."""
    mean, error = mean_and_error(ours - theirs)
    significant = error is not None and abs(mean) > float(stats.t.ppf(0.975, len(ours) - 1)) * error
    return {"mean": mean, "error": error, "significant": significant}


def summarise(config: RunConfig, traces: pd.DataFrame, facts: dict[str, Any]) -> dict[str, Any]:
    """Numbers of every panel and algorithm, comparisons and warnings, as plain data (arguments: :func:`load_parts`)."""
    panels = [
        _summarise_panel(panel, traces[traces["panel"] == panel.name], facts[panel.name]) for panel in config.panels
    ]
    return {"name": config.name, "description": config.description, "panels": panels}


def _summarise_panel(panel: PanelConfig, rows: pd.DataFrame, known: dict[str, Any]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    by_measure: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in MEASURES}
    for algorithm in panel.algorithms:
        of = rows[rows["algorithm"] == algorithm.label]
        by_trial = of.groupby("trial", sort=True)
        by_measure["average_regret"][algorithm.label] = by_trial["regret"].mean().to_numpy()
        by_measure["simple_regret"][algorithm.label] = by_trial["simple_regret"].last().to_numpy()
        with_width = bool(of["width"].notna().any())
        entries[algorithm.label] = {
            **{measure: mean_and_error(values[algorithm.label]) for measure, values in by_measure.items()},
            "coverage": float(of["coverage"].mean()) if with_width else None,
            "final_coverage": float(by_trial["coverage"].last().mean()) if with_width else None,
            "mean_width": float(of["width"].mean()) if with_width else None,
            "truncated": float(of["truncated"].mean()),
            "failed_pulls": int((~of["ok"]).sum()),
            "first_failed": _first_failed(of),
            "seconds": known["seconds"][algorithm.label],
            "eliminations": summarise_eliminations(known["eliminations"][algorithm.label], panel.trials),
        }
    average = by_measure["average_regret"]
    best = min(average, key=lambda label: average[label].mean())
    against_best = {label: _difference(average[label], average[best]) for label in average if label != best}
    random = [a.label for a in panel.algorithms if a.name == "random"]
    others = [label for label in average if label not in random]
    useless = [
        label
        for label in others
        for baseline in random
        if not ((d := _difference(average[label], average[baseline]))["significant"] and d["mean"] < 0)
    ]
    return {
        "name": panel.name,
        "trials": panel.trials,
        "horizon": panel.horizon,
        "delta": panel.delta,
        "notes": known["notes"],
        "algorithms": entries,
        "best": best,
        "not_distinguishable_from_best": [label for label, d in against_best.items() if not d["significant"]],
        "no_better_than_random": useless,
        "comparisons": [
            {"pair": list(pair), **{m: _difference(v[pair[0]], v[pair[1]]) for m, v in by_measure.items()}}
            for pair in panel.compare
        ],
        "warnings": [
            *_truncation_warnings(rows, known, {a.label: a.name for a in panel.algorithms}),
            *elimination_warnings({label: entry["eliminations"] for label, entry in entries.items()}, panel),
        ],
    }


def _first_failed(rows: pd.DataFrame) -> list[int] | None:
    """Trial and round of the first failed pull."""
    failed = rows[~rows["ok"]]
    if failed.empty:
        return None
    first = failed.sort_values(["round", "trial"]).iloc[0]
    return [int(first["trial"]), int(first["round"])]


def _truncation_warnings(rows: pd.DataFrame, known: dict[str, Any], names: dict[str, str]) -> list[str]:
    """One line per algorithm that lost more than half of an arm's, or of all, rewards to truncation.

    Of ATA's, whose truncated rewards may come back, only if more than half of all were lost in their own round.
    """
    lines = []
    for label, of in rows.groupby("algorithm", observed=True, sort=False):
        by_arm = of.groupby("arm")["truncated"]
        lost, pulls = by_arm.sum(), by_arm.size()
        most = lost[lost > 0.5 * pulls]
        share = float(of["truncated"].mean())
        if names[str(label)] == "ata-gp-ucb":
            if share > 0.5:
                lines.append(
                    f"{label}: {100 * share:.3g} % of all rewards lost more than half of their weight in their own "
                    f"round. Final b_t = {known['level'][label]:.3g} (for u y with |u| <= 1), median |reward| = "
                    f"{float(of['reward'].abs().median()):.3g}: v (moment_bound) is too small for these rewards."
                )
            continue
        if share <= 0.5:
            most = most[most >= MIN_TRUNCATED]
        if most.empty:
            continue
        arm = int(most.index.to_numpy()[most.to_numpy().argmax()])
        name = known["arm_names"][arm] if known["arm_names"] else str(arm)
        scale = float(of.loc[of["arm"] == arm, "reward"].abs().median())
        lines.append(
            f"{label}: {len(most)} of {len(pulls)} arms pulled lost more than half of their rewards to truncation "
            f"({100 * share:.3g} % of all rewards); the most in number is arm {name} with {lost[arm]} of {pulls[arm]}. "
            f"Final b_t = {known['level'][label]:.3g}, median |reward| of that arm = {scale:.3g}: v (moment_bound) is "
            "too small for these rewards, or they are not centred."
        )
    return lines
