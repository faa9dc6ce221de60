"""Problems over arms by name; each knows its true mean rewards and so its optimum."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bo_robust.experiments.problems.abalone import Abalone
from bo_robust.experiments.problems.base import CandidatePriors, Problem, ProblemKind, RewardModel, Trials
from bo_robust.experiments.problems.lower_bound import HardInstance
from bo_robust.experiments.problems.sensors import IntelLab, MetrLAWeek, UnknownKernelTemperature
from bo_robust.experiments.problems.stocks import SP500
from bo_robust.experiments.problems.synthetic import GPDraw, ManyArms, RKHSFunction, SpikedFunction
from bo_robust.experiments.problems.tables import DJIA29, CMULight, SeattleLatency
from bo_robust.experiments.problems.unknown_hyperparameters import (
    UnknownDecomposition,
    UnknownLengthscale,
    UnknownMean,
    UnknownPeriod,
)
from bo_robust.specs import build

__all__ = ["PROBLEMS", "CandidatePriors", "Problem", "ProblemKind", "RewardModel", "Trials", "make_problem"]

PROBLEMS: dict[str, Callable[..., ProblemKind]] = {
    "abalone": Abalone,
    "cmu_light": CMULight,
    "djia29": DJIA29,
    "gp_draw": GPDraw,
    "hard_instance": HardInstance,
    "intel_lab": IntelLab,
    "many_arms": ManyArms,
    "metr_la_week": MetrLAWeek,
    "rkhs_function": RKHSFunction,
    "seattle_latency": SeattleLatency,
    "sp500": SP500,
    "spiked_function": SpikedFunction,
    "unknown_decomposition": UnknownDecomposition,
    "unknown_kernel_temperature": UnknownKernelTemperature,
    "unknown_lengthscale": UnknownLengthscale,
    "unknown_mean": UnknownMean,
    "unknown_period": UnknownPeriod,
}


def make_problem(
    name: str, trials: Sequence[int], seed: int, /, *, data_dir: Path | str | None = None, **params: Any
) -> Problem:
    """Make the problem of a name, a key of :data:`PROBLEMS`.

    Row i of the problem depends on ``seed`` and ``trials[i]`` alone. The settings ``params`` are the fields of the
    problem's class. Problems without data ignore ``data_dir`` (see
    :func:`bo_robust.experiments.problems.data.verified`).

    Raises:
        ValueError: for an unknown name or setting, naming the nearest valid one, or a bad value.
        FileNotFoundError: if a data file is missing.
        ImportError: if the problem needs a package that is not installed.
    """
    kind: ProblemKind = build({**params, "kind": name}, PROBLEMS, {"data_dir": data_dir}, "problem")
    return kind.make(Trials(trials, seed))
