"""From configuration to objects: problems, widths, truncation levels, algorithms.

A width or level takes what it needs (number of arms, B, v, alpha, R, lambda, T, delta) from the problem and the
panel, unless the configuration says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bo_robust.algorithms import ALGORITHMS, ArmAlgorithm
from bo_robust.problems import Problem, make_problem
from bo_robust.runner.config import AlgorithmConfig, PanelConfig, nearest
from bo_robust.runner.errors import RunError
from bo_robust.schedules import TRUNCATIONS, WIDTHS
from bo_robust.states.arms import ArmKernel

__all__ = ["build_algorithm", "build_kernel", "build_problem"]

# What `gp-ucb` and `tgp-ucb` use when a configuration names no width: the randomised width with w^2 divided by 5.
# Chosen over all suites by the rule of benchmarks/width_rule.py (results in benchmarks/results/width_rule.jsonl).
DEFAULT_WIDTH = {"kind": "randomised", "scale": 5.0**-0.5}
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "gp-ucb": {"width": DEFAULT_WIDTH},
    "tgp-ucb": {"width": DEFAULT_WIDTH, "truncation": {"kind": "tgp"}},
    "irgp-ucb": {"width": {"kind": "randomised"}},
}


def build_problem(panel: PanelConfig, trials: Sequence[int], data_dir: Path | None, device: torch.device) -> Problem:
    """The problem of a panel for the given trial indices, on ``device`` in the panel's dtype.

    Raises:
        RunError: naming the panel, on an unknown problem, bad parameters or missing data.
    """
    params = {k: v for k, v in panel.problem.items() if k != "kind"}
    try:
        problem = make_problem(panel.problem["kind"], trials, panel.seed, data_dir=data_dir, **params)
        return problem.to(device, getattr(torch, panel.dtype))
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise RunError(f"panel {panel.name!r}: {error}") from None


def build_kernel(problem: Problem) -> ArmKernel:
    """The prior covariance of a problem."""
    if isinstance(problem.kernel, torch.Tensor):
        return ArmKernel.from_matrix(problem.kernel)
    assert problem.arms is not None
    return ArmKernel.from_covariance(problem.kernel, problem.arms)


def build_algorithm(config: AlgorithmConfig, panel: PanelConfig, problem: Problem) -> ArmAlgorithm:
    """The algorithm with its schedules.

    Raises:
        RunError: on unknown kinds or parameters, or a constant that neither problem nor configuration gives.
    """
    context = {
        "num_arms": problem.num_arms,
        "norm_bound": problem.norm_bound,
        "moment_bound": problem.moment_bound,
        "alpha": problem.alpha,
        "noise_scale": problem.noise_scale,
        "noise_var": panel.noise_var or problem.noise_var,
        "horizon": panel.horizon,
        "delta": panel.delta,
    }
    cls = ALGORITHMS[config.name]
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    given = {"width": config.width, "truncation": config.truncation, "margin": config.margin}
    where = f"{config.label!r} of panel {panel.name!r}"
    for key, value in given.items():
        if value is not None and key not in known:
            raise RunError(f"{where}: {config.name} takes no {key}.")
    arguments: dict[str, Any] = DEFAULTS.get(config.name, {}) | {k: v for k, v in given.items() if v is not None}
    for key, registry in (("width", WIDTHS), ("truncation", TRUNCATIONS)):
        if key in arguments:
            arguments[key] = _schedule(key, arguments[key], dict(registry), context, where)
    try:
        return cls(**arguments)
    except ValueError as error:
        raise RunError(f"{where}: {error}") from None


def _schedule(role: str, spec: dict[str, Any], registry: dict[str, Any], context: dict[str, Any], where: str) -> Any:
    kind = spec["kind"]
    if kind not in registry:
        raise RunError(f"{where}: unknown {role} {kind!r}; {nearest(str(kind), registry)}")
    cls = registry[kind]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    arguments = {k: v for k, v in spec.items() if k != "kind"}
    for key in arguments:
        if key not in fields:
            raise RunError(f"{where}: {role} {kind!r} has no {key!r}; {nearest(key, fields)}")
    for key, f in fields.items():
        if key not in arguments and context.get(key) is not None:
            arguments[key] = context[key]
        if key not in arguments and f.default is dataclasses.MISSING:
            raise RunError(f"{where}: {role} {kind!r} needs {key!r}, which the problem does not state; set it.")
    try:
        return cls(**arguments)
    except (ValueError, TypeError) as error:
        raise RunError(f"{where}: {role} {kind!r}: {error}") from None
