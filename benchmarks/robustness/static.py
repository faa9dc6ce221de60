"""What RobustGP makes of fixed data sets, two or three minutes: ``python -m benchmarks.robustness.static [options]``.

Four families, every set with its own seed. Nothing depends on a loop, so one fit of each model a set is enough.

- ``peak``: no faults. One smooth bump of height 1 on zero that at least three rewards show (they lie above a tenth of
  it). In one dimension its sd is .05 to .1 of the box, in two .1 to .15; 20 to 60 uniform points, noise of sd .01.
- ``smooth``: no faults and no noise. 40 rewards of a quadratic or of Branin, ten of a Sobol design and 30 as a search
  leaves them: ever closer to an optimum.
- ``floor``: no faults. 24 uniform points in two dimensions, most of them on a floor of readings like 1e-8 or 1e-3: a
  bump of sd .1, a sigmoid's edge near a corner, and e^(-20 r); some reading is above .1. Without noise, and with .01.
- ``bumps``: a sum of six bumps of sd .15 to .35, 15 d rewards in 1, 2, 3 or 6 dimensions, noise of .1 sd of f, and the
  faults of a regime; its regime "none" is clean.

A clean reward that is flagged is lost; so is the peak if the mean at the best reading is below half of what was read
there, where ``SingleTaskGP`` is above. ``rmse`` is the log10 of RobustGP's error over ``SingleTaskGP``'s at 1,024 Sobol
points. Settings were chosen on seeds from 500, figures are of seeds from 0 (``--first``).
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import environment, report
from benchmarks.robustness.contamination import Regime
from bo_robust import RobustGP
from bo_robust.models.fitting import fit_evidence
from bo_robust.utils.random import stream

__all__ = ["FAMILIES", "Dataset", "datasets"]

REGIMES = {
    "none": Regime("none"),
    "10% 3sd good": Regime("shift", 0.1, 3.0),
    "20% 3sd good": Regime("shift", 0.2, 3.0),
    "10% 10sd bad": Regime("shift", 0.1, -10.0),
    "30% 10sd good": Regime("shift", 0.3, 10.0),
    "20% cauchy": Regime("cauchy", 0.2, 1.0),
}
FAMILIES = ("peak", "smooth", "floor", "bumps")
BRANIN_OPTIMUM = (0.5428, 0.1517)  # of the unit square
TEST_POINTS = 1024


class Dataset(NamedTuple):
    """Points ``n x d``, rewards ``n x 1``, which of them are faults (``n`` bool), and f of points ``m x d``, ``m``."""

    name: str
    X: Tensor
    Y: Tensor
    faults: np.ndarray
    f: Callable[[Tensor], Tensor]


def _bump(centre: np.ndarray, sd: float) -> Callable[[Tensor], Tensor]:
    return lambda X: (-(X - torch.from_numpy(centre)).square().sum(-1) / (2.0 * sd**2)).exp()


def _clean(name: str, X: Tensor, f: Callable[[Tensor], Tensor], noise: np.ndarray | float) -> Dataset:
    Y = f(X).unsqueeze(-1) + torch.as_tensor(noise)
    return Dataset(name, X, Y, np.zeros(len(X), dtype=bool), f)


def _peak(seed: int) -> Dataset:
    draws = stream(seed, "robustness static peak", 0)
    d = 1 + seed % 2
    n, sd = (20, 40, 60)[seed // 2 % 3], draws.uniform(*((0.05, 0.1) if d == 1 else (0.1, 0.15)))
    while True:
        X, f = torch.from_numpy(draws.random((n, d))), _bump(draws.uniform(0.1, 0.9, d), sd)
        if (f(X) > 0.1).sum() >= 3:
            return _clean(f"peak {d}-D", X, f, 0.01 * draws.standard_normal((n, 1)))


def _quadratic(X: Tensor) -> Tensor:
    return -((X - 0.4) * X.new_tensor([1.0, 2.0])).square().sum(-1)


def _branin(X: Tensor) -> Tensor:
    a, b = 15.0 * X[..., 0] - 5.0, 15.0 * X[..., 1]
    curve = b - 5.1 / (4.0 * math.pi**2) * a**2 + 5.0 / math.pi * a - 6.0
    return -(curve.square() + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * a.cos() + 10.0)


def _smooth(seed: int) -> Dataset:
    draws = stream(seed, "robustness static smooth", 0)
    name, f, optimum = (("quadratic", _quadratic, (0.4, 0.4)), ("branin", _branin, BRANIN_OPTIMUM))[seed % 2]
    reach = np.geomspace(0.3, 0.003, 30)[:, None]
    near = np.clip(np.array(optimum) + reach * draws.standard_normal((30, 2)), 0.0, 1.0)
    X = torch.cat([SobolEngine(2, scramble=True, seed=seed).draw(10, dtype=torch.float64), torch.from_numpy(near)])
    return _clean(name, X, f, 0.0)


def _floor(seed: int) -> Iterator[Dataset]:
    draws = stream(seed, "robustness static floor", 0)
    X, centre = torch.from_numpy(draws.random((24, 2))), torch.from_numpy(draws.uniform(0.2, 0.8, 2))
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "bump": _bump(centre.numpy(), 0.1),
        "edge": lambda X: (30.0 * (X.mean(-1) - 0.8)).sigmoid() * (1.0 - (X[..., 0] - 0.9).square()),
        "decay": lambda X: (-20.0 * (X - centre).norm(dim=-1)).exp(),
    }
    for name, f in functions.items():
        if f(X).max() > 0.1:
            yield _clean(f"{name}, no noise", X, f, 0.0)
            yield _clean(f"{name}, noise .01", X, f, 0.01 * draws.standard_normal((24, 1)))


def _bumps(seed: int) -> Iterator[Dataset]:
    draws = stream(seed, "robustness static bumps", 0)
    d = (1, 2, 3, 6)[seed % 4]
    parts = [
        (weight, _bump(draws.random(d), draws.uniform(0.15, 0.35))) for weight in draws.standard_normal(6).tolist()
    ]
    test = SobolEngine(d, scramble=True, seed=0).draw(TEST_POINTS, dtype=torch.float64)
    raw = torch.stack([weight * bump(test) for weight, bump in parts]).sum(0)

    def f(X: Tensor) -> Tensor:
        total = torch.stack([weight * bump(X) for weight, bump in parts]).sum(0)
        return (total - raw.mean()) / raw.std()

    n = 15 * d
    X = torch.from_numpy(draws.random((n, d)))
    noise, hit, wild = 0.1 * draws.standard_normal((n, 1)), draws.random(n), draws.random(n)
    for name, regime in REGIMES.items():
        _, Xs, Y, _, _ = _clean(name, X, f, noise)
        faults = hit < regime.share
        shift = regime.size * (np.tan(math.pi * (wild - 0.5)) if regime.kind == "cauchy" else np.ones(n))
        yield Dataset(name, Xs, Y + torch.from_numpy(np.where(faults, shift, 0.0)).unsqueeze(-1), faults, f)


def datasets(family: str, first: int, count: int) -> Iterator[Dataset]:
    """The sets of one family with seeds ``first`` to ``first + count - 1``."""
    for seed in range(first, first + count):
        if family in ("bumps", "floor"):
            yield from (_bumps if family == "bumps" else _floor)(seed)
        else:
            yield _peak(seed) if family == "peak" else _smooth(seed)


def _fitted(model: Any) -> Any:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
    return model


def detected(data: Dataset) -> dict[str, float]:
    """How ``RobustGP`` did on one set, beside ``SingleTaskGP`` and that with the faults known."""
    robust, plain = _fitted(RobustGP(data.X, data.Y)), _fitted(SingleTaskGP(data.X, data.Y))
    good = torch.from_numpy(~data.faults)
    known = _fitted(SingleTaskGP(data.X[good], data.Y[good])) if data.faults.any() else plain
    test = SobolEngine(data.X.shape[1], scramble=True, seed=1).draw(TEST_POINTS, dtype=torch.float64)
    inlier, top = robust.inlier_mask.numpy(), int(data.Y.argmax())
    with torch.no_grad():
        error, of_plain, of_known = (
            float((model.posterior(test).mean[:, 0] - data.f(test)).square().mean().sqrt())
            for model in (robust, plain, known)
        )
        half = 0.5 * float(data.Y[top])
        mean, of_top = (float(model.posterior(data.X[top : top + 1]).mean) for model in (robust, plain))
    return {
        "lost": int((~inlier & ~data.faults).sum()),
        "missed": int((inlier & data.faults).sum()),
        "faults": int(data.faults.sum()),
        "peak lost": float(not data.faults.any() and mean < half < of_top),
        "rmse": math.log10(error / of_plain),
        "rmse, faults known": math.log10(of_known / of_plain),
    }


def main() -> None:
    """A line for each kind of data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--sets", type=int, default=200, help="clean peaks; of the other families a fifth as many seeds"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    report("environment", 0, "none", None, None, environment())
    for family in options.families:
        count = options.sets if family == "peak" else math.ceil(options.sets / 5)
        rows: dict[str, list[dict[str, float]]] = {}
        for data in datasets(family, options.first, count):
            rows.setdefault(data.name, []).append(detected(data))
        for name, found in rows.items():
            mean = {key: statistics.fmean(row[key] for row in found) for key in found[0]}
            losing = statistics.fmean(row["lost"] > 0 for row in found)
            errors = [row["rmse"] for row in found]
            spread = 1.96 * statistics.stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
            detail = {"sets": len(found), "most lost in a set": max(row["lost"] for row in found)}
            detail |= {key: round(value, 3) for key, value in mean.items()} | {"rmse, +-": round(spread, 3)}
            report(f"{family}: {name}, sets that lose a good reward", losing, "share", None, None, detail)


if __name__ == "__main__":
    main()
