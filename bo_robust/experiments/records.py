"""What some algorithms leave besides their traces: who was eliminated when, and effective dimensions.

A record is plain data of the trials of one shard. The functions ``join_...`` make one record of those of several
shards, in order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.traces import Traces
from bo_robust.posteriors import elimination
from bo_robust.posteriors.arms import ArmKernel

# The exact d_eff takes an eigendecomposition. It is computed at this many rounds, evenly spaced on a logarithmic axis,
# until a trial has pulled more distinct arms than the second number.
EXACT_ROUNDS, EXACT_ARMS = 12, 1000


def elimination_record(algorithm: ArmAlgorithm, state: State, problem: Problem) -> dict[str, Any] | None:
    """The eliminations of one algorithm; None for algorithms that eliminate nobody.

    Keys: ``candidates``, their names; ``true``, the right one's name by trial, or None; ``survivors``, names by trial;
    ``eliminations``, the failed tests (:func:`bo_robust.posteriors.elimination.timeline`), with the name ``candidate``.
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
        "eliminations": [{"candidate": names[row["hypothesis"]], **row} for row in timeline],
    }


def join_eliminations(records: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """One :func:`elimination_record` of all trials."""
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


def effective_dimension(kernel: ArmKernel, arms: Tensor, noise_var: float, trial: int = 0) -> float:
    """d_eff = sum_i sigma^2(x_i) / lambda = tr K (K + lambda I)^{-1}, exactly, in float64 on the CPU.

    Calandriello, Carratino, Lazaric, Valko, Rosasco (COLT 2019), section 3. sigma^2 is the exact posterior variance
    after all pulls. The cost is O(p^3) for p distinct arms.

    Args:
        kernel: Prior covariance of the arms.
        arms: One entry per pull, ``t``.
        noise_var: lambda.
        trial: Row of a kernel that has one matrix per trial.
    """
    distinct, counts = arms.unique(return_counts=True)
    K = kernel.between(distinct.unsqueeze(0), distinct.unsqueeze(0), distinct.new_tensor([trial]))[0].double().cpu()
    root = counts.double().cpu().sqrt()  # copies of an arm share its eigenvalues: those of C^{1/2} K C^{1/2}
    spectrum = torch.linalg.eigvalsh(root.unsqueeze(1) * K * root).clamp_(min=0.0)  # rounding may leave -1e-16
    return float((spectrum / (spectrum + noise_var)).sum())


def dictionary_record(state: State, traces: Traces) -> dict[str, Any] | None:
    """The exact effective dimension of the arms pulled; None for algorithms without a dictionary.

    Keys: ``rounds``, up to the first with too many distinct arms, and ``effective_dimension`` by round and trial.
    Failed pulls do not count.
    """
    if traces.dictionary_size is None:
        return None
    posterior, trials = state.posterior, range(traces.arms.shape[1])
    noise = posterior.noise_var.tolist()
    found: dict[str, Any] = {"rounds": [], "effective_dimension": []}
    marks = np.geomspace(1, traces.rounds, min(traces.rounds, EXACT_ROUNDS)).round().astype(int)
    for t in np.unique(marks).tolist():
        pulled = [traces.arms[:t, i][traces.ok[:t, i]].long() for i in trials]
        if max(len(arms.unique()) for arms in pulled) > EXACT_ARMS:
            break
        exact = [effective_dimension(posterior.kernel, pulled[i], noise[i], i) for i in trials]
        found["rounds"].append(t)
        found["effective_dimension"].append([float(f"{value:.6g}") for value in exact])
    return found


def join_dictionaries(records: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """One :func:`dictionary_record` of all trials, at the rounds that all shards have."""
    known = [record for record in records if record is not None]
    if not known:
        return None
    count = min(len(record["rounds"]) for record in known)
    joined = [[v for record in known for v in record["effective_dimension"][k]] for k in range(count)]
    return {"rounds": known[0]["rounds"][:count], "effective_dimension": joined}
