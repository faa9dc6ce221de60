"""What a round costs on CUDA, counted on a CPU: ``python -m benchmarks.launches`` prints a table of microseconds.

A launch is an operation of torch that is neither a view nor an allocation; a kernel of Triton's is one, and is not run.
Between replays of a block of rounds its draws go in and its traces out, by launches that are shared by its rounds. The
estimates take LAUNCH microseconds of the host for a launch, as measured on an H100, NODE of the GPU for a node of a
graph, and no time for reading rows; times of a CPU are measured here, on one thread.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from benchmarks import common
from benchmarks.loops.arms import ArmsPanel, draw_chunk, run_round, run_rounds, start_state
from benchmarks.loops.traces import Traces
from bo_robust.acquisition.lnso import _first_networks, _fitting
from bo_robust.bandits.captured import captured_rounds
from bo_robust.ops import dtc_round
from bo_robust.ops.dtc_round import naive as naive_round
from bo_robust.utils import linalg

FREE = {"empty", "empty_like", "empty_strided", "new_empty", "detach", "alias", "lift_fresh", "_unsafe_view"}
KERNELS = ("_take_slots", "_times_root", "_scalars", "_stream")
LAUNCH, NODE, ROUNDS, EAGER = 20.0, 2.0, 100, 40
CPU = torch.device("cpu")
# Where a family runs as shipped: a configuration, the method there, and trials if not those of the panel.
FAMILIES: dict[str, tuple[str, str, int | None]] = {
    "GP-UCB": ("srinivas.synthetic", "GP-UCB /5", None),
    "GP-UCB, one trial": ("srinivas.synthetic", "GP-UCB /5", 1),
    "IRGP-UCB": ("srinivas.synthetic", "IRGP-UCB", None),
    "EI": ("srinivas.synthetic", "EI", None),
    "GP-UCB, low rank": ("bkb.many_arms", "GP-UCB", None),
    "TGP-UCB": ("heavy_tails.student_t", "TGP-UCB", None),
    "ATA, quadrature": ("heavy_tails.student_t", "ATA-QFF", None),
    "ATA, Cholesky": ("heavy_tails.student_t", "ATA-QFF, Cholesky", None),
    "V-UCB": ("unknown_hyperparameters.conditions", "V-UCB", None),
    "StableOpt": ("unknown_hyperparameters.conditions", "STABLE-OPT", None),
    "HE-GP-UCB": ("unknown_hyperparameters.mean", "HE, theorem", None),
    "MLE-GP-UCB": ("unknown_hyperparameters.mean", "MLE, theorem", None),
    "ExpectedUCB": ("unknown_hyperparameters.mean", "Expected, theorem", None),
    "BKB, one trial": ("bkb.dictionary", "BKB, q = 5", 1),
    "BKB": ("bkb.dictionary", "BKB, q = 5", None),
    "BKB, abalone": ("bkb.abalone", "BKB", None),
    "BKB, 10,000 arms": ("bkb.many_arms", "BKB, persistent", None),
    "BBKB": ("bkb.many_arms", "BBKB", None),
    "BBKB, abalone": ("bkb.abalone", "BBKB", None),
}


class Launches(TorchDispatchMode):
    """Counts launches, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        returns = [r.alias_info for r in schema.returns]
        view = all(info is not None and not info.is_write for info in returns) and returns
        if schema.name == "aten::equal" and args[0].shape != args[1].shape:
            return False  # known on the host
        if not view and schema.name.split("::")[1] not in FREE:
            self.names.append(schema.name)
        return func(*args, **(kwargs or {}))


def _one_launch(op: Any) -> Any:
    """The op in PyTorch, counted as its Triton kernel."""

    def call(*given: Any, **how: Any) -> Any:
        torch.empty(1).zero_()
        with _disable_current_modes():
            return op(*given, **how)

    return call


@contextmanager
def on_cuda_path() -> Iterator[None]:
    """Let tensors of a CPU take the paths of CUDA, and count Triton's kernels of the arm update."""
    fused, naive = (import_module(f"bo_robust.ops.arm_update.{path}") for path in ("fused", "naive"))
    launch = mock.MagicMock()
    launch.__getitem__.return_value = lambda *args, **kwargs: torch.empty(1).zero_()
    with (
        mock.patch.multiple(fused, **dict.fromkeys(KERNELS, launch)),
        mock.patch.object(naive, "update_", fused.update_),
        mock.patch.object(dtc_round, "draw_", _one_launch(naive_round.draw_)),
        mock.patch.object(dtc_round, "inverse_root", _one_launch(naive_round.inverse_root)),
        mock.patch.object(linalg, "simulated", True),
    ):
        yield


class Cost(NamedTuple):
    """Launches of an eager round; nodes of a captured one, and launches between replays, for each round of a block."""

    launches: float
    cpu_us: float  # of a round on one thread
    nodes: float = math.nan
    between: float = math.nan

    def row(self, family: str, where: str) -> str:
        """A row of the table, with the gain of a captured round over the better of an eager one and the CPU's."""
        eager, captured = LAUNCH * self.launches, NODE * self.nodes + LAUNCH * self.between
        gain = min(eager, self.cpu_us) / captured
        numbers = (
            f"{self.launches:.0f} | {self.nodes:.0f} | {eager:.0f} | {captured:.0f} | {self.cpu_us:.0f} | {gain:.1f}"
        )
        return f"| {family} | {where} | {numbers} |".replace("nan", "")


def counted(panel: ArmsPanel, label: str) -> Cost:
    """The cost of a round of a method, which may have no captured one."""
    problem, trials = panel.built(range(panel.trials), CPU), range(panel.trials)
    draws, uniforms = draw_chunk(problem, trials, panel.seed, 0)
    eager, inside, outside = list[int](), Launches(), Launches()

    def capture(device: torch.device, work: Any) -> Any:
        with inside:
            work()
        return lambda: torch.empty(1).zero_()  # the launch of the graph

    with on_cuda_path(), torch.no_grad():
        state, traces = (
            start_state(panel.methods[label], problem, panel.rounds),
            Traces(10**4, problem, "dictionary" in panel.methods[label].records),
        )
        one = partial(run_round, panel.methods[label], problem, state)
        blocks = captured_rounds(panel.methods[label], state, one, capture)
        for t in range(EAGER):
            if blocks and blocks.run(draws, uniforms):
                break
            with Launches() as launches:
                traces.write(**one(draws[t], uniforms[t]))
            eager.append(len(launches.names))
            getattr(state.posterior, "filled", torch.empty(0)).fill_(1)  # as the kernels would have
        with outside:
            if ran := blocks.run(draws, uniforms) if blocks else None:
                traces.write(ran[0], **ran[1])
    if ran is None:
        return Cost(statistics.median(eager), cpu_us(panel, label))
    return Cost(statistics.median(eager), cpu_us(panel, label), len(inside.names) / ran[0], len(outside.names) / ran[0])


def cpu_us(panel: ArmsPanel, label: str) -> float:
    """Microseconds of a round of all trials on one thread of a CPU; the median of three."""
    algorithm, problem = panel.methods[label], panel.built(range(panel.trials), CPU)
    rounds = min(panel.rounds, ROUNDS)

    def seconds() -> float:
        state, traces = (
            start_state(algorithm, problem, panel.rounds),
            Traces(rounds, problem, "dictionary" in algorithm.records),
        )
        began = time.process_time()
        run_rounds(algorithm, problem, range(panel.trials), panel.seed, traces, state)
        return time.process_time() - began

    return 1e6 * statistics.median(seconds() for _ in range(3)) / rounds


def lnso(starts: int, steps: int = 60) -> Cost:
    """The cost of a step of LNSO's networks, of which a round has 200, from a box of one dimension."""
    tensor = partial(torch.rand, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    networks = _first_networks(starts, 1, torch.Generator().manual_seed(0), tensor(1))
    fit = _fitting(networks, tensor(steps, starts, 50, 2), tensor(steps, starts, 50, 10), 0.1, 0.02)
    began = time.process_time()
    fit()
    cpu = 1e6 * (time.process_time() - began) / steps
    with mock.patch.object(linalg, "simulated", True), Launches() as launches:
        fit()
    return Cost(len(launches.names) / steps, cpu, len(launches.names) / steps, 1.0)


def main() -> None:
    """Print the table."""
    common.options(__doc__)
    print("| family | configuration | launches | nodes | eager | captured | CPU | gain |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for family, (name, label, trials) in FAMILIES.items():
        try:
            panel = import_module(f"configs.{name}").PANELS[0].made(CPU)
        except FileNotFoundError as error:
            print(f"{family} is left out: {str(error).split('. ')[0]}.", file=sys.stderr)
            continue
        panel = dataclasses.replace(panel, trials=trials or panel.trials)
        shape = f"{panel.trials} x {panel.built(range(panel.trials), CPU).num_arms:,}, {panel.rounds:,} rounds"
        print(counted(panel, label).row(family, f"{name}: {shape}"), flush=True)
    for starts in (8, 64):
        print(lnso(starts).row("LNSO, a step", f"{starts} starts"))


if __name__ == "__main__":
    main()
