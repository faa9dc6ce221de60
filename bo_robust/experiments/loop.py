"""What a loop is: the problems and methods of a kind of panel, how they are run, and what is shown of the results.

A new loop is one file with a class derived from :class:`Loop` or :class:`TrialLoop`, and its name in
:data:`bo_robust.experiments.loops.LOOPS`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch

from bo_robust.experiments.build import resolved, shared_problem
from bo_robust.experiments.errors import RunError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bo_robust.experiments.config import Panel

Metadata = Mapping[str, Mapping[str, Any]]


class Summary(NamedTuple):
    """The numbers of a panel."""

    methods: dict[str, Any]  # by label
    # Per trial, by measure and label: what pairs are compared by. The first measure chooses the best method.
    measures: dict[str, dict[str, np.ndarray]]
    others: dict[str, Any]  # what is of the panel as a whole


class Loop(ABC):
    """Base of the loops; a panel is what :class:`bo_robust.experiments.config.Panel` says."""

    over: ClassVar[str]  # what methods choose, for lists of problems and methods
    problems: ClassVar[Mapping[str, Any]]  # by name, each with ``make``
    methods: ClassVar[Mapping[str, Any]]  # classes of settings, by name
    defaults: ClassVar[Mapping[str, int]]  # trials and horizon of panels that leave them out
    keys: ClassVar[frozenset[str]]  # of a panel, which no other loop has
    by_trial: ClassVar[bool] = True  # whether trials run one by one, or all those of a job together
    unit: ClassVar[str] = "round"
    # Of the table: by title, the key of a method's numbers and its format. The first chooses the best method.
    columns: ClassVar[Mapping[str, tuple[str, str]]]
    legend: ClassVar[str]  # what the columns are

    @abstractmethod
    def check(self, panel: Panel) -> None:
        """Raise ``RunError`` where keys of the panel do not fit this loop."""

    @abstractmethod
    def make_problem(self, kind: Any, panel: Panel, trials: Sequence[int], device: torch.device) -> Any:
        """The problem of a panel from its entry in ``problems``; loops by trial ignore the trials."""

    @abstractmethod
    def settings_used(
        self, panel: Panel, data_dir: Path | None, device: torch.device, size: int | None
    ) -> dict[str, Any]:
        """Everything a panel uses, with every constant filled in, as plain data; errors are those of building it.

        ``size`` is the number of trials that a job has where trials run together, None if all are.
        """

    @abstractmethod
    def run(self, panel: Panel, j: int, problem: Any, trials: Sequence[int]) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Run method number ``j`` of a panel: traces, a row a trial and round, and metadata, among them ``seconds``."""

    def join(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Metadata of all trials of a method, from those of its jobs, in order."""
        return jobs[0] | {"seconds": sum(of["seconds"] for of in jobs)}

    @abstractmethod
    def summary(self, panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
        """The numbers of a panel from the traces and the joined metadata of its methods, by label."""

    @abstractmethod
    def draw(self, panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Draw regret by round on two axes."""

    def lines(self, panel: dict[str, Any]) -> list[str]:
        """Findings in words, of the summary of a panel."""
        return []


class TrialLoop(Loop):
    """Base of the loops that run one trial of one method at a time."""

    def check(self, panel: Panel) -> None:
        """Build every method, which raises ``RunError`` for a bad option."""
        for method in panel.methods:
            panel.build_method(method)

    @abstractmethod
    def run_trial(self, problem: Any, method: Any, panel: Panel, trial: int) -> dict[str, list[Any]]:
        """Columns of the traces of one trial, ``round`` among them."""

    def metadata(self, problem: Any) -> dict[str, Any]:
        """What a summary says of the problem beside its notes."""
        return {}

    def run(self, panel: Panel, j: int, problem: Any, trials: Sequence[int]) -> tuple[pd.DataFrame, dict[str, Any]]:
        (trial,) = trials
        method, began = panel.build_method(panel.methods[j]), time.perf_counter()
        with torch.random.fork_rng():
            frame = pd.DataFrame(self.run_trial(problem, method, panel, trial))
        frame.insert(0, "trial", trial)
        return frame, {"seconds": time.perf_counter() - began, **self.metadata(problem)}

    def settings_used(
        self, panel: Panel, data_dir: Path | None, device: torch.device, size: int | None
    ) -> dict[str, Any]:
        problem = shared_problem(panel, range(1), data_dir, device)
        methods = {method.label: resolved(panel.build_method(method)) for method in panel.methods}
        return {**self.of_problem(panel, problem, device), "methods": methods}

    @abstractmethod
    def of_problem(self, panel: Panel, problem: Any, device: torch.device) -> dict[str, Any]:
        """What a panel takes from its problem; ``RunError`` where both do not fit together, or the device."""


def check_initial(panel: Panel) -> None:
    """Raise ``RunError`` unless the initial design, which is part of the rounds, leaves one."""
    if panel.initial is not None and panel.initial >= panel.horizon:
        raise RunError(
            f"panel {panel.name!r}: initial must be below the horizon, whose first rounds it is; got {panel.initial} "
            f"of {panel.horizon}."
        )
