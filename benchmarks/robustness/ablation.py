"""What every rule of RobustGP's outlier detection buys: ``python -m benchmarks.robustness.ablation``, 45 minutes.

Each variant lacks one rule (:data:`VARIANTS`) and is run on

- ``tables``: the tables that chose the settings (``settings`` in ``real_tables.yaml``), first split, clean and with 10
  or 30 % of the rows off by 5 to 10 standard deviations, see :mod:`benchmarks.real_tables`;
- ``replicated``: the same with a third of the rows measured twice. A second reading has an error of its own, .1
  standard deviations and in contaminated sets, in one of ten, 5 to 10;
- ``static``: 60 peaks, see :mod:`benchmarks.robustness.static`;
- ``loops``: BoTorch's loop on the three functions that chose the settings, seeds 500 to 502, clean and with one reading
  in ten 10 standard deviations too good, with replicates.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from botorch.models import SingleTaskGP

from benchmarks.common import report, report_environment
from benchmarks.real_tables import TABLES, Score, Split, score, split
from benchmarks.robustness.static import FAMILIES, detected
from benchmarks.robustness.summary import REGIMES, SETTINGS
from bo_robust import RobustGP
from bo_robust.experiments.build import build_problem
from bo_robust.experiments.config import Panel
from bo_robust.experiments.loop_botorch import Robust, run_trial
from bo_robust.models import outlier_detection, robust_gp
from bo_robust.utils.random import stream

SEEDS = range(500, 503)
TABLE_REGIMES = ("clean", "5-10 sd, good side", "5-10 sd, either side", "30 %, 5-10 sd, either side")
LOOP_REGIMES = ("clean", "10% 10sd good")
PARTS = ["tables", "replicated", "static", "loops"]
LEAST_REGRET = 1e-4  # in sd of f
Variant = dict[str, Any]
VARIANTS: dict[str, Variant] = {  # by the rule that is left out: other numbers of OutlierPrior, or what is replaced
    "none (all rules)": {},
    "evidence required for any outlier": {"evidence_required": 0.0},
    "evidence required for another scale": {"scale_evidence": 0.0},
    "clipping": {"clip": 1e6},
    "added noise": {"noise": 1e-3},
    "noise of rounding": {"replaced": {"_rounding": lambda y, scale: 0.0}},
    "a cluster counts as one observation": {"cluster_radius": 1e-6},
    "inliers by a replicate only": {"replaced": {"OutlierSearch._by_replicate_only": lambda search, i: i & False}},
    "local deviations": {"max_deviations": 0},
    "variance inflation": {"replaced": {"OutlierSearch._possible": lambda search, given: ()}},
    "initial sets of close observations": {"replaced": {"SPARSE": ()}},
}


def _row(rule: str, family: str, regime: str, measure: str) -> str:
    """The name of a row: what is left out, and the measure, in which a comma would end a column of the page."""
    return f"{rule}: {family}; {regime.replace(',', '')}; {measure}"


@contextmanager
def without(variant: Variant) -> Iterator[None]:
    """RobustGP with other numbers in its prior, and names of ``outlier_detection`` replaced."""
    numbers = {name: value for name, value in variant.items() if name != "replaced"}
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(robust_gp, "OutlierPrior", partial(outlier_detection.OutlierPrior, **numbers))
        )
        for name, value in variant.get("replaced", {}).items():
            owner, _, attribute = name.rpartition(".")
            stack.enter_context(
                mock.patch.object(getattr(outlier_detection, owner) if owner else outlier_detection, attribute, value)
            )
        yield


def replicated(data: Split, table: str, regime: str) -> Split:
    """The split with a third of its rows measured a second time."""
    rng = stream(0, f"ablation {table} {regime}", 0)
    rows = torch.from_numpy(rng.permutation(len(data.Y))[: len(data.Y) // 3])
    sd, true = data.Y[~data.wrong].std(), torch.where(data.wrong[:, None], data.Y.median(), data.Y)[rows]
    wrong = torch.from_numpy(rng.random(len(rows)) < (0.0 if regime == "clean" else 0.1))
    noise, error = (
        torch.from_numpy(draw) for draw in (rng.standard_normal(len(rows)), rng.uniform(5.0, 10.0, len(rows)))
    )
    again = true + sd * torch.where(wrong, 0.1 * noise + error, 0.1 * noise)[:, None]
    return data._replace(
        X=torch.cat([data.X, data.X[rows]]), Y=torch.cat([data.Y, again]), wrong=torch.cat([data.wrong, wrong])
    )


def sets(regime: str, repeat: bool) -> list[tuple[Split, Score]]:
    """The tables' first splits, with the scores of SingleTaskGP."""
    made = []
    for table, formula in TABLES["settings"].items():
        data = split(table, formula, 0, 40, regime)
        data = replicated(data, table, regime) if repeat else data
        made.append((data, score(SingleTaskGP, data, 0)))
    return made


def on_tables(rule: str, regime: str, family: str, data: list[tuple[Split, Score]]) -> None:
    """Report a variant on the tables."""
    results = [(each, plain, score(RobustGP, each, 0)) for each, plain in data]
    wrong = sum(int(each.wrong.sum()) for each, _, _ in results)
    lost = sum(int((model.flagged & ~each.wrong).sum()) for each, _, model in results)
    nlpd = np.array([model.nlpd - plain.nlpd for _, plain, model in results])
    rows = {
        "inliers flagged": (100.0 * lost / sum(int((~each.wrong).sum()) for each, _, _ in results), "%"),
        "NLPD": (float(nlpd.mean()), "nats a row"),
        "worst NLPD": (float(nlpd.max()), "nats a row"),
        "log RMSE": (float(np.mean([math.log(model.rmse / plain.rmse) for _, plain, model in results])), "log"),
        "CPU time": (float(np.mean([model.seconds for *_, model in results])), "s a fit"),
    }
    if wrong:
        found = sum(int((model.flagged & each.wrong).sum()) for each, _, model in results)
        rows["outliers flagged"] = (100.0 * found / wrong, "%")
    else:
        top = np.mean([bool(model.flagged[each.Y.argmax()]) for each, _, model in results])
        rows["largest flagged"] = (100.0 * float(top), "% of sets")
    for name, (value, unit) in rows.items():
        report(_row(rule, family, regime, name), value, unit, None, None, {"sets": len(results)})


def on_static(rule: str) -> None:
    """Report a variant on peaks."""
    found = [detected(FAMILIES["peak"](seed)) for seed in range(500, 560)]
    for name in ("lost", "peak lost"):
        share = 100.0 * float(np.mean([each[name] > 0 for each in found]))
        report(_row(rule, "static", "clean", name), share, "% of sets", None, None, {"sets": len(found)})


def regrets(regime: str) -> np.ndarray:
    """log10 of the regret at the end of each loop."""
    found = []
    for function in SETTINGS:
        panel = Panel.model_validate(
            {
                "name": function,
                "loop": "botorch",
                "problem": {"kind": "function", "function": function},
                "horizon": 40,
                "seed": SEEDS[0],
                "trials": len(SEEDS),
                "outliers": REGIMES[regime],
                "methods": ["RobustGP"],
            }
        )
        problem = build_problem(panel, range(1), None, torch.device("cpu"))
        for trial in range(len(SEEDS)):
            rows = run_trial(problem, Robust(replicates=True), panel, trial)
            found.append(math.log10(max(rows["regret"][-1], LEAST_REGRET)))
    return np.array(found)


def main() -> None:
    """Report every variant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    parts: list[str] = options.parts
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    report_environment()
    for family in ("tables", "replicated"):
        for regime in TABLE_REGIMES if family in parts else ():
            data = sets(regime, family == "replicated")
            for rule in options.variants:
                with without(VARIANTS[rule]):
                    on_tables(rule, regime, family, data)
    for rule in options.variants if "static" in parts else ():
        with without(VARIANTS[rule]):
            on_static(rule)
    for regime in LOOP_REGIMES if "loops" in parts else ():
        whole = regrets(regime)
        for rule in options.variants:
            with without(VARIANTS[rule]):
                more = regrets(regime) - whole
            error = float(more.std(ddof=1)) / math.sqrt(len(more))
            detail = {"loops": len(more), "standard error": round(error, 3)}
            report(_row(rule, "loops", regime, "log10 regret"), float(more.mean()), "log10 units", None, None, detail)


if __name__ == "__main__":
    main()
