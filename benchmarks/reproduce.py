"""Run every headline figure of the five papers, and write what came: ``python -m benchmarks.reproduce``.

Each row of the table is a claim of a paper, about pairs of methods of a shipped configuration. The runs are those of
``bo-robust run``, with fewer methods and trials, so that all end within an hour on two cores. The same command after
an interruption goes on with what is missing. This command alone, without the name of a configuration, writes the page
``docs/results/papers.md``, and the table and pictures in ``benchmarks/results/papers``.
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
from typing import Any

import pandas as pd
import torch
from rich.console import Console

from benchmarks.common import ROOT, environment, options
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm, build_problem, start_state
from bo_robust.experiments.config import RunConfig, parse
from bo_robust.experiments.files import apply_overrides, find_configuration, read
from bo_robust.experiments.loop_arms import run_rounds
from bo_robust.experiments.traces import Traces

PAGE = ROOT / "docs" / "results" / "papers.md"
RAW = ROOT / "benchmarks" / "results" / "papers"
# Pictures of runs that are kept, by name.
PICTURES = {
    "gp_ucb": ("srinivas/synthetic", "00-a-synthetic-se.png"),
    "value_at_risk": ("value_at_risk/discrete", "01-goldstein-price-1-1.png"),
    "starvation": ("bkb/starvation", "02-t-215.png"),
}
SRINIVAS, HEAVY, VAR = "Srinivas et al. 2010", "Ray Chowdhury & Gopalan 2019", "Nguyen et al. 2021"
HE, BKB = "Ziomek et al. 2024", "Calandriello et al. 2019"
Verdict = tuple[str, bool | None]  # What came, and whether it agrees; None: in part, or not beyond noise


@dataclass(frozen=True)
class Claim:
    """A claim of a paper about a panel of a configuration.

    ``pairs`` are "ours < theirs" (significantly lower) or "ours <= theirs" (not significantly higher), in ``measure``.
    ``check`` replaces them where the claim is about something else than regret.
    """

    paper: str
    figure: str
    text: str
    config: str
    panel: int = 0
    pairs: tuple[str, ...] = ()
    measure: str = "average_regret"
    check: Callable[[RunConfig, int, Path, dict[str, Any]], Verdict] | None = None

    def compared(self) -> list[tuple[str, str, str]]:
        """Ours, the relation and theirs."""
        parts = (re.split(" (<=?) ", pair) for pair in self.pairs)
        return [(ours, relation, theirs) for ours, relation, theirs in parts]


def bands(config: RunConfig, panel: int, folder: Path, summary: dict[str, Any]) -> Verdict:
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
        f"the averaged band holds f at {cut[0]:.0%} of the arms with truncation, {plain[0]:.0%} without; the band of a "
        f"single trial holds all of f in {cut[1]:.0%} and {plain[1]:.0%} of the trials"
    )
    return text, (cut[0] == 1.0 > plain[0]) or (None if cut[1] > plain[1] else False)


def keeps_its_band(config: RunConfig, panel: int, folder: Path, summary: dict[str, Any]) -> Verdict:
    """Whether BKB's band of 3 sigma holds as much of f as the exact one, at every t."""
    cover = [{label: m["final_coverage"] for label, m in one["methods"].items()} for one in summary["panels"]]
    text = "; ".join(
        f"{one['name']}: f within 3 sigma at {c['BKB']:.1%} of [0, 1], exact {c['exact GP']:.1%}, Fourier features "
        f"{c['16 Fourier features']:.1%}"
        for one, c in zip(summary["panels"], cover, strict=True)
    )
    return text, all(c["BKB"] >= c["exact GP"] - 0.01 for c in cover)


def bounded(config: RunConfig, panel: int, folder: Path, summary: dict[str, Any]) -> Verdict:
    """Whether every dictionary of the theorem's q keeps 3 (1 + kappa^2 / lambda) alpha q d_eff, kappa = 1."""
    traces = pd.read_parquet(folder / "traces.parquet")
    rows = traces[traces["method"] == "BKB, theorem's q"]
    made = summary["settings"][config.panels[panel].name]
    q = made["methods"]["BKB, theorem's q"]["oversampling"]
    bound = 3.0 * (1.0 + 1.0 / made["noise_var"]) * 3.0 * q * rows["effective_dimension"]
    size, ratio = summary["panels"][panel]["methods"]["BKB, q = 5"]["dictionary"]
    text = (
        f"held in {float((rows['dictionary_size'] <= bound).mean()):.1%} of the rounds; at q = 5 {size:.0f} arms, "
        f"{ratio:.1f} d_eff"
    )
    return text, bool((rows["dictionary_size"] <= bound).all())


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


def srinivas(letter: str, config: str, text: str, mpi: str) -> Claim:
    """The claim about a panel of Fig. 5; ``mpi`` is the relation to MPI."""
    pairs = (f"{GP} <= EI", f"{GP} {mpi} MPI", f"{GP} < mean", f"{GP} < variance")
    return Claim(SRINIVAS, f"5 ({letter})", text, f"srinivas/{config}", pairs=pairs)


GP, NYSTROM, QFF = "GP-UCB /5", "ATA-Nystrom", "ATA-QFF"
FUNCTIONS = ("Branin-Hoo (1,1): ", "Goldstein-Price (1,1): ", "Hartmann-3 (1,2): ", "Hartmann-3 (2,1): ")
KG = "V-UCB-PROB < RHO-KG-APX"
CLAIMS = [
    srinivas("a", "synthetic", "GP-UCB on a par with EI and MPI, below mean only and variance only", "<="),
    srinivas("b", "temperature", "temperatures: GP-UCB on a par with EI, below the others", "<"),
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


def config_of(name: str, claims: Sequence[Claim], seed: int = 0, settings: Sequence[str] = ()) -> RunConfig:
    """A configuration, cut to what its claims are about; ``settings`` are overrides of ``bo-robust run``."""
    data = read(find_configuration(name))
    apply_overrides(data, (*settings, f"seed={data.get('seed', 0) + seed}"))
    needed = {label for claim in claims for ours, _, theirs in claim.compared() for label in (ours, theirs)}
    data["compare"] = []
    if needed:
        methods = parse(data).panels[0].methods
        data["methods"] = [method.model_dump() for method in methods if method.label in needed | DRAWN]
        data["panels"] = data["panels"][: 1 + max(claim.panel for claim in claims)]
    return parse(data)


def verdict(claim: Claim, panel: Mapping[str, Any]) -> Verdict:
    """What the pairs of a claim show in a panel of a summary."""
    by_pair = {tuple(one["pair"]): one[claim.measure] for one in panel["comparisons"]}
    said, holds, contrary = [], [], False
    for ours, relation, theirs in claim.compared():
        found = by_pair[ours, theirs]
        values = [panel["methods"][label][claim.measure] for label in (ours, theirs)]
        a, b = (round(value[0] if isinstance(value, list | tuple) else value, 12) + 0.0 for value in values)
        higher, lower = found["significant"] and found["mean"] > 0, found["significant"] and found["mean"] < 0
        holds.append(lower if relation == "<" else not higher)
        contrary = contrary or higher
        form = ".2f" if claim.measure == "log10_regret" else ".3g"
        said.append(f"{ours} {a:{form}}, {theirs} {b:{form}} ({'lower' if lower else 'higher' if higher else 'level'})")
    return "; ".join(said), all(holds) or (False if contrary and not any(holds) else None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the configurations named, or all, and then write the page."""
    names = list(dict.fromkeys(claim.config for claim in CLAIMS))
    given = options(__doc__, names, arguments, folder=Path("results/reproduce"), workers=2)
    rows: list[dict[str, str]] = []
    given.folder.mkdir(parents=True, exist_ok=True)
    commits, seconds = set[str](), given.folder / "seconds.json"
    taken: dict[str, float] = json.loads(seconds.read_text()) if seconds.exists() else {}
    data_dir = Path(os.environ["BO_ROBUST_DATA"]) if "BO_ROBUST_DATA" in os.environ else None
    console = Console(stderr=True, width=110)
    for name in given.parts or names:
        claims = [claim for claim in CLAIMS if claim.config == name]
        config, folder, start = config_of(name, claims), given.folder / name.replace("/", "-"), time.perf_counter()
        finished = (folder / "summary.json").exists()
        try:
            runs.start(config, folder, data_dir=data_dir, workers=given.workers, console=console)
        finally:
            taken[name] = taken.get(name, 0.0) + (0.0 if finished else time.perf_counter() - start)
            seconds.write_text(json.dumps(taken))
        summary = json.loads((folder / "summary.json").read_text())
        for claim in claims:
            panel = summary["panels"][claim.panel]
            ours, agrees = claim.check(config, claim.panel, folder, summary) if claim.check else verdict(claim, panel)
            row = {
                "paper": claim.paper,
                "figure": claim.figure,
                "claim": claim.text,
                "ours": ours,
                "agrees": {True: "yes", False: "no", None: "in part"}[agrees],
                "scale": f"{panel['trials']} x {panel['horizon']}",
                "config": name,
                "run": summary["date"],
            }
            rows.append(row)
            print(json.dumps(row, ensure_ascii=False), flush=True)
        commits.add(summary["commit"])
        print(f"{name}: {taken[name]:.0f} s", flush=True)
    if given.parts:
        return
    about = environment() | {"git": ", ".join(sorted(commits)), "minutes": sum(taken.values()) / 60.0}
    RAW.mkdir(exist_ok=True)
    for picture, (name, file) in PICTURES.items():
        shutil.copy(given.folder / name.replace("/", "-") / file, RAW / f"{picture}.png")
    text = json.dumps({"environment": about, "rows": rows}, indent=1, ensure_ascii=False)
    (RAW / "papers.json").write_text(text + "\n")
    PAGE.write_text(page(rows, about))


def page(rows: Sequence[Mapping[str, str]], about: Mapping[str, Any]) -> str:
    """The page of results."""
    yes, part, no = (sum(row["agrees"] == word for row in rows) for word in ("yes", "in part", "no"))
    versions = ", ".join(f"{name} {about['versions'][name]}" for name in ("torch", "botorch"))
    where = f"{about['cores']} cores ({about['processor']}), {about['date'][:10]}, revision {about['git']}, {versions}"
    lines = [
        "# Results: the papers' figures",
        f"`{about['command']}` runs the headline figures of the five papers and writes this page: "
        f"{math.ceil(about['minutes'])} minutes on {where}.",
        f"Of {len(rows)} claims {yes} agree, {part} agree in part or not beyond noise, {no} do not. Lower and higher "
        "are paired t tests at 5 %, level is neither. Scale is trials x rounds. Regret is the average over rounds, or "
        "log10 of the regret of the value at risk after the last; best queried is that of the best arm chosen.",
    ]
    for paper in dict.fromkeys(row["paper"] for row in rows):
        table = ["| figure | claim | ours | agrees | scale | configuration |", "| --- " * 6 + "|"]
        for row in (row for row in rows if row["paper"] == paper):
            cells = [row[key] for key in ("figure", "claim", "ours", "agrees", "scale")]
            table.append("| " + " | ".join([*cells, f"`{row['config']}`"]) + " |")
        lines += [f"## {paper}", "\n".join(table)]
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
