"""Bandit problems by name: objectives, noise and real data tables that know their optimum."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bo_robust.problems.abalone import abalone
from bo_robust.problems.base import Candidates, Problem, RewardModel
from bo_robust.problems.lower_bound import hard_instance
from bo_robust.problems.sensors import intel_lab, metr_la_week, unknown_kernel_temperature
from bo_robust.problems.stocks import sp500
from bo_robust.problems.synthetic import gp_draw, many_arms, rkhs_function, spiked_function
from bo_robust.problems.tables import cmu_light, djia29, seattle_latency
from bo_robust.problems.unknown_hyperparameters import unknown_decomposition, unknown_lengthscale, unknown_period
from bo_robust.problems.unknown_mean import unknown_mean

__all__ = ["PROBLEMS", "Candidates", "Problem", "RewardModel", "make_problem", "nearest_name"]

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "abalone": abalone,
    "cmu_light": cmu_light,
    "djia29": djia29,
    "gp_draw": gp_draw,
    "hard_instance": hard_instance,
    "intel_lab": intel_lab,
    "many_arms": many_arms,
    "metr_la_week": metr_la_week,
    "rkhs_function": rkhs_function,
    "seattle_latency": seattle_latency,
    "sp500": sp500,
    "spiked_function": spiked_function,
    "unknown_decomposition": unknown_decomposition,
    "unknown_kernel_temperature": unknown_kernel_temperature,
    "unknown_lengthscale": unknown_lengthscale,
    "unknown_mean": unknown_mean,
    "unknown_period": unknown_period,
}


def make_problem(
    name: str, trials: Sequence[int], seed: int, /, *, data_dir: Path | str | None = None, **params: Any
) -> Problem:
    """The problem of a name.

    Args:
        name: Key of :data:`PROBLEMS`.
        trials: Trial indices; row i of the problem depends on (seed, trials[i]) alone.
        seed: Seed of the experiment, >= 0.
        data_dir: Folder of real data; ignored by problems that read none.
        **params: Parameters of the problem's factory, of the types its signature states.

    Raises:
        ValueError: for an unknown name or parameter, naming the nearest valid one, or a bad value.
    """
    if name not in PROBLEMS:
        raise ValueError(f"no problem is called {name!r}{nearest_name(name, PROBLEMS)}")
    factory = PROBLEMS[name]
    accepted = [p for p in inspect.signature(factory).parameters if p not in ("trials", "seed")]
    settable = [p for p in accepted if p != "data_dir"]
    for param in params:
        if param not in settable:
            raise ValueError(f"problem {name!r} has no parameter {param!r}{nearest_name(param, settable)}")
    if "data_dir" in accepted:
        params["data_dir"] = data_dir
    return factory(trials, seed, **params)


def nearest_name(word: str, choices: Iterable[str]) -> str:
    valid = sorted(choices)
    near = difflib.get_close_matches(word, valid, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"{hint} Valid: {', '.join(valid) or 'none'}."
