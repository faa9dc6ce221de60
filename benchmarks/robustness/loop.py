"""One campaign: the same initial design, acquisition and search for every model."""

from __future__ import annotations

import math
import time
import warnings
import zlib
from typing import Any

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.robustness import samplers
from benchmarks.robustness.contamination import REGIMES, Draws, draw
from benchmarks.robustness.models import METHODS, PILOT
from benchmarks.robustness.problems import Problem, diverging, initial_design, make_problem
from bo_robust import RobustGP

__all__ = ["ACQUISITIONS", "Cell", "campaign"]

# Of "cheap": raw points, local ones around the best points so far, starts of L-BFGS and its steps.
RAW, LOCAL, STARTS, STEPS = 512, 128, 3, 20
RADII = (0.1, 0.02)

Cell = tuple[str, str, int, str]  # problem, regime, seed, method


def _random(cell: Cell, t: int) -> int:
    """A seed for the search at evaluation ``t``, the same for all methods."""
    return zlib.crc32(repr((*cell[:3], t)).encode())


def unmeasured(candidates: Tensor, X: Tensor) -> Tensor:
    """Candidates not measured yet; all of them once none is left.

    A table has few replicates, and repeats of what is known best would fill a campaign. So a row is measured again only
    where a method asks to verify it.
    """
    rest = candidates[torch.cdist(candidates, X).amin(-1) > 0.0]
    return rest if len(rest) else candidates


def cheap(model: Any, X: Tensor, best: Tensor, problem: Problem, seed: int) -> Tensor:
    """The next point ``1 x d`` by log expected improvement over the best posterior mean at the points measured.

    It is the best of a table's candidates that are not measured yet. Over the cube it is the best of 512 Sobol points
    and 128 Gaussian steps from the best point so far, improved by L-BFGS from the best three.
    """
    with torch.no_grad():
        top = model.posterior(X).mean.max()
    acquisition = LogExpectedImprovement(model, top)
    if problem.candidates is not None:
        rest = unmeasured(problem.candidates, X)
        with torch.no_grad():
            return rest[acquisition(rest.unsqueeze(1)).argmax()].unsqueeze(0)
    draws = torch.Generator().manual_seed(seed)
    steps = torch.randn(len(RADII), LOCAL // len(RADII), problem.d, generator=draws, dtype=torch.float64)
    near = best + steps * torch.tensor(RADII, dtype=torch.float64)[:, None, None]
    raw = SobolEngine(problem.d, scramble=True, seed=seed).draw(RAW, dtype=torch.float64)
    points = torch.cat([raw, near.reshape(-1, problem.d).clamp(0.0, 1.0)]).unsqueeze(1)
    with torch.no_grad():
        values = acquisition(points)
    starts = points[values.topk(STARTS).indices]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopped at STEPS
        found, reached = gen_candidates_scipy(
            starts, acquisition, lower_bounds=0.0, upper_bounds=1.0, options={"maxiter": STEPS}
        )
    if not torch.isfinite(reached).all() or reached.max() < values.max():
        return starts[0]
    return found[reached.argmax()].detach()


def qlognei(model: Any, X: Tensor, best: Tensor, problem: Problem, seed: int) -> Tensor:
    """The next point ``1 x d`` by BoTorch's default: log noisy expected improvement, as its tutorials search it."""
    torch.manual_seed(seed)
    acquisition = qLogNoisyExpectedImprovement(model, X, prune_baseline=True)
    if problem.candidates is not None:
        return optimize_acqf_discrete(acquisition, q=1, choices=unmeasured(problem.candidates, X))[0]
    box = torch.tensor([[0.0] * problem.d, [1.0] * problem.d], dtype=torch.float64)
    return optimize_acqf(acquisition, box, q=1, num_restarts=4, raw_samples=64)[0]


ACQUISITIONS = {"cheap": cheap, "qlognei": qlognei}


class Regrets:
    """Simple regret of the recommendation after each evaluation, kept where it changes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.steps: list[tuple[int, float]] = []

    def add(self, evaluations: int, x: Tensor) -> None:
        """The recommendation ``d`` after so many evaluations."""
        regret = float(f"{max(self.problem.best - float(self.problem.value(x.unsqueeze(0))), 0.0):.4g}")
        if not self.steps or self.steps[-1][1] != regret:
            self.steps.append((evaluations, regret))


def campaign(cell: Cell, acquisition: str = "cheap", budget: int | None = None) -> dict[str, Any]:
    """Play one cell; ``budget`` replaces the problem's number of evaluations, for tests.

    Returns:
        The cell with ``curve`` (pairs of evaluations and the regret of the recommendation from then on, in sd of f),
        ``regret`` at the end, CPU ``seconds``, those of them that ``fitting`` took, ``evaluations`` and how many of
        them went to ``verifying``.
    """
    name, regime, seed, method = cell
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem = make_problem(name)
    if REGIMES[regime].kind == "diverged":
        problem = diverging(problem, seed)
    budget = budget or problem.budget
    draws = draw(problem, REGIMES[regime], seed)
    regrets = Regrets(problem)
    began = time.process_time()
    if method in samplers.SAMPLERS:
        start = initial_design(problem, seed)
        samplers.SAMPLERS[method](problem, start, draws, budget, seed, regrets.add)
        fitting, verifying = math.nan, 0
    else:
        fitting, verifying = _loop(cell, problem, draws, budget, acquisition, regrets)
    return {
        "problem": name,
        "regime": regime,
        "seed": seed,
        "method": method,
        "acquisition": acquisition,
        "evaluations": budget,
        "regret": regrets.steps[-1][1],
        "seconds": round(time.process_time() - began, 3),
        "fitting": None if math.isnan(fitting) else round(fitting, 3),
        "verifying": verifying,
        "curve": regrets.steps,
    }


def _loop(
    cell: Cell, problem: Problem, draws: Draws, budget: int, acquisition: str, regrets: Regrets
) -> tuple[float, int]:
    """Seconds spent on models, and evaluations spent on measuring again."""
    method = METHODS[cell[3]]
    pilot = _pilot(cell, problem) if method.pilot else None
    modeller = method.make(pilot)
    X = initial_design(problem, cell[2])
    Y = torch.tensor([[draws.reading(problem, x, t)] for t, x in enumerate(X)], dtype=torch.float64)
    fitting, verifying = 0.0, 0
    while True:
        began = time.process_time()
        torch.manual_seed(_random(cell, len(Y)))
        if method.seldom and len(Y) == budget:
            modeller = method.make(pilot)
        model = modeller(X, Y, draws.outlier[: len(Y)])
        model.eval()
        with torch.no_grad():
            mean = model.posterior(X).mean.squeeze(-1)
            if isinstance(model, RobustGP):
                mean = mean.where(model.recommendable(), -math.inf)
            best = X[mean.argmax()]
        fitting += time.process_time() - began
        regrets.add(len(Y), best)
        if len(Y) == budget:
            return fitting, verifying
        x = method.verify(model)
        verifying += x is not None
        if x is None:
            x = ACQUISITIONS[acquisition](model, X, best, problem, _random(cell, len(Y)))
        Y = torch.cat([Y, Y.new_tensor([[draws.reading(problem, x[0], len(Y))]])])
        X = torch.cat([X, x])


def _pilot(cell: Cell, problem: Problem) -> Tensor:
    """Readings of the past, under the same regime."""
    draws = draw(problem, REGIMES[cell[1]], cell[2], PILOT, "pilot")
    if problem.candidates is None:
        X = SobolEngine(problem.d, scramble=True, seed=cell[2] + 1).draw(PILOT, dtype=torch.float64)
    else:
        rows = np.random.default_rng(cell[2]).integers(len(problem.candidates), size=PILOT)
        X = problem.candidates[torch.from_numpy(rows)]
    return torch.tensor([draws.reading(problem, x, t) for t, x in enumerate(X)], dtype=torch.float64)
