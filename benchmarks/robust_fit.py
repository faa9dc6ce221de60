"""What ``RobustGP`` costs: construction and fit over those of ``SingleTaskGP``: ``python -m benchmarks.robust_fit``.

Data are the first n Sobol points of Hartmann-6 with the noise and contamination of ``benchmarks.robustness``, a seed a
pair. Each pair is timed one after the other in one process, in alternating order; reported is the median of the
ratios. One thread, one JSON object a line.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from time import process_time

import torch
from botorch.models import SingleTaskGP
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.common import environment, report
from benchmarks.robustness.contamination import REGIMES, draw
from benchmarks.robustness.doors import fitted
from benchmarks.robustness.problems import make_problem
from benchmarks.stats import ratios, report_paired, seconds
from bo_robust import RobustGP

SIZES, LARGE = (20, 100, 500, 1000, 2000), 500  # beyond LARGE with faults of ten standard deviations alone


def faulty_data(n: int, regime: str, seed: int) -> tuple[Tensor, Tensor]:
    """Points ``n x 6`` and readings ``n x 1``."""
    problem = make_problem("hartmann6")
    X = SobolEngine(problem.d, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    draws = draw(problem, REGIMES[regime], seed, n)
    return X, torch.tensor([[draws.reading(problem, x, t)] for t, x in enumerate(X)], dtype=torch.float64)


def pair(n: int, regime: str, seed: int) -> tuple[float, float]:
    """CPU seconds of ``SingleTaskGP`` and of ``RobustGP`` on the same data."""
    X, Y = faulty_data(n, regime, seed)
    models = {"plain": SingleTaskGP, "robust": RobustGP}
    order = list(models) if seed % 2 else list(models)[::-1]
    took = {name: seconds(lambda name=name: fitted(models[name](X, Y)), process_time) for name in order}  # type: ignore[misc]
    return took["plain"], took["robust"]


def main() -> None:
    """A line for each size and regime."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", default="9,9,9,5,5", help="of every size; five are judged")
    pairs = [int(part) for part in parser.parse_args().pairs.split(",")]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    report("environment", 0, "none", None, None, environment())
    pair(20, "clean", 0)  # imports, caches
    for n, count in zip(SIZES, pairs, strict=True):
        for regime in ("clean", "10% 3sd either", "10% 10sd good")[2 * (n > LARGE) :]:
            plain, robust = zip(*(pair(n, regime, seed) for seed in range(count)), strict=True)
            times = {"SingleTaskGP, s": statistics.median(plain), "RobustGP, s": statistics.median(robust)}
            name = f"fit, n = {n}, {regime}"
            report_paired(name, ratios(robust, plain), "times SingleTaskGP", most=2.0, detail=times)


if __name__ == "__main__":
    main()
