"""Optuna's samplers and Ax, with and without this package, in the loop over designs.

They observe the same initial design and readings as the others, and are asked for one point at a time. On a table they
are moved to the nearest row. Each recommends as its users would: Optuna's samplers the best reading, ``RobustSampler``
and Ax by their own ``recommend``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.methods.designs import Loop
from benchmarks.problems.designs import DesignProblem


class Asked:
    """Base of their loops: parameters have names, and no reading is flagged."""

    readings = 0
    trial: Any = None  # what was asked last; None in the initial design

    def flagged(self) -> np.ndarray:
        return np.zeros(self.readings, dtype=bool)


@dataclass(frozen=True)
class Optuna:
    """An Optuna study with a ``sampler``, "gp", "tpe" or "robust", and its settings."""

    every: ClassVar[int] = 5

    sampler: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, problem: DesignProblem, seed: int, outliers: np.ndarray) -> Loop:
        return OptunaLoop(self, problem.d, seed)


class OptunaLoop(Asked):
    """The loop over a study."""

    def __init__(self, method: Optuna, d: int, seed: int) -> None:
        import optuna

        from bo_robust.integrations.optuna import RobustSampler

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {"gp": optuna.samplers.GPSampler, "tpe": optuna.samplers.TPESampler, "robust": RobustSampler}
        unit: Any = optuna.distributions.FloatDistribution(0.0, 1.0)
        self.space, self.made = {f"x{i}": unit for i in range(d)}, optuna.trial.create_trial
        self.sampler: Any = samplers[method.sampler](seed=seed, **method.settings)
        self.study = optuna.create_study(direction="maximize", sampler=self.sampler)

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


@dataclass(frozen=True)
class Ax:
    """Ax' client, by its own default or, if ``robust``, by ``generation_strategy()``."""

    every: ClassVar[int] = 5

    robust: bool = False

    def begin(self, problem: DesignProblem, seed: int, outliers: np.ndarray) -> Loop:
        return AxLoop(self.robust, problem.d, seed)


class AxLoop(Asked):
    """The loop over a client."""

    def __init__(self, robust: bool, d: int, seed: int) -> None:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from bo_robust.integrations.ax import generation_strategy, recommend

        logging.disable(logging.WARNING)  # a line for every trial otherwise
        self.best: Any = recommend if robust else lambda client: client.get_best_parameterization()
        self.client = Client(random_seed=seed)
        unit: dict[str, Any] = {"parameter_type": "float", "bounds": (0.0, 1.0)}
        self.client.configure_experiment([RangeParameterConfig(name=f"x{i}", **unit) for i in range(d)])
        self.client.configure_optimization(objective="y")
        if robust:
            self.client.set_generation_strategy(generation_strategy())

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
