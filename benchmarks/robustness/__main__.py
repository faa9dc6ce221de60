"""BoTorch's loop and its baselines, clean and contaminated: ``python -m benchmarks.robustness [options]``.

**Run.** The panels of a configuration (``--config``, a name or a file), by ``--regimes`` and with the ``--methods`` of
:data:`.methods.GRID`, as many ``--seeds`` from ``--first`` on, into one folder a regime in ``--out``; the same command
again runs what is missing. Then the trials are added to ``--results``, one JSON object a line, where a problem, regime,
seed and method is not there yet.

**Report.** Settings are chosen on Branin, Levy-4 and a bump in one dimension. Reported are the other functions
(``configs/robustness/functions.yaml``), by ``--report``; ``--picture FILE`` draws them. These run nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import ROOT, options, report_environment
from benchmarks.robustness.methods import GRID, register
from benchmarks.robustness.summary import MAIN, REGIMES, Row, summarize
from bo_robust.experiments.files import load_config
from bo_robust.experiments.run import start

RESULTS = ROOT / "benchmarks" / "results" / "robustness" / "cells.jsonl"
CELL = ("problem", "regime", "seed", "method")
STEP = 5  # evaluations between two points of a curve


def load(path: Path) -> list[Row]:
    """The rows of a file, none if there is none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def rows_of(folder: Path) -> list[Row]:
    """The trials of a finished run.

    ``regret`` is that of the recommendation at the end, in sd of f; ``curve`` are pairs of evaluations and that regret;
    ``warned`` is the evaluation after which the model last said that outliers are many, or None; ``seconds`` are those
    of the method's mean trial; ``by`` says what ran.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    by = f"{summary['commit']}, {summary['machine']['processor']}, botorch {summary['versions']['botorch']}"
    problems = {panel["name"]: panel for panel in summary["config"]["panels"]}
    methods = {panel["name"]: panel["methods"] for panel in summary["panels"]}
    rows = []
    traces = pd.read_parquet(folder / "traces.parquet")
    for (panel, method, trial), part in traces.groupby(["panel", "method", "trial"], observed=True, sort=False):
        config = problems[panel]
        problem: dict[str, Any] = config["problem"]
        regret, warned = part.set_index("round")["regret"].dropna(), part.loc[part["warned"], "round"]
        kept = [t for t in regret.index if t % STEP == 0 or t == config["horizon"]]
        rows.append(
            {
                "problem": problem.get("function") or problem.get("table", "suzuki"),
                "regime": _regime(config["outliers"]),
                "seed": config["seed"] + trial,
                "method": method,
                "regret": float(f"{regret.iloc[-1]:.4g}"),
                "curve": [(int(t), float(f"{regret[t]:.4g}")) for t in kept],
                "evaluations": config["horizon"],
                "warned": int(warned.max()) if len(warned) else None,
                "seconds": round(methods[panel][method]["seconds"], 2),
                "by": by,
            }
        )
    return rows


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
    given = options(
        __doc__,
        config="robustness/functions",
        regimes=MAIN,
        methods=GRID,
        seeds=4,
        first=0,
        out=Path("results"),
        results=RESULTS,
        report=False,
        picture=Path,
    )
    seeds = range(given.first, given.first + given.seeds)
    if not (given.report or given.picture):
        register()
        methods = [{**GRID[label], "label": label} for label in given.methods]
        for regime in given.regimes:
            settings = {"outliers": REGIMES[regime], "methods": methods, "compare": [], "seed": given.first}
            texts = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
            config = load_config(given.config, texts, trials=given.seeds)
            folder = given.out / f"{config.name}-{re.sub('[^a-z0-9]+', '-', regime)}"
            start(config, folder)
            add(rows_of(folder), given.results)
    if given.report:
        report_environment(results=given.results.name)
        summarize(load(given.results), seeds)
    if given.picture:
        from benchmarks.robustness.picture import draw

        draw([row for row in load(given.results) if row["seed"] in seeds], given.picture)


if __name__ == "__main__":
    main()
