"""Many rounds as one CUDA graph: select, reward and observe are captured once and replayed until the horizon.

An eager round of a small problem costs dozens of launches, each longer than its work; a replay of K rounds costs one.
A graph is fixed when it is captured. What changes from round to round therefore comes from tensors that it reads:

* K is the number of rows that the posterior keeps pending (``SHORT_BLOCK``). The number of pending rows is a Python
  number, and with this K it is the same at the start of every replay.
* Draws, uniforms and schedules that depend on the round (width, truncation level) are copied into static tensors
  before a replay. Schedules are tabulated for all rounds beforehand.
* Traces are written into static tensors and copied out after a replay.

Only dense exact posteriors (:mod:`bo_robust.posteriors.arms`) keep their shapes and addresses. Others are played round
by round, and :func:`why_not` says why.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, State
from bo_robust.confidence import RandomisedWidth, SelfNormalisedWidth
from bo_robust.experiments.problems import Problem
from bo_robust.experiments.traces import Traces, play_round
from bo_robust.posteriors.arms import ArmKernel, ArmPosterior

log = logging.getLogger(__name__)

# Widths of uniforms or of the information gain, both tensors, that do not depend on the round: captured as they are.
ROUNDLESS_WIDTHS = (RandomisedWidth, SelfNormalisedWidth)
SCHEDULES = ("width", "truncation")
# A trial that takes longer hangs: it imports the package, compiles the ops and plays some hundred rounds.
TRIAL_SECONDS = 300.0

Graph: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Capture some work and return its replay."""


def cuda_graph(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """:func:`capture` on a device where it has been tried in another process.

    A failed trial raises ``RuntimeError``, as :func:`capture` does.
    """
    failed = capture_fails(device)
    if failed is not None:
        raise RuntimeError(failed)
    return capture(device, work)


@cache
def capture_fails(device: torch.device) -> str | None:
    """Why rounds cannot be captured on a device, in one sentence; None if they can. Tried once per process.

    A capture that fails may leave torch's allocator capturing, for good (torch 2.11, pytorch/pytorch#180395). So the
    first one is that of a child process, :mod:`bo_robust.experiments.capture_trial`. This takes some seconds.
    """
    command = [sys.executable, "-m", "bo_robust.experiments.capture_trial", str(device)]
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    else:
        if done.returncode == 0:
            return None
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return f"a trial of it on {device} failed ({why}); please report this line with the output of `bo-robust doctor`"


def capture(device: torch.device, work: Callable[[], None]) -> Callable[[], None]:
    """Capture ``work`` on a CUDA device, after running it once on a side stream as torch requires.

    Work that waits for the device or does not fit into memory raises ``RuntimeError``.
    """
    with torch.cuda.device(device):
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        # Work that waits for the device is found here: a capture that fails would leave torch's allocator capturing.
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(side):
                work()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # What other threads do on the device does not end this capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work()
        finally:  # a capture that fails does not give the stream back
            torch.cuda.set_stream(current)
    return graph.replay


def why_not(algorithm: ArmAlgorithm, state: State) -> str | None:
    """Why the rounds of an algorithm cannot be captured, in a few words; None if they can."""
    posterior = state.posterior
    if not algorithm.static_rounds:
        return "its shapes or decisions depend on the data or on the number of the round"
    if not isinstance(posterior, ArmPosterior) or not posterior.buffers.dense:
        return f"{posterior.mean.shape[1]} arms are kept in the low-rank layout, whose rows grow"
    # A width that depends on the round only answers with a number, whatever tensors it is asked with.
    width, unknown = getattr(algorithm, "width", None), posterior.mean.new_zeros(1)
    if width is None or type(width) in ROUNDLESS_WIDTHS or not isinstance(width(2, unknown, unknown), Tensor):
        return None
    return f"{type(width).__name__} depends on the round and on the rewards"


def captured_rounds(
    algorithm: ArmAlgorithm,
    problem: Problem,
    state: State,
    horizon: int,
    graph: Graph | None = None,
) -> CapturedRounds | None:
    """A way to play many rounds of this state at once, captured when first played; None where that is impossible.

    On a CPU there is nothing to capture; any other reason is logged. The state must be fresh or restored, and from now
    on it must be played in place, never replaced. ``graph`` captures the work (by default :func:`cuda_graph` on the
    problem's device).
    """
    if graph is None:
        if not problem.f.is_cuda:
            return None
        graph = partial(cuda_graph, problem.f.device)
    reason = why_not(algorithm, state)
    if reason is not None:
        _say(algorithm, reason)
        return None
    return CapturedRounds(algorithm, problem, state, horizon, graph)


@dataclass(frozen=True, eq=False)
class _Tabulated:
    """A schedule read from a static table, ``K x s``, with one row per round from ``first`` on."""

    values: Tensor
    first: int

    def __call__(self, t: int, information_gain: Any = 0.0, uniform: Any = None) -> Tensor:
        return self.values[t - self.first]


class CapturedRounds:
    """K rounds at once, as many as the posterior keeps pending. Arguments as in :func:`captured_rounds`."""

    def __init__(
        self,
        algorithm: ArmAlgorithm,
        problem: Problem,
        state: State,
        horizon: int,
        graph: Graph,
    ) -> None:
        self._algorithm, self._problem, self._state = algorithm, problem, state
        self._graph: Graph | None = graph  # None once a capture has failed
        self._rounds = state.posterior.buffers.pending.shape[1]
        self._replay: Callable[[], None] | None = None
        self._traces: Traces | None = None
        self._inputs: list[Tensor] = []
        mean = state.posterior.mean
        self._schedules, self._tables = {}, []
        for name in SCHEDULES:
            schedule = getattr(algorithm, name, None)
            if schedule is not None and type(schedule) not in ROUNDLESS_WIDTHS:
                # Row t - 1 is that of round t.
                table = mean.new_tensor([float(schedule(t)) for t in range(1, horizon + 1)])
                self._schedules[name] = mean.new_empty(self._rounds, mean.shape[0])
                self._tables.append((self._schedules[name], table.unsqueeze(1)))

    def play(self, draws: Tensor, uniforms: Tensor, traces: Traces) -> int:
        """Play K rounds and return K; return 0 where an eager round is due. The first call captures.

        Eager rounds are due until K rows of the posterior are pending, when fewer than K draws are left, and always
        after a failed capture (which is logged once). ``draws`` are raw reward variates, ``B x s x k``, ``uniforms``
        are ``B x s``, and the traces are filled from ``traces.rounds`` on.
        """
        K, state, buffers = self._rounds, self._state, self._state.posterior.buffers
        if self._graph is None or buffers.num_pending != K or len(draws) < K:
            return 0
        if self._replay is None and not self._capture(self._graph, draws, uniforms, traces):
            return 0
        assert self._replay is not None
        assert self._traces is not None
        self._fill(draws, uniforms)
        first = state.round
        self._replay()
        # A replay runs no Python: set the numbers that its end has.
        state.round, buffers.num_pending = first + K, K
        rows = slice(traces.rounds, traces.rounds + K)
        for name, values in self._traces.tensors().items():
            getattr(traces, name)[rows] = values
        traces.rounds += K
        return K

    def _fill(self, draws: Tensor, uniforms: Tensor) -> None:
        """Copy what the coming rounds read into the static tensors."""
        K, first = self._rounds, self._state.round
        for target, source in zip(self._inputs, (draws, uniforms), strict=True):
            target.copy_(source[:K])
        for target, table in self._tables:
            target.copy_(table[first : first + K].expand_as(target))

    def _capture(self, graph: Graph, draws: Tensor, uniforms: Tensor, traces: Traces) -> bool:
        """Capture K rounds and leave the state as it was; False if that failed."""
        K, state, problem = self._rounds, self._state, self._problem
        saved: list[tuple[Any, str, Any, Any]] = []
        failed: RuntimeError | None = None
        try:  # the copies may not fit into memory either
            saved += [(owner, name, x, x.clone() if isinstance(x, Tensor) else x) for owner, name, x in _parts(state)]
            self._traces = rows = Traces(K, problem.trials, draws.device, traces.rewards.dtype)
            self._inputs = [torch.empty_like(draws[:K]), torch.empty_like(uniforms[:K])]
            self._fill(draws, uniforms)
            static_draws, static_uniforms = self._inputs
            first = state.round
            tabulated = {name: _Tabulated(values, first + 1) for name, values in self._schedules.items()}
            algorithm = dataclasses.replace(self._algorithm, **tabulated)  # type: ignore[type-var]
            # No design: replays begin after the initial rounds.
            no_design = torch.empty(0, problem.trials, dtype=torch.long, device=draws.device)

            def work() -> None:
                # The work runs twice, once before the capture: both times from the same numbers.
                state.round, state.posterior.buffers.num_pending, rows.rounds = first, K, 0
                for i in range(K):
                    play_round(algorithm, problem, state, static_draws[i], static_uniforms[i], rows, no_design)

            self._replay = graph(work)
        except RuntimeError as error:
            failed = error
        for owner, name, x, copy in saved:  # tensors in place: the graph reads these addresses
            setattr(owner, name, x.copy_(copy) if isinstance(x, Tensor) else x)
        if failed is not None:
            self._graph = None
            _say(self._algorithm, (str(failed).strip() or type(failed).__name__).splitlines()[0])
        return self._replay is not None


def _parts(state: Any) -> Iterator[tuple[Any, str, Any]]:
    """Owner, name and value of every tensor and number in a state, without those of the prior kernel."""
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Tensor | int | float):
            yield state, field.name, value
        elif dataclasses.is_dataclass(value) and not isinstance(value, ArmKernel):
            yield from _parts(value)


def _say(algorithm: ArmAlgorithm, reason: str) -> None:
    log.warning("Rounds of %s are not captured, but played one by one: %s.", type(algorithm).__name__, reason)
