"""Which candidates an algorithm eliminated in a run: the numbers, and what a report says of them."""

from typing import Any

from benchmarks.methods.arms import DELTA
from benchmarks.problems.base import Problem
from bo_robust.bandits import ArmAlgorithm
from bo_robust.confidence import elimination


def counted(algorithm: ArmAlgorithm, state: Any, problem: Problem) -> dict[str, Any] | None:
    """Numbers of the eliminations of one algorithm; None for algorithms that eliminate nobody.

    ``survived``, by name, ``true_survived`` and ``all_failed`` count trials.
    """
    priors = problem.candidates
    if "eliminations" not in algorithm.records or priors is None:
        return None
    timeline = elimination.timeline(state.posterior.active, state.failures)
    active, names = state.posterior.active.cpu(), priors.names
    return {
        "trials": len(active),
        "candidates": len(names),
        "mean_eliminated": len(names) - float(active.double().sum(1).mean()),
        "survived": dict(zip(names, active.sum(0).tolist(), strict=True)),
        "true_survived": None if priors.true is None else int(active[range(len(active)), priors.true].sum()),
        "all_failed": sum(not row["eliminated"] for row in timeline),
    }


def warnings_of(label: str, numbers: dict[str, Any] | None) -> list[str]:
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
    if wrong > DELTA * numbers["trials"]:
        lines.append(
            f"{label}: the true candidate was eliminated in {wrong} of {numbers['trials']} trials, more than delta = "
            f"{DELTA:g}: its width or noise_scale does not hold."
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
