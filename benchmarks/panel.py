"""A panel: one problem, and the methods that are compared on it. A configuration is a list of panels.

Its class says what methods choose (:mod:`benchmarks.loops`): arms, designs, or designs with conditions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import torch

from benchmarks.keys import digest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Metadata = Mapping[str, Mapping[str, Any]]


class Summary(NamedTuple):
    """The numbers of a panel."""

    methods: dict[str, Any]  # by label
    # Per trial, by measure and label: what pairs are compared by. The first measure chooses the best method.
    measures: dict[str, dict[str, np.ndarray]]
    others: dict[str, Any]  # what is of the panel as a whole


@dataclass(frozen=True)
class Panel(ABC):
    """One problem, and several methods on the same draws."""

    name: str
    problem: Any  # the settings of a problem, with ``make``
    methods: Mapping[str, Any]  # by label
    trials: int
    rounds: int  # of each trial
    compare: Sequence[tuple[str, str]] = ()  # labels to compare in words; each difference is the first minus the second
    # Size of the initial design, random and the same for all methods
    initial: int | None = None
    seed: int = 0  # of all random streams

    unit: ClassVar[str] = "round"
    # Of the table: by title, the key of a method's numbers and its format. The first chooses the best method.
    columns: ClassVar[Mapping[str, tuple[str, str]]]
    legend: ClassVar[str]  # what the columns are

    def __post_init__(self) -> None:
        if self.trials < 1 or self.rounds < 1 or not self.methods:
            raise ValueError(f"panel {self.name!r} needs a trial, a round and a method.")
        if unknown := {label for pair in self.compare for label in pair} - set(self.methods):
            raise ValueError(f"panel {self.name!r} compares {sorted(unknown)}; it has {', '.join(self.methods)}.")

    @property
    def labels(self) -> list[str]:
        return list(self.methods)

    @abstractmethod
    def made(self, device: torch.device) -> Self:
        """The panel with every method as an object; ``ValueError`` where problem, methods and device do not fit."""

    def parts(self) -> list[range]:
        """The trials of each job."""
        return [range(i, i + 1) for i in range(self.trials)]

    def key(self, label: str, trials: range) -> Any:
        """What the traces of a method depend on, beside code and device."""
        others = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("name", "methods", "trials", "compare"):
            del others[name]
        return [type(self).__name__, others, self.methods[label], trials]

    @abstractmethod
    def run(self, label: str, trials: range, device: torch.device) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Run a method: traces, a row a trial and round, and metadata: ``seconds``, ``notes`` and other plain data."""

    @abstractmethod
    def summary(self, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
        """The numbers of the panel from the traces and metadata of its methods, by label."""

    @abstractmethod
    def draw(self, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Draw regret by round on two axes."""

    def lines(self, summary: Mapping[str, Any]) -> list[str]:
        """Findings in words, of the summary of the panel."""
        return []


@dataclass(frozen=True)
class TrialPanel(Panel):
    """Base of the panels that run one trial of one method at a time."""

    @abstractmethod
    def built(self, device: torch.device) -> Any:
        """The problem, the same object for all methods."""

    @abstractmethod
    def run_trial(self, problem: Any, method: Any, trial: int) -> dict[str, list[Any]]:
        """Columns of the traces of one trial, ``round`` among them."""

    def metadata(self, problem: Any) -> dict[str, Any]:
        """What a summary says of the problem."""
        return {"notes": problem.notes}

    def run(self, label: str, trials: range, device: torch.device) -> tuple[pd.DataFrame, dict[str, Any]]:
        (trial,) = trials
        problem, began = self.built(device), time.perf_counter()
        with torch.random.fork_rng():
            frame = pd.DataFrame(self.run_trial(problem, self.methods[label], trial))
        frame.insert(0, "trial", trial)
        return frame, {"seconds": time.perf_counter() - began, **self.metadata(problem)}


_last: dict[str, Any] = {}  # the problem made last, by its key


def shared(make: Any, *settings: Any) -> Any:
    """What ``make()`` returns, or returned at the last call if the ``settings`` are the same: data are read once."""
    key = digest(settings)
    if key not in _last:
        _last.clear()
        _last[key] = make()
    return _last[key]
