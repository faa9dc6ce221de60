"""The grid of cells: what is to be played, on how many processes, and the file that keeps what has been."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.robustness.contamination import REGIMES, TABLE_REGIMES
from benchmarks.robustness.loop import Cell
from benchmarks.robustness.problems import FUNCTIONS, LAB

__all__ = ["cells", "load", "play"]

NAMES = ("problem", "regime", "seed", "method")
Row = dict[str, Any]
Work = Callable[[Cell], Row]


def cells(problems: Iterable[str], regimes: Iterable[str] | None, seeds: range, methods: Iterable[str]) -> list[Cell]:
    """What to play, seed by seed, so that an interrupted run has whole seeds; tables have regimes of their own."""
    asked = list(REGIMES) if regimes is None else list(regimes)
    return [
        (problem, regime, seed, method)
        for seed in seeds
        for problem in problems
        for regime in asked
        if problem in FUNCTIONS or (regime in TABLE_REGIMES if problem in LAB else regime == "none")
        for method in methods
    ]


def load(path: Path) -> list[Row]:
    """The rows of a results file; a last line cut off by an interruption is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def key(row: Row) -> tuple[Any, ...]:
    """What makes a row the same cell."""
    return tuple(row[name] for name in (*NAMES, "acquisition"))


def play(todo: list[Cell], work: Work, acquisition: str, workers: int, path: Path) -> Iterator[Row]:
    """Play the cells that are not in the file yet, and yield each when it ends.

    A cell that ends is appended to the file. One that fails yields its ``error`` instead and will be tried again.
    """
    done = {key(row) for row in load(path)}
    todo = [cell for cell in todo if (*cell, acquisition) not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or not path.stat().st_size or path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("" if whole else "\n")  # after an interruption within a line
        for row in _played(todo, functools.partial(_tried, work), workers):
            if "error" not in row:
                file.write(json.dumps(row) + "\n")
                file.flush()
            yield row


def _tried(work: Work, cell: Cell) -> Row:
    try:
        return work(cell)
    except Exception as error:  # one cell must not end a grid of days
        return dict(zip(NAMES, cell, strict=True)) | {"error": f"{type(error).__name__}: {error}"}


def _played(todo: list[Cell], work: Work, workers: int) -> Iterator[Row]:
    if workers == 1:
        yield from map(work, todo)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(work, cell) for cell in todo]):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
