"""Run every suite in turn and write one summary: ``python -m benchmarks.all [--full] [--only SUITE ...] [--out FILE]``.

Each suite runs in a process of its own, by default at the small options below, with ``--full`` at its own defaults.
What it prints of the form ``name, value, unit, target, met, detail`` goes to the summary, one JSON object a line, with
the suite's name in ``detail``; last comes one line per suite: its seconds, how many targets were met and missed, and
the end of what it said if it failed. The exit status is that of the suites, not of the targets.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, environment

# Options of the small run, or None where only the full one means something; FOLDER is a temporary one.
FOLDER = "FOLDER"
SMALL: dict[str, list[str] | None] = {
    "arm_engine": ["--only", "numpy", "million", "imports"],
    "asks": ["--sizes", "10,996", "--repeats", "5,5", "--fits", "", "--tools", "robust", "he-gp-ucb", "optuna"],
    "bkb": [],
    "coco": None,
    "elimination": ["--only", "overhead", "arithmetic"],
    "fine_tuning": ["--quick", "--out", FOLDER],
    "gpu": ["--quick"],
    "heavy_tails": None,
    "lnso": ["--quick"],
    "pairs": ["--only", "1 trial, n=1000, T=200", "--pairs", "5"],
    "ranks": ["--quick"],
    "reproduce": None,
    "robust_fit": ["--pairs", "5,5,5,2,1"],
    "robustness": ["--quick"],
    "slopes": [],
    "study": ["--kills", "2", "--skip-speed"],
    "torture": ["--quick"],
    "value_at_risk": ["--quick"],
    "value_at_risk_faults": ["--quick"],
    "value_at_risk_rivals": ["--quick"],
    "width_rule": ["--quick"],
}
# Seconds that a suite may take, and all of them, with the options of the small run.
LIMITS, WHOLE = {"bkb": 300.0, "slopes": 720.0}, 2400.0
# What a suite cannot do without at full size.
FULL = {"bkb": ["--full"], "coco": ["--out", FOLDER]}


def rows_of(text: str) -> list[dict[str, Any]]:
    """The results among the lines that a suite printed."""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {"name", "value", "met"} <= row.keys() and row["name"] != "environment":
            rows.append(row)
    return rows


def run(suite: str, options: list[str]) -> tuple[list[dict[str, Any]], bool]:
    """The rows of a suite, its own line last, and whether it ended well."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", f"benchmarks.{suite}", *(folder if o == FOLDER else o for o in options)]
        began = clocks()
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    rows = rows_of(done.stdout)
    for row in rows:
        row["detail"] = {"suite": suite, **(row.get("detail") or {})}
    verdicts = [row["met"] for row in rows]
    detail: dict[str, Any] = {"options": options, "met": verdicts.count(True), "missed": verdicts.count(False)}
    if done.returncode:
        detail["failed"] = done.stderr.strip()[-500:]
    limit = LIMITS.get(suite) if options == SMALL[suite] else None
    return [*rows, lasted(f"suite {suite}", began, limit, detail)], done.returncode == 0


def clocks() -> tuple[float, float]:
    """Wall seconds, and CPU seconds of the suites that have ended: those of a busy machine can be compared."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def lasted(name: str, began: tuple[float, float], limit: float | None, detail: dict[str, Any]) -> dict[str, Any]:
    """The row of something that began then and ends now."""
    seconds, detail["cpu_s"] = (round(now - then, 1) for now, then in zip(clocks(), began, strict=True))
    target, met = (None, None) if limit is None else (f"<= {limit:g}", seconds <= limit)
    return {"name": name, "value": seconds, "unit": "s", "target": target, "met": met, "detail": detail}


def main() -> None:
    """All suites, or those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="at the default options of each suite: hours")
    parser.add_argument("--only", choices=SMALL, nargs="+", default=list(SMALL))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "summary.jsonl")
    chosen = parser.parse_args()
    good, began = True, clocks()
    with chosen.out.open("w") as out:
        header = {"name": "environment", "value": 0, "unit": "none", "target": None, "met": None}
        out.write(json.dumps({**header, "detail": environment()}) + "\n")
        for suite in chosen.only:
            options = FULL.get(suite, []) if chosen.full else SMALL[suite]
            if options is None:
                continue
            rows, ended_well = run(suite, options)
            good &= ended_well
            for row in rows:
                out.write(json.dumps(row) + "\n")
            out.flush()  # what is done is not lost
            print(json.dumps(rows[-1]), flush=True)
        last = json.dumps(lasted("all suites", began, None if chosen.full else WHOLE, {"suites": len(chosen.only)}))
        out.write(last + "\n")
    print(last)
    sys.exit(not good)


if __name__ == "__main__":
    main()
