"""From the configuration of a panel to its problem, and over arms to its algorithms.

Widths, levels and feature maps take the constants they need from the problem and the panel, unless they are given.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bo_robust.bandits import ALGORITHMS, ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import WIDTHS, information_gain
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.experiments import loop_botorch, loop_environment
from bo_robust.experiments.config import Panel, PanelMethod
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems import PROBLEMS, Problem, Trials, problem_kind
from bo_robust.features import FourierFeatures
from bo_robust.features.leverage import theory_oversampling
from bo_robust.utils import specs

FEATURES: dict[str, Callable[..., Any]] = {
    "fourier": FourierFeatures,
    "nystrom": NystromDictionary,
}
# Loops that run trial by trial.
LOOPS: dict[str, Any] = {"botorch": loop_botorch, "environment": loop_environment}
# Constants that a problem states for widths, levels, feature maps and algorithms.
STATED = ["num_arms", "norm_bound", "moment_bound", "alpha", "noise_scale", "noise_var"]
STATED += ["num_conditions", "probabilities", "functional"]
# Trials times arms from which a round takes less time on an H100 than on a core beside it: one trial of 4,000 arms took
# 2.1 times as long, one of 16,000 half of it.
CUDA_PAYS = 10_000


def build_problem(panel: Panel, trials: Sequence[int], data_dir: Path | None, device: torch.device) -> Any:
    """The problem of a panel on a device: a :class:`Problem` for the given trials, or that of another loop."""
    where = f"panel {panel.name!r}"
    if "data_dir" in panel.problem:
        raise RunError(f"{where}: 'data_dir' is no parameter of a problem; use --data-dir.")
    try:
        with memory_errors(panel, ": the problem does not fit into memory; take fewer arms or trials."):
            kind = problem_kind(panel.loop, panel.problem, data_dir)
            if panel.by_trial:
                return kind.make() if panel.loop == "botorch" else kind.make(device)
            problem = kind.make(Trials(trials, panel.seed))
            problem = dataclasses.replace(problem, noise_var=panel.noise_var or problem.noise_var)
            return problem.to(device, getattr(torch, panel.dtype))
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise RunError(f"{where}: {error}") from None
    except ArithmeticError as error:
        raise RunError(f"{where}: a parameter is too large or too small to compute with ({error}).") from None


# As :func:`build_problem`, but the methods of a panel share one object: data are read once.
shared_problem = functools.lru_cache(maxsize=1)(build_problem)


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
        raise RunError(f"device {name} is not supported; use cpu or cuda.")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RunError(f"device {name} was asked for, but torch {torch.__version__} finds {count} CUDA devices.")
    return device


def build_algorithm(config: PanelMethod, panel: Panel, problem: Problem) -> ArmAlgorithm:
    """The algorithm; what its configuration leaves out comes from problem and panel, or is its default."""
    try:
        return _algorithm(config, panel, problem)
    except ValueError as error:
        raise RunError(f"{config.label!r} of panel {panel.name!r}: {error}") from None


def _algorithm(config: PanelMethod, panel: Panel, problem: Problem) -> ArmAlgorithm:
    cls, name = ALGORITHMS[config.name], config.name
    fields = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    settings, known = config.options, problem.candidates
    if cls.over_candidates and known is None:
        have = ", ".join(kind for kind in PROBLEMS["arms"] if kind.startswith("unknown_"))
        raise ValueError(
            f"{name} chooses among candidate priors and problem {problem.name!r} has none; the problems unknown_... "
            f"have ({have})."
        )
    if "oversampling" in fields and (epsilon := settings.pop("epsilon", None)) is not None:
        if "oversampling" in settings:
            raise ValueError("epsilon is given in place of oversampling; leave one out.")
        settings["oversampling"] = theory_oversampling(panel.horizon, panel.delta, epsilon)
    context = _constants(panel, problem) | {key: settings[key] for key in {"noise_scale"} & settings.keys()}
    for key in ("noise_scale", "lengthscales"):
        if key in fields and settings.get(key, context[key]) is None:
            raise ValueError(f"{name} needs {key}, which the problem does not state.")
    if "num_conditions" in fields and problem.num_conditions == 1:
        raise ValueError(f"{name} needs designs with conditions: a problem ball or conditions.")
    if "features" in fields:
        if "features" not in settings:
            raise ValueError(f"{name} needs `features:`, e.g. {{kind: fourier, nodes: 32}}.")
        features = settings["features"] = specs.build(settings["features"], FEATURES, context, "features")
        # The paper's m: frequencies of Fourier features; None for m_t, the size of the present dictionary.
        context["num_features"] = getattr(features, "num_frequencies", None)
        context["num_directions"] = getattr(features, "num_features", None)
    if "truncation" in fields:
        truncation = settings.get("truncation") or cls.default_truncation(settings.get("features"))
        settings["truncation"] = specs.build(truncation, TRUNCATIONS, context, "truncation")
    if "width" in fields:
        width = settings.get("width") or cls.default_width
        kind = specs.kind_of(width, "width")
        if kind == "rkhs" and known is None:
            context["max_gain"] = _max_gain(problem, panel.horizon)
        delta = cls.delta_of_width(panel.delta, kind)
        settings["width"] = specs.build(width, WIDTHS, context | {"delta": delta}, "width")
    made: ArmAlgorithm = specs.build({"kind": name, **settings}, ALGORITHMS, context, "method")
    return made


def _constants(panel: Panel, problem: Problem) -> dict[str, Any]:
    """What widths, levels, feature maps and algorithms may leave out, by name; None where it is not known.

    The box is the unit box where that holds all arms.
    """
    context: dict[str, Any] = {name: getattr(problem, name) for name in STATED}
    context["norm_bound_squared"] = None if problem.norm_bound is None else problem.norm_bound**2
    context["lengthscales"] = None if problem.candidates is None else problem.candidates.lengthscales
    context |= {"horizon": panel.horizon, "delta": panel.delta}
    context |= {name: getattr(problem.kernel, name) for name in ("lengthscale", "nu") if hasattr(problem.kernel, name)}
    if problem.arms is not None:
        low, high = problem.arms.amin(0), problem.arms.amax(0)
        if bool((low >= 0).all() & (high <= 1).all()):
            low, high = torch.zeros_like(low), torch.ones_like(high)
        context["bounds"] = tuple(zip(low.tolist(), high.tolist(), strict=True))
    return context


def _max_gain(problem: Problem, horizon: int) -> tuple[float, ...]:
    """Greedy bounds on the maximum information gain of 1, 2, ..., ``horizon`` points, the largest over trials."""
    K = build_kernel(problem).matrix
    if K is None:
        raise ValueError("there are too many arms to bound the maximum information gain; give max_gain.")
    bounds = [information_gain.greedy_bound(one, problem.noise_var, horizon) for one in K.view(-1, *K.shape[-2:])]
    return tuple(torch.stack(bounds).amax(0).tolist())


def build_kernel(problem: Problem) -> ArmKernel:
    if isinstance(problem.kernel, torch.Tensor):
        return ArmKernel.from_matrix(problem.kernel, problem.arms)
    assert problem.arms is not None
    return ArmKernel.from_covariance(problem.kernel, problem.arms)


def start_state(algorithm: ArmAlgorithm, problem: Problem, rounds: int | None = None) -> State:
    """The state before any reward, under the prior of every candidate if the algorithm is over candidates.

    ``rounds`` are the rounds to come, if known.
    """
    known = problem.candidates if algorithm.over_candidates else None
    kernels, prior_mean = (None, problem.prior_mean) if known is None else (known.kernels, known.prior_means)
    try:
        kernel = build_kernel(problem) if kernels is None else candidate_kernel([*kernels], problem.arms)
        return algorithm.init(kernel, problem.noise_var, problem.trials, prior_mean=prior_mean, rounds=rounds)
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
        problem = shared_problem(panel, range(1), data_dir, device)
        methods = {method.label: resolved(panel.build_method(method)) for method in panel.methods}
        return {**LOOPS[panel.loop].settings_used(panel, problem, device), "methods": methods}
    problem = build_problem(panel, range(1), data_dir, device)
    algorithms = {method.label: build_algorithm(method, panel, problem) for method in panel.methods}
    with memory_errors(panel):
        for algorithm in algorithms.values():
            start_state(algorithm, problem)
    used = {"noise_var": problem.noise_var, "methods": {label: resolved(made) for label, made in algorithms.items()}}
    if size is not None:  # notes tell of all trials, and no job has them all
        used["notes"] = build_problem(panel, range(panel.trials), data_dir, torch.device("cpu")).notes
    return used


def resolved(method: Any) -> dict[str, Any]:
    """The settings a method really uses, as plain JSON: its class, and every setting with its kind and constants."""
    registries: tuple[Mapping[str, Any], ...] = (WIDTHS, TRUNCATIONS, FEATURES)
    kinds = {cls: kind for registry in registries for kind, cls in registry.items()}
    settings: dict[str, Any] = {"class": type(method).__name__}
    for name, value in vars(method).items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {"kind": kinds.get(type(value), type(value).__name__)} | dataclasses.asdict(value)
        settings[name] = value
    return settings
