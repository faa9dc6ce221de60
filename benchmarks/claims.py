"""The claims of the five papers about their figures, pair by pair (:mod:`benchmarks.reproduce` runs them).

A claim says of two methods of a panel which has less of a measure. :mod:`benchmarks.verdicts` decides it. Questions of
ours stand beside those of the papers and are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.loops.arms import run_rounds, start_state
from benchmarks.loops.traces import Traces
from benchmarks.panel import Panel
from benchmarks.problems.base import Problem
from benchmarks.verdicts import AFTER_10, AFTER_20, AVERAGE, BEST, COVER, FIRST_10, FIRST_20, LATE, SAYS

SRINIVAS, HEAVY, VAR = "Srinivas et al. 2010", "Ray Chowdhury & Gopalan 2019", "Nguyen et al. 2021"
HE, BKB = "Ziomek et al. 2024", "Calandriello et al. 2019"
Values = dict[str, dict[Any, float]]  # by method and trial


@dataclass(frozen=True)
class Claim:
    """What a paper, or a question of ours, says of two methods of a panel of a configuration.

    ``ours`` is "<" (below), "<=" (at most level with) or "=" (level with) ``theirs`` in ``measure``, whose values are
    those of the traces, or of ``values``, which gets the panel.
    """

    paper: str
    figure: str
    config: str
    ours: str
    says: str
    theirs: str
    measure: str = AVERAGE
    panel: int = 0
    about: str = ""
    question: bool = False  # of ours, not of the paper
    values: Callable[[Panel], Values] | None = None

    @property
    def text(self) -> str:
        said = f"{shown(self.ours)} {SAYS[self.says][0]} {shown(self.theirs)}"
        return f"{self.about}: {said}" if self.about else said


NAMES = {
    "RHO-KG-APX": "ρKG",
    "RHO-KG-LOWEST": "ρKG, BoRisk's order of restarts",
    "V-UCB-PROB": "V-UCB Prob",
    "V-UCB-UNIF": "V-UCB Unif",
    "V-UCB-FRESH": "V-UCB Prob, fresh pairs (ours)",
    "V-UCB-LNSO": "V-UCB by LNSO",
    "MC-VAR": "BoTorch's MC-VaR",
    "MC-VAR-LOGNEI": "MC-VaR by qLogNEI",
}


def shown(label: str) -> str:
    """The name of a method on the page."""
    return NAMES.get(label, label)


FUNCTIONS = 5  # of Fig. 1 (f), each with its own placements of the noise


def missed_by_bands(panel: Panel) -> Values:
    """By function, the share of arms at which mu +- sigma, averaged over the placements of the noise, misses f."""
    found: Values = {label: {} for label in panel.methods}
    for seed in range(FUNCTIONS):
        of: Any = replace(panel, seed=panel.seed + seed).made(torch.device("cpu"))
        problem = of.built(range(of.trials), torch.device("cpu"))
        for label, algorithm in of.methods.items():
            posterior = _run(algorithm, problem, of).posterior
            sigma = posterior.variance.sqrt()
            held = (problem.f[0] - posterior.mean.mean(0)).abs() <= sigma.mean(0)
            found[label][seed] = 1.0 - float(held.double().mean())
    return found


ALPHA, LOOKS = 3.0, (50, 100, 200, 400)  # (1 + epsilon) / (1 - epsilon) at epsilon = 1/2; rounds that are looked at
DELTA = 0.1


def beyond_alpha(panel: Panel) -> Values:
    """By trial, 1 if BKB's variance leaves [1 / alpha, alpha] times the exact one at any arm in any round looked at."""
    label, of = "BKB, q = 5", panel.made(torch.device("cpu"))
    left = torch.zeros(of.trials, dtype=torch.bool)
    for rounds in LOOKS:
        cut: Any = replace(of, rounds=rounds)
        problem = cut.built(range(of.trials), torch.device("cpu"))
        state = _run(cut.methods[label], problem, cut)
        ratio = state.posterior.variance / exact_variance(problem, state.posterior.counts)
        left |= ((ratio > ALPHA) | (ratio < 1.0 / ALPHA)).any(1)
    values = {trial: float(x) for trial, x in enumerate(left)}
    return {label: values, "delta = 0.1": dict.fromkeys(values, DELTA)}


def exact_variance(problem: Problem, counts: Tensor) -> Tensor:
    """Of the exact posterior after arms were pulled ``counts`` times, ``s x n``."""
    assert problem.arms is not None
    assert not isinstance(problem.kernel, Tensor)
    K = problem.kernel(problem.arms, problem.arms)
    root = counts.to(K).sqrt()
    eye = torch.eye(len(K), dtype=K.dtype)
    whole = problem.noise_var * eye + root.unsqueeze(-1) * K * root.unsqueeze(-2)
    cross = root.unsqueeze(-1) * K
    return K.diagonal() - (cross * torch.linalg.solve(whole, cross)).sum(-2)


def _run(algorithm: Any, problem: Problem, panel: Panel) -> Any:
    traces = Traces(panel.rounds, problem, "dictionary" in algorithm.records)
    state = start_state(algorithm, problem, panel.rounds)
    run_rounds(algorithm, problem, range(panel.trials), panel.seed, traces, state)
    return state


def srinivas(letter: str, config: str, about: str, mpi: str) -> list[Claim]:
    """The claims about a panel of Fig. 5; ``mpi`` is the relation to MPI."""
    others = (("<=", "EI"), (mpi, "MPI"), ("<", "mean"), ("<", "variance"))
    return [
        Claim(SRINIVAS, f"5 ({letter})", f"srinivas/{config}", "GP-UCB /5", says, other, about=about)
        for says, other in others
    ]


def heavy(letter: str, config: str, *ours: str) -> list[Claim]:
    """The claims about a panel of Fig. 1, at the theorems' widths and at the constants of the authors' scripts."""
    constants = (("theorem", "TGP width"), ("published", "published"))
    pairs = [(f"{one}, {suffix}", "<", f"TGP-UCB, {other}") for suffix, other in constants for one in ours]
    if QFF in ours:
        pairs += [(f"{NYSTROM}, {suffix}", "<=", f"{QFF}, {suffix}") for suffix, _ in constants]
    return [Claim(HEAVY, f"1 ({letter})", f"heavy_tails/{config}", *pair) for pair in pairs]


FUNCTION_NAMES = ("Branin-Hoo (1,1)", "Goldstein-Price (1,1)", "Hartmann-3 (1,2)", "Hartmann-3 (2,1)")


def risk(
    figure: str, config: str, ours: str, says: str, theirs: str, names: Sequence[str] = FUNCTION_NAMES, **how: Any
) -> list[Claim]:
    """Claims about log10 regret of the value at risk, one a panel of ``names``."""
    panels = [FUNCTION_NAMES.index(name) if name in FUNCTION_NAMES else 0 for name in names]
    return [
        Claim(VAR, figure, f"value_at_risk/{config}", ours, says, theirs, LATE, panel, name, **how)
        for panel, name in zip(panels, names, strict=True)
    ]


def unknown(
    letter: str,
    config: str,
    about: str,
    suffix: str = "",
    panel: int = 0,
    measures: Sequence[str] = (AVERAGE, BEST),
    **how: Any,
) -> list[Claim]:
    """The claims about a panel of Fig. 2, by measure; ``suffix`` is that of the labels of the methods."""
    he, mle, expected = (f"{name}{suffix}" for name in ("HE", "MLE", "Expected")) if suffix else HE_METHODS
    return [
        Claim(HE, f"2 ({letter})", f"unknown_hyperparameters/{config}", he, "<", other, measure, panel, about, **how)
        for measure in measures
        for other in (mle, expected)
    ]


HE_METHODS = ("HE-GP-UCB", "MLE-GP-UCB", "ExpectedUCB")
NYSTROM, QFF = "ATA-Nystrom", "ATA-QFF"
KG, LOWEST, PROB, UNIF, FRESH = "RHO-KG-APX", "RHO-KG-LOWEST", "V-UCB-PROB", "V-UCB-UNIF", "V-UCB-FRESH"
OURS: dict[str, Any] = {"question": True}
MARGIN = "a margin of MPI that the paper does not state"
CLAIMS = [
    *srinivas("a", "synthetic", "", "<="),
    *srinivas("b", "temperature", "temperatures", "<"),
    *(
        Claim(SRINIVAS, "5 (b)", "srinivas/temperature", "GP-UCB /5", "<", f"MPI, margin {m}", about=MARGIN, **OURS)
        for m in ("0.01", "0.5")
    ),
    *srinivas("c", "traffic", "traffic", "<="),
    *heavy("a", "student_t", QFF, NYSTROM),
    *heavy("b", "pareto", QFF, NYSTROM),
    *heavy("c", "matern", NYSTROM),
    *heavy("d", "stocks", NYSTROM),
    *heavy("e", "light", QFF, NYSTROM),
    *(
        Claim(
            HEAVY,
            "1 (f)",
            "heavy_tails/one_point_spikes",
            "truncation",
            "<",
            "no truncation",
            COVER,
            panel,
            f"arms missed by the averaged mu ± sigma, lambda = 1, {sign}",
            question=panel == 2,
            values=missed_by_bands,
        )
        for panel, sign in ((1, "one sign for each placement"), (2, "a sign at every pull"))
    ),
    *risk("3", "discrete", PROB, "<", KG),
    *risk("3", "discrete", PROB, "<", UNIF),
    *risk("3", "discrete", UNIF, "<=", KG, FUNCTION_NAMES[:2]),
    *risk("3", "discrete", UNIF, "<", KG, FUNCTION_NAMES[2:]),
    *risk("4", "continuous", "V-UCB-LNSO", "<", KG),
    *risk("5 (a)", "portfolio", PROB, "<", KG, ["portfolio"]),
    *risk("5 (b)", "robot_pushing", PROB, "<", KG, ["robot"]),
    *risk("5 (b)", "robot_pushing", PROB, "=", UNIF, ["robot"]),
    *risk("beside 3", "discrete", PROB, "<", LOWEST, **OURS),
    *risk("beside 3", "discrete", LOWEST, "=", KG, **OURS),
    *risk("beside 3", "discrete", FRESH, "<=", PROB, **OURS),
    *risk("beside 3", "discrete", FRESH, "<=", KG, **OURS),
    *risk("beside 5", "robot_pushing", FRESH, "<=", PROB, ["robot"], **OURS),
    *risk("beside 5", "robot_pushing", FRESH, "<=", KG, ["robot"], **OURS),
    *risk("beside 3", "discrete", PROB, "<", "MC-VAR", **OURS),
    *risk("beside 4", "continuous", "V-UCB, exact", "<", "MC-VAR", **OURS),
    *risk("beside 4", "continuous", "V-UCB, exact", "<", KG, **OURS),
    *unknown("a", "lengthscale", "length-scale"),
    *unknown("b", "period", "period"),
    *unknown("c", "decomposition", "decomposition", measures=(FIRST_10, FIRST_20)),
    *unknown("c", "decomposition", "10 random arms first", panel=1, measures=(AFTER_10, AFTER_20)),
    *unknown("c", "decomposition", "noise of 0.01", panel=2, measures=(FIRST_10, FIRST_20)),
    # The paper claims the beginning alone.
    *unknown("c", "decomposition", "decomposition", **OURS),
    *unknown("d", "mean", "the theorem's width", ", theorem"),
    *unknown("d", "mean", "w = 1, the setting of some 50 in which the paper's order appears", ", w = 1"),
    *(
        Claim(
            BKB,
            "2",
            "bkb/starvation",
            "BKB",
            says,
            other,
            COVER,
            panel,
            f"no variance starvation, t = {t}",
            says == "<",
        )
        for says, other in (("=", "exact GP"), ("<", "16 Fourier features"))
        for panel, t in enumerate((6, 63, 215))
    ),
    Claim(
        BKB,
        "Theorem 1",
        "bkb/dictionary",
        "BKB, q = 5",
        "<=",
        "delta = 0.1",
        COVER,
        about=f"trials in which its variance leaves [1/{ALPHA:g}, {ALPHA:g}] times the exact one",
        values=beyond_alpha,
    ),
]
