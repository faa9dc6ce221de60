"""Entry points: what a user can put between an initial design and a recommendation, ours and those of others.

Each observes the same initial design and the same readings as all others, and asked for the rest, one point at a time:
``ask`` for the next point of the unit cube, ``tell`` its reading. On a table BoTorch's loops choose among its rows, and
the others are moved to the nearest row. Each recommends as its users would: BoTorch's loops the measured point of the
best posterior mean (``RobustGP``'s of those that are ``recommendable``), Optuna's samplers the best reading,
``RobustSampler``, and Ax with and without us by their own ``recommend``.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.robustness.problems import Problem
from benchmarks.robustness.rcgp import rcgp
from bo_robust import RobustGP, suggest_replicates

__all__ = ["GRID", "LOOPS", "OURS", "PEERS", "Loop", "fitted", "winsorised"]

PROBES = 64  # Sobol points at which models are compared
_asked: dict[str, Tensor] = {}  # by what decides it: the next point of BoTorch's loops, in this process


class Loop(Protocol):
    """What is played; points are ``d``, in the unit cube."""

    def start(self, x: Tensor, y: float) -> None:
        """A point of the initial design."""

    def ask(self) -> Tensor:
        """The next point."""

    def tell(self, y: float) -> None:
        """Its reading."""

    def recommend(self) -> Tensor:
        """The point to use, from all that was told."""


def fitted(model: Any) -> Any:
    """The model, fitted as BoTorch's tutorials do; unfitted where the fit ends nowhere."""
    with contextlib.suppress(ModelFittingError):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def winsorised(Y: Tensor) -> Tensor:
    """Rewards within 1.5 times the interquartile range of the quartiles, as Ax's ``Winsorize`` has it for both sides.

    Quartiles are observed values (facebook/Ax at e3371084, ``ax/adapter/transforms/winsorize.py``, with
    ``AUTO_WINS_QUANTILE``). Ax's own default clips the bad side only.
    """
    q1 = float(np.percentile(Y.numpy(), 25, method="lower"))
    q3 = float(np.percentile(Y.numpy(), 75, method="higher"))
    return Y.clamp(q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1))


def _known(X: Tensor, Y: Tensor, faults: Tensor) -> Any:
    kept = ~faults if (~faults).sum() >= 2 else torch.ones_like(faults)
    return SingleTaskGP(X[kept], Y[kept])


# Models of points ``n x d``, readings ``n x 1`` and which of them are faults, which only "known" looks at.
MODELS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "plain": lambda X, Y, faults: fitted(SingleTaskGP(X, Y)),
    "known": lambda X, Y, faults: fitted(_known(X, Y, faults)),
    "winsorised": lambda X, Y, faults: fitted(SingleTaskGP(X, winsorised(Y))),
    "rcgp": lambda X, Y, faults: rcgp(X, Y),
    "diff": lambda X, Y, faults: fitted(RobustGP(X, Y)),
}


class BoTorchLoop:
    """The README's loop, with one model or another.

    Random numbers are those of the evaluation. So models that predict the same, to the last bit, ask the same; then the
    acquisition is maximised once for all of them.
    """

    def __init__(self, problem: Problem, seed: int, faults: np.ndarray, model: str, replicates: bool = False) -> None:
        self.problem, self.seed, self.faults = problem, seed, torch.from_numpy(faults)
        self.make, self.replicates = MODELS[model], replicates
        self.X, self.Y = torch.empty(0, problem.d, dtype=torch.float64), torch.empty(0, 1, dtype=torch.float64)
        self.model: Any = None
        self.probes = SobolEngine(problem.d, scramble=True, seed=0).draw(PROBES, dtype=torch.float64)

    def start(self, x: Tensor, y: float) -> None:
        self.asked = x
        self.tell(y)

    def tell(self, y: float) -> None:
        self.X, self.Y = torch.cat([self.X, self.asked.unsqueeze(0)]), torch.cat([self.Y, self.Y.new_tensor([[y]])])
        self.model = None

    def fit(self) -> None:
        if self.model is None:
            torch.manual_seed(self._random())
            self.model = self.make(self.X, self.Y, self.faults[: len(self.X)]).eval()

    def ask(self) -> Tensor:
        self.fit()
        again = suggest_replicates(self.model) if self.replicates else None
        self.asked = again[0] if again is not None else self._maximise()
        return self.asked

    def recommend(self) -> Tensor:
        self.fit()
        with torch.no_grad():
            mean = self.model.posterior(self.X).mean.squeeze(-1)
        if isinstance(self.model, RobustGP):
            mean = mean.where(self.model.recommendable(), -math.inf)
        return self.X[mean.argmax()]

    def _random(self) -> int:
        return zlib.crc32(repr((self.problem.name, self.seed, len(self.X))).encode())

    def _maximise(self) -> Tensor:
        with torch.no_grad():
            seen = self.model.posterior(torch.cat([self.probes, self.X]))
        key = hashlib.sha256(repr((self.problem.name, self.seed, len(self.X))).encode())
        for part in (self.X, seen.mean, seen.variance):
            key.update(part.numpy().tobytes())
        if key.hexdigest() not in _asked:
            torch.manual_seed(self._random())
            acquisition = qLogNoisyExpectedImprovement(self.model, self.X)
            if self.problem.candidates is None:
                box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, self.problem.d)
                x, _ = optimize_acqf(acquisition, box, q=1, num_restarts=4, raw_samples=64)
            else:  # a table's few replicates must not fill a campaign: only `suggest_replicates` measures a row again
                free = self.problem.candidates[torch.cdist(self.problem.candidates, self.X).amin(-1) > 0.0]
                x, _ = optimize_acqf_discrete(acquisition, q=1, choices=free)
            _asked[key.hexdigest()] = x[0]
        return _asked[key.hexdigest()]


class OptunaLoop:
    """An Optuna study, with its own samplers or ours."""

    def __init__(self, problem: Problem, seed: int, faults: np.ndarray, sampler: str) -> None:
        import optuna

        from bo_robust.integrations.optuna import RobustSampler

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        make = {"gp": optuna.samplers.GPSampler, "tpe": optuna.samplers.TPESampler, "robust": RobustSampler}[sampler]
        self.optuna, self.names, self.sampler = optuna, _names(problem), make(seed=seed)
        self.study = optuna.create_study(direction="maximize", sampler=self.sampler)

    def start(self, x: Tensor, y: float) -> None:
        unit = self.optuna.distributions.FloatDistribution(0.0, 1.0)
        made = self.optuna.trial.create_trial
        self.study.add_trial(made(params=_parameters(x), distributions=dict.fromkeys(self.names, unit), value=y))

    def ask(self) -> Tensor:
        self.trial = self.study.ask()
        return _point({name: self.trial.suggest_float(name, 0.0, 1.0) for name in self.names})

    def tell(self, y: float) -> None:
        self.study.tell(self.trial, y)

    def recommend(self) -> Tensor:
        ours = hasattr(self.sampler, "recommend")
        return _point(self.sampler.recommend(self.study).x if ours else self.study.best_params)


class AxLoop:
    """Ax' client, by its own default or by ``generation_strategy()``."""

    def __init__(self, problem: Problem, seed: int, faults: np.ndarray, ours: bool) -> None:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from bo_robust.integrations.ax import generation_strategy, recommend

        logging.disable(logging.WARNING)  # a line for every trial otherwise
        self.best: Any = recommend if ours else lambda client: client.get_best_parameterization()
        self.client = Client(random_seed=seed)
        self.client.configure_experiment(
            [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in _names(problem)]
        )
        self.client.configure_optimization(objective="y")
        if ours:
            self.client.set_generation_strategy(generation_strategy())

    def start(self, x: Tensor, y: float) -> None:
        self.trial = self.client.attach_trial(parameters=_parameters(x))
        self.tell(y)

    def ask(self) -> Tensor:
        ((self.trial, given),) = self.client.get_next_trials(max_trials=1).items()
        return _point(given)

    def tell(self, y: float) -> None:
        self.client.complete_trial(self.trial, raw_data={"y": y})

    def recommend(self) -> Tensor:
        return _point(self.best(self.client)[0])


def _names(problem: Problem) -> list[str]:
    return [f"x{i}" for i in range(problem.d)]


def _parameters(x: Tensor) -> dict[str, Any]:
    return {f"x{i}": value for i, value in enumerate(x.tolist())}


def _point(parameters: Any) -> Tensor:
    return torch.tensor([parameters[f"x{i}"] for i in range(len(parameters))], dtype=torch.float64)


Made = Callable[[Problem, int, np.ndarray], Loop]  # of a problem, a seed and which readings will be faults


def _loop(model: str, replicates: bool = False) -> Made:
    return lambda problem, seed, faults: BoTorchLoop(problem, seed, faults, model, replicates)


def _optuna(sampler: str) -> Made:
    return lambda problem, seed, faults: OptunaLoop(problem, seed, faults, sampler)


def _ax(ours: bool) -> Made:
    return lambda problem, seed, faults: AxLoop(problem, seed, faults, ours)


# Those whose models may be the same to the last bit come one after another.
LOOPS: dict[str, Made] = {
    "plain": _loop("plain"),
    "known": _loop("known"),
    "diff": _loop("diff"),
    "diff with verify": _loop("diff", replicates=True),
    "winsorised": _loop("winsorised"),
    "rcgp": _loop("rcgp"),
    "tpe": _optuna("tpe"),
    "optuna-gp": _optuna("gp"),
    "robust-sampler": _optuna("robust"),
    "ax-robust": _ax(ours=True),
    "ax": _ax(ours=False),
}
GRID = tuple(LOOPS)
OURS = ("diff", "diff with verify", "robust-sampler", "ax-robust")
PEERS = tuple(name for name in GRID if name not in (*OURS, "plain", "known"))
