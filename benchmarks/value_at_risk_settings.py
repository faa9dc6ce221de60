"""Which setting of V-UCB: ``python -m benchmarks.value_at_risk_settings --part choose|report [--repetitions N]``.

One JSON line for each problem, method and repetition is appended to ``--out``; lines that are there are not played
again. ``--summary`` prints paired differences and draws them. 30 rounds, refits every third round.

The rule, stated before any run: of the settings in ``CHOICES``, the one with the smallest mean over the problems of
``choose`` of log10 regret (floor 1e-3) over the curve, rounds 1 to 30. It is then compared on the problems of
``report``, whose seeds are others too, and on those of ``real`` and ``rest``.

Draws of hyperparameters came later, and ``real`` had shown that the setting chosen loses where f is smooth. So the rule
was applied anew, stated before these runs: of ``CONTENDERS``, the smallest mean of the same number over ``draws``,
Branin, Goldstein-Price and one recipe, with seeds of their own. ``paper`` and the setting chosen before are among them.
After 4 repetitions of all, only the best two settings with draws went on beside these two, as far as time allowed.
Six repetitions were played: too few to change a setting by, as the page of results says. Draws with the paper's growing
width were played afterwards, by the same rule.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import differences
from bo_robust.experiments.build import build_conditions_problem
from bo_robust.experiments.conditions.methods import build_method
from bo_robust.experiments.conditions_loop import play_trial
from bo_robust.experiments.config import Panel, parse
from bo_robust.experiments.problems.conditions import ConditionsProblem, regret
from bo_robust.experiments.summary import log_regret
from bo_robust.random import stream
from bo_robust.study import Study

ROUNDS = 30
SHOWN = 5  # repetitions of what is drawn, at least
REPETITIONS = 30  # that differences are taken over; more of them only count runs that are stuck
PRIOR = {"name": "v-ucb", "width": 2.0, "prior": True}
CAP = PRIOR | {"max_lengthscale": 0.3}
LIKELIHOOD = PRIOR | {"prior": False}
CHOICES: dict[str, dict[str, Any]] = {
    "paper": {"name": "v-ucb"},
    "likelihood": LIKELIHOOD,
    "prior": PRIOR,
    "prior, explore": PRIOR | {"explore_every": 3},
    "prior, cap": CAP,
    "prior, cap, explore": CAP | {"explore_every": 3},
    "prior, widest": PRIOR | {"pick": "widest"},
    "prior, uniform": PRIOR | {"pick": "uniform"},
    "prior, informative": PRIOR | {"pick": "informative"},
    "prior, cap, informative": CAP | {"pick": "informative"},
    "prior, cap, explore, informative": CAP | {"explore_every": 3, "pick": "informative"},
}
DRAWS = {"name": "v-ucb", "width": 2.0, "candidates": "posterior", "pick": "informative"}
CHOICES |= {"draws": DRAWS, "draws, explore": DRAWS | {"explore_every": 3}}
CHOICES |= {"draws, growing width": DRAWS | {"width": {"kind": "finite", "num_arms": 1}}}
CONTENDERS = ["paper", "prior, cap, explore, informative", "draws", "draws, explore", "draws, growing width"]
PEERS: dict[str, dict[str, Any]] = {
    "MC-VaR": {"name": "mc-var"},
    "NEI over VaR": {"name": "nei-var"},
    "NEI over VaR, lacing z": {"name": "nei-var", "lacing": True},
    "knowledge gradient": {"name": "rho-kg-apx"},
    # K, M, restarts per dimension and the least number of conditions of its authors.
    "knowledge gradient, full": {
        "name": "rho-kg-apx",
        "fantasies": 10,
        "scenarios": 10,
        "restarts": 30,
        "raw_samples": 128,
        "maxiter": 50,
    },
    "random": {"name": "random"},
}
STUDY = "Study"  # ``bo_robust.study`` with its method v-ucb and no setting, asked and told; its design is its own
CHOSEN = "prior, cap, explore, informative"  # by the rule
RIVALS = ["paper", *PEERS, STUDY]
PROBLEMS = {
    "choose": ["branin", "goldstein_price", "hartmann3_21"],
    "report": ["hartmann3_12", "hartmann3_12 continuous", "portfolio"],
    "real": ["robot_pushing", "recipe suzuki", "recipe fullerenes", "recipe alkox"],
    # What is left of the paper's problems: functions that were chosen on, under other conditions or seeds.
    "draws": ["branin", "goldstein_price", "recipe fullerenes"],
    "rest": [
        "branin",
        "goldstein_price",
        "hartmann3_21",
        "branin continuous",
        "goldstein_price continuous",
        "hartmann3_21 continuous",
    ],
}
SEEDS = {"choose": 1, "report": 0, "real": 0, "draws": 500, "rest": 2}
OPTIONS = {"continuous": "z", **dict.fromkeys(("suzuki", "fullerenes", "alkox"), "campaign")}


def panel_of(problem: str, part: str, method: dict[str, Any]) -> Panel:
    """The panel of one problem and method."""
    kind, *options = problem.split()
    spec = {"kind": kind} | {OPTIONS[value]: value for value in options}
    config = {"loop": "conditions", "horizon": ROUNDS, "seed": SEEDS[part], "methods": [method]}
    panel = parse({**config, "panels": [{"name": problem, "problem": spec}]}).panels[0]
    return panel


def run(part: str, methods: list[str], problems: list[str], repetitions: range, out: Path) -> None:
    """Play what is missing, repetition by repetition, so that whatever is there can be compared."""
    data = os.environ.get("BO_ROBUST_DATA")

    def work(cell: Cell) -> Row:
        problem, method, repetition, _ = cell
        panel = panel_of(problem, part, (CHOICES | PEERS).get(method, {"name": "random"}))  # of others only the problem
        world = build_conditions_problem(panel, None if data is None else Path(data), "cpu")
        began = time.process_time()
        if method == STUDY:
            rows = play_study(world, panel, repetition)
        else:
            (chosen,) = panel.methods
            rows = play_trial(world, build_method(chosen.name, chosen.options), panel, repetition)
        return {
            "regret": [round(x, 6) for x in rows["regret"]],
            "lower_regret": [round(x, 6) for x in rows["lower_regret"]],
            "certificate_held": sum(c >= r for c, r in zip(rows["certificate"], rows["regret"], strict=True)),
            "failed_fits": rows["fit_ok"].count(False),
            "seconds": round(time.process_time() - began, 2),
        }

    cells = [(p, m, r, SEEDS[part]) for r in repetitions for p in problems for m in methods]
    fill(cells, ("problem", "method", "repetition", "seed"), work, out)


def play_study(problem: ConditionsProblem, panel: Panel, repetition: int) -> dict[str, list[float]]:
    """The columns of :func:`play_trial` that lines keep, of a study on the same problem with as many observations."""
    n, names = problem.initial, [f"x{i}" for i in range(problem.dim_x)]
    conditions = [f"z{i}" for i in range(problem.dim_z)]
    assert problem.points is not None
    assert problem.probabilities is not None
    points = [dict(zip(conditions, z, strict=True)) for z in problem.points.tolist()]
    environment = {"points": points, "probabilities": problem.probabilities.tolist()}
    noise = math.sqrt(problem.noise_var) * stream(panel.seed, "noise", repetition).standard_normal(n + panel.horizon)
    rows: dict[str, list[float]] = {"regret": [], "lower_regret": [], "certificate": [], "fit_ok": []}
    with tempfile.TemporaryDirectory() as folder:
        box = {name: (float(a), float(b)) for name, a, b in zip(names, *problem.x_bounds, strict=True)}
        settings: dict[str, Any] = {"environment": environment, "risk_level": problem.alpha, "num_initial": n}
        study = Study.create(Path(folder, "run.study"), box, "v-ucb", seed=1000 * panel.seed + repetition, **settings)
        for i in range(n + panel.horizon):
            (trial,) = study.ask()
            point = problem.x_bounds.new_tensor([[trial.x[name] for name in names + conditions]])
            study.tell(trial.id, float(problem.f(point)) + noise[i])
            if i >= n - 1:
                found = study.recommend()
                loss = float(regret(problem, problem.x_bounds.new_tensor([found.x[name] for name in names])))
                rows["regret"].append(loss)
                rows["lower_regret"].append(loss)
                rows["certificate"].append(math.nan if found.regret_bound is None else found.regret_bound)
        study.close()
    return rows


Runs = dict[tuple[str, int, int], np.ndarray]
"""log10 of the regret of rounds 1 to 30 by problem, seed and repetition."""


def paired(a: Runs, b: Runs) -> dict[str, Any] | None:
    """a less b at the end and over the curve, with 95 % intervals, on common runs; None for fewer than two."""
    both = sorted(key for key in set(a) & set(b) if key[2] < REPETITIONS)
    if len(both) < 2:
        return None
    found: dict[str, Any] = {"repetitions": len(both)}
    for name, value in (("end", lambda run: run[-1]), ("curve", lambda run: float(run.mean()))):
        mean, low, _ = differences([value(a[k]) for k in both], [value(b[k]) for k in both]).mean_interval()
        found[name] = [round(mean, 3), round(mean - low, 3)]
    return found


def stuck_share(runs: Runs) -> float:
    """Share of the runs that end at more than 10 times the median regret."""
    last = np.array([run[-1] for run in runs.values()])
    return float((last > np.median(last) + 1.0).mean())


class Part:
    """What was played of one part: lines and runs by method."""

    def __init__(self, part: str, lines: list[dict[str, Any]]) -> None:
        self.name, self.problems = part, PROBLEMS[part]
        mine = [line for line in lines if line["seed"] == SEEDS[part] and line["problem"] in self.problems]
        self.lines: dict[str, list[dict[str, Any]]] = {}
        for line in mine:
            self.lines.setdefault(line["method"], []).append(line)

    def runs(self, method: str, problem: str | None = None) -> Runs:
        """The runs of a method, on one problem or on all."""
        mine = [line for line in self.lines.get(method, []) if problem in (None, line["problem"])]
        return {(o["problem"], o["seed"], o["repetition"]): log_regret(o["regret"])[1:] for o in mine}

    def summarise(self) -> None:
        """Print every method on every problem, and paired differences to the paper's setting and of the chosen one."""
        for problem in self.problems:
            for method in self.lines:
                if runs := self.runs(method, problem):
                    ends = np.array([run[-1] for run in runs.values()])
                    detail = {
                        "repetitions": len(runs),
                        "end": round(float(ends.mean()), 3),
                        "mean_regret": round(float((10.0**ends).mean()), 4),
                        "stuck": round(stuck_share(runs), 3),
                        "less_paper": paired(runs, self.runs("paper", problem)),
                    }
                    if method in RIVALS:
                        detail["chosen_less_it"] = paired(self.runs(CHOSEN, problem), runs)
                    value = float(np.mean([run.mean() for run in runs.values()]))
                    report(
                        f"{self.name}: {problem}: {method}", value, "log10 regret over the curve", None, None, detail
                    )
        pairs = [(m, "paper") for m in self.lines if m != "paper"] + [(CHOSEN, m) for m in RIVALS if m != "paper"]
        pairs += [("draws", m) for m in (CHOSEN, *RIVALS) if m != "paper"]
        for method, other in pairs:
            one = paired(self.runs(method), self.runs(other))
            if one is not None:
                held = np.mean([line["certificate_held"] / (ROUNDS + 1) for line in self.lines[method]])
                one |= {"certificate_held": round(float(held), 3)}
                one |= {"seconds": round(float(np.mean([line["seconds"] for line in self.lines[method]])), 2)}
                report(f"{self.name}: {method} less {other}", one["curve"][0], "log10 regret", None, None, one)


def summarise(path: Path) -> None:
    """Print what the lines say, one JSON object each; draw differences over the curve."""
    lines = load(path)
    parts = {name: Part(name, lines) for name in PROBLEMS}
    for part in parts.values():
        part.summarise()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 7), layout="constrained")
    choose = parts["choose"]
    settings = [m for m in CHOICES if m != "paper" and len(choose.lines.get(m, [])) >= SHOWN]
    for i, problem in enumerate(choose.problems):
        _draw(left, i, problem, [paired(choose.runs(m, problem), choose.runs("paper", problem)) for m in settings])
    left.set_yticks(range(len(settings)), settings)
    left.set(xlabel="less the paper's setting", title="problems to choose by")
    rows = [(parts[name], problem) for name in ("report", "real", "rest") for problem in PROBLEMS[name]]
    for i, rival in enumerate(RIVALS):
        _draw(right, i, rival, [paired(part.runs(CHOSEN, p), part.runs(rival, p)) for part, p in rows])
    right.set_yticks(range(len(rows)), [f"{p}{' *' if part.name == 'rest' else ''}" for part, p in rows])
    right.set(xlabel="chosen setting less rival", title="held out (*: functions chosen by)")
    for ax in (left, right):
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.3, -0.09), ncols=3)
        ax.grid(axis="x", alpha=0.3)
    figure.suptitle("log10 regret over the curve, mean and 95 % interval of paired differences")
    figure.savefig(path.with_suffix(".png"), dpi=110)
    _draw_held_out(parts, path.with_name("held_out.png"))


def _draw_held_out(parts: dict[str, Part], path: Path) -> None:
    """Draw V-UCB over draws, and the setting chosen before, less their rivals, where nothing was chosen by."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
    pairs = [("draws", "paper"), ("draws", CHOSEN), (CHOSEN, "paper"), ("draws", "MC-VaR"), ("draws", "NEI over VaR")]
    titles = {"report": "synthetic and portfolio: bumpy", "real": "robot pushing and recipes: smooth"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        part = parts[name]
        problems = [p for p in part.problems if p not in PROBLEMS["draws"]]
        for i, (method, rival) in enumerate(pairs):
            label = f"{method} less {rival}".replace(CHOSEN, "tuned")
            _draw(ax, i, label, [paired(part.runs(method, p), part.runs(rival, p)) for p in problems])
        ax.set_yticks(range(len(problems)), problems)
        ax.set(title=title, xlabel="log10 regret over the curve")
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.grid(axis="x", alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)


def _draw(ax: Any, i: int, label: str, found: list[dict[str, Any] | None]) -> None:
    for y, one in enumerate(found):
        if one is not None and one["repetitions"] >= SHOWN:
            mean, half = one["curve"]
            ax.errorbar(mean, y + 0.1 * (i - 3), xerr=half, fmt="o", color=f"C{i}", markersize=3, capsize=2)
    ax.plot([], [], "o", color=f"C{i}", label=label)


def main() -> None:
    """Play, or summarise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=tuple(PROBLEMS), default="choose")
    parser.add_argument("--methods", help="labels, separated by ';'; default all settings")
    parser.add_argument("--problems", help="separated by ';'; default those of the part")
    parser.add_argument("--first", type=int, default=0, help="the first repetition")
    parser.add_argument("--repetitions", type=int, default=10, help="one more than the last repetition")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/settings.jsonl"))
    parser.add_argument("--summary", action="store_true", help="of the lines so far; nothing is played")
    parser.add_argument("--quick", action="store_true", help="two settings once on one problem, kept nowhere")
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    if arguments.summary:
        summarise(arguments.out)
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of jitter, and of candidates none of which fits
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "settings.jsonl")
            run("choose", ["paper", CHOSEN], ["branin"], range(1), out)
            summarise(out)
        return
    methods = arguments.methods.split(";") if arguments.methods else list(CHOICES)
    problems = arguments.problems.split(";") if arguments.problems else PROBLEMS[arguments.part]
    run(arguments.part, methods, problems, range(arguments.first, arguments.repetitions), arguments.out)


if __name__ == "__main__":
    main()
