"""Resumable grids: cells are run once, and each that ends is a JSON line of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import report

__all__ = ["Cell", "Row", "fill", "load"]

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


def fill(cells: Iterable[Cell], names: tuple[str, ...], work: Callable[[Cell], Row], path: Path) -> None:
    """Run the cells that are not in the file yet, and append each that ends; cells that fail are reported.

    Args:
        cells: Their coordinates, values of ``names`` in order.
        names: What makes two rows the same cell.
        work: What a cell yields besides its coordinates.
        path: The file.

    Raises:
        SystemExit: If one failed.
    """
    done = {tuple(row[name] for name in names) for row in load(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.exists() or not path.stat().st_size or path.read_bytes().endswith(b"\n")
    failed = 0
    with path.open("a", encoding="utf-8") as file:
        file.write("" if whole else "\n")  # after an interruption within a line
        for cell in cells:
            if cell in done:
                continue
            coordinates = dict(zip(names, cell, strict=True))
            try:
                row = coordinates | work(cell)
            except Exception as error:  # one cell must not end a grid of days
                failed += 1
                report(
                    "failed cell", 0.0, "none", None, None, coordinates | {"error": f"{type(error).__name__}: {error}"}
                )
                continue
            file.write(json.dumps(row) + "\n")
            file.flush()
    if failed:
        raise SystemExit(f"{failed} cells failed; the same command runs them again.")
