"""The grid of cells of ``benchmarks.robustness``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.robustness.contamination import REGIMES, TABLE_REGIMES
from benchmarks.robustness.loop import campaign
from benchmarks.robustness.problems import FUNCTIONS, LAB, PEAKS

__all__ = ["NAMES", "cells", "work"]

NAMES = ("problem", "regime", "seed", "method", "acquisition")


def work(cell: tuple[Any, ...], budget: int | None = None) -> dict[str, Any]:
    """Play a cell."""
    *which, acquisition = cell
    return campaign((which[0], which[1], which[2], which[3]), acquisition, budget)


def cells(
    problems: Iterable[str], regimes: Iterable[str] | None, seeds: range, methods: Iterable[str], acquisition: str
) -> list[tuple[str, str, int, str, str]]:
    """What to play, seed by seed, so that an interrupted run has whole seeds; tables have regimes of their own."""
    asked = list(REGIMES) if regimes is None else list(regimes)
    return [
        (problem, regime, seed, method, acquisition)
        for seed in seeds
        for problem in problems
        for regime in asked
        if problem in FUNCTIONS or problem in PEAKS or (regime in TABLE_REGIMES if problem in LAB else regime == "none")
        for method in methods
    ]
