"""Play one algorithm on one problem: all trials together, round after round, recording traces.

Random numbers come in blocks of rounds from streams keyed by (seed, purpose, trial, block): rewards from
"reward", the same for every algorithm of a panel, randomised rules from "algorithm". The arms of an initial design,
too the same for every algorithm, come from "initial". Nothing is read back from the device until a block ends. On CUDA
small problems play a block of rounds in one call (:mod:`bo_robust.runner.whole`), and rounds of static shapes are
captured as a graph and replayed (:mod:`bo_robust.runner.graphs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, Selection, State
from bo_robust.linalg import row_argmax
from bo_robust.problems import Problem
from bo_robust.random import stream
from bo_robust.runner.build import start_state
from bo_robust.runner.graphs import CapturedBlock
from bo_robust.runner.whole import WholeBlocks, fast_blocks
from bo_robust.states.snapshots import forget

__all__ = ["BLOCK_ROUNDS", "Traces", "play", "play_round"]

BLOCK_ROUNDS = 256


@dataclass
class Traces:
    """What happened, ``T x s`` each; rows beyond ``rounds`` are unwritten.

    Attributes:
        arms: Arm pulled, int32.
        rewards: Reward as it came, before any truncation.
        recommended: Arm of largest posterior mean after the round, int32.
        width: Confidence width used; NaN for rules without one, and in the initial design.
        coverage: Share of arms with |f - mu| <= w sigma before the pull; NaN where there is no width.
        truncated: Whether the reward was set to zero.
        ok: Whether the reward was finite.
        rounds: Rounds played.
        dictionary_size: Arms in the dictionary after the round, int32; None for algorithms without one.
        effective_dimension: The algorithm's estimate of it after the round
            (:attr:`bo_robust.states.dtc.DTCPosterior.effective_dimension`); None as well.
    """

    arms: Tensor
    rewards: Tensor
    recommended: Tensor
    width: Tensor
    coverage: Tensor
    truncated: Tensor
    ok: Tensor
    rounds: int = 0
    dictionary_size: Tensor | None = None
    effective_dimension: Tensor | None = None

    @classmethod
    def empty(
        cls, horizon: int, trials: int, device: torch.device, dtype: torch.dtype, dictionary: bool = False
    ) -> Traces:
        """Room for ``horizon`` rounds; with ``dictionary`` also for what BKB and BBKB record."""
        shape = (horizon, trials)
        like = torch.zeros(0, dtype=dtype, device=device)
        return cls(
            arms=like.new_zeros(shape, dtype=torch.int32),
            rewards=like.new_zeros(shape),
            recommended=like.new_zeros(shape, dtype=torch.int32),
            width=like.new_full(shape, torch.nan),
            coverage=like.new_full(shape, torch.nan),
            truncated=like.new_zeros(shape, dtype=torch.bool),
            ok=like.new_zeros(shape, dtype=torch.bool),
            dictionary_size=like.new_zeros(shape, dtype=torch.int32) if dictionary else None,
            effective_dimension=like.new_zeros(shape) if dictionary else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The traces by name."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}


def play(
    algorithm: ArmAlgorithm,
    problem: Problem,
    trials: Sequence[int],
    seed: int,
    noise_var: float,
    traces: Traces,
    state: State | None = None,
    after_block: Callable[[State, Traces], None] = lambda state, traces: None,
    initial: int = 0,
    capture: Callable[..., WholeBlocks | CapturedBlock | None] = fast_blocks,
) -> State:
    """Play until the traces are full.

    Args:
        algorithm: What to play.
        problem: Of the given trials.
        trials: Trial indices, one per row of the problem.
        seed: Of rewards and randomised rules.
        noise_var: lambda of the posterior.
        traces: Filled from ``traces.rounds`` on, in place.
        state: To go on from; a fresh one when None. Its round is ``traces.rounds``.
        after_block: Called after every block of rounds (progress, checkpoints).
        initial: Rounds of the initial design.
        capture: How blocks of rounds are captured; one that returns None has every round played eagerly.

    Returns:
        The final state.
    """
    horizon = traces.arms.shape[0]
    if state is None:
        state = start_state(algorithm, problem, noise_var, len(trials), horizon)
    design = _initial_design(problem, trials, seed, initial)
    captured = capture(algorithm, problem, state, horizon, play_round)
    while traces.rounds < horizon:
        block = traces.rounds // BLOCK_ROUNDS
        begin, stop = block * BLOCK_ROUNDS, min(horizon, (block + 1) * BLOCK_ROUNDS)
        draws, uniforms = _draw(problem, trials, seed, block)
        with torch.no_grad():
            while traces.rounds < stop:
                i, end = traces.rounds - begin, stop - begin
                replayed = 0
                if captured is not None and traces.rounds >= initial:
                    replayed = captured.play(draws[i:end], uniforms[i:end], traces)
                if not replayed:
                    play_round(algorithm, problem, state, draws[i], uniforms[i], traces, design)
        # Saved or not, runs go on alike: what a checkpoint does not hold is forgotten after every block.
        forget(state)
        after_block(state, traces)
    return state


def play_round(
    algorithm: ArmAlgorithm,
    problem: Problem,
    state: State,
    draws: Tensor,
    uniform: Tensor,
    traces: Traces,
    design: Tensor,
) -> None:
    """One round of all trials: choose, reward, learn, and note it in the traces.

    Args:
        algorithm: What to play.
        problem: Of the trials.
        state: Updated in place.
        draws: Raw reward variates of the round, ``s x k``.
        uniform: Draws from [0, 1) of the round, ``s``.
        traces: Row ``traces.rounds`` is written.
        design: Arms of the initial design, ``rounds x s``, pulled in place of the algorithm's choice while it lasts.
    """
    t, posterior = traces.rounds, state.posterior
    chosen = t >= len(design)
    selection = algorithm.select(state, uniform) if chosen else Selection(design[t])
    if selection.width is not None:
        width = selection.width
        traces.width[t] = width
        reach = posterior.variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) else width)
        # Where sigma is rounding of the prior, so is |f - mu|: a billionth of the prior scale counts as covered.
        slack = 1e-9 if posterior.mean.dtype == torch.float64 else 1e-4
        covered = (problem.f - posterior.mean).abs_() <= reach.add_(slack)
        traces.coverage[t] = covered.to(reach.dtype).mean(1)
    rewards = problem.rewards(problem.f, selection.arms, draws)
    take_in = algorithm.observe if chosen else algorithm.learn
    info = take_in(state, selection.arms, rewards, uniform)
    traces.arms[t] = selection.arms
    traces.rewards[t] = rewards
    traces.ok[t] = info.ok
    if info.truncated is not None:
        traces.truncated[t] = info.truncated
    traces.recommended[t] = row_argmax(posterior.mean)
    if traces.dictionary_size is not None and traces.effective_dimension is not None:
        traces.dictionary_size[t] = posterior.size
        traces.effective_dimension[t] = posterior.effective_dimension
    traces.rounds += 1


def _initial_design(problem: Problem, trials: Sequence[int], seed: int, rounds: int) -> Tensor:
    """Uniform arms, ``rounds x s``, on the problem's device."""
    arms = np.stack([stream(seed, "initial", trial).integers(problem.num_arms, size=rounds) for trial in trials], 1)
    return torch.from_numpy(arms).to(problem.f.device)


def _draw(problem: Problem, trials: Sequence[int], seed: int, block: int) -> tuple[Tensor, Tensor]:
    """Raw reward variates (``B x s x k``) and uniforms (``B x s``) of a block, on the problem's device."""
    f = problem.f
    draws = np.stack(
        [problem.rewards.draw(stream(seed, "reward", trial, block), BLOCK_ROUNDS) for trial in trials], axis=1
    )
    uniforms = np.stack([stream(seed, "algorithm", trial, block).random(BLOCK_ROUNDS) for trial in trials], axis=1)
    below_one = 1.0 - torch.finfo(f.dtype).eps / 2.0  # float32 rounds some draws up to 1
    return torch.from_numpy(draws).to(f), torch.from_numpy(uniforms).to(f).clamp_(max=below_one)
