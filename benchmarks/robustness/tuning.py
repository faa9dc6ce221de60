"""Tables of hyperparameter tuning: small networks trained by SGD, with learning rates at which they diverge.

A table has a row for each of ``CONFIGURATIONS`` settings and each of ``REPLICATES`` seeds; its last column is the error
on held-out data, the mean square over that of predicting the mean, infinite where training diverged. All networks of a
table are trained at once, in some ten seconds; the table is then kept as a CSV file beside the results.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import ROOT

__all__ = ["TUNING"]

KEPT = ROOT / "benchmarks" / "results" / "robustness"
CONFIGURATIONS, REPLICATES = 256, 4
HIDDEN, STEPS, BATCH = 16, 200, 32
# Beyond this error a run counts as diverged and is reported as this: what a user sees is a huge number or NaN.
DIVERGED = 100.0
SETTINGS = {"learning_rate": (1e-4, 10.0), "weight_decay": (1e-6, 1.0), "init_scale": (0.03, 3.0)}  # logarithmic
MOMENTUM = 0.99  # from 0


def abalone() -> tuple[Tensor, Tensor]:
    """Age of abalones from eight measurements of each."""
    folder = os.environ.get("BO_ROBUST_DATA")
    if folder is None:
        raise SystemExit("set BO_ROBUST_DATA to the folder of data sets, or leave tuning_abalone out (--problems).")
    table = pd.read_csv(Path(folder) / "abalone" / "abalone.csv.gz")
    table = pd.get_dummies(table, dtype=float).sample(1000, random_state=0)
    target = table.pop("rings")
    return torch.from_numpy(table.to_numpy(float)), torch.from_numpy(target.to_numpy(float))


def friedman() -> tuple[Tensor, Tensor]:
    """Friedman's first function of ten inputs, five of them idle, with unit noise."""
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(1000, 10, generator=draws, dtype=torch.float64)
    y = 10 * torch.sin(math.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + torch.randn(1000, generator=draws, dtype=torch.float64)


def train(X: Tensor, y: Tensor) -> pd.DataFrame:
    """All rows of a table: networks of one hidden layer, half of the data to train, half to judge."""
    torch.manual_seed(0)
    X, y = ((X - X.mean(0)) / X.std(0)).float(), ((y - y.mean()) / y.std()).float()
    half = len(y) // 2
    cube = SobolEngine(4, scramble=True, seed=0).draw(CONFIGURATIONS)
    low, high = (torch.tensor(ends).log10() for ends in zip(*SETTINGS.values(), strict=True))
    settings = torch.cat([10 ** (low + (high - low) * cube[:, :3]), MOMENTUM * cube[:, 3:]], 1)
    rate, decay, scale, momentum = settings.repeat_interleave(REPLICATES, 0)[:, :, None, None].unbind(1)
    runs, width = len(rate), X.shape[1]
    weights = [
        scale * torch.randn(runs, width, HIDDEN) / width**0.5,
        torch.zeros(runs, 1, HIDDEN),
        scale * torch.randn(runs, HIDDEN, 1) / HIDDEN**0.5,
        torch.zeros(runs, 1, 1),
    ]
    speeds = [torch.zeros_like(w) for w in weights]
    for _ in range(STEPS):
        rows = torch.randint(half, (runs, BATCH))
        leaves = [w.requires_grad_() for w in weights]
        loss = (_predict(leaves, X[rows]) - y[rows].unsqueeze(-1)).square().mean((1, 2)).sum()
        slopes = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            speeds = [momentum * v + g + decay * w for v, g, w in zip(speeds, slopes, weights, strict=True)]
            weights = [w - rate * v for w, v in zip(weights, speeds, strict=True)]
    with torch.no_grad():
        held = X[half:].expand(runs, -1, -1)
        error = (_predict(weights, held) - y[half:].unsqueeze(-1)).square().mean((1, 2)) / y[half:].var()
    error = error.nan_to_num(math.inf).clamp_max(math.inf)
    error[error > DIVERGED] = math.inf
    # Logarithms where the range is logarithmic: the columns are what the loop searches.
    columns = torch.cat([settings[:, :3].log10(), settings[:, 3:]], 1).repeat_interleave(REPLICATES, 0).double()
    names = [f"log10_{name}" for name in SETTINGS] + ["momentum"]
    return pd.DataFrame(columns.numpy(), columns=names).assign(error=error.double().numpy())


def _predict(weights: list[Tensor], X: Tensor) -> Tensor:
    inner, bias, outer, shift = weights
    return torch.tanh(X @ inner + bias) @ outer + shift


def _kept(name: str, data: Callable[[], tuple[Tensor, Tensor]]) -> pd.DataFrame:
    path = KEPT / f"{name}.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        train(*data()).round(6).to_csv(fresh, index=False)
        fresh.replace(path)  # another process may be writing it too
    return pd.read_csv(path)


TUNING: dict[str, Callable[[], pd.DataFrame]] = {
    "tuning_abalone": functools.partial(_kept, "tuning_abalone", abalone),
    "tuning_friedman": functools.partial(_kept, "tuning_friedman", friedman),
}
