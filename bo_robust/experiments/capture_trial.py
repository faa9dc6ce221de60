"""Play captured rounds and compare them with eager ones: ``python -m bo_robust.experiments.capture_trial cuda:0``.

:func:`bo_robust.experiments.captured_rounds.capture_fails` runs this in a process of its own, because a failed capture
may break the process it is in. The last line on the standard error says what failed.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch

from bo_robust.algorithms import GPUCB, TGPUCB, ExpectedImprovement, RandomArm
from bo_robust.confidence import LogWidth
from bo_robust.experiments.captured_rounds import Graph, capture, captured_rounds
from bo_robust.experiments.play import play
from bo_robust.experiments.problems import make_problem
from bo_robust.experiments.traces import Traces
from bo_robust.ops.arm_update import SHORT_BLOCK
from bo_robust.truncation import TGPTruncation

TRIED = (GPUCB(LogWidth()), TGPUCB(LogWidth(), TGPTruncation(1.0, 1.0)), ExpectedImprovement(), RandomArm())


def try_rounds(device: torch.device, graph: Graph) -> None:
    """Exit with a message if a capture by ``graph`` fails, or if replayed rounds are not the eager ones."""
    trials, horizon = 2, 3 * SHORT_BLOCK
    noise = {"kind": "student_t", "df": 3}
    problem = make_problem("rkhs_function", range(trials), 0, noise=noise).to(device, torch.float64)

    def or_exit(work: Callable[[], None]) -> Callable[[], None]:
        try:
            return graph(work)
        except RuntimeError as error:  # which the runner would take for a reason to play on
            raise SystemExit(f"{type(error).__name__}: {error}") from error

    for algorithm in TRIED:
        runs = []
        for fast in (partial(captured_rounds, graph=or_exit), lambda *_: None):
            traces = Traces(horizon, trials, device, torch.float64)
            play(algorithm, problem, range(trials), 0, 1.0, traces, fast=fast)
            runs.append(traces.tensors())
        for name, replayed in runs[0].items():
            if not torch.allclose(replayed.double(), runs[1][name].double(), rtol=0.0, atol=1e-9, equal_nan=True):
                raise SystemExit(f"{name} of {type(algorithm).__name__} differs between replayed and eager rounds")


if __name__ == "__main__":
    where = torch.device(sys.argv[1])
    try_rounds(where, partial(capture, where))
