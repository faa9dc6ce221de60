"""Lines about readings that a model would not say: a stuck sensor, and more than 100 %."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from bo_robust.tables.cells import word

PERCENT = re.compile(r"%|(?<![a-z])(yield|conversion|selectivity|purity|recovery|ee|ausbeute|umsatz)(?![a-z])", re.I)
RARE = 0.05  # chance that two readings are equal
SAME = 2  # readings that are equal by accident
STUCK = 0.01  # chance of so many equal readings in a row, below which they are mentioned


def notes_on_readings(
    name: str, readings: Sequence[float], lines: Sequence[int], designs: Sequence[Hashable], limited: bool
) -> list[str]:
    """Lines about readings of an outcome, in the order of rows, which are these ``lines`` of the file."""
    Y, notes = np.array(readings, dtype=float), []
    for run in np.split(np.arange(len(Y)), np.flatnonzero(np.diff(Y)) + 1):
        others = np.unique(np.delete(Y, run), return_counts=True)[1]
        ties = ((others * (others - 1)).sum() + 2.0) / (others.sum() * (others.sum() - 1) + 4.0)
        apart = len({designs[i] for i in run}) == len(run) > 2 and Y[run[0]] not in (0.0, 100.0)
        if apart and ties < RARE and len(Y) * ties ** (len(run) - 1) < STUCK and not _is_sorted(Y):
            what = f"{name} is {Y[run[0]]:g} at different designs; is the sensor stuck?"
            notes.append(f"{rows_of(lines, run)}: {what}")
    above = np.flatnonzero(Y > 100.0)
    if PERCENT.search(name) and not limited and len(above):
        least = -100 if Y.min() < 0.0 else 0
        say = f"say --limits {word(f'{name}={least}:100')} if nothing above 100 can be"
        where = rows_of(lines, above) if 2 * len(above) < len(Y) else f"{len(above)} of {len(Y)} rows"
        notes.append(f"{where}: {name} is above 100; {say}.")
    if len(Y) > SAME and np.ptp(Y) == 0.0:
        notes.append(f"{name} is {Y[0]:g} in all rows, which tells nothing of what is better.")
    return notes


def _is_sorted(Y: np.ndarray) -> bool:
    return bool((np.diff(Y) >= 0.0).all() or (np.diff(Y) <= 0.0).all())


def rows_of(lines: Sequence[int], places: Iterable[int]) -> str:
    """Such as "Row 3" or "Rows 4 to 6"."""
    numbers = [lines[i] for i in places]
    if len(numbers) == 1:
        return f"Row {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"Rows {numbers[0]} to {numbers[-1]}"
    return f"Rows {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
