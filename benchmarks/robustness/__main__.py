"""BoTorch's loop and its baselines, clean and contaminated: ``python -m benchmarks.robustness [options]``.

**Run.** The panels of a configuration, by regime and with the methods of :data:`.methods.GRID`, into one folder a
regime; the same command again runs what is missing. Then the trials are added to ``--results``, one JSON object a
line, where a problem, regime, seed and method is not there yet. ``--add`` adds finished runs of ``bo-robust run``.

**Report.** Settings are chosen on Branin, Levy-4 and a bump in one dimension. Reported are the other functions
(``configs/robustness/functions.yaml``), by ``--report``; ``--picture FILE`` draws them. These run nothing.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.common import ROOT, report, report_environment
from benchmarks.grid import Row, load
from benchmarks.robustness.methods import GRID, register
from benchmarks.robustness.summary import MAIN, REGIMES, summarise
from bo_robust.experiments.files import load_config
from bo_robust.experiments.run import start

RESULTS = ROOT / "benchmarks" / "results" / "robustness" / "cells.jsonl"
CELL = ("problem", "regime", "seed", "method")
STEP = 5  # evaluations between two points of a curve


def rows_of(folder: Path) -> list[Row]:
    """The trials of a finished run.

    ``regret`` is that of the recommendation at the end, in sd of f; ``curve`` are pairs of evaluations and that regret;
    ``warned`` is the evaluation after which the model last said that outliers are many, or None; ``seconds`` are those
    of the method's mean trial; ``by`` says what ran.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    by = ", ".join(
        [str(summary["commit"]), summary["machine"]["processor"], f"botorch {summary['versions']['botorch']}"]
    )
    problems = {panel["name"]: panel for panel in summary["config"]["panels"]}
    took = {
        (panel["name"], label): m["seconds"] for panel in summary["panels"] for label, m in panel["methods"].items()
    }
    rows = []
    traces = pd.read_parquet(folder / "traces.parquet")
    for (panel, method, trial), part in traces.groupby(["panel", "method", "trial"], observed=True, sort=False):
        config = problems[panel]
        regret, warned = part.set_index("round")["regret"].dropna(), part.loc[part["warned"], "round"]
        kept = [t for t in regret.index if t % STEP == 0 or t == config["horizon"]]
        cell = (_problem(config["problem"]), _regime(config["outliers"]), config["seed"] + trial, method)
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "regret": float(f"{regret.iloc[-1]:.4g}"),
                "curve": [(int(t), float(f"{regret[t]:.4g}")) for t in kept],
                "evaluations": config["horizon"],
                "warned": int(warned.max()) if len(warned) else None,
                "seconds": round(took[panel, method], 2),
                "by": by,
            }
        )
    return rows


def _problem(problem: dict[str, Any]) -> str:
    return str(problem.get("function") or problem.get("table", "suzuki"))


def _regime(outliers: dict[str, Any] | None) -> str:
    """The name of a regime in a configuration whose defaults are filled in."""
    for name, known in REGIMES.items():
        if (known or {}).items() <= (outliers or {}).items() and bool(known) == bool(outliers):
            return name
    return json.dumps(outliers)


def add(rows: list[Row], path: Path) -> None:
    """Append the rows whose cell is not in the file yet."""
    there = {tuple(row[name] for name in CELL) for row in load(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            if tuple(row[name] for name in CELL) not in there:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run, report or draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="robustness/functions", help="name or file")
    parser.add_argument("--regimes", nargs="+", choices=list(REGIMES), default=list(MAIN))
    parser.add_argument("--methods", nargs="+", choices=list(GRID), default=list(GRID))
    parser.add_argument("--seeds", type=int, default=4, help="their number")
    parser.add_argument("--first", type=int, default=0, help="seed; settings are chosen on others than the reported")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--add", type=Path, nargs="+", help="result folders")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(options.first, options.first + options.seeds)
    for folder in options.add or ():
        add(rows_of(folder), options.results)
    if not (options.add or options.report or options.picture):
        register()
        methods = [{**GRID[label], "label": label} for label in options.methods]
        for regime in options.regimes:
            given = {"outliers": REGIMES[regime], "methods": methods, "compare": [], "seed": options.first}
            settings = [f"{key}={json.dumps(value)}" for key, value in given.items()]
            config = load_config(options.config, settings, trials=options.seeds)
            folder = options.out / f"{config.name}-{re.sub('[^a-z0-9]+', '-', regime)}"
            start(config, folder)
            add(rows_of(folder), options.results)
    if options.report:
        report_environment(results=options.results.name)
        for line in summarise(load(options.results), seeds):
            report(**line)
    if options.picture:
        from benchmarks.robustness.picture import draw

        draw([row for row in load(options.results) if row["seed"] in seeds], options.picture)


if __name__ == "__main__":
    main()
