"""From the configuration of a panel to its problem, and over arms to its algorithms.

A width, level or feature map takes the constants it needs (number of arms, B, v, alpha, R, lambda, T, delta, m,
lengthscale, box) from the problem and the panel, unless the configuration gives them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from bo_robust.bandits import ALGORITHMS, ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import WIDTHS, information_gain
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.experiments.config import Panel, PanelMethod
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems import (
    PROBLEMS,
    ConditionsProblem,
    DesignProblem,
    Problem,
    make_conditions_problem,
    make_design_problem,
    make_problem,
)
from bo_robust.features import FourierFeatures, MaternFourierFeatures
from bo_robust.features.leverage import theory_oversampling
from bo_robust.utils import specs

FEATURES: dict[str, Callable[..., Any]] = {
    "fourier": FourierFeatures,
    "matern_fourier": MaternFourierFeatures,
    "nystrom": NystromDictionary,
}
# Arguments of problems that a configuration must not give under `problem:`, and where they are set instead.
SET_ELSEWHERE = {
    "seed": "set `seed:` of the panel",
    "trials": "set `trials:` of the panel",
    "name": "set `kind:`",
    "data_dir": "use --data-dir",
    "device": "use --device",
    "dtype": "set `dtype:` of the panel; other loops are in float64",
}


# Trials times arms from which a round takes less time on an H100 than on a core beside it: one trial of 4,000 arms took
# 2.1 times as long, one of 16,000 half of it (benchmarks/results/nvidia-h100-80gb).
CUDA_PAYS = 10_000


def build_problem(panel: Panel, trials: Sequence[int], data_dir: Path | None, device: torch.device) -> Problem:
    """The problem of a panel over arms for the given trial indices, on ``device`` in the panel's dtype."""
    with _problem_errors(panel):
        kind, settings = _split(panel)
        problem = make_problem(kind, trials, panel.seed, data_dir=data_dir, **settings)
        return problem.to(device, getattr(torch, panel.dtype))


def build_conditions_problem(panel: Panel, data_dir: Path | None, device: torch.device | str) -> ConditionsProblem:
    """The problem of a panel over (x, z)."""
    with _problem_errors(panel):
        kind, settings = _split(panel)
        return make_conditions_problem(kind, data_dir=data_dir, device=device, **settings)


def build_design_problem(panel: Panel, data_dir: Path | None) -> DesignProblem:
    """The problem of a panel over designs."""
    with _problem_errors(panel):
        kind, settings = _split(panel)
        return make_design_problem(kind, data_dir=data_dir, **settings)


def _split(panel: Panel) -> tuple[str, dict[str, Any]]:
    """The kind of the panel's problem and its settings."""
    settings = dict(panel.problem)
    kind = settings.pop("kind")
    own = {field.name for field in dataclasses.fields(PROBLEMS[kind])} - {"data_dir"}  # type: ignore[arg-type]
    for key in settings:
        if key in SET_ELSEWHERE and key not in own:
            raise RunError(f"panel {panel.name!r}: {key!r} is no parameter of a problem; {SET_ELSEWHERE[key]}.")
    return kind, settings


@contextmanager
def _problem_errors(panel: Panel) -> Iterator[None]:
    """Name the panel where its problem is bad, lacks data, or is too large."""
    where = f"panel {panel.name!r}"
    try:
        with memory_errors(panel, ": the problem does not fit into memory; take fewer arms or trials."):
            yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise RunError(f"{where}: {error}") from None
    except ArithmeticError as error:
        raise RunError(f"{where}: a parameter is too large or too small to compute with ({error}).") from None


@contextmanager
def memory_errors(
    panel: Panel, words: str = " does not fit into memory; lower --trials, --horizon or --trials-per-job."
) -> Iterator[None]:
    """Turn a lack of memory, on the host or the device, into ``RunError``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On a CPU torch reports a lack of memory as a plain RuntimeError, "can't allocate memory".
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise RunError(f"panel {panel.name!r}{words}") from None
        raise


def find_device(name: str) -> torch.device:
    """The torch device of a name, or ``RunError`` if it is unknown or this machine lacks it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"unknown device {specs.quoted(name)}; use cpu, cuda or cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"device {specs.quoted(name)} is not supported; use cpu or cuda.")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RunError(
            f"device {specs.quoted(name)} was asked for, but torch {torch.__version__} finds {count} CUDA devices."
        )
    return device


def build_algorithm(config: PanelMethod, panel: Panel, problem: Problem) -> ArmAlgorithm:
    """The algorithm with its width, truncation level and features."""
    where = f"{config.label!r} of panel {panel.name!r}"
    cls = ALGORITHMS[config.name]
    if cls.over_candidates:
        _check_candidates(config, panel, problem, where)
    try:
        return cls(**_settings(cls, config, panel, problem))
    except (ValueError, TypeError) as error:
        raise RunError(f"{where}: {error}") from None


def _settings(cls: type[ArmAlgorithm], config: PanelMethod, panel: Panel, problem: Problem) -> dict[str, Any]:
    """Every argument of the algorithm's class: from the configuration, by default, or from problem and panel."""
    fields = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    settings = config.options
    epsilon = settings.pop("epsilon", None)
    if epsilon is not None:
        if "oversampling" in settings:
            raise ValueError("epsilon is given in place of oversampling; leave one out.")
        settings["oversampling"] = theory_oversampling(panel.horizon, panel.delta, float(epsilon))
    known = problem.candidates
    # Fields of algorithms, not of their widths; the context below is for widths, levels and features.
    for name, value in (
        ("noise_scale", problem.noise_scale),
        ("delta", panel.delta),
        ("lengthscales", None if known is None else known.lengthscales),
    ):
        if name in fields and settings.setdefault(name, value) is None:
            raise ValueError(f"{config.name} needs {name}, which the problem does not state.")
    if "num_conditions" in fields:
        if problem.num_conditions == 1:
            raise ValueError(f"{config.name} needs designs with conditions: a problem ball or conditions.")
        for name in ("num_conditions", "probabilities", "functional"):
            if name in fields:
                settings.setdefault(name, getattr(problem, name))
    context = {
        "num_arms": problem.num_arms,
        "norm_bound": problem.norm_bound,
        "norm_bound_squared": None if problem.norm_bound is None else problem.norm_bound**2,
        "moment_bound": problem.moment_bound,
        "alpha": problem.alpha,
        "noise_scale": settings.get("noise_scale", problem.noise_scale),
        "noise_var": panel.noise_var or problem.noise_var,
        "horizon": panel.horizon,
        "delta": panel.delta,
    }
    if "features" in fields:
        if "features" not in settings:
            raise ValueError(f"{config.name} needs `features:`, e.g. {{kind: fourier, nodes: 32}}.")
        features = settings["features"] = specs.build(settings["features"], FEATURES, _box(problem), "features")
        # The paper's m: frequencies of Fourier features; None for m_t, the size of the present dictionary.
        context["num_features"] = getattr(features, "num_frequencies", None)
        context["num_directions"] = getattr(features, "num_features", None)
    if "truncation" in fields:
        truncation = settings.get("truncation") or cls.default_truncation(settings.get("features"))
        settings["truncation"] = specs.build(truncation, TRUNCATIONS, context, "truncation")
    if "width" in fields:
        width = settings.get("width") or cls.default_width
        kind = specs.kind_of(width, "width")
        delta = cls.delta_of_width(panel.delta, kind)
        if kind == "rkhs" and known is None:
            context["max_gain"] = _max_gain(problem, panel.noise_var or problem.noise_var, panel.horizon)
        settings["width"] = specs.build(width, WIDTHS, context | {"delta": delta}, "width")
    return settings


def _max_gain(problem: Problem, noise_var: float, horizon: int) -> tuple[float, ...]:
    """Greedy bounds on the maximum information gain of 1, 2, ..., ``horizon`` points, the largest over trials."""
    K = build_kernel(problem).matrix
    if K is None:
        raise ValueError("there are too many arms to bound the maximum information gain; give max_gain.")
    bounds = [information_gain.greedy_bound(one, noise_var, horizon) for one in K.view(-1, *K.shape[-2:])]
    return tuple(torch.stack(bounds).amax(0).tolist())


def build_kernel(problem: Problem) -> ArmKernel:
    """The prior covariance of a problem."""
    if isinstance(problem.kernel, torch.Tensor):
        return ArmKernel.from_matrix(problem.kernel, problem.arms)
    assert problem.arms is not None
    return ArmKernel.from_covariance(problem.kernel, problem.arms)


def start_state(
    algorithm: ArmAlgorithm, problem: Problem, noise_var: float, trials: int, rounds: int | None = None
) -> State:
    """The state before any reward, under the prior of every candidate if the algorithm is over candidates.

    ``noise_var`` is lambda, unless the candidates state theirs; ``rounds`` are the rounds to come, if known.
    ``RunError`` is raised if the algorithm cannot start with these settings.
    """
    known = problem.candidates
    try:
        if not algorithm.over_candidates:
            return algorithm.init(
                build_kernel(problem), noise_var, trials, prior_mean=problem.prior_mean, rounds=rounds
            )
        assert known is not None
        kernel = build_kernel(problem) if known.kernels is None else candidate_kernel([*known.kernels], problem.arms)
        noise = noise_var if known.noise_vars is None else problem.f.new_tensor(known.noise_vars)
        return algorithm.init(kernel, noise, trials, prior_mean=known.prior_means, rounds=rounds)
    except ValueError as error:
        raise RunError(f"{type(algorithm).__name__} cannot start on problem {problem.name!r}: {error}") from None


def fastest_device(panels: Sequence[Panel], data_dir: Path | None) -> str:
    """The device for a run that names none: CUDA where it is there, and a batch of trials over arms is large."""
    if not torch.cuda.is_available() or any(panel.by_trial for panel in panels):
        return "cpu"
    sizes = [panel.trials * build_problem(panel, range(1), data_dir, torch.device("cpu")).num_arms for panel in panels]
    return "cuda" if max(sizes) >= CUDA_PAYS else "cpu"


def settings_used(panel: Panel, data_dir: Path | None, device: torch.device, size: int | None) -> dict[str, Any]:
    """Everything a panel uses, with every constant filled in, as plain data; errors are those of building it.

    ``size`` is the number of trials that a job over arms has, None if all are.
    """
    if panel.by_trial:
        return loop_of(panel).settings_used(panel, data_dir, device)
    problem = build_problem(panel, range(1), data_dir, device)
    noise_var = panel.noise_var or problem.noise_var
    algorithms = {method.label: build_algorithm(method, panel, problem) for method in panel.methods}
    with memory_errors(panel):
        for algorithm in algorithms.values():
            start_state(algorithm, problem, noise_var, 1)
    used = {"noise_var": noise_var, "methods": {label: resolved(made) for label, made in algorithms.items()}}
    if size is not None:  # notes tell of all trials, and no job has them all
        used["notes"] = build_problem(panel, range(panel.trials), data_dir, torch.device("cpu")).notes
    return used


def loop_of(panel: Panel) -> Any:
    """The module of a loop that runs trial by trial, with ``run_method`` and ``settings_used``."""
    return import_module(f"bo_robust.experiments.loop_{panel.loop}")  # they import BoTorch's optimisers


def resolved(algorithm: ArmAlgorithm) -> dict[str, Any]:
    """The settings an algorithm really uses, as plain JSON: its class, and every setting with its kind and constants.

    Example:
        ``{"class": "GPUCB", "width": {"kind": "finite", "num_arms": 20, "delta": 0.1, "scale": 0.447}}``
    """
    registries: tuple[Mapping[str, Any], ...] = (WIDTHS, TRUNCATIONS, FEATURES)
    kinds = {cls: kind for registry in registries for kind, cls in registry.items()}
    settings: dict[str, Any] = {"class": type(algorithm).__name__}
    for f in dataclasses.fields(algorithm):  # type: ignore[arg-type]
        value = getattr(algorithm, f.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {"kind": kinds.get(type(value), type(value).__name__)} | dataclasses.asdict(value)
        settings[f.name] = value
    return settings


def _check_candidates(config: PanelMethod, panel: Panel, problem: Problem, where: str) -> None:
    """Refuse problems without candidates, and panels that override the candidates' noise variances."""
    if problem.candidates is None:
        raise RunError(
            f"{where}: {config.name} chooses among candidate priors and problem {problem.name!r} has none; the "
            f"problems unknown_... have ({', '.join(kind for kind in PROBLEMS if kind.startswith('unknown_'))})."
        )
    if problem.candidates.noise_vars is not None and panel.noise_var is not None:
        raise RunError(f"{where}: the candidates have noise variances of their own; leave out `noise_var:`.")


def _box(problem: Problem) -> dict[str, Any]:
    """The kernel's lengthscale and smoothness, and the box of the arms: the unit box if it holds all arms."""
    context: dict[str, Any] = {
        name: getattr(problem.kernel, name) for name in ("lengthscale", "nu") if hasattr(problem.kernel, name)
    }
    if problem.arms is not None:
        low, high = problem.arms.amin(0), problem.arms.amax(0)
        if bool((low >= 0).all() & (high <= 1).all()):
            low, high = torch.zeros_like(low), torch.ones_like(high)
        context["bounds"] = tuple(zip(low.tolist(), high.tolist(), strict=True))
    return context
