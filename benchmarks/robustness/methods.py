"""Methods beside those of ``loop: botorch``: RCGP, Optuna's samplers and Ax, with and without this package.

They observe the same initial design and readings as the others, and are asked for one point at a time. On a table they
are moved to the nearest row. Each recommends as its users would: Optuna's samplers the best reading, ``RobustSampler``
and Ax by their own ``recommend``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.robustness.rcgp import rcgp
from bo_robust.experiments.botorch_methods import BOTORCH_METHODS, BoTorchMethod, Loop

__all__ = ["GRID", "OURS", "register"]


@dataclass(frozen=True, kw_only=True)
class RCGP(BoTorchMethod):
    """The robust conjugate GP (Altamirano et al. 2024) in BoTorch's loop."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        return rcgp(X, Y)


class Named:
    """Base of methods whose parameters have names. A method is its own loop: one is made for every trial."""

    every: ClassVar[int] = 5
    readings = 0
    trial: Any = None  # what was asked last; None in the initial design

    def flagged(self) -> np.ndarray:
        return np.zeros(self.readings, dtype=bool)


class Optuna(Named):
    """An Optuna study with a ``sampler``, "gp", "tpe" or "robust", and its settings."""

    def __init__(self, sampler: str, settings: dict[str, Any] | None = None) -> None:
        self.kind, self.settings = sampler, settings or {}

    def begin(self, problem: Any, seed: int, outliers: np.ndarray) -> Loop:
        import optuna

        from bo_robust.integrations.optuna import RobustSampler

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        make = {"gp": optuna.samplers.GPSampler, "tpe": optuna.samplers.TPESampler, "robust": RobustSampler}[self.kind]
        unit: Any = optuna.distributions.FloatDistribution(0.0, 1.0)
        self.space, self.made = {f"x{i}": unit for i in range(problem.d)}, optuna.trial.create_trial
        self.sampler: Any = make(seed=seed, **self.settings)
        self.study = optuna.create_study(direction="maximize", sampler=self.sampler)
        return self

    def ask(self) -> Tensor:
        self.trial = self.study.ask(self.space)
        return _point(self.trial.params)

    def tell(self, x: Tensor, y: float) -> None:
        self.readings += 1
        if self.trial is None:
            self.study.add_trial(self.made(params=_parameters(x), distributions=self.space, value=y))
        else:
            self.study.tell(self.trial, y)

    def recommend(self) -> Tensor:
        ours = hasattr(self.sampler, "recommend")
        return _point(self.sampler.recommend(self.study).x if ours else self.study.best_params)


class Ax(Named):
    """Ax' client, by its own default or, if ``robust``, by ``generation_strategy()``."""

    def __init__(self, robust: bool = False) -> None:
        self.robust = robust

    def begin(self, problem: Any, seed: int, outliers: np.ndarray) -> Loop:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from bo_robust.integrations.ax import generation_strategy, recommend

        logging.disable(logging.WARNING)  # a line for every trial otherwise
        self.best: Any = recommend if self.robust else lambda client: client.get_best_parameterization()
        self.client = Client(random_seed=seed)
        unit: dict[str, Any] = {"parameter_type": "float", "bounds": (0.0, 1.0)}
        self.client.configure_experiment([RangeParameterConfig(name=f"x{i}", **unit) for i in range(problem.d)])
        self.client.configure_optimization(objective="y")
        if self.robust:
            self.client.set_generation_strategy(generation_strategy())
        return self

    def ask(self) -> Tensor:
        ((self.trial, given),) = self.client.get_next_trials(max_trials=1).items()
        return _point(given)

    def tell(self, x: Tensor, y: float) -> None:
        self.readings += 1
        trial = self.client.attach_trial(parameters=_parameters(x)) if self.trial is None else self.trial
        self.client.complete_trial(trial, raw_data={"y": y})

    def recommend(self) -> Tensor:
        return _point(self.best(self.client)[0])


def _parameters(x: Tensor) -> dict[str, Any]:
    return {f"x{i}": value for i, value in enumerate(x.tolist())}


def _point(parameters: Any) -> Tensor:
    return torch.tensor([parameters[f"x{i}"] for i in range(len(parameters))], dtype=torch.float64)


def register() -> None:
    """Add the methods to those that configurations of ``loop: botorch`` can name, in this process."""
    BOTORCH_METHODS.update({"RCGP": RCGP, "Optuna": Optuna, "Ax": Ax})


# By label: what a configuration says of it.
GRID: dict[str, dict[str, Any]] = {
    "SingleTaskGP": {"name": "SingleTaskGP"},
    "known": {"name": "known"},
    "RobustGP": {"name": "RobustGP"},
    "RobustGP + replicates": {"name": "RobustGP", "replicates": True},
    "Winsorised": {"name": "Winsorised"},
    "relevance pursuit": {"name": "RobustRelevancePursuitSingleTaskGP"},
    "RCGP": {"name": "RCGP"},
    "TPE": {"name": "Optuna", "sampler": "tpe"},
    "GPSampler": {"name": "Optuna", "sampler": "gp"},
    "RobustSampler": {"name": "Optuna", "sampler": "robust"},
    "Ax + RobustGP": {"name": "Ax", "robust": True},
    "Ax": {"name": "Ax"},
}
OURS = ("RobustGP", "RobustGP + replicates", "RobustSampler", "Ax + RobustGP")
