"""What algorithms that eliminate candidates leave besides their traces: who was eliminated when."""

from collections.abc import Sequence
from typing import Any

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.experiments.problems import Problem
from bo_robust.posteriors import elimination


def elimination_record(algorithm: ArmAlgorithm, state: State, problem: Problem) -> dict[str, Any] | None:
    """The eliminations of one algorithm; None for algorithms that eliminate nobody.

    Keys: ``candidates``, their names; ``true``, the right one's name by trial, or None; ``survivors``, names by trial;
    ``eliminations``, the failed tests (:func:`bo_robust.posteriors.elimination.timeline`) with candidates' ``name``.
    """
    known = problem.candidates
    if "eliminations" not in algorithm.records or known is None:
        return None
    alive, names = state.posterior.alive, known.names
    timeline = elimination.timeline(alive, state.failures)  # type: ignore[attr-defined]
    return {
        "candidates": list(names),
        "true": None if known.true is None else [names[u] for u in known.true],
        "survivors": [[name for name, lives in zip(names, row, strict=True) if lives] for row in alive.cpu().tolist()],
        "eliminations": [{"name": names[row["candidate"]], **row} for row in timeline],
    }


def join_eliminations(records: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """One :func:`elimination_record` of all trials, from those of several shards, in order."""
    known = [record for record in records if record is not None]
    if not known:
        return None
    failed: list[dict[str, Any]] = []
    survivors: list[list[str]] = []
    for record in known:
        failed += [{**row, "trial": row["trial"] + len(survivors)} for row in record["eliminations"]]
        survivors += record["survivors"]
    true = None if known[0]["true"] is None else [name for record in known for name in record["true"]]
    return {"candidates": known[0]["candidates"], "true": true, "survivors": survivors, "eliminations": failed}
