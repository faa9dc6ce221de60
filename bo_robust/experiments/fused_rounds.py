"""Many rounds of a small problem in one call of :mod:`bo_robust.ops.fused_rounds`, from tables drawn beforehand.

This takes at most 128 arms in the dense layout, GP-UCB or TGP-UCB (whose rewards beyond the level become zero), a width
that depends on the round or on the uniforms only, and rewards that are f plus a noise. It works on a CPU too, where it
is slower than running round by round.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bo_robust.bandits import GPUCB, IRGPUCB, TGPUCB, ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmPosterior
from bo_robust.confidence import RandomisedWidth
from bo_robust.confidence.base import needs_of
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.problems.rewards import Additive
from bo_robust.experiments.traces import Traces
from bo_robust.ops.arm_update.naive import end_block_
from bo_robust.ops.fused_rounds import MAX_ARMS, fused_rounds
from bo_robust.utils.linalg import all_numbers


def can_fuse(algorithm: ArmAlgorithm, problem: Problem, state: State) -> bool:
    """Whether the rounds of this state can be run from tables."""
    posterior = state.posterior
    # A subclass may choose or observe in another way.
    if type(algorithm) not in (GPUCB, IRGPUCB, TGPUCB) or getattr(algorithm, "rule", "zero") != "zero":
        return False
    dense = isinstance(posterior, ArmPosterior) and posterior.dense
    if not dense or problem.num_arms > MAX_ARMS or not isinstance(problem.rewards, Additive):
        return False
    width = getattr(algorithm, "width", None)
    return width is not None and (type(width) is RandomisedWidth or not needs_of(width))


def run_fused(algorithm: Any, problem: Problem, state: State, draws: Tensor, uniforms: Tensor, traces: Traces) -> int:
    """Run the rounds of these tables in place and return how many were run; :func:`can_fuse` must hold.

    The number is below B if a reward is not finite: that round must be run eagerly. ``draws`` are raw reward
    variates, ``B x s x k``, ``uniforms`` are ``B x s``, and the traces are filled from ``traces.rounds`` on.
    """
    K, buffers, f = len(draws), state.posterior, problem.f
    noise = draws[:, :, 0]  # additive rewards take one number
    bad = ~noise.isfinite().all(1)
    if bool(bad.any()):  # run what comes before it
        K = int(bad.to(torch.uint8).argmax())
        noise, uniforms = noise[:K], uniforms[:K]
        if K == 0:
            return 0
    if buffers.num_pending:
        end_block_(buffers)  # pending rows go into ``rows``, which is then the covariance matrix C
    rounds = range(state.round + 1, state.round + K + 1)
    width, truncation = algorithm.width, getattr(algorithm, "truncation", None)
    if type(width) is RandomisedWidth:
        widths = torch.as_tensor(width(rounds[0], 0.0, uniforms)).to(f).expand(K, len(f))
    else:
        widths = f.new_tensor([[float(width(t))] for t in rounds]).expand(K, len(f))
    levels = f.new_tensor([math.inf if truncation is None else float(truncation(t)) for t in rounds])
    run = fused_rounds(buffers.rows, buffers.mean, f, buffers.noise_var, noise, widths, levels)
    for name in ("mean", "variance"):
        getattr(buffers, name).copy_(getattr(run, name))
    buffers.rows.copy_(run.covariance)
    buffers.counts.add_(run.counts)
    buffers.information_gain.add_(run.information_gain)
    state.round += K
    traces.write(
        K,
        arm=run.arms,
        reward=run.rewards,
        recommended=run.recommended,
        width=widths,
        coverage=run.coverage,
        truncated=False if truncation is None else run.rewards.abs() > levels.unsqueeze(1),
        ok=all_numbers(run.mean, run.variance),  # of all rounds, as nobody looks in between
    )
    return K
