"""Where HE-GP-UCB beats its baselines: ``python -m benchmarks.elimination_map``.

Figures 2 (b) and 2 (c) of Ziomek et al. 2024 rest on a noise, a norm bound B and a width that the paper does not state.
Each line is one of their combinations: average regret of HE-GP-UCB over that of the better of MLE-GP-UCB and
ExpectedUCB, all with this width, and whether it is lower or higher by the 95 % interval of the paired difference. The
widths are the theorem's with B, and that of a finite number of arms (Srinivas et al. 2010), which knows no B.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from benchmarks.common import options, report, report_environment
from benchmarks.reproduce import MEASURES
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.statistics import mean_interval

NOISES = (0.03, 0.1, 0.3)
BOUNDS = (0.5, 2.0, 8.0)
WIDTHS: dict[str, dict[str, Any]] = {
    **{f"B {B:g}": {"kind": "self_normalized", "norm_bound": B, "delta": 0.05} for B in BOUNDS},
    "finite": {"kind": "finite", "delta": 0.05},
}
METHODS = {"HE": "he-gp-ucb", "MLE": "mle-gp-ucb", "Expected": "expected-ucb"}
PANELS: dict[str, dict[str, Any]] = {
    "period": {"problem": {"kind": "unknown_period"}, "horizon": 55, "initial": 5},
    "decomposition": {"problem": {"kind": "unknown_decomposition"}, "horizon": 50},
}


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(__doc__, (), arguments, trials=50, seed=10, workers=2)
    report_environment()
    data = {
        "name": "elimination_map",
        "trials": given.trials,
        "seed": given.seed,
        "horizon": 50,
        "methods": [
            {"name": name, "label": f"{label}, {width}", "width": spec}
            for width, spec in WIDTHS.items()
            for label, name in METHODS.items()
        ],
        "panels": [
            {**panel, "name": f"{name}, R = {R:g}", "problem": {**panel["problem"], "noise_scale": R}}
            for name, panel in PANELS.items()
            for R in NOISES
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "runs"
        runs.start(parse(data), out, workers=given.workers, console=Console(stderr=True, width=110))
        traces = pd.read_parquet(out / "traces.parquet")
    of = MEASURES["average_regret"].of
    for panel in data["panels"]:
        rows = traces[traces["panel"] == panel["name"]]
        regret = {
            label: np.array([of(trial) for _, trial in trials.groupby("trial", sort=True)])
            for label, trials in rows.groupby("method", observed=True)
        }
        for width in WIDTHS:
            he, *others = (regret[f"{label}, {width}"] for label in METHODS)
            best = min(others, key=lambda values: float(values.mean()))
            _, low, high = (float(x) for x in mean_interval(he - best, 0.95))
            word = "lower" if high < 0.0 else "higher" if low > 0.0 else "level"
            interval = [round(1.0 + x / float(best.mean()), 3) for x in (low, high)]
            detail = {"interval": interval, "verdict": word, "regret": round(float(he.mean()), 4)}
            report(f"{panel['name']}: {width}", float(he.mean() / best.mean()), "ratio", detail)


if __name__ == "__main__":
    main()
