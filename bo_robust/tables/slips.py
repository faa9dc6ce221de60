"""Sentences about what may have happened to readings, alone or in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bo_robust.models.robust.slips import Slip
from bo_robust.tables.readings import rows_of

KINDS = {
    "decimal point": "a decimal point?",
    "fraction": "a fraction of a percentage?",
    "sign": "a sign?",
    "digits": "two digits exchanged?",
}


def fitting(slips: Sequence[Slip], place: int, lines: Sequence[int]) -> str:
    """What would fit in place of a reading, behind what is said of it; ``lines`` are numbers of rows in the file."""
    slip = next((slip for slip in slips if slip.rows[-1] == place and not slip.several), None)
    if slip is None:
        return ""
    if slip.kind == "copied":
        return f"; row {lines[slip.rows[0]]} has the same reading (a copy?)"
    return f"; {slip.value:.6g} would fit ({KINDS[slip.kind]})"


def about_several(slip: Slip, name: str, lines: Sequence[int]) -> str:
    """A line about the readings of several rows."""
    rows = [lines[row] for row in slip.rows]
    if slip.kind == "exchanged":
        return f"Rows {rows[0]} and {rows[1]} look exchanged: each {name} fits the other design. Neither is used."
    return f"{rows_of(lines, slip.rows)} look like fractions among percentages: none is used."


def about_batches(model: Any, labels: Sequence[str], name: str) -> Iterator[str]:
    """Lines about batches whose readings deviate beyond chance, at the middle of all; labels are sorted."""
    mean, lower, upper = model.batch_deviations()
    scale, middle = model.outcome_scale, model.train_Y_all[model.inlier_mask].median()
    for label, deviation, low, high in zip(labels, mean, lower, upper, strict=True):
        if low <= 0.0 <= high:
            continue
        shifted = scale.untransform(scale.transform(middle) + deviation)
        difference, factor = float(model.reading_unit * (shifted - middle)), float(shifted / middle)
        side = "higher" if difference > 0.0 else "lower"
        by = f"{abs(difference):.3g}" if scale.is_identity else f"a factor of {max(factor, 1.0 / factor):.2g}"
        yield f"{name} in {label} is {side} by {by} than in the other batches; what is expected is for a new one."
