"""What RobustGP makes of fixed data sets without outliers: ``python -m benchmarks.robustness.static [options]``.

Two families, every set with its own seed: ``--sets`` peaks, and a tenth as many smooth ones. Nothing depends on a
loop, so one fit of each model a set is enough.

- ``peak``: one smooth bump of height 1 on zero that at least three rewards show (they lie above a tenth of it). In one
  dimension its sd is .05 to .1 of the box, in two .1 to .15; 20 to 60 uniform points, noise of sd .01.
- ``smooth``: 40 rewards of Branin without noise, ten of a Sobol design and 30 as a search leaves them: ever closer to
  an optimum.

A reward that is flagged is lost; so is the peak if the mean at the best reading is below half of what was read there,
where ``SingleTaskGP`` is above. Settings were chosen on seeds from 500, figures are of seeds from 0 (``--first``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.test_functions import Branin
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import options, report, report_environment
from benchmarks.methods.designs import fitted
from bo_robust import RobustGP
from bo_robust.utils.random import stream

BRANIN_OPTIMUM = (0.5428, 0.1517)  # of the unit square


class Dataset(NamedTuple):
    """Points ``n x d`` and rewards ``n x 1``."""

    name: str
    X: Tensor
    Y: Tensor


def _peak(seed: int) -> Dataset:
    draws = stream(seed, "robustness static peak", 0)
    d = 1 + seed % 2
    n, sd = (20, 40, 60)[seed // 2 % 3], draws.uniform(*((0.05, 0.1) if d == 1 else (0.1, 0.15)))
    while True:
        X, center = torch.from_numpy(draws.random((n, d))), torch.from_numpy(draws.uniform(0.1, 0.9, d))
        f = (-(X - center).square().sum(-1, keepdim=True) / (2.0 * sd**2)).exp()
        if (f > 0.1).sum() >= 3:
            return Dataset(f"peak {d}-D", X, f + torch.from_numpy(0.01 * draws.standard_normal((n, 1))))


def _smooth(seed: int) -> Dataset:
    seed = 2 * seed + 1  # the odd seeds, as in earlier figures
    draws = stream(seed, "robustness static smooth", 0)
    reach = np.geomspace(0.3, 0.003, 30)[:, None]
    near = np.clip(np.array(BRANIN_OPTIMUM) + reach * draws.standard_normal((30, 2)), 0.0, 1.0)
    X = torch.cat([SobolEngine(2, scramble=True, seed=seed).draw(10, dtype=torch.float64), torch.from_numpy(near)])
    return Dataset("branin", X, Branin(negate=True)(15.0 * X - torch.tensor([5.0, 0.0])).unsqueeze(-1))


FAMILIES: dict[str, Callable[[int], Dataset]] = {"peak": _peak, "smooth": _smooth}


def detected(data: Dataset) -> dict[str, float]:
    """How ``RobustGP`` did on one set, beside ``SingleTaskGP``."""
    robust, plain = fitted(RobustGP(data.X, data.Y)), fitted(SingleTaskGP(data.X, data.Y))
    top = int(data.Y.argmax())
    with torch.no_grad():
        mean, of_top = (float(model.posterior(data.X[top : top + 1]).mean) for model in (robust, plain))
    half = 0.5 * float(data.Y[top])
    return {"lost": int((~robust.inlier_mask).sum()), "peak lost": float(mean < half < of_top)}


def main() -> None:
    """A line for each kind of data set."""
    given = options(__doc__, families=FAMILIES, first=0, sets=200)
    report_environment()
    for family in given.families:
        count = given.sets if family == "peak" else math.ceil(given.sets / 10)
        rows: dict[str, list[dict[str, float]]] = {}
        for data in map(FAMILIES[family], range(given.first, given.first + count)):
            rows.setdefault(data.name, []).append(detected(data))
        for name, found in rows.items():
            mean = {key: round(statistics.fmean(row[key] for row in found), 3) for key in found[0]}
            losing = statistics.fmean(row["lost"] > 0 for row in found)
            detail = {"sets": len(found), "most lost in a set": max(row["lost"] for row in found)}
            report(f"{family}: {name}, sets that lose a good reward", losing, "share", detail | mean)


if __name__ == "__main__":
    main()
