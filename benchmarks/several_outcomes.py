"""``RobustSampler`` against Optuna's ``GPSampler`` with a constraint and with two objectives.

``python -m benchmarks.several_outcomes [--seeds 5] [--evaluations 40]`` takes minutes on one core. Branin with the
disc of Gelbart, Snoek & Adams (2014) as its feasible set, and Branin-Currin, both clean and with 10 % of the
readings of each outcome off by 10 standard deviations on either side. Both samplers see the same readings at the same
number of the evaluation. Reported is log10 of what is left to gain by the designs evaluated: the regret of the best
feasible one, or the hypervolume that the true values of all leave below that of the front.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import torch
from botorch.test_functions import Branin
from botorch.test_functions.multi_objective import BraninCurrin
from botorch.utils.multi_objective.box_decompositions.dominated import DominatedPartitioning
from scipy import stats

from benchmarks.common import report, report_environment
from bo_robust.integrations.optuna import RobustSampler
from bo_robust.utils.random import stream

FAULTY, SIZE = 0.1, 10.0
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "GPSampler": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "RobustSampler": lambda seed: RobustSampler(seed=seed),
}


class ConstrainedBranin:
    """Minimise Branin where (x - 2.5)^2 + (y - 7.5)^2 <= 50; the optimum is that at (pi, 2.275)."""

    directions = ("minimize",)
    scales = (51.3, 40.0)  # standard deviations of both outcomes over the box

    def __init__(self) -> None:
        self.f: Any = Branin()

    def outcomes(self, X: torch.Tensor) -> torch.Tensor:
        """Branin and the constraint at points ``n x 2`` of the unit square, ``n x 2``."""
        x = self.f.bounds[0] + (self.f.bounds[1] - self.f.bounds[0]) * X
        return torch.stack([self.f(x), (x[:, 0] - 2.5) ** 2 + (x[:, 1] - 7.5) ** 2 - 50.0], -1)

    def left(self, X: torch.Tensor) -> float:
        """Regret of the best feasible point."""
        value, constraint = self.outcomes(X).T
        return float(value[constraint <= 0.0].min()) - self.f.optimal_value


class Front:
    """Minimise both outcomes of Branin-Currin."""

    directions = ("minimize", "minimize")
    scales = (51.3, 2.5)

    def __init__(self) -> None:
        self.f: Any = BraninCurrin(negate=True)

    def outcomes(self, X: torch.Tensor) -> torch.Tensor:
        """Both outcomes at points ``n x 2`` of the unit square, ``n x 2``."""
        return -self.f(X)

    def left(self, X: torch.Tensor) -> float:
        """Hypervolume of the front that these points do not reach."""
        found = DominatedPartitioning(self.f.ref_point, self.f(X)).compute_hypervolume()
        return float(self.f.max_hv - found)


PROBLEMS: dict[str, Callable[[], Any]] = {"constrained-branin": ConstrainedBranin, "branin-currin": Front}


def campaign(problem: Any, sampler: str, seed: int, share: float, evaluations: int) -> tuple[float, float]:
    """log10 of what is left after the evaluations, and CPU seconds."""
    rng = stream(seed, "several outcomes", 0)
    shifts = np.where(rng.random((evaluations, 2)) < share, SIZE * rng.choice([-1.0, 1.0], (evaluations, 2)), 0.0)
    shifts *= problem.scales
    rows: list[list[float]] = []

    def objective(trial: optuna.Trial) -> Any:
        rows.append([trial.suggest_float(name, 0.0, 1.0) for name in "ab"])
        first, second = (
            problem.outcomes(torch.tensor(rows[-1:], dtype=torch.float64))[0] + shifts[trial.number]
        ).tolist()
        if len(problem.directions) == 2:
            return first, second
        trial.set_constraint("c", second)
        return first

    began = time.process_time()
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), directions=problem.directions)
    study.optimize(objective, n_trials=evaluations)
    return math.log10(max(problem.left(torch.tensor(rows, dtype=torch.float64)), 1e-6)), time.process_time() - began


def main() -> None:
    """Run all campaigns and report means, and differences in pairs with their 95 % interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    report_environment()
    for name, make in PROBLEMS.items():
        for share in (0.0, FAULTY):
            left, seconds = {}, {}
            for sampler in SAMPLERS:
                runs = [campaign(make(), sampler, seed, share, options.evaluations) for seed in range(options.seeds)]
                left[sampler], seconds[sampler] = np.array(runs).T
            gain = left["RobustSampler"] - left["GPSampler"]
            detail: dict[str, Any] = {
                s: {"log10": round(float(left[s].mean()), 2), "cpu_s": round(float(seconds[s].mean()))} for s in left
            }
            half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / math.sqrt(len(gain))
            detail |= {"pairs": [round(float(g), 2) for g in gain], "interval": round(float(half), 2)}
            report(f"{name}, {share:.0%} outliers", round(float(gain.mean()), 2), "log10", None, None, detail)


if __name__ == "__main__":
    main()
