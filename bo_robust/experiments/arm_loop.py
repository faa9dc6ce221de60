"""One algorithm on one problem over arms: all trials together, round after round, with checkpoints, and what it leaves.

Random numbers come in chunks of rounds from streams keyed by (seed, purpose, trial, chunk): "reward" for rewards,
"algorithm" for randomised rules, and "initial" for the arms of an initial design. All algorithms of a panel use the
same streams and therefore meet the same rewards and initial arms. Nothing is read back from the device until a chunk
ends. On CUDA, small problems play a chunk in one call (:mod:`bo_robust.experiments.fused_rounds`).
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.experiments.build import build_algorithm, start_state
from bo_robust.experiments.config import Panel
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.fused_rounds import can_fuse, play_fused
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.records import elimination_record
from bo_robust.experiments.store import Shard, load_checkpoint, save_checkpoint
from bo_robust.experiments.traces import DICTIONARY_COLUMNS, Traces, play_round
from bo_robust.linalg import on_cuda
from bo_robust.posteriors.snapshots import forget, restore_, snapshot
from bo_robust.random import stream

# The number of the chunk is part of the streams' keys: another length gives other random numbers.
CHUNK_ROUNDS = 256
# The next checkpoint waits at least this many times as long as the last one took to write, so that less than 5 % of
# the time goes into writing.
CHECKPOINT_PAUSE = 20.0
# Of so many arms the final confidence intervals are kept, to be drawn.
KEPT_ARMS = 300


class ArmRun:
    """Algorithm number ``j`` of a panel on the trials of ``problem``, ready to be played.

    Errors are those of :func:`bo_robust.experiments.build.build_algorithm` and ``start_state``.
    """

    def __init__(self, panel: Panel, j: int, problem: Problem, trials: Sequence[int]) -> None:
        self.panel, self.label, self.problem, self.trials = panel, panel.methods[j].label, problem, trials
        self.algorithm = build_algorithm(panel.methods[j], panel, problem)
        self.noise_var = panel.noise_var or problem.noise_var
        room = (panel.horizon, len(trials), problem.f.device, problem.f.dtype)
        self.traces = Traces(*room, dictionary="dictionary" in self.algorithm.records)
        self.state = start_state(self.algorithm, problem, self.noise_var, len(trials), panel.horizon)
        self.seconds = 0.0

    def play(
        self,
        checkpoint: Path | None = None,
        every: float = math.inf,
        key: Any = None,
        watch: Callable[[int], None] = lambda rounds: None,
    ) -> None:
        """Play to the end, from the checkpoint if there is one.

        The state is saved to ``checkpoint`` when ``every`` seconds have passed. A checkpoint saved with another ``key``
        is ignored, one that cannot be read with a warning; one that cannot be written raises ``RunError``. After every
        chunk of rounds ``watch`` is told how many rounds are played.
        """
        if checkpoint is not None:
            self._restore(checkpoint, key)
        watch(self.traces.rounds)
        spent, began = self.seconds, time.perf_counter()
        next_save = began + every

        def after_chunk(state: State, traces: Traces) -> None:
            nonlocal next_save
            watch(traces.rounds)
            now = time.perf_counter()
            self.seconds = spent + now - began
            if checkpoint is not None and now >= next_save and traces.rounds < self.panel.horizon:
                self._save(checkpoint, key)
                took = time.perf_counter() - now
                next_save = now + took + max(every, CHECKPOINT_PAUSE * took)

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="every candidate failed")  # the report says so
            play(
                self.algorithm,
                self.problem,
                self.trials,
                self.panel.seed,
                self.noise_var,
                self.traces,
                self.state,
                after_chunk,
                self.panel.initial or 0,
            )

    def shard(self) -> Shard:
        """The traces, and metadata.

        Metadata are ``seconds``, the final truncation ``level``, ``notes`` and ``arm_names`` of the problem,
        ``eliminations`` (:mod:`bo_robust.experiments.records`), and of the worst-covered trial ``covered``, the share
        of arms in its final intervals, and these ``intervals`` (:meth:`_intervals`).
        """
        problem, posterior = self.problem, self.state.posterior
        width, truncation = self.traces.width[-1], getattr(self.algorithm, "truncation", None)
        reach = width.unsqueeze(1) * posterior.variance.sqrt()
        covered = ((problem.f - posterior.mean).abs() <= reach).to(reach.dtype).mean(1)
        worst = int(covered.argmin())
        level = None if truncation is None else truncation(self.panel.horizon)
        metadata = {
            "seconds": self.seconds,
            "level": None if level is None or math.isinf(level) else level,  # JSON has no infinity
            "notes": problem.notes,
            "arm_names": list(problem.arm_names),
            "eliminations": elimination_record(self.algorithm, self.state, problem),
            "covered": float(covered[worst]),
            "intervals": self._intervals(worst, reach[worst]),
        }
        return Shard(self._frame(), metadata)

    def _intervals(self, trial: int, reach: Tensor) -> dict[str, Any]:
        """Posterior ``mean``, ``reach`` (width times sigma; None without a width) and ``f`` of :data:`KEPT_ARMS` arms.

        ``arms`` are their numbers, evenly spaced among all, whose number is ``num_arms``.
        """
        num_arms = self.problem.num_arms
        arms = (
            torch.linspace(0, num_arms - 1, min(num_arms, KEPT_ARMS), dtype=torch.float64)
            .round()
            .long()
            .to(reach.device)
        )
        return {
            "num_arms": num_arms,
            "arms": arms.tolist(),
            "mean": self.state.posterior.mean[trial, arms].tolist(),
            "reach": reach[arms].tolist() if bool(reach.isfinite().all()) else None,
            "f": self.problem.f[trial, arms].tolist(),
        }

    def _frame(self) -> pd.DataFrame:
        """The traces in long format, ordered by trial and then by round, which counts from 1."""
        traces, f, optimum = self.traces, self.problem.f.cpu(), self.problem.optimum.cpu()
        host = {k: v[: traces.rounds].cpu() for k, v in traces.tensors().items()}
        T, s = host["arms"].shape
        columns = {
            "arm": host["arms"],
            "reward": host["rewards"],
            "regret": optimum - f.gather(1, host["arms"].long().T).T,
            "recommended": host["recommended"],
            "simple_regret": optimum - f.gather(1, host["recommended"].long().T).T,
            "width": host["width"],
            "coverage": host["coverage"].float(),
            "truncated": host["truncated"],
            "ok": host["ok"],
        }
        columns |= {name: host[name] for name in DICTIONARY_COLUMNS if name in host}
        frame = pd.DataFrame({k: v.T.reshape(-1).numpy() for k, v in columns.items()})
        frame.insert(0, "round", np.tile(np.arange(1, T + 1, dtype=np.int32), s))
        frame.insert(0, "trial", np.repeat(np.asarray(self.trials, dtype=np.int32), T))
        frame.insert(0, "method", self.label)
        frame.insert(0, "panel", self.panel.name)
        return frame

    def _save(self, checkpoint: Path, key: Any) -> None:
        tensors, numbers = snapshot(self.state)
        tensors = {f"state.{k}": v for k, v in tensors.items()}
        tensors |= {f"trace.{k}": v[: self.traces.rounds] for k, v in self.traces.tensors().items()}
        meta = {"key": key, "round": self.traces.rounds, "state": numbers, "seconds": self.seconds}
        save_checkpoint(checkpoint, tensors, meta)

    def _restore(self, checkpoint: Path, key: Any) -> None:
        saved_run = load_checkpoint(checkpoint)
        if saved_run is None or saved_run[1]["key"] != key:
            return  # unreadable, or of another configuration or shard: start from round 0
        tensors, meta = saved_run
        try:
            saved = {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}
            restore_(self.state, saved, meta["state"])
            self.state.round = self.traces.rounds = meta["round"]
            for name, target in self.traces.tensors().items():
                target[: self.traces.rounds] = tensors[f"trace.{name}"].to(target.device)
            self.seconds = float(meta["seconds"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise RunError(f"{checkpoint} does not fit this run ({error}). Delete it and resume again.") from None


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
    arms = [stream(seed, "initial", trial).integers(problem.num_arms, size=initial) for trial in trials]
    design = torch.from_numpy(np.stack(arms, 1)).to(problem.f.device)
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


def draw_chunk(problem: Problem, trials: Sequence[int], seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Raw reward variates (``B x s x k``) and uniforms (``B x s``) of a chunk, on the problem's device."""
    f = problem.f
    draws = np.stack(
        [problem.rewards.draw(stream(seed, "reward", trial, chunk), CHUNK_ROUNDS) for trial in trials], axis=1
    )
    uniforms = np.stack([stream(seed, "algorithm", trial, chunk).random(CHUNK_ROUNDS) for trial in trials], axis=1)
    below_one = 1.0 - torch.finfo(f.dtype).eps / 2.0  # float32 rounds some draws up to 1
    return torch.from_numpy(draws).to(f), torch.from_numpy(uniforms).to(f).clamp_(max=below_one)
