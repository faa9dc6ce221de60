"""What algorithms that eliminate candidates found, for results and report: who fell when, who survived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bo_robust.algorithms import State
from bo_robust.algorithms.he_gp_ucb import HEState
from bo_robust.problems import Problem
from bo_robust.runner.config import PanelConfig
from bo_robust.states import elimination

__all__ = [
    "elimination_facts",
    "elimination_line",
    "elimination_warnings",
    "join_eliminations",
    "summarise_eliminations",
]


def elimination_facts(state: State, problem: Problem) -> dict[str, Any] | None:
    """The record of one algorithm as plain data; None for algorithms that eliminate nobody.

    Returns:
        ``candidates``: names; ``true``: name of the right one by trial, or None; ``survivors``: names by trial;
        ``eliminations``: failed tests (:func:`bo_robust.states.elimination.timeline`) with ``candidate``, the name.
    """
    known = problem.candidates
    if not isinstance(state, HEState) or known is None:
        return None
    alive, names = state.posterior.alive, known.names
    assert state.failures is not None
    record = elimination.timeline(alive, state.failures)
    return {
        "candidates": list(names),
        "true": None if known.true is None else [names[u] for u in known.true],
        "survivors": [[name for name, lives in zip(names, row, strict=True) if lives] for row in alive.cpu().tolist()],
        "eliminations": [{"candidate": names[row["hypothesis"]], **row} for row in record],
    }


def join_eliminations(blocks: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """:func:`elimination_facts` of all trials from those of consecutive blocks of trials, in order."""
    there = [block for block in blocks if block is not None]
    if not there:
        return None
    record: list[dict[str, Any]] = []
    survivors: list[list[str]] = []
    for block in there:
        record += [{**row, "trial": row["trial"] + len(survivors)} for row in block["eliminations"]]
        survivors += block["survivors"]
    true = None if there[0]["true"] is None else [name for block in there for name in block["true"]]
    return {"candidates": there[0]["candidates"], "true": true, "survivors": survivors, "eliminations": record}


def summarise_eliminations(facts: dict[str, Any] | None, trials: int) -> dict[str, Any] | None:
    """Numbers of :func:`elimination_facts`, with the record itself.

    Returns:
        ``trials``; ``candidates``: how many; ``mean_eliminated`` per trial; ``survived``: trials by candidate;
        ``true_survived``: trials, or None; ``all_failed``: trials in which every candidate failed its test; ``true``,
        ``survivors`` and ``eliminations`` as they were.
    """
    if facts is None:
        return None
    names, survivors, true = facts["candidates"], facts["survivors"], facts["true"]
    return {
        "trials": trials,
        "candidates": len(names),
        "mean_eliminated": len(names) - sum(len(row) for row in survivors) / trials,
        "survived": {name: sum(name in row for row in survivors) for name in names},
        "true_survived": None if true is None else sum(t in row for t, row in zip(true, survivors, strict=True)),
        "all_failed": sum(not row["eliminated"] for row in facts["eliminations"]),
        **{key: facts[key] for key in ("true", "survivors", "eliminations")},
    }


def elimination_line(found: dict[str, Any]) -> str:
    """:func:`summarise_eliminations` in words."""
    of = f"of {found['trials']} trials"
    if found["true_survived"] is None:
        start = "no candidate is known to be right"
    else:
        start = f"the true candidate survived in {found['true_survived']} {of}"
    line = f"{start}; on average {found['mean_eliminated']:.3g} of {found['candidates']} were eliminated"
    if found["mean_eliminated"] == 0.0:
        return f"{start}; none was ever eliminated."
    survived = ", ".join(f"{name} in {count}" for name, count in found["survived"].items())
    return f"{line}; left at the end ({of}): {survived}."


def elimination_warnings(found: dict[str, dict[str, Any] | None], panel: PanelConfig) -> list[str]:
    """Where assumptions did not hold, by label of the algorithm."""
    lines = []
    for label, one in found.items():
        if one is None:
            continue
        if one["all_failed"]:
            lines.append(
                f"{label}: in {one['all_failed']} of {one['trials']} trials every candidate failed its test: no "
                "candidate fits, the noise is larger than noise_scale, or the width does not hold (B too small). The "
                "last survivor was kept."
            )
        lost = 0 if one["true_survived"] is None else one["trials"] - one["true_survived"]
        if lost > panel.delta * one["trials"]:
            lines.append(
                f"{label}: the true candidate was eliminated in {lost} of {one['trials']} trials, more than delta = "
                f"{panel.delta:g}: its width or noise_scale does not hold."
            )
    return lines
