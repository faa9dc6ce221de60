"""V-UCB against its rivals: ``python -m benchmarks.value_at_risk_rivals [--repetitions N] [--summary] [--quick]``.

The default ``v-ucb`` of runs and rivals in the same runs: the same initial points, noise and refits, 30 rounds. "Study"
is a study with ``v-ucb`` and no setting: the same noise and as many readings, but a design of its own, and of a
continuous Z it takes the points of the environment. Regret is that of what is recommended after each round, 1e-3 at
least. One JSON line for each cell is appended to ``--out``; lines that are there are not played again.

The reach, stated before these runs: V-UCB is below a rival on every problem, significantly on at least 6 of the bumpy
and 2 of the smooth ones.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import LEAST
from benchmarks.value_at_risk_faults import compared, play_study
from bo_robust.experiments.conditions.methods import build_method
from bo_robust.experiments.conditions_loop import play_trial
from bo_robust.experiments.config import parse
from bo_robust.experiments.problems import make_conditions_problem
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.experiments.summary import log_regret
from bo_robust.random import stream

ROUNDS = 30
METHODS = OURS, *RIVALS = ["v-ucb", "MC-VaR", "NEI over VaR", "knowledge gradient", "random", "Study"]
KINDS = dict(zip(METHODS, ("v-ucb", "mc-var", "nei-var", "rho-kg-apx", "random"), strict=False))  # in runs
# Problems with their seeds, on which no setting was ever chosen.
FRESH = [f"{f}{z}" for f in ("branin", "goldstein_price", "hartmann3_21") for z in ("", " continuous")]
FIELDS: dict[str, dict[str, int]] = {
    "bumpy": dict.fromkeys(FRESH, 2) | dict.fromkeys(("hartmann3_12", "hartmann3_12 continuous", "portfolio"), 0),
    "smooth": dict.fromkeys(("robot_pushing", "recipe suzuki", "recipe fullerenes", "recipe alkox"), 0),
}
REACH = {"bumpy": 6, "smooth": 2}
NAMES = ("problem", "seed", "method", "repetition")
Runs = dict[tuple[str, str], dict[int, list[float]]]
"""Regret of rounds 1 to 30 by problem and method, then by repetition."""


@functools.cache  # its optimum is searched once
def problem_of(name: str) -> ConditionsProblem:
    """A problem by its kind and the value of its one parameter."""
    kind, *value = name.split()
    options: dict[str, Any] = {"campaign" if kind == "recipe" else "z": v for v in value}
    return make_conditions_problem(kind, data_dir=os.environ.get("BO_ROBUST_DATA"), **options)


def work(cell: Cell) -> Row:
    """One run: its regrets before the first round and after each, and its CPU seconds."""
    name, seed, method, repetition = cell
    problem = problem_of(name)
    began = time.process_time()
    if method not in KINDS:
        readings = problem.initial + ROUNDS
        noise = math.sqrt(problem.noise_var) * stream(seed, "noise", repetition).standard_normal(readings)
        regrets, _ = play_study(problem, noise, 1000 * seed + repetition, lambda n: n >= problem.initial)
    else:
        config = {"loop": "conditions", "horizon": ROUNDS, "seed": seed, "methods": [{"name": KINDS[method]}]}
        (panel,) = parse({**config, "panels": [{"name": name, "problem": {"kind": name.split()[0]}}]}).panels
        regrets = play_trial(problem, build_method(KINDS[method], {}), panel, repetition)["regret"]
    return {"regret": [round(x, 6) for x in regrets], "seconds": round(time.process_time() - began, 2)}


def paired(runs: Runs, problems: Iterable[str], rival: str) -> dict[str, Any] | None:
    """V-UCB less a rival, on the repetitions that all of the problems have of both; None for fewer than five pairs."""
    both = [[runs.get((problem, method), {}) for problem in problems] for method in (OURS, rival)]
    common = set.intersection(*(set(found) for found in itertools.chain(*both)))
    if len(common) * len(both[0]) < LEAST:
        return None
    detail = compared(*([found[r] for found in of for r in sorted(common)] for of in both))
    mean, half = detail.pop("curve")
    return {"curve": mean, "95 %": [round(mean - half, 3), round(mean + half, 3)], **detail}


def summarise(path: Path) -> None:
    """Print what ends at over ten times its median regret, paired differences and whether they reach; draw them."""
    runs: Runs = {}
    for row in load(path):
        runs.setdefault((row["problem"], row["method"]), {})[row["repetition"]] = row["regret"][1:]
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    for ax, (field, problems) in zip(figure.subplots(1, len(FIELDS)), FIELDS.items(), strict=True):
        for method in METHODS:
            played = [runs[p, method].values() for p in problems if len(runs.get((p, method), ())) >= LEAST]
            if ends := [log_regret([curve[-1] for curve in curves]) for curves in played]:
                stuck = np.concatenate([end > np.median(end) + 1.0 for end in ends])
                report(f"{method}: stuck on {field}", stuck.mean(), "of the runs", None, None, {"runs": len(stuck)})
        rows = {f"all {field}": list(problems)} | {problem: [problem] for problem in problems}
        for i, rival in enumerate(RIVALS):
            found = {label: one for label, of in rows.items() if (one := paired(runs, of, rival))}
            for label, one in found.items():
                low, high = one["95 %"]
                report(f"{label}: {rival}", one.pop("curve"), "log10 regret over the curve, less it", None, None, one)
                middle, y = (low + high) / 2, list(rows).index(label) + 0.12 * (i - 2)
                ax.errorbar(middle, y, xerr=(high - low) / 2, fmt="o", color=f"C{i}", markersize=3, capsize=2)
            ax.plot([], [], "o", color=f"C{i}", label=rival)
            if not (limits := [found[problem]["95 %"] for problem in problems if problem in found]):
                continue
            lower, below = sum(low + high < 0 for low, high in limits), sum(high < 0 for _, high in limits)
            counts = {"problems": len(limits), "significantly": below, "above": sum(low > 0 for low, _ in limits)}
            met = (lower == len(problems) and below >= REACH[field]) if len(limits) == len(problems) else None
            target = f"all, {REACH[field]} significantly"
            report(f"{field}: lower than {rival}", lower, "problems", target, met, counts)
        ax.set_yticks(range(len(rows)), rows)
        ax.set(title=field, xlabel="log10 regret over the curve")
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.grid(axis="x", alpha=0.3)
        ax.locator_params(axis="x", nbins=6)
        ax.invert_yaxis()
    figure.suptitle("V-UCB less its rivals: mean and 95 % interval of paired differences; negative is better")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(RIVALS))
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main() -> None:
    """Play what is missing, then summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/rivals.jsonl"))
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is played")
    parser.add_argument("--quick", action="store_true", help="two methods on one problem, kept nowhere")
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of jitter, and of rewards set aside
    seeds = FIELDS["bumpy"] | FIELDS["smooth"]
    repetitions, methods, problems = range(arguments.repetitions), arguments.methods, list(seeds)
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out
        if arguments.quick:
            out = Path(folder, "rivals.jsonl")
            repetitions, methods, problems = range(LEAST), [OURS, "random"], ["hartmann3_12"]
        if not arguments.summary:
            cells = itertools.product(repetitions, methods, problems)
            fill([(problem, seeds[problem], method, i) for i, method, problem in cells], NAMES, work, out)
        summarise(out)


if __name__ == "__main__":
    main()
