"""Play one algorithm on one problem: all trials together, round after round, recording traces.

Random numbers come in chunks of rounds from streams keyed by (seed, purpose, trial, chunk): "reward" for rewards,
"algorithm" for randomised rules, and "initial" for the arms of an initial design. All algorithms of a panel use the
same streams and therefore meet the same rewards and initial arms. Nothing is read back from the device until a chunk
ends. On CUDA, small problems play a chunk in one call (:mod:`bo_robust.experiments.fused_rounds`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.experiments.build import start_state
from bo_robust.experiments.fused_rounds import can_fuse, play_fused
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.traces import Traces, play_round
from bo_robust.linalg import on_cuda
from bo_robust.posteriors.snapshots import forget
from bo_robust.random import stream

# The number of the chunk is part of the streams' keys: another length gives other random numbers.
CHUNK_ROUNDS = 256


def play(
    algorithm: ArmAlgorithm,
    problem: Problem,
    trials: Sequence[int],
    seed: int,
    noise_var: float,
    traces: Traces,
    state: State | None = None,
    after_chunk: Callable[[State, Traces], None] = lambda state, traces: None,
    initial: int = 0,
    fuse: bool | None = None,
) -> State:
    """Play until the traces are full and return the final state.

    ``trials`` are the trial indices of the problem's rows, and ``initial`` counts the rounds of the initial design. A
    given state is that after ``traces.rounds`` rounds and changes in place; None starts a fresh one. ``after_chunk`` is
    called after every chunk of rounds (progress, checkpoints). ``fuse`` says whether rounds are played many in one call
    where that is possible; None: on CUDA.
    """
    horizon = traces.arms.shape[0]
    if state is None:
        state = start_state(algorithm, problem, noise_var, len(trials), horizon)
    design = initial_design(problem, trials, seed, initial)
    fuse = (on_cuda(problem.f) if fuse is None else fuse) and can_fuse(algorithm, problem, state)
    while traces.rounds < horizon:
        chunk = traces.rounds // CHUNK_ROUNDS
        begin, stop = chunk * CHUNK_ROUNDS, min(horizon, (chunk + 1) * CHUNK_ROUNDS)
        draws, uniforms = draw_chunk(problem, trials, seed, chunk)
        with torch.no_grad():
            while traces.rounds < stop:
                i, end = traces.rounds - begin, stop - begin
                played = 0
                if fuse and traces.rounds >= initial:
                    played = play_fused(algorithm, problem, state, draws[i:end], uniforms[i:end], traces)
                if not played:
                    play_round(algorithm, problem, state, draws[i], uniforms[i], traces, design)
        # Checkpoints lack what is derived. Forgetting it after every chunk, saved or not, makes resumed runs the same.
        forget(state)
        after_chunk(state, traces)
    return state


def initial_design(problem: Problem, trials: Sequence[int], seed: int, rounds: int) -> Tensor:
    """Uniform random arms, ``rounds x s``, on the problem's device."""
    arms = np.stack([stream(seed, "initial", trial).integers(problem.num_arms, size=rounds) for trial in trials], 1)
    return torch.from_numpy(arms).to(problem.f.device)


def draw_chunk(problem: Problem, trials: Sequence[int], seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Raw reward variates (``B x s x k``) and uniforms (``B x s``) of a chunk, on the problem's device."""
    f = problem.f
    draws = np.stack(
        [problem.rewards.draw(stream(seed, "reward", trial, chunk), CHUNK_ROUNDS) for trial in trials], axis=1
    )
    uniforms = np.stack([stream(seed, "algorithm", trial, chunk).random(CHUNK_ROUNDS) for trial in trials], axis=1)
    below_one = 1.0 - torch.finfo(f.dtype).eps / 2.0  # float32 rounds some draws up to 1
    return torch.from_numpy(draws).to(f), torch.from_numpy(uniforms).to(f).clamp_(max=below_one)
