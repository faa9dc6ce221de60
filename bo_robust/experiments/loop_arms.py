"""One algorithm on one problem over arms: all trials together, round after round, and what it leaves.

Random numbers come in chunks of rounds from streams keyed by (seed, purpose, trial, chunk): "reward" for rewards,
"algorithm" for randomised rules, and "initial" for the arms of an initial design. All algorithms of a panel use the
same streams and therefore get the same rewards and initial arms. Nothing is read back from the device until a chunk
ends. On CUDA, small problems run a chunk in one call (:mod:`bo_robust.experiments.fused_rounds`).
"""

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_robust.bandits import ArmAlgorithm, Selection, State
from bo_robust.bandits.posteriors import elimination
from bo_robust.confidence.base import is_open, sized
from bo_robust.confidence.truncation import Truncation
from bo_robust.experiments.build import build_algorithm, start_state
from bo_robust.experiments.config import Panel
from bo_robust.experiments.fused_rounds import can_fuse, run_fused
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.traces import Traces
from bo_robust.utils.linalg import on_cuda, row_argmax
from bo_robust.utils.random import stream

# The number of the chunk is part of the streams' keys: another length gives other random numbers.
CHUNK_ROUNDS = 256


def run_method(panel: Panel, j: int, problem: Problem, trials: Sequence[int]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Run algorithm number ``j`` of a panel on the trials of ``problem``, and return its traces and metadata.

    Metadata are ``seconds``, the final truncation ``level``, ``arm_names`` of the problem, and ``eliminations``
    (:func:`elimination_record`).
    """
    algorithm = build_algorithm(panel.methods[j], panel, problem)
    traces = Traces(panel.horizon, problem, dictionary="dictionary" in algorithm.records)
    state = start_state(algorithm, problem, panel.horizon)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="every candidate failed")  # the summary says so
        run_rounds(algorithm, problem, trials, panel.seed, traces, state, panel.initial or 0)
    metadata = {
        "seconds": time.perf_counter() - began,
        "level": _final_level(getattr(algorithm, "truncation", None), panel.horizon, state),
        "arm_names": list(problem.arm_names),
        "eliminations": elimination_record(algorithm, state, problem, trials),
    }
    return traces.frame(problem, trials), metadata


def _final_level(truncation: Truncation | None, horizon: int, state: State) -> float | None:
    """b_T, the mean over trials where it depends on the dictionary; None where it is infinite, which JSON is not."""
    if truncation is None:
        return None
    level = sized(truncation, state.posterior.size)(horizon) if is_open(truncation) else truncation(horizon)
    mean = float(torch.as_tensor(level).mean())
    return None if math.isinf(mean) else mean


def elimination_record(
    algorithm: ArmAlgorithm, state: State, problem: Problem, trials: Sequence[int]
) -> dict[str, Any] | None:
    """The eliminations of one algorithm; None for algorithms that eliminate nobody.

    Keys: ``candidates``, their names; ``true``, the right one's name by trial, or None; ``survivors``, names by trial;
    ``eliminations``, the failed tests with candidates' ``name`` and the number of the ``trial``.
    """
    known = problem.candidates
    if "eliminations" not in algorithm.records or known is None:
        return None
    active, names = state.posterior.active, known.names
    timeline = elimination.timeline(active, state.failures)  # type: ignore[attr-defined]
    return {
        "candidates": list(names),
        "true": None if known.true is None else [names[u] for u in known.true],
        "survivors": [[name for name, kept in zip(names, row, strict=True) if kept] for row in active.cpu().tolist()],
        "eliminations": [{"name": names[row["candidate"]], **row, "trial": trials[row["trial"]]} for row in timeline],
    }


def run_rounds(
    algorithm: ArmAlgorithm,
    problem: Problem,
    trials: Sequence[int],
    seed: int,
    traces: Traces,
    state: State,
    initial: int = 0,
) -> None:
    """Run until the traces are full.

    ``trials`` are the trial indices of the problem's rows, and ``initial`` counts the rounds of the initial design. The
    state is that after ``traces.rounds`` rounds and changes in place.
    """
    horizon, among = traces.horizon, problem.design_arms or problem.num_arms
    arms = [stream(seed, "initial", trial).integers(among, size=initial) for trial in trials]
    design = torch.from_numpy(np.stack(arms, 1)).to(problem.f.device)
    fuse = on_cuda(problem.f) and can_fuse(algorithm, problem, state)
    while traces.rounds < horizon:
        chunk = traces.rounds // CHUNK_ROUNDS
        begin, stop = chunk * CHUNK_ROUNDS, min(horizon, (chunk + 1) * CHUNK_ROUNDS)
        draws, uniforms = draw_chunk(problem, trials, seed, chunk)
        with torch.no_grad():
            while traces.rounds < stop:
                i, end = traces.rounds - begin, stop - begin
                run = 0
                if fuse and traces.rounds >= initial:
                    run = run_fused(algorithm, problem, state, draws[i:end], uniforms[i:end], traces)
                if not run:
                    run_round(algorithm, problem, state, draws[i], uniforms[i], traces, design)


def run_round(
    algorithm: Any, problem: Problem, state: State, draws: Tensor, uniform: Tensor, traces: Traces, design: Tensor
) -> None:
    """Run one round of all trials: choose, reward, observe, and write row ``traces.rounds``. The state changes.

    ``draws`` are raw reward variates (``s x k``) and ``uniform`` draws from [0, 1) (``s``) of the round. ``design``
    holds the arms of the initial design, ``rounds x s``, which take the place of the algorithm's choice.
    """
    t, posterior = traces.rounds, state.posterior
    chosen = t >= len(design)
    selection = algorithm.select(state, uniform) if chosen else Selection(design[t])
    width: Tensor | float = torch.nan if selection.width is None else selection.width
    coverage: Tensor | float = torch.nan
    if selection.width is not None:
        reach = posterior.variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) else width)
        # Where sigma is rounding of the prior, so is |f - mu|: a billionth of the prior scale counts as covered.
        slack = 1e-9 if posterior.mean.dtype == torch.float64 else 1e-4
        covered = (problem.f - posterior.mean).abs_() <= reach.add_(slack)
        coverage = covered.to(reach.dtype).mean(1)
    rewards = problem.rewards(problem.f, selection.arms, draws)
    info = (algorithm.observe if chosen else algorithm.observe_initial)(state, selection.arms, rewards, uniform)
    if problem.num_conditions > 1 and hasattr(algorithm, "recommend"):
        recommended = algorithm.recommend(state) * problem.num_conditions
    else:
        recommended = row_argmax(posterior.mean)
    of_dictionary: dict[str, Tensor] = {}
    if "dictionary" in algorithm.records:
        of_dictionary = {"dictionary_size": posterior.size, "effective_dimension": posterior.effective_dimension}
    traces.write(
        arm=selection.arms,
        reward=rewards,
        recommended=recommended,
        width=width,
        coverage=coverage,
        truncated=False if info.truncated is None else info.truncated,
        ok=info.ok,
        **of_dictionary,
    )


def draw_chunk(problem: Problem, trials: Sequence[int], seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Raw reward variates (``B x s x k``) and uniforms (``B x s``) of a chunk, on the problem's device."""
    draws = [problem.rewards.draw(stream(seed, "reward", trial, chunk), CHUNK_ROUNDS) for trial in trials]
    uniforms = [stream(seed, "algorithm", trial, chunk).random(CHUNK_ROUNDS) for trial in trials]
    below_one = 1.0 - torch.finfo(problem.f.dtype).eps / 2.0  # float32 rounds some draws up to 1
    made = [torch.from_numpy(np.stack(rows, 1)).to(problem.f) for rows in (draws, uniforms)]
    return made[0], made[1].clamp_(max=below_one)
