"""Run every headline figure of the five papers, and decide its claims: ``python -m benchmarks.reproduce``.

Each row of the table is a claim of a paper, about pairs of methods of a shipped configuration. The runs are those of
``bo-robust run``, with fewer methods. A pair is decided by the 95 % interval of its paired difference over trials
(:func:`decide`); a claim is "open" where the interval is too wide.

As it is, the command takes few trials and ends within an hour on two cores. ``--full`` first runs all configurations,
then adds trials, with other seeds, to the panels and methods of claims that are open, until each is decided or has had
``--trials``. It writes the page ``docs/results/papers.md`` and what is in ``benchmarks/results/papers``. The same
command after an interruption goes on with what is missing. Configurations that are named replace their own rows only;
``--resume`` takes the trials of value at risk that ``papers.json`` has, whatever revision ran them.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from rich.console import Console

from benchmarks.common import ROOT, environment, options
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm, build_problem, start_state
from bo_robust.experiments.config import RunConfig, parse
from bo_robust.experiments.files import apply_overrides, find_configuration, read
from bo_robust.experiments.loop_arms import run_rounds
from bo_robust.experiments.statistics import log_regret, mean_interval
from bo_robust.experiments.traces import Traces

PAGE = ROOT / "docs" / "results" / "papers.md"
RAW = ROOT / "benchmarks" / "results" / "papers"
STORED = "papers.json"  # in RAW
# Pictures of runs that are kept, by name.
PICTURES = {
    "gp_ucb": ("srinivas/synthetic", "00-a-synthetic-se.png"),
    "starvation": ("bkb/starvation", "02-t-215.png"),
}
SRINIVAS, HEAVY, VAR = "Srinivas et al. 2010", "Ray Chowdhury & Gopalan 2019", "Nguyen et al. 2021"
HE, BKB = "Ziomek et al. 2024", "Calandriello et al. 2019"
MOST_TRIALS = 40
YES, NO, OPEN = "yes", "no", "open"
Verdict = tuple[str, str]  # What came, and YES, NO or OPEN


class Measure(NamedTuple):
    """What pairs are compared by: of a trial's trace, and what counts as no difference."""

    of: Callable[[pd.DataFrame], float]
    share: float  # tolerance, as a share of their mean
    absolute: float  # and in units of the measure
    form: str


MEASURES = {
    "average_regret": Measure(lambda trial: float(trial["regret"].mean()), 0.1, 0.0, ".3g"),
    "best_queried": Measure(lambda trial: float(trial["regret"].min()), 0.1, 0.0, ".3g"),
    "log10_regret": Measure(lambda trial: float(log_regret(trial["regret"].iloc[-1])), 0.0, 0.3, ".2f"),
}


@dataclass(frozen=True)
class Claim:
    """A claim of a paper about a panel of a configuration.

    ``pairs`` are "ours < theirs" (lower) or "ours <= theirs" (no higher), in ``measure``. ``check`` replaces them where
    the claim is about something else than regret; its criterion stands in its answer.
    """

    paper: str
    figure: str
    text: str
    config: str
    panel: int = 0
    pairs: tuple[str, ...] = ()
    measure: str = "average_regret"
    check: Callable[[RunConfig, int, Path], Verdict] | None = None

    def compared(self) -> list[tuple[str, str, str]]:
        """Ours, the relation and theirs."""
        parts = (re.split(" (<=?) ", pair) for pair in self.pairs)
        return [(ours, relation, theirs) for ours, relation, theirs in parts]

    @property
    def labels(self) -> set[str]:
        """The methods compared."""
        return {label for ours, _, theirs in self.compared() for label in (ours, theirs)}


def bands(config: RunConfig, panel: int, folder: Path) -> Verdict:
    """Whether the band mu +- sigma, averaged over the placements of the noise, holds f at all arms."""
    of = config.panels[panel]
    problem = build_problem(of, range(of.trials), None, torch.device("cpu"))
    found = {}
    for method in of.methods:
        algorithm, traces = build_algorithm(method, of, problem), Traces(of.horizon, problem)
        state = start_state(algorithm, problem, of.horizon)
        run_rounds(algorithm, problem, range(of.trials), of.seed, traces, state)
        mean, sigma = state.posterior.mean, state.posterior.variance.sqrt()
        average = (problem.f[0] - mean.mean(0)).abs() <= sigma.mean(0)
        every = ((problem.f - mean).abs() <= sigma).all(1).double().mean()
        found[method.label] = (float(average.double().mean()), float(every))
    plain, cut = found["no truncation"], found["truncation"]
    text = (
        f"the averaged band holds f at {cut[0]:.0%} of the arms with truncation, {plain[0]:.0%} without (yes: all and "
        f"fewer); the band of a single trial holds all of f in {cut[1]:.0%} and {plain[1]:.0%} of the trials"
    )
    return text, YES if cut[0] == 1.0 > plain[0] else NO


def keeps_its_band(config: RunConfig, panel: int, folder: Path) -> Verdict:
    """Whether BKB's band of 3 sigma holds as much of f as the exact one, at every t."""
    panels = json.loads((folder / "summary.json").read_text())["panels"]
    cover = [{label: m["final_coverage"] for label, m in one["methods"].items()} for one in panels]
    text = "; ".join(
        f"{one['name']}: f within 3 sigma at {c['BKB']:.1%} of [0, 1], exact {c['exact GP']:.1%}, Fourier features "
        f"{c['16 Fourier features']:.1%}"
        for one, c in zip(panels, cover, strict=True)
    )
    holds = all(c["BKB"] >= c["exact GP"] - 0.01 for c in cover)
    return f"{text} (yes: BKB at most 1 % below exact)", YES if holds else NO


def bounded(config: RunConfig, panel: int, folder: Path) -> Verdict:
    """Whether every dictionary of the theorem's q keeps 3 (1 + kappa^2 / lambda) alpha q d_eff, kappa = 1."""
    summary, traces = json.loads((folder / "summary.json").read_text()), pd.read_parquet(folder / "traces.parquet")
    rows = traces[traces["method"] == "BKB, theorem's q"]
    made = summary["settings"][config.panels[panel].name]
    q = made["methods"]["BKB, theorem's q"]["oversampling"]
    bound = 3.0 * (1.0 + 1.0 / made["noise_var"]) * 3.0 * q * rows["effective_dimension"]
    size, ratio = summary["panels"][panel]["methods"]["BKB, q = 5"]["dictionary"]
    text = (
        f"held in {float((rows['dictionary_size'] <= bound).mean()):.1%} of the rounds (yes: all); at q = 5 {size:.0f} "
        f"arms, {ratio:.1f} d_eff"
    )
    return text, YES if bool((rows["dictionary_size"] <= bound).all()) else NO


def heavy(panel: str, config: str, *ours: str) -> list[Claim]:
    """The claim about a panel of Fig. 1, at the theorems' widths and at the constants of the authors' scripts."""
    constants = (("theorems' widths", "theorem", "TGP width"), ("authors' constants", "published", "published"))
    return [
        Claim(
            HEAVY,
            f"1 ({panel})",
            f"ATA-GP-UCB below TGP-UCB, {words}",
            f"heavy_tails/{config}",
            pairs=tuple(f"{one}, {suffix} < TGP-UCB, {other}" for one in ours),
        )
        for words, suffix, other in constants
    ]


def risk(figure: str, config: str, text: str, *pairs: str, names: Sequence[str] = ("",)) -> list[Claim]:
    """Claims about log10 regret of the value at risk, one a panel."""
    return [
        Claim(VAR, figure, f"{name}{text}", f"value_at_risk/{config}", i, pairs, "log10_regret")
        for i, name in enumerate(names)
    ]


def unknown(letter: str, config: str, ours: str, *others: str) -> list[Claim]:
    """The claim about a panel of Fig. 2, in cumulative regret and in the paper's simple regret."""
    measures = (("average_regret", "cumulative regret"), ("best_queried", "best queried"))
    return [
        Claim(
            HE,
            f"2 ({letter})",
            f"{config}: HE-GP-UCB below MLE and ExpectedUCB, {words}",
            f"unknown_hyperparameters/{config}",
            pairs=tuple(f"{ours} < {other}" for other in others),
            measure=measure,
        )
        for measure, words in measures
    ]


def srinivas(letter: str, config: str, text: str, mpi: str, ours: str = "GP-UCB /5") -> Claim:
    """The claim about a panel of Fig. 5; ``mpi`` is the relation to MPI."""
    pairs = (f"{ours} <= EI", f"{ours} {mpi} MPI", f"{ours} < mean", f"{ours} < variance")
    return Claim(SRINIVAS, f"5 ({letter})", text, f"srinivas/{config}", pairs=pairs)


NYSTROM, QFF = "ATA-Nystrom", "ATA-QFF"
FUNCTIONS = ("Branin-Hoo (1,1): ", "Goldstein-Price (1,1): ", "Hartmann-3 (1,2): ", "Hartmann-3 (2,1): ")
KG = "V-UCB-PROB < RHO-KG-APX"
CLAIMS = [
    srinivas("a", "synthetic", "GP-UCB on a par with EI and MPI, below mean only and variance only", "<="),
    srinivas("b", "temperature", "temperatures: GP-UCB on a par with EI, below the others", "<"),
    srinivas("b", "temperature", "temperatures, beta of the theorem, not a fifth of it", "<", "GP-UCB theory"),
    srinivas("c", "traffic", "traffic: GP-UCB on a par with EI and MPI, below the others", "<="),
    *heavy("a", "student_t", QFF, NYSTROM),
    *heavy("b", "pareto", QFF, NYSTROM),
    *heavy("c", "matern", NYSTROM),
    *heavy("d", "stocks", NYSTROM),
    *heavy("e", "light", QFF, NYSTROM),
    Claim(
        HEAVY,
        "1 (f)",
        "the band mu ± sigma holds f with truncation, not without (lambda = 1)",
        "heavy_tails/one_point_spikes",
        1,
        check=bands,
    ),
    *risk("3", "discrete", "V-UCB Prob below ρKG and Unif", KG, "V-UCB-PROB < V-UCB-UNIF", names=FUNCTIONS),
    *risk("4", "continuous", "V-UCB by LNSO below ρKG", "V-UCB-LNSO < RHO-KG-APX", names=FUNCTIONS),
    *risk("beside 3", "discrete", "V-UCB below BoTorch's MC-VaR (ours)", "V-UCB-PROB < MC-VAR", names=FUNCTIONS),
    *risk("beside 4", "continuous", "V-UCB below BoTorch's MC-VaR (ours)", "V-UCB, exact < MC-VAR", names=FUNCTIONS),
    *risk("5 (a)", "portfolio", "portfolio: V-UCB below ρKG", KG),
    *risk("5 (b)", "robot_pushing", "robot: V-UCB below ρKG, Prob and Unif level", KG, "V-UCB-PROB <= V-UCB-UNIF"),
    *unknown("a", "lengthscale", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("b", "period", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("c", "decomposition", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("d", "mean", "HE, w = 1", "MLE, w = 1", "Expected, w = 1"),
    Claim(BKB, "2", "no variance starvation at t = 6, 63, 215", "bkb/starvation", check=keeps_its_band),
    Claim(BKB, "Theorem 1", "a dictionary has at most 3 (1 + κ²/λ) α q d_eff points", "bkb/dictionary", check=bounded),
]
# Methods that no claim names, for the pictures.
DRAWN = {"RANDOM"}
ROUNDING = 1e-9  # regrets that differ by less are equal
# Settings of --full that differ from the configuration's: what takes seconds has more trials.
FULL: dict[str, tuple[str, ...]] = {
    "unknown_hyperparameters/lengthscale": ("trials=1000",),
    "unknown_hyperparameters/period": ("trials=1000",),
}
# Settings of the short command that differ from the configuration's.
SHORT: dict[str, tuple[str, ...]] = {
    "value_at_risk/discrete": ("trials=4",),
    "value_at_risk/continuous": ("trials=2",),
    "value_at_risk/portfolio": ("trials=4",),
    "value_at_risk/robot_pushing": ("trials=2",),
}


def config_of(name: str, claims: Sequence[Claim], seed: int = 0, settings: Sequence[str] = ()) -> RunConfig:
    """A configuration, cut to what claims are about; ``settings`` are overrides of ``bo-robust run``."""
    data = read(find_configuration(name))
    apply_overrides(data, (*settings, f"seed={data.get('seed', 0) + seed}"))
    needed = {label for claim in claims for label in claim.labels}
    data["compare"] = []
    if needed:
        methods = parse(data).panels[0].methods
        drawn = set() if seed else DRAWN
        data["methods"] = [method.model_dump() for method in methods if method.label in needed | drawn]
        data["panels"] = [panel for i, panel in enumerate(data["panels"]) if i in {claim.panel for claim in claims}]
    return parse(data)


def _rounded(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as ``papers.json`` keeps it: four digits, and no folder of this machine."""
    regrets = {
        measure: {
            panel: {method: [float(f"{value:.4g}") for value in values] for method, values in methods.items()}
            for panel, methods in panels.items()
        }
        for measure, panels in part["regrets"].items()
    }
    return {key: value for key, value in part.items() if key != "folder"} | {"regrets": regrets}


def decide(relation: str, low: float, high: float, tolerance: float) -> str:
    """Verdict on "ours < theirs" or "ours <= theirs" from the 95 % interval of ours - theirs.

    "<": yes if the interval is below 0; no if it is above, or within the tolerance. "<=": yes if it ends within the
    tolerance; no if it is above 0 and does not. Otherwise open.
    """
    if relation == "<=":
        return YES if high <= tolerance else NO if low > 0.0 else OPEN
    if high < 0.0:
        return YES
    return NO if low > 0.0 or -tolerance <= low <= high <= tolerance else OPEN


def verdict(claim: Claim, regrets: Mapping[str, Mapping[Any, float]]) -> tuple[str, str, int]:
    """What the pairs of a claim show in the regrets of each method, by trial; the verdict; and in how many trials."""
    measure, shown, verdicts, trials = MEASURES[claim.measure], [], [], []
    for ours, relation, theirs in claim.compared():
        a, b = pd.Series(regrets[ours]).align(pd.Series(regrets[theirs]), join="inner")
        difference, low, high = (float(x) for x in mean_interval((a - b).to_numpy(), 0.95))
        if len(a) == 1:
            low, high = -math.inf, math.inf
        tolerance = max(measure.absolute, measure.share * abs(float(b.mean())), ROUNDING)
        found = decide(relation, low, high, tolerance)
        numbers = (f"{x + 0.0:{measure.form}}" for x in (a.mean(), b.mean(), difference, low, high))
        one, other, gap, start, end = numbers
        shown.append(f"{ours} {one}, {theirs} {other}: {gap} [{start}, {end}], {found}")
        verdicts.append(found)
        trials.append(len(a))
    found = NO if NO in verdicts else YES if set(verdicts) == {YES} else OPEN
    return "; ".join(shown), found, min(trials)


class Runs:
    """The runs of a configuration, one folder and one entry of ``parts`` for each seed.

    Args:
        name: The configuration.
        folder: Of all runs.
        full: Whether the runs are those of the page.
        stored: Parts of earlier runs, taken where ``folder`` has none.
    """

    def __init__(self, name: str, folder: Path, full: bool = False, stored: Sequence[dict[str, Any]] = ()) -> None:
        self.name, self.folder, self.stored = name, folder / name.replace("/", "-"), stored
        self.first = "seed-0" if full else "short"
        self.settings = (FULL if full else SHORT).get(name, ())
        self.claims = [claim for claim in CLAIMS if claim.config == name]
        self.panels = config_of(name, [], settings=self.settings).panels  # all of them
        self.parts: list[dict[str, Any]] = []

    def add(self, claims: Sequence[Claim], workers: int) -> None:
        """Run the methods and panels of claims with the next seed, or go on with it."""
        seed = len(self.parts)
        folder = self.folder / (f"seed-{seed}" if seed else self.first)
        if seed < len(self.stored) and not folder.exists():
            self.parts.append(self.stored[seed])
            return
        config, start = config_of(self.name, claims, seed, self.settings), time.perf_counter()
        taken = folder.with_suffix(".json")
        self.folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(taken.read_text()) if taken.exists() else 0.0
        finished = (folder / "summary.json").exists()
        data_dir = Path(os.environ["BO_ROBUST_DATA"]) if "BO_ROBUST_DATA" in os.environ else None
        try:
            runs.start(config, folder, data_dir=data_dir, workers=workers, console=Console(stderr=True, width=110))
        finally:
            taken.write_text(json.dumps(before + (0.0 if finished else time.perf_counter() - start)))
        self.parts.append(self._part(folder))

    def add_where_open(self, workers: int, most: int) -> bool:
        """Add trials to the claims that are open; False if none is or they have had ``most`` trials."""
        claims = [claim for claim, row in zip(self.claims, self.rows(), strict=True) if row["verdict"] == OPEN]
        if not claims or (len(self.parts) + 1) * self.panels[0].trials > most:
            return False
        self.add(claims, workers)
        return True

    def _part(self, folder: Path) -> dict[str, Any]:
        """Where and when a folder was made, and regrets by measure, panel and method, a list of trials each."""
        summary, traces = json.loads((folder / "summary.json").read_text()), pd.read_parquet(folder / "traces.parquet")
        regrets: dict[str, dict[str, dict[str, list[float]]]] = {}
        for measure in {claim.measure for claim in self.claims if claim.pairs}:
            of = MEASURES[measure].of
            for (panel, method), rows in traces.groupby(["panel", "method"], observed=True):
                values = [of(trial) for _, trial in rows.groupby("trial", sort=True)]
                regrets.setdefault(measure, {}).setdefault(str(panel), {})[str(method)] = values
        minutes = json.loads(folder.with_suffix(".json").read_text()) / 60.0
        about = {"revision": str(summary["commit"])[:7], "date": summary["date"][:10], "minutes": round(minutes, 1)}
        return about | {"folder": str(folder), "regrets": regrets}

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        rows = []
        for claim in self.claims:
            panel = self.panels[claim.panel]
            if claim.check:
                folder = self.folder / self.first
                config = parse(json.loads((folder / "summary.json").read_text())["config"])
                (ours, found), trials = claim.check(config, claim.panel, folder), panel.trials
            else:
                ours, found, trials = verdict(claim, self._regrets(claim))
            rows.append(
                {
                    "paper": claim.paper,
                    "figure": claim.figure,
                    "claim": claim.text,
                    "ours": ours,
                    "verdict": found,
                    "scale": f"{trials} x {panel.horizon}",
                    "config": self.name,
                    "revision": ", ".join(dict.fromkeys(part["revision"] for part in self.parts)),
                    "date": self.parts[-1]["date"],
                    "minutes": round(sum(part["minutes"] for part in self.parts), 1),
                }
            )
        return rows

    def traces(self, panel: str) -> pd.DataFrame:
        """The traces of a panel, of the seeds that have a folder here; trials are numbered on."""
        frames = []
        for seed, part in enumerate(self.parts):
            if "folder" in part:
                frame = pd.read_parquet(Path(part["folder"]) / "traces.parquet")
                frame["trial"] += seed * self.panels[0].trials
                frames.append(frame[frame["panel"] == panel])
        return pd.concat(frames, ignore_index=True)

    def _regrets(self, claim: Claim) -> dict[str, dict[tuple[int, int], float]]:
        """Regrets of the methods of a claim by seed and trial."""
        panel = self.panels[claim.panel].name
        regrets: dict[str, dict[tuple[int, int], float]] = {label: {} for label in claim.labels}
        for seed, part in enumerate(self.parts):
            found = part["regrets"][claim.measure].get(panel, {})
            for label in claim.labels & found.keys():
                regrets[label] |= {(seed, trial): value for trial, value in enumerate(found[label])}
        return regrets


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the configurations named, or all; with ``--full`` their rows replace those of the page."""
    names = list(dict.fromkeys(claim.config for claim in CLAIMS))
    folder = Path("results/reproduce")
    given = options(__doc__, names, arguments, folder=folder, workers=2, full=False, resume=False, trials=MOST_TRIALS)
    kept = json.loads(file.read_text()) if (file := RAW / STORED).exists() else {"rows": []}
    stored = kept.get("parts", {}) if given.resume else {}
    chosen = given.parts or names
    all_runs = {name: Runs(name, given.folder, given.full, stored.get(name, ())) for name in chosen}
    for of in all_runs.values():
        of.add(of.claims, given.workers)
    more = list(all_runs.values()) if given.full else []
    while more:
        more = [of for of in more if of.add_where_open(given.workers, given.trials)]
    rows = [row for of in all_runs.values() for row in of.rows()]
    for row in rows:
        print(json.dumps(row, ensure_ascii=False), flush=True)
    if given.full:
        write(all_runs, rows, kept)


def write(all_runs: Mapping[str, Runs], rows: list[dict[str, Any]], kept: Mapping[str, Any]) -> None:
    """Write the page, its pictures and ``papers.json``; rows of configurations that did not run stay."""
    RAW.mkdir(exist_ok=True)
    for picture, (name, file) in PICTURES.items():
        if name in all_runs:
            shutil.copy(all_runs[name].folder / "seed-0" / file, RAW / f"{picture}.png")
    risks = [of for name, of in all_runs.items() if name.startswith("value_at_risk/")]
    drawn = [of for of in risks if "folder" in of.parts[0]]
    if drawn:
        draw(drawn, RAW / "value_at_risk.png")
    every = {(row["config"], row["figure"], row["claim"]): row for row in (*kept["rows"], *rows)}
    order = [(claim.config, claim.figure, claim.text) for claim in CLAIMS]
    parts = {of.name: [_rounded(part) for part in of.parts] for of in risks}
    about, table = environment(), [every[key] for key in order if key in every]
    result = {"environment": about, "rows": table, "parts": kept.get("parts", {}) | parts}
    (RAW / STORED).write_text(json.dumps(result, ensure_ascii=False) + "\n")
    PAGE.write_text(page(table, about))


def draw(of: Sequence[Runs], path: Path) -> None:
    """log10 regret of the value at risk against rounds, of all methods, a panel of each problem."""
    import matplotlib.pyplot as plt  # takes a second

    panels = [(run, panel.name) for run in of for panel in run.panels]
    rows = math.ceil(len(panels) / 3)
    labels = dict.fromkeys(label for run in of for label in run.panels[0].labels)
    colors: dict[Any, str] = {label: f"C{i}" for i, label in enumerate(labels)}
    figure, axes = plt.subplots(rows, 3, figsize=(11, 3.2 * rows), layout="constrained", squeeze=False)
    for ax, (run, name) in zip(axes.flat, panels, strict=False):
        for label, method in run.traces(name).groupby("method", observed=True):
            by_round = method.pivot_table(index="trial", columns="round", values="regret")
            mean, low, high = mean_interval(log_regret(by_round.to_numpy()), 0.7)
            ax.plot(by_round.columns, mean, label=label, color=colors[label], linewidth=1.2)
            ax.fill_between(by_round.columns, low, high, color=colors[label], alpha=0.15, linewidth=0)
        ax.set_title(name, fontsize=9)
        ax.legend(fontsize=6)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    figure.supxlabel("round")
    figure.supylabel("log10 regret, mean and 70 % interval")
    figure.savefig(path, dpi=70)
    plt.close(figure)


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """The page of results."""
    counts = {word: sum(row["verdict"] == word for row in rows) for word in (YES, NO, OPEN)}
    fewer = sum(row["verdict"] == OPEN and int(row["scale"].split()[0]) < MOST_TRIALS for row in rows)
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "botorch"))
    minutes = {row["config"]: float(row["minutes"] or 0.0) for row in rows}
    lines = [
        "# Results: the papers' figures",
        f"`python -m benchmarks.reproduce --full` runs the headline figures of the five papers and writes this page: "
        f"{math.ceil(sum(minutes.values()))} minutes, {about['cores']} cores ({about['processor']}), {versions}.",
        f"Of {len(rows)} claims {counts[YES]} hold, {counts[NO]} do not, {counts[OPEN]} are open, {fewer} "
        f"of them after fewer than {MOST_TRIALS} trials so far. A difference is "
        'paired, with its 95 % interval over trials. "Below" is yes if the interval is below 0, no if it is above or '
        'within 10 % of the other\'s regret (value at risk: 0.3 in log10), and open otherwise; "on a par" is yes if it '
        "ends within that. Trials are added until nothing is open, up to 40, so a few are decided by chance. Scale is "
        "trials x rounds. Regret is the average over rounds, or log10 of the regret of the value at risk after the "
        "last; best queried is that of the best arm chosen.",
        "![Value at risk: log10 regret against rounds](../../benchmarks/results/papers/value_at_risk.png)",
    ]
    keys = ("figure", "claim", "ours", "verdict", "scale", "config", "revision", "date", "minutes")
    for paper in dict.fromkeys(row["paper"] for row in rows):
        table = ["| " + " | ".join((*keys[:5], "configuration", *keys[6:])) + " |", "| --- " * len(keys) + "|"]
        table += ["| " + " | ".join(str(row[key]) for key in keys) + " |" for row in rows if row["paper"] == paper]
        lines += [f"## {paper}", "\n".join(table)]
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
