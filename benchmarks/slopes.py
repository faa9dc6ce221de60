"""How time and memory grow with rounds, arms and observations, beside the theory: ``python -m benchmarks.slopes``.

One JSON object a line; one thread; some ten minutes. A slope is that of logarithms, least squares over four sizes.
``theory`` is the slope, over the same sizes, of what a run costs by its code and paper (:data:`WORKS`), with the
distinct arms and the dictionaries that it came to: how many there are is the problem's doing, not the method's. Every
size is run in a process of its own, for its peak memory over what the problem itself takes; time is of the CPU.

Sizes are a decade apart; a factor of three to five where the theory is cubic (fits, candidates' kernels).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.models import SingleTaskGP
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.bkb import NOISE_VAR, make_problem
from benchmarks.common import options, report, report_environment
from benchmarks.loop import additive, noise_and_uniforms, rounds
from benchmarks.loops.outliers import Shift, draw
from benchmarks.methods.designs import fitted
from benchmarks.problems.designs import Function
from bo_robust import BKBModel, RobustGP
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, HEGPUCB, TGPUCB, VUCB
from bo_robust.bandits.posteriors.arm_kernel import ROW_BLOCK, ArmKernel
from bo_robust.bandits.posteriors.arms import LONG_BLOCK, SHORT_BLOCK
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.bandits.shortlist import SHORTLIST_SIZE
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.truncation import ATAFourierTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.ops.dtc_scores.naive import CHUNK_ENTRIES
from bo_robust.utils.covariance import SquaredExponential

LENGTHSCALE, CANDIDATES, NODES = 0.2, (0.1, 0.2, 0.4, 0.8), 6
SLACK = 0.15  # of a slope over the theory's


class Measured(NamedTuple):
    """What one size took, and what it came to."""

    seconds: float
    mib: float
    points: int = 0  # Distinct arms pulled, or the largest dictionary
    rebuilt: int = 0  # Rounds after which the dictionary was drawn anew


class Work(NamedTuple):
    """A method over arms, or something that is made of n rewards or arms at once, and its largest sizes."""

    make: Callable[..., Any]  # From the confidence width of a method; of a model from X and Y
    cost: Callable[[int, int, Measured], tuple[float, float]]  # Operations and numbers kept, up to a constant
    n: tuple[int, int]  # Where n grows: the largest n, and T
    T: tuple[int, int] | None = None  # Where T grows: n, and the largest T
    step: int = 10  # Between sizes where n grows


def exact(n: int, T: int, run: Measured, h: int = 1) -> tuple[float, float]:
    """A round reads the rows of all distinct arms and of its block; they are what is kept (``ops.arm_update``)."""
    rows = run.points + min(T, max(LONG_BLOCK if n <= ROW_BLOCK else SHORT_BLOCK, run.points // 4))
    return T * h * n * rows, h * n * rows


def dictionary(n: int, T: int, run: Measured) -> tuple[float, float]:
    """A rebuild is O(n r^2), another round O(r) for arms on the shortlist. Eight numbers an arm, a block of k_D(x)."""
    r = run.points
    return run.rebuilt * n * r**2 + T * min(n, SHORTLIST_SIZE) * r, 8 * n + min(n * r, CHUNK_ENTRIES[0])


def cubic(n: int, _: int, __: Measured) -> tuple[float, float]:
    """A factor of an n x n matrix."""
    return n**3, n**2


def ata(width: FiniteWidth) -> ATAGPUCB:
    """With quadrature features of the square."""
    level = ATAFourierTruncation(4.0, 1.0, 0.1, 10_000, NODES**2)
    return ATAGPUCB(width, level, FourierFeatures(LENGTHSCALE, NODES, ((0.0, 1.0),) * 2))


def candidates(X: Tensor, _: Tensor | None = None) -> ArmKernel:
    """The kernel of ``he-gp-ucb``: a matrix for each candidate, checked to be positive semi-definite."""
    return candidate_kernel([SquaredExponential(scale) for scale in CANDIDATES], X)


WORKS = {
    "gp-ucb": Work(GPUCB, exact, (1_000_000, 100), (20_000, 30_000)),
    "tgp-ucb": Work(lambda w: TGPUCB(w, TGPTruncation(4.0, 1.0)), exact, (1_000_000, 100), (20_000, 30_000)),
    # ten neighbors in the list are the conditions of a design
    "v-ucb": Work(lambda w: VUCB(w, 0.1, 10), exact, (1_000_000, 100), (20_000, 30_000)),
    "he-gp-ucb": Work(
        lambda w: HEGPUCB(w, NOISE_VAR**0.5, 0.1), partial(exact, h=len(CANDIDATES)), (5400, 100), (2000, 10_000), 3
    ),
    # rewards of an arm settle, so that a round does not depend on t (``posteriors.reward_lists``)
    "ata-gp-ucb": Work(ata, lambda n, T, _: (T * n * NODES**2, n * NODES**2), (1_000_000, 10), (1000, 10_000)),
    "bkb": Work(lambda w: BKB(w, 5.0), dictionary, (1_000_000, 30), (5000, 3000)),
    "bbkb": Work(lambda w: BBKB(w, 5.0, 0.3), dictionary, (1_000_000, 100), (20_000, 30_000)),
    "RobustGP, fit": Work(RobustGP, cubic, (2000, 0), step=5),
    "SingleTaskGP, fit": Work(SingleTaskGP, cubic, (2000, 0), step=5),
    "BKBModel, fit": Work(BKBModel, lambda n, _, __: (n, n), (20_000, 0), step=4),
    "he-gp-ucb, kernels of 4 candidates": Work(candidates, cubic, (5400, 0), step=3),
}


def contaminated_data(n: int, seed: int, share: float = 0.1, name: str = "hartmann6") -> tuple[Tensor, Tensor]:
    """The first n Sobol points of a function, ``n x d``, and readings, ``n x 1``, this share of them wrong."""
    problem = Function(name).make()
    X = SobolEngine(problem.d, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    draws = draw(problem.name, Shift(share, 10.0, "good") if share else None, seed, n)
    return X, torch.tensor([[draws.observation(problem, x, t)] for t, x in enumerate(X)], dtype=torch.float64)


def arms(name: str, n: int, horizon: int) -> Measured:
    """Run a method over n arms in the square, at the practical width."""
    kernel, f = make_problem(n, 2, LENGTHSCALE, 0)
    if name == "he-gp-ucb":
        assert kernel.arms is not None
        kernel = candidates(kernel.arms)
    noise, uniforms = noise_and_uniforms(0, horizon, NOISE_VAR)
    method, pulled, points, rebuilt = WORKS[name].make(FiniteWidth(n, 0.1, scale=EXPLORING)), set(), 0, 0
    before, began = peak(reset=True), time.process_time()
    with torch.inference_mode():
        state = method.init(kernel, NOISE_VAR, 1, rounds=horizon)
        for part in zip(noise.split(1000), uniforms.split(1000), strict=True):  # views of all rounds take memory
            for one in rounds(method, state, additive(f.unsqueeze(0), part[0]), part[1]):
                pulled.add(int(one.arms))
                if name in ("bkb", "bbkb") and float(getattr(state, "spent", 0.0)) == 0.0:
                    points, rebuilt = max(points, int(state.posterior.points.shape[1])), rebuilt + 1
    return Measured(time.process_time() - began, peak() - before, points or len(pulled), rebuilt)


def fit(name: str, n: int, _: int) -> Measured:
    """Make and fit a model of n rewards of Hartmann-6, a tenth of them wrong by ten standard deviations."""
    X, Y = contaminated_data(n, 0)
    before, began = peak(reset=True), time.process_time()
    made = WORKS[name].make(X, Y)
    if "fit" in name:
        fitted(made)
    return Measured(time.process_time() - began, peak() - before)


def peak(reset: bool = False) -> float:
    """The largest resident memory of this process, MiB, since the last reset (Linux with glibc)."""
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before would be used again unseen
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024.0


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-3)), 1)[0])


def grown(name: str, axis: str, n: int, T: int) -> None:
    """Run four sizes up to n or T and report both slopes."""
    work, one = (arms if WORKS[name].T else fit), WORKS[name]
    sizes = [(n // one.step**i, T) if axis == "n" else (n, T // 10**i) for i in (3, 2, 1, 0)]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        runs = [pool.apply(work, (name, *size)) for size in sizes]
    along = [size[axis == "T"] for size in sizes]
    costs = [one.cost(*size, run) for size, run in zip(sizes, runs, strict=True)]
    fixed = f", T={T}" * (axis == "n" and T > 0) + f", n={n}" * (axis == "T")
    for i, (what, unit) in enumerate((("time", "s"), ("memory", "MiB"))):
        theory, measured = slope(along, [cost[i] for cost in costs]), [run[i] for run in runs]
        detail = {"theory": round(theory, 2), axis: along, unit: [float(f"{x:.3g}") for x in measured]}
        if one.T:
            detail["points"] = [run.points for run in runs]
        title, most = f"{name}{fixed}: {what} against {axis}", round(theory + SLACK, 2)
        report(title, slope(along, measured), "log-log slope", detail, most=most)


def main() -> None:
    """All methods, or those named."""
    only = options(__doc__, only=WORKS).only
    report_environment()
    for name in only:
        work = WORKS[name]
        (arms if work.T else fit)(name, 20, 20)  # what a first one loads
        if work.T:
            grown(name, "T", *work.T)
        grown(name, "n", *work.n)


if __name__ == "__main__":
    main()
