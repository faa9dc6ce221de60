"""From configuration to objects: problems, features, widths, truncation levels, algorithms.

A width, level or feature map takes what it needs (number of arms, B, v, alpha, R, lambda, T, delta, m, lengthscale,
box) from the problem and the panel, unless the configuration says otherwise.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bo_robust.algorithms import ALGORITHMS, HEGPUCB, ArmAlgorithm, HypothesisAlgorithm, State
from bo_robust.features import FourierFeatures, MaternFourierFeatures
from bo_robust.features.leverage import theory_oversampling
from bo_robust.problems import PROBLEMS, Problem, make_problem
from bo_robust.problems.noise import NOISES
from bo_robust.runner.config import AlgorithmConfig, PanelConfig, kind_of, nearest, typed
from bo_robust.runner.errors import RunError
from bo_robust.schedules import TRUNCATIONS, WIDTHS
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dictionary import NystromDictionary
from bo_robust.states.hypotheses import candidate_kernel

__all__ = ["FEATURES", "build_algorithm", "build_kernel", "build_problem", "resolved", "start_state"]

# What `gp-ucb` and `tgp-ucb` use when a configuration names no width: the randomised width with w^2 divided by 5.
# Chosen over all suites by the rule of benchmarks/width_rule.py (results in benchmarks/results/width_rule.jsonl).
DEFAULT_WIDTH = {"kind": "randomised", "scale": 5.0**-0.5}
DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "gp-ucb": {"width": DEFAULT_WIDTH},
    "tgp-ucb": {"width": DEFAULT_WIDTH, "truncation": {"kind": "tgp"}},
    "irgp-ucb": {"width": {"kind": "randomised"}},
    "ata-gp-ucb": {"width": DEFAULT_WIDTH},
    "mom-gp-ucb": {"width": DEFAULT_WIDTH},
    "bkb": {"width": DEFAULT_WIDTH},
    "bbkb": {"width": DEFAULT_WIDTH},
    "mini-gp-ucb": {"width": DEFAULT_WIDTH},
    # The test of HE-GP-UCB is of a width that holds; the others are its baselines.
    "he-gp-ucb": {"width": {"kind": "bayesian_finite"}},
    "mle-gp-ucb": {"width": {"kind": "bayesian_finite"}},
    "expected-ucb": {"width": {"kind": "bayesian_finite"}},
    "a-gp-ucb": {"width": {"kind": "bayesian_finite"}},
}
FEATURES: dict[str, type] = {
    "fourier": FourierFeatures,
    "matern_fourier": MaternFourierFeatures,
    "nystrom": NystromDictionary,
}
# Arguments of problems that are no parameters of the problem, and where they are set instead.
RESERVED = {
    "seed": "set `seed:` of the panel",
    "trials": "set `trials:` of the panel",
    "name": "set `kind:`",
    "data_dir": "use --data-dir",
}


def build_problem(panel: PanelConfig, trials: Sequence[int], data_dir: Path | None, device: torch.device) -> Problem:
    """The problem of a panel for the given trial indices, on ``device`` in the panel's dtype.

    Raises:
        RunError: naming the panel, on an unknown problem, bad parameters, missing or unreadable data, or a problem
            too large for the memory.
    """
    where = f"panel {panel.name!r}"
    kind = kind_of(panel.problem, f"`problem` of {where}")
    for key in panel.problem:
        if key in RESERVED:
            raise RunError(f"{where}: {key!r} is no parameter of a problem; {RESERVED[key]}.")
    params = dict(panel.problem)
    if params.get("noise") is not None:
        noise = kind_of(params["noise"], f"`noise` of {where}")
        given = _typed_fields(NOISES.get(noise), params["noise"], f"noise {noise!r} of {where}")
        params["noise"] = {"kind": noise} | given
    params = _typed_fields(PROBLEMS.get(kind), params, f"problem {kind!r} of {where}")
    try:
        problem = make_problem(kind, trials, panel.seed, data_dir=data_dir, **params)
        return problem.to(device, getattr(torch, panel.dtype))
    except (ValueError, OSError, ImportError) as error:
        raise RunError(f"{where}: {error}") from None
    except ArithmeticError as error:
        raise RunError(f"{where}: a parameter is too large or too small to compute with ({error}).") from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise RunError(f"{where}: the problem does not fit into memory; take fewer arms or trials.") from None
        raise


def build_kernel(problem: Problem) -> ArmKernel:
    """The prior covariance of a problem."""
    if isinstance(problem.kernel, torch.Tensor):
        return ArmKernel.from_matrix(problem.kernel, problem.arms)
    assert problem.arms is not None
    return ArmKernel.from_covariance(problem.kernel, problem.arms)


def start_state(
    algorithm: ArmAlgorithm, problem: Problem, noise_var: float, trials: int, rounds: int | None = None
) -> State:
    """The state before any reward: under every candidate for algorithms over hypotheses, else under the right one.

    Args:
        algorithm: What to play.
        problem: With candidates, if the algorithm is over hypotheses.
        noise_var: lambda, where the candidates state none.
        trials: s, those of the problem.
        rounds: Rounds to come, if known.

    Raises:
        RunError: if the algorithm cannot start with these settings.
    """
    known = problem.candidates
    try:
        if not isinstance(algorithm, HypothesisAlgorithm):
            return algorithm.init(
                build_kernel(problem), noise_var, trials, prior_mean=problem.prior_mean, rounds=rounds
            )
        assert known is not None
        kernel = build_kernel(problem) if known.kernels is None else candidate_kernel([*known.kernels], problem.arms)
        noise = noise_var if known.noise_vars is None else problem.f.new_tensor(known.noise_vars)
        return algorithm.init(kernel, noise, trials, prior_mean=known.prior_means, rounds=rounds)
    except ValueError as error:
        raise RunError(f"{type(algorithm).__name__} cannot start on problem {problem.name!r}: {error}") from None


def build_algorithm(config: AlgorithmConfig, panel: PanelConfig, problem: Problem) -> ArmAlgorithm:
    """The algorithm with its schedules.

    Raises:
        RunError: on unknown kinds or parameters, a constant that neither problem nor configuration gives, or an
            algorithm over hypotheses for a problem without candidates.
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
    given = {key: value for key, value in vars(config).items() if key not in ("name", "label")}
    where = f"{config.label!r} of panel {panel.name!r}"
    if issubclass(cls, HypothesisAlgorithm):
        _check_candidates(config, panel, problem, where)
    if given.pop("epsilon") is not None:
        if "oversampling" not in known or given["oversampling"] is not None:
            raise RunError(f"{where}: epsilon is for bkb and bbkb, in place of oversampling; leave one out.")
        try:
            given["oversampling"] = theory_oversampling(panel.horizon, panel.delta, float(config.epsilon or 0.0))
        except ValueError as error:
            raise RunError(f"{where}: {error}") from None
    for key, value in given.items():
        if value is not None and key not in known:
            raise RunError(f"{where}: {config.name} takes no {key}.")
    arguments: dict[str, Any] = DEFAULTS.get(config.name, {}) | {k: v for k, v in given.items() if v is not None}
    if "features" in known:
        if "features" not in arguments:
            raise RunError(f"{where}: {config.name} needs `features:`, e.g. {{kind: fourier, nodes: 32}}.")
        features = arguments["features"] = _part("features", arguments["features"], FEATURES, _box(problem), where)
        fourier = not isinstance(features, NystromDictionary)
        # The paper's m: frequencies of Fourier features, at most n points of a dictionary.
        context["num_features"] = features.num_frequencies if fourier else problem.num_arms
        context["num_directions"] = features.num_features if fourier else problem.num_arms
        if "truncation" in known:
            arguments.setdefault("truncation", {"kind": "ata_fourier" if fourier else "ata_nystrom"})
    lengthscales = None if problem.candidates is None else problem.candidates.lengthscales
    for key, value in (("noise_scale", problem.noise_scale), ("delta", panel.delta), ("lengthscales", lengthscales)):
        if key in known:
            arguments.setdefault(key, value)
            if arguments[key] is None:
                raise RunError(f"{where}: {config.name} needs {key}, which the problem does not state.")
    context["noise_scale"] = arguments.get("noise_scale", problem.noise_scale)
    if cls is HEGPUCB and arguments["width"].get("kind") != "bayesian_finite":
        context["delta"] = 0.5 * panel.delta  # the width's half of delta; bayesian_finite has it in its formula
    for key, registry in (("width", WIDTHS), ("truncation", TRUNCATIONS)):
        if key in arguments:
            arguments[key] = _part(key, arguments[key], dict(registry), context, where)
    try:
        return cls(**arguments)
    except (ValueError, TypeError) as error:
        raise RunError(f"{where}: {error}") from None


def resolved(algorithm: ArmAlgorithm) -> dict[str, Any]:
    """What an algorithm really uses, as plain JSON: class, and every setting with its kind and all constants.

    Example:
        ``{"class": "GPUCB", "width": {"kind": "finite", "num_arms": 20, "delta": 0.1, "scale": 0.447}}``
    """
    registries = (WIDTHS, TRUNCATIONS, FEATURES)
    kinds: dict[Any, str] = {cls: kind for registry in registries for kind, cls in registry.items()}
    settings: dict[str, Any] = {"class": type(algorithm).__name__}
    for f in dataclasses.fields(algorithm):  # type: ignore[arg-type]
        value = getattr(algorithm, f.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {"kind": kinds.get(type(value), type(value).__name__)} | dataclasses.asdict(value)
        settings[f.name] = value
    return settings


def _typed_fields(target: Callable[..., Any] | None, spec: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``spec`` without its kind, every value of the type its parameter of ``target`` has.

    What ``target`` does not take is kept: whoever calls it says so, and names the nearest parameter.
    """
    hints = {} if target is None else typing.get_type_hints(target)
    arguments = {key: value for key, value in spec.items() if key != "kind"}
    return {k: typed(v, hints[k], f"{k} of {where}") if k in hints else v for k, v in arguments.items()}


def _check_candidates(config: AlgorithmConfig, panel: PanelConfig, problem: Problem, where: str) -> None:
    """Algorithms over hypotheses need candidates, whose own noise variances no panel overrides."""
    if problem.candidates is None:
        raise RunError(
            f"{where}: {config.name} chooses among candidate priors and problem {problem.name!r} has none; the "
            f"problems unknown_... have ({', '.join(kind for kind in PROBLEMS if kind.startswith('unknown_'))})."
        )
    if problem.candidates.noise_vars is not None and panel.noise_var is not None:
        raise RunError(f"{where}: the candidates have noise variances of their own; leave out `noise_var:`.")


def _box(problem: Problem) -> dict[str, Any]:
    """Lengthscale and smoothness of the problem's kernel, and the box of its arms: the unit box where it holds them."""
    context: dict[str, Any] = {
        name: getattr(problem.kernel, name) for name in ("lengthscale", "nu") if hasattr(problem.kernel, name)
    }
    if problem.arms is not None:
        low, high = problem.arms.amin(0), problem.arms.amax(0)
        if bool((low >= 0).all() & (high <= 1).all()):
            low, high = torch.zeros_like(low), torch.ones_like(high)
        context["bounds"] = tuple(zip(low.tolist(), high.tolist(), strict=True))
    return context


def _part(role: str, spec: dict[str, Any], registry: dict[str, Any], context: dict[str, Any], where: str) -> Any:
    """A width, truncation level or feature map from its specification, the rest from ``context``."""
    kind = kind_of(spec, f"{role} of {where}")
    if kind not in registry:
        raise RunError(f"{where}: unknown {role} {kind!r}; {nearest(kind, registry)}")
    cls = registry[kind]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    arguments = _typed_fields(cls, spec, f"{role} {kind!r} of {where}")
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
    except (ValueError, OverflowError) as error:
        raise RunError(f"{where}: {role} {kind!r}: {error}") from None
