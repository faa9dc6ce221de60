"""Loops on clean and contaminated problems: ``python -m benchmarks.robustness [options]``.

**Run.** A cell is a problem, a regime, a seed and a method, which is an entry point: see ``loops.py``. All methods of a
(problem, regime, seed) share the initial design (2 d + 2 points), and the noise and faults of each evaluation by its
number; a reading to verify is an evaluation. There are 40 evaluations with noise of sd .1; all is in sd of f. Finished
cells are appended to ``--results`` at once, one JSON object a line, and are not played again. So the grid may be
stopped at any moment: by a signal, or after ``--budget`` minutes. For two processes start it twice, with ``--part 1/2``
and ``--part 2/2``. The whole grid, three regimes and four seeds, takes some 2.5 CPU hours.

**Choose and report.** Settings are chosen on Branin, Levy-4 and a bump in one dimension. Reported are the other
functions, by ``--report``, which says too what is missing; ``--picture FILE`` draws them. ``--against FILE`` compares
our loops with those of another revision, run on the same machine into FILE. These run nothing.
``--quick`` runs half a minute's worth into a temporary file and reports.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.common import ROOT, environment, report
from benchmarks.grid import load, play
from benchmarks.robustness.campaign import NAMES, campaign, cells
from benchmarks.robustness.contamination import MAIN, REGIMES
from benchmarks.robustness.loops import GRID, LOOPS
from benchmarks.robustness.problems import BUDGET, FUNCTIONS, PROBLEMS, SETTINGS
from benchmarks.robustness.summary import revisions, summarise

RESULTS = ROOT / "benchmarks" / "results" / "robustness" / "cells.jsonl"
REPORTED = [name for name in FUNCTIONS if name not in SETTINGS]


def main() -> None:
    """Play, report or draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=REPORTED, help="default: all reported")
    parser.add_argument("--regimes", nargs="+", choices=list(REGIMES), default=list(MAIN))
    parser.add_argument("--methods", nargs="+", choices=list(LOOPS), default=list(GRID))
    parser.add_argument("--seeds", type=int, default=4, help="their number")
    parser.add_argument("--first", type=int, default=0, help="seed; settings are chosen on others than the reported")
    parser.add_argument("--evaluations", type=int, default=BUDGET, help="for trials")
    parser.add_argument("--budget", type=float, default=float("inf"), help="minutes; no cell is begun after them")
    parser.add_argument("--part", default="1/1", help="which of how many processes this is")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    if options.quick:
        quick = {"problems": ["bump2"], "regimes": ["clean", "10% 10sd either"], "seeds": 1, "evaluations": 12}
        vars(options).update(quick, results=Path(tempfile.mkdtemp()) / "cells.jsonl")
    torch.set_num_threads(1)
    report("environment", 0, "none", None, None, environment() | {"results": options.results.name})
    seeds = range(options.first, options.first + options.seeds)
    until = time.monotonic() + 60.0 * options.budget
    if not (options.report or options.picture or options.against):
        part, parts = map(int, options.part.split("/"))
        todo = cells(options.problems, options.regimes, seeds, options.methods, part - 1, parts)
        one = functools.partial(campaign, budget=options.evaluations)
        for row in play(todo, NAMES, one, options.results):
            report("failed cell" if "error" in row else "cell", row.get("regret", 0.0), "sd of f", None, None, row)
            if time.monotonic() > until:
                break
    if options.report or options.quick:
        for line in summarise(load(options.results), seeds):
            report(**line)
    if options.against:
        for line in revisions(load(options.results), load(options.against)):
            report(**line)
    if options.picture:
        from benchmarks.robustness.picture import draw

        draw([row for row in load(options.results) if row["seed"] in seeds], options.picture)


if __name__ == "__main__":
    main()
