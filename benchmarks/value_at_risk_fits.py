"""The fit and the design of V-UCB in runs: ``python -m benchmarks.value_at_risk_fits [--repetitions N] [--summary]``.

A study with ``v-ucb`` was .29 decades ahead of runs on bumpy problems (three repetitions). Its fits have BoTorch's
priors and come every round; those of runs maximise the likelihood every third round, as the paper's. Its initial points
are Sobol points of x with z from its distribution; those of runs are uniform in x and in z, as the authors'.

The rule, stated when a third of the runs had ended: BoTorch's priors become the default of runs if the difference over
the curve, all problems together, is below 0 with its interval, and that at the end is at most .05 on both kinds.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.grid import Cell, Row, fill, load
from benchmarks.stats import LEAST
from benchmarks.value_at_risk_faults import compared
from benchmarks.value_at_risk_rivals import NAMES, ROUNDS, problem_of
from benchmarks.value_at_risk_rivals import work as play_study
from bo_robust.experiments import conditions_loop
from bo_robust.experiments.conditions.methods import build_method
from bo_robust.experiments.conditions.shared_gp import INSIDE, MIN_NOISE_VAR, SharedGP, maximised
from bo_robust.experiments.config import parse
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.random import stream

SEED = 5
PRIORS, DESIGN = "BoTorch's priors every round", "a study's design"
METHODS = [BASE, *OTHERS] = ["paper", PRIORS, f"paper, {DESIGN}", f"{PRIORS}, {DESIGN}", "Study"]
BUMPY = ("branin", "branin continuous", "goldstein_price", "goldstein_price continuous")
FIELDS = {"bumpy": BUMPY, "smooth": ("recipe suzuki",), "all": (*BUMPY, "recipe suzuki")}


class PriorGP(SharedGP):
    """Hyperparameters of a ``SingleTaskGP``: BoTorch's priors, standardised observations."""

    def _fit(self, X: Tensor, Y: Tensor) -> bool:
        normalize = Normalize(X.shape[-1], bounds=self.bounds)
        gp = SingleTaskGP(X, Y.unsqueeze(-1), input_transform=normalize, outcome_transform=Standardize(1))
        if not maximised(gp):
            return False
        shift, scale = gp.outcome_transform.means.squeeze(), gp.outcome_transform.stdvs.squeeze()
        noise_var = (scale.square() * gp.likelihood.noise.detach()).clamp_min(INSIDE * MIN_NOISE_VAR)
        mean = shift + scale * gp.mean_module.constant.detach()
        self._set(mean, scale.square(), noise_var, gp.covar_module.lengthscale.detach())
        return True


def study_design(problem: ConditionsProblem, n: int, seed: int, trial: int) -> Tensor:
    """Initial points (x, z), ``n x d``: scrambled Sobol points of x, z of the environment's points by probability."""
    number = int(stream(seed, "initial", trial).integers(2**31))
    u = torch.quasirandom.SobolEngine(problem.dim_x, scramble=True, seed=number).draw(n, dtype=torch.float64)
    x = problem.x_bounds[0] + (problem.x_bounds[1] - problem.x_bounds[0]) * u
    z, p = problem.environment.z, problem.environment.probabilities
    chosen = np.random.default_rng(number).choice(len(z), size=n, p=None if p is None else (p / p.sum()).numpy())
    return torch.cat([x, z[torch.as_tensor(chosen)]], -1)


def work(cell: Cell) -> Row:
    """One run: its regrets and CPU seconds."""
    name, seed, method, repetition = cell
    if method == "Study":
        return play_study(cell)
    began, priors = time.process_time(), method.startswith(PRIORS)
    config = {"loop": "conditions", "horizon": ROUNDS, "seed": seed, "methods": [{"name": "v-ucb"}]}
    panel = {"name": name, "problem": {"kind": name.split()[0]}}
    (parsed,) = parse({**config, "refit_every": 1 if priors else 3, "panels": [panel]}).panels
    design = study_design if method.endswith(DESIGN) else conditions_loop.initial_pairs
    with patch.multiple(conditions_loop, SharedGP=PriorGP if priors else SharedGP, initial_pairs=design):
        rows = conditions_loop.play_trial(problem_of(name), build_method("v-ucb", {}), parsed, repetition)
    return {"regret": [round(x, 6) for x in rows["regret"]], "seconds": round(time.process_time() - began, 2)}


def main() -> None:
    """Play what is missing, then print paired differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/value_at_risk/fits.jsonl"))
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    report("environment", 0, "none", None, None, environment())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not arguments.summary:
        cells = itertools.product(range(arguments.repetitions), FIELDS["all"], METHODS)
        fill([(problem, SEED, method, i) for i, problem, method in cells], NAMES, work, arguments.out)
    rows = {(row["problem"], row["method"], row["repetition"]): row["regret"][-ROUNDS:] for row in load(arguments.out)}
    for (field, problems), method in itertools.product(FIELDS.items(), OTHERS):
        keys = [(p, i) for p, m, i in rows if p in problems and m == method and (p, BASE, i) in rows]
        if len(keys) < LEAST:
            continue
        detail = compared([rows[p, method, i] for p, i in keys], [rows[p, BASE, i] for p, i in keys])
        report(f"{field}: {method} less {BASE}", detail["curve"][0], "log10 regret", None, None, detail)


if __name__ == "__main__":
    main()
