"""From the configuration of a panel to its problem, and over arms to its algorithms."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bo_robust.bandits import ALGORITHMS, ArmAlgorithm, State
from bo_robust.bandits.ata_gp_ucb import FEATURES
from bo_robust.bandits.constants import Box, Constants
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import WIDTHS, information_gain
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.problems import ARM_PROBLEMS, Problem, problem_kind
from bo_robust.utils.linalg import device_named

if TYPE_CHECKING:
    from bo_robust.experiments.config import Panel, PanelMethod

# Constants that the problem states; the kernel may have a lengthscale and a smoothness nu.
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
            kind = problem_kind(panel.runner.problems, panel.problem, data_dir)
            return panel.runner.make_problem(kind, panel, trials, device)
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
        return device_named(name)
    except ValueError as error:
        raise RunError(str(error)) from None


def build_algorithm(config: PanelMethod, panel: Panel, problem: Problem) -> ArmAlgorithm:
    """The algorithm; what its configuration leaves out comes from problem and panel, or is its default."""
    algorithm = ALGORITHMS[config.name]
    try:
        if algorithm.over_candidates and problem.candidates is None:
            have = ", ".join(kind for kind in ARM_PROBLEMS if kind.startswith("unknown_"))
            raise ValueError(
                f"{config.name} chooses among candidate priors and problem {problem.name!r} has none; the problems "
                f"unknown_... have ({have})."
            )
        return algorithm.from_settings(config.name, config.options, constants_of(panel, problem))
    except ValueError as error:
        raise RunError(f"{config.label!r} of panel {panel.name!r}: {error}") from None


def constants_of(panel: Panel, problem: Problem) -> Constants:
    """What widths, levels, feature maps and algorithms may leave out. The box is the unit box where it holds all arms.

    The width of an algorithm over candidates takes the information gain as it is, not its maximum.
    """
    values: dict[str, Any] = {name: getattr(problem, name) for name in STATED}
    values |= {name: getattr(problem.kernel, name) for name in ("lengthscale", "nu") if hasattr(problem.kernel, name)}
    if problem.candidates is None:
        values["max_gain"] = functools.partial(_max_gain, problem, panel.horizon)
    else:
        values["lengthscales"] = problem.candidates.lengthscales
    return Constants(horizon=panel.horizon, delta=panel.delta, bounds=_box(problem.arms), **values)


def _box(arms: torch.Tensor | None) -> Box | None:
    if arms is None:
        return None
    low, high = arms.amin(0), arms.amax(0)
    if bool((low >= 0).all() & (high <= 1).all()):
        low, high = torch.zeros_like(low), torch.ones_like(high)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


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
    priors = problem.candidates if algorithm.over_candidates else None
    kernels, prior_mean = (None, problem.prior_mean) if priors is None else (priors.kernels, priors.prior_means)
    try:
        kernel = build_kernel(problem) if kernels is None else candidate_kernel([*kernels], problem.arms)
        return algorithm.init(kernel, problem.noise_var, problem.trials, prior_mean=prior_mean, rounds=rounds)
    except ValueError as error:
        raise RunError(f"{type(algorithm).__name__} cannot start on problem {problem.name!r}: {error}") from None


def fastest_device(panels: Sequence[Panel], data_dir: Path | None) -> str:
    """The device for a run that names none: CUDA where it is there, and a batch of trials over arms is large."""
    if not torch.cuda.is_available() or any(panel.runner.by_trial for panel in panels):
        return "cpu"
    sizes = [panel.trials * build_problem(panel, range(1), data_dir, torch.device("cpu")).num_arms for panel in panels]
    return "cuda" if max(sizes) >= CUDA_PAYS else "cpu"


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
