"""BoTorch's loop and its baselines, clean and contaminated: ``python -m benchmarks.robustness [options]``.

**Run.** The panels of a file of ``configs/robustness`` (``--config``), by ``--regimes`` and with the ``--methods`` of
:mod:`.grid`, as many ``--seeds`` from ``--first`` on, into one folder a regime in ``--out``; the same command again
runs what is missing. Then the trials are added to ``--results``, one JSON object a line, where a problem, regime, seed
and method is not there yet.

**Report.** Settings are chosen on Branin, Levy-4 and a bump in one dimension. Reported are the other functions
(``configs/robustness/functions.py``) and positive, skewed ones (``skewed.py``), by ``--report``; ``--picture FILE``
draws the former. These run nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import ROOT, options, report_environment
from benchmarks.panel import Panel
from benchmarks.robustness.grid import ALL, MAIN, METHODS
from benchmarks.robustness.summary import Row, summarize
from benchmarks.run import run

RESULTS = ROOT / "benchmarks" / "results" / "robustness" / "cells.jsonl"
CELL = ("problem", "regime", "seed", "method")
STEP = 5  # evaluations between two points of a curve


def load(path: Path) -> list[Row]:
    """The rows of a file, none if there is none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def rows_of(folder: Path, panels: Sequence[Panel], regime: str) -> list[Row]:
    """The trials of a finished run.

    ``regret`` is that of the recommendation at the end, in sd of f; ``curve`` are pairs of evaluations and that regret;
    ``warned`` is the evaluation after which the model last said that outliers are many, or None; ``seconds`` are those
    of the method's mean trial; ``by`` says what ran.
    """
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    about = summary["environment"]
    by = f"{about['git']}, {about['processor']}, botorch {about['versions']['botorch']}"
    panel_of: Any = {panel.name: panel for panel in panels}
    methods = {panel["name"]: panel["methods"] for panel in summary["panels"]}
    rows = []
    traces = pd.read_parquet(folder / "traces.parquet")
    names: Any
    for names, part in traces.groupby(["panel", "method", "trial"], observed=True, sort=False):
        name, method, trial = names
        panel = panel_of[name]
        regret, warned = part.set_index("round")["regret"].dropna(), part.loc[part["warned"], "round"]
        kept = [t for t in regret.index if t % STEP == 0 or t == panel.rounds]
        rows.append(
            {
                "problem": name,
                "regime": regime,
                "seed": panel.seed + trial,
                "method": method,
                "regret": float(f"{regret.iloc[-1]:.4g}"),
                "curve": [(int(t), float(f"{regret[t]:.4g}")) for t in kept],
                "evaluations": panel.rounds,
                "warned": int(warned.max()) if len(warned) else None,
                "seconds": round(methods[name][method]["seconds"], 2),
                "by": by,
            }
        )
    return rows


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
        config="functions",
        regimes=MAIN,
        methods=METHODS,
        seeds=4,
        first=0,
        out=Path("results"),
        results=RESULTS,
        report=False,
        picture=Path,
    )
    seeds = range(given.first, given.first + given.seeds)
    if not (given.report or given.picture):
        shared = {"methods": {label: METHODS[label] for label in given.methods}, "compare": ()}
        shared |= {"seed": given.first, "trials": given.seeds}
        for regime in given.regimes:
            of_config = import_module(f"configs.robustness.{given.config}").PANELS
            panels = [replace(panel, outliers=ALL[regime], **shared) for panel in of_config]
            folder = given.out / f"robustness-{given.config}-{re.sub('[^a-z0-9]+', '-', regime)}"
            run(panels, folder)
            add(rows_of(folder, panels, regime), given.results)
    if given.report:
        report_environment(results=given.results.name)
        summarize(load(given.results), seeds)
    if given.picture:
        from benchmarks.robustness.picture import draw

        draw([row for row in load(given.results) if row["seed"] in seeds], given.picture)


if __name__ == "__main__":
    main()
