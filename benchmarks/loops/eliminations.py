"""Which candidates an algorithm eliminated in a run: the record, its numbers, and what a report says of them."""

from collections.abc import Sequence
from typing import Any

from benchmarks.problems.base import Problem
from bo_robust.bandits import ArmAlgorithm, State
from bo_robust.confidence import elimination


def elimination_record(
    algorithm: ArmAlgorithm, state: State, problem: Problem, trials: Sequence[int]
) -> dict[str, Any] | None:
    """The eliminations of one algorithm; None for algorithms that eliminate nobody.

    Keys: ``candidates``, their names; ``true``, the right one's name by trial, or None; ``survivors``, names by trial;
    ``eliminations``, the failed tests with candidates' ``name`` and the number of the ``trial``.
    """
    priors = problem.candidates
    if "eliminations" not in algorithm.records or priors is None:
        return None
    active, names = state.posterior.active, priors.names
    timeline = elimination.timeline(active, state.failures)  # type: ignore[attr-defined]
    return {
        "candidates": list(names),
        "true": None if priors.true is None else [names[u] for u in priors.true],
        "survivors": [[name for name, kept in zip(names, row, strict=True) if kept] for row in active.cpu().tolist()],
        "eliminations": [{"name": names[row["candidate"]], **row, "trial": trials[row["trial"]]} for row in timeline],
    }


def joined(records: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The record of all trials, from those of the jobs, in order."""
    first = records[0]
    if first is None:
        return None
    lists = [key for key in ("true", "survivors", "eliminations") if first[key] is not None]
    return first | {key: [row for record in records if record for row in record[key]] for key in lists}


def summarize(record: dict[str, Any] | None, trials: int) -> dict[str, Any] | None:
    """Numbers of a record, and the record itself; ``survived``, ``true_survived`` and ``all_failed`` count trials."""
    if record is None:
        return None
    names, survivors, true = record["candidates"], record["survivors"], record["true"]
    return {
        "trials": trials,
        "candidates": len(names),
        "mean_eliminated": len(names) - sum(len(row) for row in survivors) / trials,
        "survived": {name: sum(name in row for row in survivors) for name in names},
        "true_survived": None if true is None else sum(t in row for t, row in zip(true, survivors, strict=True)),
        "all_failed": sum(not row["eliminated"] for row in record["eliminations"]),
        **{key: record[key] for key in ("true", "survivors", "eliminations")},
    }


def warnings_of(label: str, numbers: dict[str, Any] | None, delta: float) -> list[str]:
    """Warnings where assumptions of the test do not hold."""
    if numbers is None:
        return []
    lines = []
    if numbers["all_failed"]:
        lines.append(
            f"{label}: in {numbers['all_failed']} of {numbers['trials']} trials every candidate failed its test: no "
            "candidate fits, the noise is larger than noise_scale, or the width does not hold (B too small). The "
            "last survivor was kept."
        )
    wrong = 0 if numbers["true_survived"] is None else numbers["trials"] - numbers["true_survived"]
    if wrong > delta * numbers["trials"]:
        lines.append(
            f"{label}: the true candidate was eliminated in {wrong} of {numbers['trials']} trials, more than delta = "
            f"{delta:g}: its width or noise_scale does not hold."
        )
    return lines


def in_words(numbers: dict[str, Any]) -> str:
    """Who survived."""
    trials, right = f"of {numbers['trials']} trials", numbers["true_survived"]
    start = "no candidate is known to be right" if right is None else f"the true candidate survived in {right} {trials}"
    if numbers["mean_eliminated"] == 0.0:
        return f"{start}; none was ever eliminated."
    survived = ", ".join(f"{name} in {count}" for name, count in numbers["survived"].items())
    gone = f"on average {numbers['mean_eliminated']:.3g} of {numbers['candidates']} were eliminated"
    return f"{start}; {gone}; left at the end ({trials}): {survived}."
