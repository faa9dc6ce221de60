"""Which width do we recommend? One rule over both suites: ``python -m benchmarks.width_rule [--quick]``.

Rule: every candidate plays every panel of configs/srinivas (GP-UCB) and configs/heavy_tails (TGP-UCB with the theorem's
truncation; at most 20 trials and 3000 rounds, one seed). In each panel its average regret is
divided by that of the panel's best candidate; the recommendation is the smallest geometric mean of these ratios.
Coverage is reported beside it. Prints one JSON object a line.

The recommendation is chosen and reported on the same runs of one seed, and the panel's best candidate is a noisy
minimum: the ratios are optimistic for the winner, and small differences between candidates mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.common import ROOT, environment, report
from bo_robust.confidence.base import EXPLORING
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import Panel, PanelMethod, RunConfig
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.files import load_config

CANDIDATES: dict[str, dict[str, Any]] = {
    "Theorem 1": {"kind": "finite"},
    "Theorem 1, w^2/5": {"kind": "finite", "scale": EXPLORING},
    "Theorem 1, w^2/20": {"kind": "finite", "scale": 20.0**-0.5},
    "IRGP": {"kind": "randomised"},
    "IRGP, w^2/5": {"kind": "randomised", "scale": EXPLORING},
    "constant 1": {"kind": "constant", "value": 1.0},
    "constant 2": {"kind": "constant", "value": 2.0},
    "constant 3": {"kind": "constant", "value": 3.0},
}


def panels(trials: int, rounds: int) -> list[Panel]:
    """Every panel of both suites, with the candidates in place of its algorithms."""
    found = []
    suites = {"heavy_tails": "tgp-ucb", "srinivas": "gp-ucb"}
    paths = [path for suite in suites for path in sorted((ROOT / "configs" / suite).glob("*.yaml"))]
    for path in paths:
        if path.stem.startswith("smoke"):
            continue
        config = load_config(path)
        for panel in config.panels:
            methods = tuple(
                PanelMethod.model_validate({"name": suites[path.parent.name], "label": label, "width": width})
                for label, width in CANDIDATES.items()
            )
            changes = {"trials": min(panel.trials, trials), "horizon": min(panel.horizon, rounds), "intervals": False}
            found.append(panel.with_methods(methods, **changes))
    return found


def main() -> None:
    """Play, divide, average, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--quick", action="store_true", help="two trials of 50 rounds")
    options = parser.parse_args()
    played = panels(2, 50) if options.quick else panels(20, 3000)
    torch.set_num_threads(1)
    print(json.dumps({"environment": environment()}), flush=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            config = RunConfig(name="width_rule", panels=tuple(played))
            console = Console(stderr=True, width=110)
            # start builds every panel for one trial before it plays the first: missing data shows at once.
            summary = runs.start(config, Path(scratch) / "run", data_dir=options.data_dir, console=console)
    except RunError as error:
        print(f"width_rule: {error}", file=sys.stderr)
        sys.exit(2)
    ratios: dict[str, list[float]] = {label: [] for label in CANDIDATES}
    for panel in summary["panels"]:
        regret = {label: entry["average_regret"][0] for label, entry in panel["methods"].items()}
        best = min(regret.values())
        for label, value in regret.items():
            ratios[label].append(value / best)
    means = {label: math.exp(sum(map(math.log, r)) / len(r)) for label, r in ratios.items()}
    names = [panel["name"] for panel in summary["panels"]]
    for label, mean in sorted(means.items(), key=lambda item: item[1]):
        coverage = [panel["methods"][label]["coverage"] for panel in summary["panels"]]
        report(
            f"width {label}",
            mean,
            "geometric mean of regret over the panel's best",
            None,
            None,
            {
                "recommended": mean == min(means.values()),
                "worst": round(max(ratios[label]), 2),
                "mean_coverage": round(sum(coverage) / len(coverage), 3),
                "per_panel": {n: round(r, 2) for n, r in zip(names, ratios[label], strict=True)},
            },
        )


if __name__ == "__main__":
    main()
