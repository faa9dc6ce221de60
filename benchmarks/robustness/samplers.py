"""Peers with a loop of their own: told the same initial design and readings, asked for the rest.

What they recommend is their own best: Optuna's the parameters of the best reading, Ax' those that its model predicts
best. On a table their proposal is moved to the nearest candidate, and they are told of its reading.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.robustness.contamination import Draws
from benchmarks.robustness.problems import Problem

__all__ = ["SAMPLERS"]

Recommended = Callable[[int, Tensor], None]
AX_EVERY = 10  # evaluations between two looks at what Ax recommends: each fits a model


def _placed(problem: Problem, x: Tensor) -> Tensor:
    """Where a proposal ``d`` is measured."""
    if problem.candidates is None:
        return x
    return problem.candidates[(problem.candidates - x).square().sum(-1).argmin()]


def _optuna(kind: str) -> Callable[..., None]:
    def play(problem: Problem, start: Tensor, draws: Draws, budget: int, seed: int, recommended: Recommended) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        make = {"optuna-gp": optuna.samplers.GPSampler, "tpe": optuna.samplers.TPESampler}[kind]
        study = optuna.create_study(direction="maximize", sampler=make(seed=seed))
        names = [f"x{i}" for i in range(problem.d)]
        for x in start:
            study.enqueue_trial(dict(zip(names, x.tolist(), strict=True)))
        for t in range(budget):
            trial = study.ask()
            x = torch.tensor([trial.suggest_float(name, 0.0, 1.0) for name in names], dtype=torch.float64)
            study.tell(trial, draws.reading(problem, _placed(problem, x), t))
            if t + 1 >= len(start):
                best = torch.tensor([study.best_params[name] for name in names], dtype=torch.float64)
                recommended(t + 1, _placed(problem, best))

    return play


def _ax(problem: Problem, start: Tensor, draws: Draws, budget: int, seed: int, recommended: Recommended) -> None:
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    logging.disable(logging.WARNING)  # a line for every trial otherwise
    client = Client(random_seed=seed)
    names = [f"x{i}" for i in range(problem.d)]
    client.configure_experiment(
        [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in names]
    )
    client.configure_optimization(objective="y")
    for t in range(budget):
        if t < len(start):
            given: Any = dict(zip(names, start[t].tolist(), strict=True))
            index = client.attach_trial(parameters=given)
        else:
            ((index, given),) = client.get_next_trials(max_trials=1).items()
        x = torch.tensor([given[name] for name in names], dtype=torch.float64)
        client.complete_trial(index, raw_data={"y": draws.reading(problem, _placed(problem, x), t)})
        if t + 1 == budget or (t + 1 >= len(start) and (t + 1) % AX_EVERY == 0):
            best = client.get_best_parameterization(use_model_predictions=True)[0]
            recommended(t + 1, _placed(problem, torch.tensor([best[name] for name in names], dtype=torch.float64)))


SAMPLERS: dict[str, Callable[..., None]] = {"optuna-gp": _optuna("optuna-gp"), "tpe": _optuna("tpe"), "ax": _ax}
