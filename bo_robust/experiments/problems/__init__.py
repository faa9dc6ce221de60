"""Problems by name, over arms, over (x, z) and over designs; each knows its optimum."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bo_robust.experiments.problems import designs, pairs, sensors, synthetic, tables, unknown_hyperparameters
from bo_robust.experiments.problems.base import OverArms, Problem, Trials
from bo_robust.experiments.problems.conditions import portfolio, robot_pushing
from bo_robust.experiments.problems.conditions import synthetic as analytic
from bo_robust.experiments.problems.conditions.base import ConditionsProblem, OverConditions
from bo_robust.experiments.problems.designs import DesignProblem
from bo_robust.utils.specs import build

ARM_PROBLEMS: Mapping[str, type[OverArms]] = {
    "abalone": tables.Abalone,
    "ball": pairs.Ball,
    "cmu_light": tables.CMULight,
    "conditions": pairs.Conditions,
    "djia29": tables.DJIA29,
    "gp_draw": synthetic.GPDraw,
    "hard_instance": synthetic.HardInstance,
    "intel_lab": sensors.IntelLab,
    "many_arms": synthetic.ManyArms,
    "metr_la_week": sensors.MetrLAWeek,
    "rkhs_function": synthetic.RKHSFunction,
    "spiked_function": synthetic.SpikedFunction,
    "unknown_decomposition": unknown_hyperparameters.UnknownDecomposition,
    "unknown_kernel_temperature": sensors.UnknownKernelTemperature,
    "unknown_lengthscale": unknown_hyperparameters.UnknownLengthscale,
    "unknown_mean": unknown_hyperparameters.UnknownMean,
    "unknown_period": unknown_hyperparameters.UnknownPeriod,
}
DESIGN_PROBLEMS: Mapping[str, Any] = {
    "csv": designs.OwnTable,
    "function": designs.Function,
    "laboratory": designs.Laboratory,
}
CONDITIONS_PROBLEMS: Mapping[str, type[OverConditions]] = {
    "branin": analytic.Branin,
    "goldstein_price": analytic.GoldsteinPrice,
    "hartmann3_12": analytic.Hartmann3OneTwo,
    "hartmann3_21": analytic.Hartmann3TwoOne,
    "portfolio": portfolio.Portfolio,
    "robot_pushing": robot_pushing.RobotPushing,
}
# The problems that these problems over arms are made of.
INNER: dict[str, Mapping[str, Any]] = {"ball": ARM_PROBLEMS, "conditions": CONDITIONS_PROBLEMS}


def make_problem(
    name: str, trials: Sequence[int], seed: int, /, *, data_dir: Path | str | None = None, **params: Any
) -> Problem:
    """Make the problem over arms of a name, a key of :data:`ARM_PROBLEMS`; ``params`` are the fields of its class.

    Row i of the problem depends on ``seed`` and ``trials[i]`` alone. Problems without data ignore ``data_dir``.

    Raises:
        ValueError: for an unknown name or setting, naming the nearest valid one, or a bad value.
        FileNotFoundError: if a data file is missing.
        ImportError: if the problem needs a package that is not installed.
    """
    problem: Problem = problem_kind(ARM_PROBLEMS, {**params, "kind": name}, data_dir).make(Trials(trials, seed))
    return problem


def make_conditions_problem(
    name: str, /, *, data_dir: Path | str | None = None, device: torch.device | str = "cpu", **params: Any
) -> ConditionsProblem:
    """Make the problem over (x, z) of a name, tensors on ``device`` in float64; else as :func:`make_problem`."""
    problem: ConditionsProblem = problem_kind(CONDITIONS_PROBLEMS, {**params, "kind": name}, data_dir).make(device)
    return problem


def make_design_problem(name: str, /, *, data_dir: Path | str | None = None, **params: Any) -> DesignProblem:
    """Make the problem over designs of a name; else as :func:`make_problem`."""
    problem: DesignProblem = problem_kind(DESIGN_PROBLEMS, {**params, "kind": name}, data_dir).make()
    return problem


def problem_kind(registry: Mapping[str, Any], spec: Mapping[str, Any], data_dir: Path | str | None) -> Any:
    """The object of the settings of a problem, ``{"kind": name, ...}``, which can ``make`` the problem."""
    context, name = {"data_dir": data_dir}, spec["kind"]
    if "of" in spec and name in INNER:
        spec = {**spec, "of": build(spec["of"], INNER[name], context, f"`of` of problem {name!r}")}
    return build(spec, registry, context, "problem")
