"""The claims of the five papers about their figures, and how each is decided (:mod:`benchmarks.reproduce` runs them).

A claim is about pairs of methods of a configuration, by the 95 % interval of their paired difference over
trials (:func:`decide`), or has a check of its own, whose criterion stands in its answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from benchmarks.loops.arms import run_rounds, start_state
from benchmarks.loops.traces import Traces
from benchmarks.panel import Panel
from benchmarks.statistics import log_regret, mean_interval

SRINIVAS, HEAVY, VAR = "Srinivas et al. 2010", "Ray Chowdhury & Gopalan 2019", "Nguyen et al. 2021"
HE, BKB = "Ziomek et al. 2024", "Calandriello et al. 2019"
YES, NO, OPEN = "yes", "no", "open"
Verdict = tuple[str, str]  # What came, and YES, NO or OPEN


class Measure(NamedTuple):
    """What pairs are compared by: of a trial's trace, and what counts as no difference."""

    of: Callable[[pd.DataFrame], float]
    share: float  # tolerance, as a share of their mean
    absolute: float  # and in units of the measure
    form: str


def _log10_regret(trial: pd.DataFrame, of_round: int = -1) -> float:
    return float(log_regret(trial["regret"].iloc[of_round]))


AVERAGE, BEST, LATE, EARLY, SECONDS = "average_regret", "best_queried", "log10_regret", "log10_regret_20", "seconds"
MEASURES = {
    AVERAGE: Measure(lambda trial: float(trial["regret"].mean()), 0.1, 0.0, ".3g"),
    BEST: Measure(lambda trial: float(trial["regret"].min()), 0.1, 0.0, ".3g"),
    LATE: Measure(_log10_regret, 0.0, 0.3, ".2f"),
    EARLY: Measure(lambda trial: _log10_regret(trial, 20), 0.0, 0.3, ".2f"),
    SECONDS: Measure(lambda trial: float(trial["seconds"].iloc[1:].median()), 0.1, 0.0, ".2g"),  # to choose a point
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
    measure: str = AVERAGE
    check: Callable[[Sequence[Panel], int, Path], Verdict] | None = None

    def compared(self) -> list[tuple[str, str, str]]:
        """Ours, the relation and theirs."""
        parts = (re.split(" (<=?) ", pair) for pair in self.pairs)
        return [(ours, relation, theirs) for ours, relation, theirs in parts]

    @property
    def labels(self) -> set[str]:
        """The methods compared."""
        return {label for ours, _, theirs in self.compared() for label in (ours, theirs)}


def bands(panels: Sequence[Any], panel: int, folder: Path) -> Verdict:
    """Whether the band mu +- sigma, averaged over the placements of the noise, holds f at all arms."""
    of, found = panels[panel].made(torch.device("cpu")), {}
    problem = of.built(range(of.trials), torch.device("cpu"))
    for label, algorithm in of.methods.items():
        traces, state = Traces(of.rounds, problem), start_state(algorithm, problem, of.rounds)
        run_rounds(algorithm, problem, range(of.trials), of.seed, traces, state)
        mean, sigma = state.posterior.mean, state.posterior.variance.sqrt()
        average = (problem.f[0] - mean.mean(0)).abs() <= sigma.mean(0)
        every = ((problem.f - mean).abs() <= sigma).all(1).double().mean()
        found[label] = (float(average.double().mean()), float(every))
    plain, cut = found["no truncation"], found["truncation"]
    text = (
        f"the averaged band holds f at {cut[0]:.0%} of the arms with truncation, {plain[0]:.0%} without (yes: all and "
        f"fewer); the band of a single trial holds all of f in {cut[1]:.0%} and {plain[1]:.0%} of the trials"
    )
    return text, YES if cut[0] == 1.0 > plain[0] else NO


def keeps_its_band(panels: Sequence[Any], panel: int, folder: Path) -> Verdict:
    """Whether BKB's band of 3 sigma holds as much of f as the exact one, at every t."""
    found = json.loads((folder / "summary.json").read_text())["panels"]
    cover = [{label: m["final_coverage"] for label, m in one["methods"].items()} for one in found]
    text = "; ".join(
        f"{one['name']}: f within 3 sigma at {c['BKB']:.1%} of [0, 1], exact {c['exact GP']:.1%}, Fourier features "
        f"{c['16 Fourier features']:.1%}"
        for one, c in zip(found, cover, strict=True)
    )
    holds = all(c["BKB"] >= c["exact GP"] - 0.01 for c in cover)
    return f"{text} (yes: BKB at most 1 % below exact)", YES if holds else NO


def bounded(panels: Sequence[Any], panel: int, folder: Path) -> Verdict:
    """Whether every dictionary of the theorem's q keeps 3 (1 + kappa^2 / lambda) alpha q d_eff, kappa = 1."""
    summary, traces = json.loads((folder / "summary.json").read_text()), pd.read_parquet(folder / "traces.parquet")
    rows = traces[traces["method"] == "BKB, theorem's q"]
    made = panels[panel].made(torch.device("cpu"))
    q = made.methods["BKB, theorem's q"].oversampling
    noise_var = made.built(range(1), torch.device("cpu")).noise_var
    bound = 3.0 * (1.0 + 1.0 / noise_var) * 3.0 * q * rows["effective_dimension"]
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
        Claim(VAR, figure, f"{name}{text}", f"value_at_risk/{config}", i, pairs, LATE) for i, name in enumerate(names)
    ]


def unknown(letter: str, config: str, ours: str, *others: str) -> list[Claim]:
    """The claim about a panel of Fig. 2, in cumulative regret and in the paper's simple regret."""
    measures = ((AVERAGE, "cumulative regret"), (BEST, "best queried"))
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
    *risk("beside 4", "continuous", "exact V-UCB below ρKG (ours)", "V-UCB, exact < RHO-KG-APX", names=FUNCTIONS),
    *risk("5 (a)", "portfolio", "portfolio: V-UCB below ρKG", KG),
    *risk("5 (b)", "robot_pushing", "robot: V-UCB below ρKG, Prob and Unif level", KG, "V-UCB-PROB <= V-UCB-UNIF"),
    *unknown("a", "lengthscale", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("b", "period", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("c", "decomposition", "HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB"),
    *unknown("d", "mean", "HE, w = 1", "MLE, w = 1", "Expected, w = 1"),
    Claim(BKB, "2", "no variance starvation at t = 6, 63, 215", "bkb/starvation", check=keeps_its_band),
    Claim(BKB, "Theorem 1", "a dictionary has at most 3 (1 + κ²/λ) α q d_eff points", "bkb/dictionary", check=bounded),
]
ROUNDING = 1e-9  # regrets that differ by less are equal


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


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> tuple[pd.Series, pd.Series, float, float, float]:
    """Both in the trials that they share, the mean of ours - theirs, and its 95 % interval."""
    a, b = pd.Series(ours, dtype=float).align(pd.Series(theirs, dtype=float), join="inner")
    difference, low, high = (float(x) for x in mean_interval((a - b).to_numpy(), 0.95))
    return (a, b, difference, low, high) if len(a) > 1 else (a, b, difference, -math.inf, math.inf)


def verdict(claim: Claim, regrets: Mapping[str, Mapping[Any, float]]) -> tuple[str, str, int]:
    """What the pairs of a claim show in the regrets of each method, by trial; the verdict; and in how many trials."""
    measure, shown, verdicts, trials = MEASURES[claim.measure], [], [], []
    for ours, relation, theirs in claim.compared():
        a, b, difference, low, high = paired(regrets[ours], regrets[theirs])
        tolerance = max(measure.absolute, measure.share * abs(float(b.mean())), ROUNDING)
        found = decide(relation, low, high, tolerance)
        numbers = (f"{x + 0.0:{measure.form}}" for x in (a.mean(), b.mean(), difference, low, high))
        one, other, gap, start, end = numbers
        shown.append(f"{ours} {one}, {theirs} {other}: {gap} [{start}, {end}], {found}")
        verdicts.append(found)
        trials.append(len(a))
    found = NO if NO in verdicts else YES if set(verdicts) == {YES} else OPEN
    return "; ".join(shown), found, min(trials)
