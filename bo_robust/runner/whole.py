"""Blocks of rounds of small problems in one call on CUDA (:mod:`bo_robust.ops.whole_run`), where tables can be drawn.

That is where at most 128 arms are kept in the dense layout, the rule is GP-UCB's or TGP-UCB's (truncation to zero), the
width depends on the round or on the uniforms only, and rewards are f plus a noise. Other runs are captured as graphs
(:mod:`bo_robust.runner.graphs`) or played round by round.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bo_robust.algorithms import GPUCB, IRGPUCB, TGPUCB, ArmAlgorithm, State
from bo_robust.ops.arm_update.naive import end_block_
from bo_robust.ops.whole_run import MAX_ARMS, whole_run
from bo_robust.problems import Problem
from bo_robust.problems.noise import Additive
from bo_robust.runner.graphs import CapturedBlock, PlayRound, captured_block
from bo_robust.schedules import RandomisedWidth
from bo_robust.states.arms import ArmPosterior

if TYPE_CHECKING:
    from bo_robust.runner.loop import Traces

__all__ = ["WholeBlocks", "fast_blocks"]


def fast_blocks(
    algorithm: ArmAlgorithm, problem: Problem, state: State, horizon: int, play_round: PlayRound
) -> WholeBlocks | CapturedBlock | None:
    """The fastest way to play many rounds of this state on its device; None on a CPU, and where there is none."""
    if problem.f.is_cuda and WholeBlocks.can_play(algorithm, problem, state):
        return WholeBlocks(algorithm, problem, state)
    return captured_block(algorithm, problem, state, horizon, play_round)


class WholeBlocks:
    """Plays all rounds it is given tables for in one call. Works on a CPU too, where it is slower than the engine.

    Args:
        algorithm: What to play.
        problem: Of the trials of the state.
        state: Updated in place.
    """

    def __init__(self, algorithm: ArmAlgorithm, problem: Problem, state: State) -> None:
        self._algorithm, self._problem, self._state = algorithm, problem, state

    @staticmethod
    def can_play(algorithm: ArmAlgorithm, problem: Problem, state: State) -> bool:
        """Whether the rounds of this state can be played from tables."""
        posterior = state.posterior
        if type(algorithm) not in (GPUCB, IRGPUCB, TGPUCB) or getattr(algorithm, "rule", "zero") != "zero":
            return False
        dense = isinstance(posterior, ArmPosterior) and posterior.buffers.dense
        if not dense or problem.num_arms > MAX_ARMS or not isinstance(problem.rewards, Additive):
            return False
        width, unknown = algorithm.width, posterior.mean.new_zeros(1)  # type: ignore[attr-defined]
        return isinstance(width, RandomisedWidth) or not isinstance(width(2, unknown, unknown), Tensor)

    def play(self, draws: Tensor, uniforms: Tensor, traces: Traces) -> int:
        """Play the rounds of these tables.

        Args:
            draws: Raw reward variates, ``B x s x k``.
            uniforms: Of the same rounds, ``B x s``.
            traces: Filled from ``traces.rounds`` on.

        Returns:
            The rounds played: B, or those before a reward that is not finite, for which an eager round is due.
        """
        problem, state, K = self._problem, self._state, len(draws)
        buffers, f = state.posterior.buffers, problem.f
        noise = draws[:, :, 0]  # of additive rewards
        bad = ~noise.isfinite().all(1)
        if bool(bad.any()):  # play what comes before it
            K = int(bad.to(torch.uint8).argmax())
            noise, uniforms = noise[:K], uniforms[:K]
            if K == 0:
                return 0
        if buffers.num_pending:
            end_block_(buffers)  # what is pending goes into the rows, which are then C
        rounds = range(state.round + 1, state.round + K + 1)
        width, truncation = self._algorithm.width, getattr(self._algorithm, "truncation", None)  # type: ignore[attr-defined]
        if isinstance(width, RandomisedWidth):
            widths = torch.as_tensor(width(rounds[0], 0.0, uniforms)).to(f).expand(K, len(f))
        else:
            widths = f.new_tensor([[float(width(t))] for t in rounds]).expand(K, len(f))
        levels = f.new_tensor([math.inf if truncation is None else float(truncation(t)) for t in rounds])
        run = whole_run(buffers.rows, buffers.mean, f, buffers.noise_var, noise, widths, levels)
        for name in ("mean", "variance"):
            getattr(buffers, name).copy_(getattr(run, name))
        buffers.rows.copy_(run.covariance)
        buffers.counts.add_(run.counts)
        buffers.information_gain.add_(run.information_gain)
        state.round += K
        rows = slice(traces.rounds, traces.rounds + K)
        traces.arms[rows], traces.rewards[rows], traces.recommended[rows] = run.arms, run.rewards, run.recommended
        traces.width[rows], traces.coverage[rows], traces.ok[rows] = widths, run.coverage, True
        if truncation is not None:
            traces.truncated[rows] = run.rewards.abs() > levels.unsqueeze(1)
        traces.rounds += K
        return K
