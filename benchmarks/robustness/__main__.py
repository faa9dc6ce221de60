"""Loops on contaminated problems, model against model: ``python -m benchmarks.robustness [options]``.

**Play.** A cell is a problem, a regime, a seed and a method. All methods of a (problem, regime, seed) share the initial
design (2 d + 2 points), and the noise and contamination of each evaluation by its number. All models share one
acquisition and one search: ``--acquisition cheap`` (log expected improvement over the best posterior mean, 640 points
and L-BFGS) or ``qlognei``, BoTorch's default, some ten times as slow. Optuna's and Ax' peers have loops of their own.
Functions have 20 d evaluations and noise of sd .1, tables 60; all is in sd of f. The recommendation is the measured
point of the best posterior mean; its regret is without noise. Finished cells are appended to ``--results``, one JSON
object a line, and are not played again.

**Choose and report.** Settings are chosen on Branin, Hartmann-3, Levy-4 and Michalewicz-5 with seeds from 100
(``--half choose``), and the best peer too; reported are Hartmann-6, Ackley-2, Levy-2 and Rosenbrock-2 with seeds from 0
(``--half report``), and the tables with seeds from 0. ``--report`` prints the comparison of what has been played,
``--picture FILE`` draws it; both play nothing. ``--quick`` plays half a minute's worth into a temporary
file and reports.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, environment, report
from benchmarks.grid import load, play
from benchmarks.robustness.contamination import REGIMES
from benchmarks.robustness.grid import NAMES, cells, work
from benchmarks.robustness.loop import ACQUISITIONS
from benchmarks.robustness.models import METHODS
from benchmarks.robustness.problems import FUNCTIONS, LAB, PROBLEMS, TUNING
from benchmarks.robustness.samplers import SAMPLERS
from benchmarks.robustness.split import FIRST_SEED, HALVES
from benchmarks.robustness.summary import summarise

RESULTS = ROOT / "benchmarks" / "results" / "robustness" / "cells.jsonl"
QUICK: dict[str, Any] = {
    "problems": ["levy2", "ackley2"],
    "regimes": ["none", "10% 3sd good"],
    "seeds": 2,
    "evaluations": 15,
    "half": None,
}
QUICK_METHODS = ["plain", "known", "winsorised-both", "rcgp", "robust", "tpe"]


def main() -> None:
    """Play, report or draw."""
    everyone = [*METHODS, *SAMPLERS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", "--functions", nargs="+", choices=PROBLEMS, help="all functions by default")
    parser.add_argument("--lab", action="store_true", help="the five laboratory tables")
    parser.add_argument("--tuning", action="store_true", help="the two tables of hyperparameter tuning")
    parser.add_argument("--regimes", nargs="+", choices=list(REGIMES), help="all by default")
    parser.add_argument("--seeds", type=int, default=20, help="their number")
    parser.add_argument("--half", choices=list(HALVES), help="its functions and first seed; default: seeds from 0")
    parser.add_argument("--methods", nargs="+", choices=everyone, default=everyone)
    parser.add_argument("--acquisition", choices=list(ACQUISITIONS), default="cheap")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--evaluations", type=int, help="instead of the problem's own number, for trials")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK, results=Path(tempfile.mkdtemp()) / "cells.jsonl")
        options.methods = QUICK_METHODS if options.methods == everyone else options.methods
    report("environment", 0, "none", None, None, environment() | {"results": str(options.results)})
    if not (options.report or options.picture):
        problems = options.problems or [
            *(LAB if options.lab else ()),
            *(TUNING if options.tuning else ()),
        ]
        problems = problems or list(HALVES[options.half] if options.half else FUNCTIONS)
        first = FIRST_SEED[options.half] if options.half else 0
        todo = cells(
            problems, options.regimes, range(first, first + options.seeds), options.methods, options.acquisition
        )
        one = functools.partial(work, budget=options.evaluations)
        began, played, failed = time.monotonic(), 0, 0
        for row in play(todo, NAMES, one, options.results, options.workers):
            played, failed = played + ("error" not in row), failed + ("error" in row)
            shown = {name: value for name, value in row.items() if name != "curve"}
            report("failed cell" if "error" in row else "cell", row.get("regret", 0.0), "sd of f", None, None, shown)
        wall = round(time.monotonic() - began)
        report("played", played, "cells", None, None, {"asked": len(todo), "failed": failed, "wall_s": wall})
    if options.report or options.quick:
        for line in summarise(load(options.results), options.acquisition):
            report(**line)
    if options.picture:
        from benchmarks.robustness.picture import draw

        draw(load(options.results), options.acquisition, options.picture)


if __name__ == "__main__":
    main()
