"""What every rule of RobustGP's outlier detection buys: ``python -m benchmarks.robustness.ablation``, 85 minutes.

Each variant lacks one rule (:data:`VARIANTS`) and is run on

- ``tables``: the tables that chose the settings (``settings`` in ``real_tables.json``), three splits, clean and with 10
  or 30 % of the rows off by 5 to 10 standard deviations, see :mod:`benchmarks.real_tables`;
- ``replicated``: the same with a third of the rows measured twice. A second reading has an error of its own, .1
  standard deviations and in contaminated sets, in one of ten, 5 to 10;
- ``static``: 60 peaks, see :mod:`benchmarks.robustness.static`;
- ``loops``: BoTorch's loop on the three functions that chose the settings, seeds 500 to 502, clean and with one reading
  in ten 10 standard deviations too good, with replicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch
from botorch.models import SingleTaskGP

from benchmarks.common import options, report, report_environment
from benchmarks.loops.designs import DesignsPanel
from benchmarks.methods.designs import Robust
from benchmarks.problems.designs import Function
from benchmarks.real_tables import TABLES, Score, Split, compared, score, split
from benchmarks.robustness.grid import REGIMES
from benchmarks.robustness.static import FAMILIES, detected
from benchmarks.robustness.summary import SETTINGS
from bo_robust import RobustGP
from bo_robust.utils.random import stream

SEEDS = range(500, 503)
TABLE_REGIMES = ("clean", "5-10 sd, good side", "5-10 sd, either side", "30 %, 5-10 sd, either side")
LOOP_REGIMES = ("clean", "10% 10sd good")
PARTS = ("tables", "replicated", "static", "loops")
LEAST_REGRET = 1e-4  # in sd of f
MEASURES = {
    "inliers flagged": "%",
    "NLPD": "nats a row",
    "worst NLPD": "nats a row",
    "log RMSE": "log",
    "CPU time": "s a fit",
    "outliers flagged": "%",
    "largest flagged": "% of sets",
}
Variant = dict[str, Any]
VARIANTS: dict[str, Variant] = {  # by the rule that is left out: what is replaced, by the path of its name
    "none (all rules)": {},
    "evidence required for any outlier": {"search.EVIDENCE_REQUIRED": 0.0},
    "evidence required for another scale": {"detection.SCALE_EVIDENCE": 0.0},
    "clipping": {"search.CLIP": 1e6},
    "added noise": {"search.NOISE": 1e-3},
    "noise of rounding": {"search._rounding": lambda y, scale: 0.0},
    "a cluster counts as one observation": {"search.CLUSTER_RADIUS": 1e-6},
    "what the others foretell is no outlier": {"search.OutlierSearch._foretold": lambda search, theta, *rest: False},
    "a scale must predict": {"detection._predicting": lambda y, searches, found, evidence: int(evidence.argmax())},
    "inliers by a replicate only": {"search.OutlierSearch._by_replicate_only": lambda search, inliers: inliers & False},
    "local deviations": {"search.MAX_DEVIATIONS": 0},
    "initial sets of close observations": {"search.SPARSE": ()},
}


def _row(rule: str, family: str, regime: str, measure: str) -> str:
    """The name of a row: what is left out, and the measure, in which a comma would end a column of the page."""
    return f"{rule}: {family}; {regime.replace(',', '')}; {measure}"


@contextmanager
def without(variant: Variant) -> Iterator[None]:
    """RobustGP with these names of its modules replaced."""
    with ExitStack() as stack:
        for name, value in variant.items():
            stack.enter_context(mock.patch(f"bo_robust.models.robust.{name}", value))
        yield


def replicated(data: Split, table: str, regime: str, seed: int) -> Split:
    """The split with a third of its rows measured a second time."""
    rng = stream(seed, f"ablation {table} {regime}", 0)
    rows = torch.from_numpy(rng.permutation(len(data.Y))[: len(data.Y) // 3])
    sd, true = data.Y[~data.wrong].std(), torch.where(data.wrong[:, None], data.Y.median(), data.Y)[rows]
    wrong = torch.from_numpy(rng.random(len(rows)) < (0.0 if regime == "clean" else 0.1))
    noise = torch.from_numpy(0.1 * rng.standard_normal(len(rows)))
    error = torch.from_numpy(rng.uniform(5.0, 10.0, len(rows))) * wrong
    again = data.X[rows], true + sd * (noise + error)[:, None], wrong
    X, Y, both = (torch.cat(pair) for pair in zip((data.X, data.Y, data.wrong), again, strict=True))
    return data._replace(X=X, Y=Y, wrong=both)


def sets(regime: str, repeat: bool) -> list[tuple[Split, Score]]:
    """Three splits of the tables, with the scores of SingleTaskGP."""
    made = []
    for (table, formula), seed in product(TABLES["settings"].items(), range(3)):
        data = split(table, formula, seed, 40, regime)
        data = replicated(data, table, regime, seed) if repeat else data
        made.append((data, score(SingleTaskGP, data, 0)))
    return made


def on_tables(rule: str, regime: str, family: str, data: list[tuple[Split, Score]]) -> None:
    """Report a variant on the tables."""
    found = compared([(each, plain, score(RobustGP, each, 0)) for each, plain in data])
    for name, unit in MEASURES.items():
        if name != ("outliers flagged" if regime == "clean" else "largest flagged"):
            report(_row(rule, family, regime, name), found[name], unit, {"sets": len(data)})


def on_static(rule: str) -> None:
    """Report a variant on peaks."""
    found = [detected(FAMILIES["peak"](seed)) for seed in range(500, 560)]
    for name in ("lost", "peak lost"):
        share = 100.0 * float(np.mean([each[name] > 0 for each in found]))
        report(_row(rule, "static", "clean", name), share, "% of sets", {"sets": len(found)})


def regrets(regime: str) -> np.ndarray:
    """log10 of the regret at the end of each loop."""
    found = []
    for function in SETTINGS:
        method, problem = Robust(replicates=True), Function(function)
        sizes: dict[str, Any] = {"seed": SEEDS[0], "trials": len(SEEDS), "rounds": 40}
        panel = DesignsPanel(function, problem, {"RobustGP": method}, outliers=REGIMES[regime], **sizes)
        for trial in range(len(SEEDS)):
            rows = panel.run_trial(panel.built(torch.device("cpu")), method, trial)
            found.append(math.log10(max(rows["regret"][-1], LEAST_REGRET)))
    return np.array(found)


def main() -> None:
    """Report every variant."""
    given = options(__doc__, parts=dict.fromkeys(PARTS), variants=VARIANTS)
    report_environment()
    for family in (family for family in ("tables", "replicated") if family in given.parts):
        for regime in TABLE_REGIMES:
            data = sets(regime, family == "replicated")
            for rule in given.variants:
                with without(VARIANTS[rule]):
                    on_tables(rule, regime, family, data)
    for rule in given.variants if "static" in given.parts else ():
        with without(VARIANTS[rule]):
            on_static(rule)
    for regime in LOOP_REGIMES if "loops" in given.parts else ():
        whole = regrets(regime)
        for rule in given.variants:
            with without(VARIANTS[rule]):
                more = regrets(regime) - whole
            error = float(more.std(ddof=1)) / math.sqrt(len(more))
            detail = {"loops": len(more), "standard error": round(error, 3)}
            report(_row(rule, "loops", regime, "log10 regret"), float(more.mean()), "log10 units", detail)


if __name__ == "__main__":
    main()
