"""Resumable grids: cells are played once, and each that ends is a JSON line of a file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.common import report

__all__ = ["Cell", "Row", "fill", "load", "play"]

Row = dict[str, Any]
Cell = tuple[Any, ...]


def load(path: Path) -> list[Row]:
    """The rows of a file, none if there is none; a line cut off by an interruption is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def play(
    cells: Iterable[Cell], names: tuple[str, ...], work: Callable[[Cell], Row], path: Path, workers: int = 1
) -> Iterator[Row]:
    """Play the cells that are not in the file yet, and yield each when it ends.

    Args:
        cells: Their coordinates, values of ``names`` in order.
        names: What makes two rows the same cell.
        work: What a cell yields besides its coordinates; on several processes it must be importable.
        path: A cell that ends is appended to it. One that fails yields its ``error`` instead and is tried again by the
            next call.
        workers: Processes.
    """
    done = {tuple(row[name] for name in names) for row in load(path)}
    todo = [cell for cell in cells if cell not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or not path.stat().st_size or path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("" if whole else "\n")  # after an interruption within a line
        for row in _played(todo, functools.partial(_tried, work, names), workers):
            if "error" not in row:
                file.write(json.dumps(row) + "\n")
                file.flush()
            yield row


def fill(cells: Iterable[Cell], names: tuple[str, ...], work: Callable[[Cell], Row], path: Path) -> None:
    """Play what is missing; cells that fail are reported.

    Raises:
        SystemExit: If one failed.
    """
    failed = [row for row in play(cells, names, work, path) if "error" in row]
    for row in failed:
        report("failed cell", 0.0, "none", None, None, row)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed; the same command plays them again.")


def _tried(work: Callable[[Cell], Row], names: tuple[str, ...], cell: Cell) -> Row:
    coordinates = dict(zip(names, cell, strict=True))
    try:
        return coordinates | work(cell)
    except Exception as error:  # one cell must not end a grid of days
        return coordinates | {"error": f"{type(error).__name__}: {error}"}


def _played(todo: list[Cell], work: Callable[[Cell], Row], workers: int) -> Iterator[Row]:
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
