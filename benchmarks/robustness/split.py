"""Which cells choose settings and which are reported, in one place."""

from __future__ import annotations

from typing import Any

__all__ = ["FIRST_SEED", "HALVES", "half_of"]

HALVES = {
    "choose": ("branin", "hartmann3", "levy4", "michalewicz5"),
    "report": ("hartmann6", "ackley2", "levy2", "rosenbrock2"),
}
FIRST_SEED = {"choose": 100, "report": 0}


def half_of(row: dict[str, Any]) -> str | None:
    """The half that a row belongs to; None: neither. Tables belong to the half of their seed."""
    by_seed = "choose" if row["seed"] >= FIRST_SEED["choose"] else "report"
    others = HALVES["report" if by_seed == "choose" else "choose"]
    return None if row["problem"] in others else by_seed
