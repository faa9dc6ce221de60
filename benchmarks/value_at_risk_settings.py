"""Which setting of V-UCB: ``python -m benchmarks.value_at_risk_settings --part choose|report [--repetitions N]``.

One JSON line for each problem, method and repetition is appended to ``--out``; lines that are there are not played
again. ``--summary`` prints paired differences and draws the picture. 30 rounds, refits every third round.

The rule, stated before any run: of the settings in ``CHOICES``, the one with the smallest mean over the problems of
``choose`` of log10 regret (floor 1e-3) over the curve, rounds 1 to 30. It is then compared on the problems of
``report``, whose seeds are others too.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from bo_robust.experiments.config import ValueAtRiskPanelConfig
from bo_robust.experiments.parsing import parse
from bo_robust.experiments.value_at_risk.job import build_problem
from bo_robust.experiments.value_at_risk.methods import build_method
from bo_robust.experiments.value_at_risk.play import play

ROUNDS = 30
PRIOR = {"name": "v-ucb", "prior": True}
CHOICES: dict[str, dict[str, Any]] = {
    "paper": {"name": "v-ucb-prob"},
    "likelihood": {"name": "v-ucb"},
    "likelihood, 4 starts": {"name": "v-ucb", "starts": 4},
    "likelihood, unstuck": {"name": "v-ucb", "patience": 5},
    "prior": PRIOR,
    "prior, unstuck": PRIOR | {"patience": 5},
    "prior, cap": PRIOR | {"max_lengthscale": 0.3},
    "prior, widest": PRIOR | {"rule": "widest"},
    "prior, uniform": PRIOR | {"rule": "uniform"},
    "prior, informative": PRIOR | {"rule": "informative"},
    "prior, cap, informative": PRIOR | {"max_lengthscale": 0.3, "rule": "informative"},
    "elimination": PRIOR | {"candidates": True},
    "likely": PRIOR | {"candidates": True, "plausible": 0.1},
    "likely, informative": PRIOR | {"candidates": True, "plausible": 0.1, "rule": "informative"},
}
PEERS: dict[str, dict[str, Any]] = {
    "MC-VaR": {"name": "mc-var"},
    "NEI over VaR": {"name": "nei-var"},
    "random": {"name": "random"},
}
PROBLEMS = {
    "choose": ["branin", "goldstein_price", "hartmann3_21"],
    "report": ["hartmann3_12", "hartmann3_12 continuous", "portfolio"],
}
SEEDS = {"choose": 1, "report": 0}


def panel_of(problem: str, part: str, method: dict[str, Any]) -> ValueAtRiskPanelConfig:
    """The panel of one problem and method."""
    kind, *z = problem.split()
    spec = {"kind": kind} | ({"z": z[0]} if z else {})
    config = {"loop": "value_at_risk", "rounds": ROUNDS, "seed": SEEDS[part], "methods": [method]}
    panel = parse({**config, "panels": [{"name": problem, "problem": spec}]}).panels[0]
    assert isinstance(panel, ValueAtRiskPanelConfig)
    return panel


def run(part: str, methods: list[str], problems: list[str], repetitions: range, out: Path) -> None:
    """Play what is missing, repetition by repetition, so that whatever is there can be compared."""
    known = {(r["problem"], r["method"], r["repetition"], r["seed"]) for r in read(out)}
    data = os.environ.get("BO_ROBUST_DATA")
    specs, made = CHOICES | PEERS, {}
    for repetition in repetitions:
        for problem in problems:
            for method in methods:
                if (problem, method, repetition, SEEDS[part]) in known:
                    continue
                panel = panel_of(problem, part, specs[method])
                if problem not in made:
                    made[problem] = build_problem(panel, None if data is None else Path(data), "cpu")
                began = time.process_time()
                chosen = panel.methods[0]
                rows = play(made[problem], build_method(chosen.name, chosen.options), panel, repetition)
                line = {
                    "problem": problem,
                    "method": method,
                    "repetition": repetition,
                    "seed": SEEDS[part],
                    "regret": [round(x, 6) for x in rows["regret"]],
                    "lower_regret": [round(x, 6) for x in rows["lower_regret"]],
                    "certificate_held": sum(c >= r for c, r in zip(rows["certificate"], rows["regret"], strict=True)),
                    "stuck": sum(rows["stuck"]),
                    "failed_fits": rows["fit_ok"].count(False),
                    "seconds": round(time.process_time() - began, 2),
                }
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Play, or summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=tuple(PROBLEMS), default="choose")
    parser.add_argument("--methods", help="labels, separated by ';'; default all settings")
    parser.add_argument("--problems", help="separated by ';'; default those of the part")
    parser.add_argument("--first", type=int, default=0, help="the first repetition")
    parser.add_argument("--repetitions", type=int, default=10, help="one more than the last repetition")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/settings.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of jitter, and of candidates none of which fits
    methods = arguments.methods.split(";") if arguments.methods else list(CHOICES)
    problems = arguments.problems.split(";") if arguments.problems else PROBLEMS[arguments.part]
    run(arguments.part, methods, problems, range(arguments.first, arguments.repetitions), arguments.out)


if __name__ == "__main__":
    main()
