"""What is kept of the dictionaries of BKB and BBKB: their size, and the effective dimension of the arms pulled.

The traces hold by round the size and the algorithm's own estimate of d_eff; the exact d_eff, which takes an
eigendecomposition, is computed at a few rounds once all are played.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.runner.loop import Traces
from bo_robust.states.arms import ArmKernel

__all__ = ["DICTIONARY_COLUMNS", "dictionary_facts", "effective_dimension", "join_dictionaries", "keeps_dictionary"]

DICTIONARY_COLUMNS = ("dictionary_size", "effective_dimension")
# The exact d_eff is computed at so many rounds, evenly spaced on a logarithmic axis, while no trial has pulled more
# distinct arms than this.
EXACT_ROUNDS, EXACT_ARMS = 12, 1000


def keeps_dictionary(algorithm: ArmAlgorithm) -> bool:
    """Whether the posterior of an algorithm has the ``size`` and ``effective_dimension`` that the traces record."""
    return isinstance(algorithm, BKB | BBKB)


def effective_dimension(kernel: ArmKernel, arms: Tensor, noise_var: float, trial: int = 0) -> float:
    """d_eff = sum_i sigma^2(x_i) / lambda = tr K (K + lambda I)^{-1}, exactly, in float64 on the CPU.

    Calandriello, Carratino, Lazaric, Valko, Rosasco (COLT 2019), section 3; sigma^2 is the exact posterior variance
    after all the pulls.

    Args:
        kernel: Prior covariance of the arms.
        arms: Those pulled, as often as they were, ``t`` long. O(p^3) of p distinct ones.
        noise_var: lambda.
        trial: Row of a kernel that has one matrix per trial.
    """
    distinct, counts = arms.unique(return_counts=True)
    K = kernel.between(distinct.unsqueeze(0), distinct.unsqueeze(0), distinct.new_tensor([trial]))[0].double().cpu()
    root = counts.double().cpu().sqrt()  # copies of an arm share its eigenvalues: those of C^{1/2} K C^{1/2}
    spectrum = torch.linalg.eigvalsh(root.unsqueeze(1) * K * root).clamp_(min=0.0)
    return float((spectrum / (spectrum + noise_var)).sum())


def dictionary_facts(state: State, traces: Traces) -> dict[str, Any] | None:
    """The exact effective dimension of the arms pulled, as plain data; None for algorithms without a dictionary.

    Returns:
        ``rounds``, and ``effective_dimension``: of every trial at each of them, to six digits. Failed pulls do not
        count; rounds at which a trial had pulled too many distinct arms are left out.
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


def join_dictionaries(blocks: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The facts of all trials from those of blocks of them, in order; of the rounds that all blocks have."""
    known = [block for block in blocks if block is not None]
    if not known:
        return None
    count = min(len(block["rounds"]) for block in known)
    joined = [[v for block in known for v in block["effective_dimension"][k]] for k in range(count)]
    return {"rounds": known[0]["rounds"][:count], "effective_dimension": joined}
