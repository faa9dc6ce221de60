"""The ops: what is measured, and the bytes and operations that no implementation can do without.

Sizes by axis letter: s trials, n arms or points, m covariance rows, k pending rows, t observations, r dictionary
points, d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from bo_robust.ops import arm_update, dtc_scores
from bo_robust.ops.arm_update.naive import ArmBuffers
from bo_robust.ops.dtc_scores.naive import Dictionary, form_of
from bo_robust.utils.covariance import Matern, SquaredExponential

__all__ = ["OPS", "Op"]

Device = torch.device | str
Shape = dict[str, Any]


@dataclass(frozen=True)
class Op:
    """One op and how to measure it.

    A call may write into its inputs (the arm update does), always at the same cost; results of two implementations are
    comparable on inputs made anew only: use :meth:`verify`.

    Attributes:
        name: Key in the registry.
        shapes: What to measure on a GPU, sizes by their axis letters; the first is the one with a target.
        small: One shape that takes milliseconds on a CPU.
        make: ``(shape, device, dtype)`` to the inputs of both callables; the same numbers at every call.
        naive: Plain torch on any device; returns tensors (one or a tuple).
        fused: The Triton op, CUDA only (or under ``TRITON_INTERPRET=1``). Imports Triton when called, not before.
        bytes: ``(shape, dtype)``: fewest bytes to and from device memory, each input read and each output written once.
        flops: ``(shape)``: floating-point operations of the same.
        check: ``(a, b, dtype)``: largest difference of two results as a multiple of what rounding may cause; they agree
            if it is <= 1.
        also: Constants of the fused module, with another value that is timed beside it.
    """

    name: str
    shapes: list[Shape]
    small: Shape
    make: Callable[[Shape, Device, torch.dtype], Any]
    naive: Callable[[Any], Any]
    fused: Callable[[Any], Any]
    bytes: Callable[[Shape, torch.dtype], float]
    flops: Callable[[Shape], float]
    check: Callable[[Any, Any, torch.dtype], float]
    also: tuple[tuple[str, int], ...] = ()

    def verify(self, shape: Shape, device: Device, dtype: torch.dtype) -> float:
        """:attr:`check` of fused against naive, each on inputs of its own; not to be timed where this is not <= 1."""
        expected = self.naive(self.make(shape, device, dtype))
        return self.check(self.fused(self.make(shape, device, dtype)), expected, dtype)


def difference(a: Any, b: Any, tolerance: float) -> float:
    """Largest difference of two tensors (or tuples) over ``tolerance`` times the largest entry; whole numbers exactly.

    A NaN that only one has makes it infinite.
    """
    if not isinstance(a, Tensor):
        return max(difference(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if not a.is_floating_point() or not a.numel():
        return 0.0 if torch.equal(a, b) else math.inf
    if not torch.equal(a.isnan(), b.isnan()):
        return math.inf
    a, b = a.double().nan_to_num(0.0), b.double().nan_to_num(0.0)
    return float((a - b).abs().max()) / (tolerance * max(float(b.abs().max()), 1e-300))


def _check(loss: float) -> Any:
    """A check that allows ``loss`` times the rounding of the dtype, relative to the largest entry."""
    return lambda a, b, dtype: difference(a, b, loss * torch.finfo(dtype).eps)


def _item(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits // 8


def _draw(
    shape: tuple[int, ...], seed: int, device: Device, dtype: torch.dtype, by: Callable[..., Tensor] = torch.randn
) -> Tensor:
    return by(shape, generator=torch.Generator(device).manual_seed(seed), dtype=dtype, device=device)


def _fused(op: str) -> Any:
    """The Triton module of an op, imported when it is first run."""
    return import_module(f"bo_robust.ops.{op}.fused")


# --- one round of the exact posterior ---------------------------------------------------------------------------------


@dataclass
class ArmRound:
    """A posterior in the middle of a block; the same round again and again."""

    buffers: ArmBuffers  # after k pending rounds
    arms: Tensor  # `s`, pulled before
    rewards: Tensor  # `s`
    prior: Tensor  # K[a, :], `s x n`
    k: int
    m: int

    def run_rounds(self, update: Any) -> tuple[Tensor, ...]:
        """One round; what it wrote."""
        b = self.buffers
        b.num_pending, b.num_rows = self.k, self.m
        update(b, self.arms, self.rewards, SimpleNamespace(rows=lambda arms: self.prior))
        return b.pending[:, self.k], b.mean, b.variance, b.counts, b.information_gain


def _arm_round(shape: Shape, device: Device, dtype: torch.dtype, *, dense: bool) -> ArmRound:
    s, n, k = shape["s"], shape["n"], shape["k"]
    m = n if dense else shape["m"]
    X = _draw((n, 6), 0, device, dtype, torch.rand)
    covariance = SquaredExponential(0.7)
    D = torch.arange(m, device=device) * (n // m)
    K = torch.empty(m, n, dtype=dtype, device=device)
    for start in range(0, m, 64):
        K[start : start + 64] = covariance(X[D[start : start + 64]], X)
    like = K.new_zeros(0)
    room = n if dense else m
    rows = K.expand(s, room, n).clone(memory_format=torch.contiguous_format)
    prior = like.new_full((s,), 0.1), like.new_zeros(s, n), like.new_ones(s, n)
    buffers = ArmBuffers.of_no_rewards(*prior, rows, k + 1, dense)
    if not dense:
        buffers.row_arm.copy_(D.expand(s, m))
        buffers.row_counts.fill_(1.0)
        buffers.filled.fill_(m)
        buffers.block_filled.fill_(m)
        buffers.num_rows = m
        buffers.slots[:, D] = torch.arange(m, device=device)
        buffers.counts[:, D] = 1.0
        arm_update.naive.refresh_root_(buffers, slice(None), m, branch_free=True)
    rewards = _draw((k + 1, s), 1, device, dtype)
    rounds = []
    for i in range(k + 1):  # rows of D in turn; the last round is left to be run
        slot = (torch.arange(s, device=device) * 7 + i) % m
        rounds.append(ArmRound(buffers, D[slot], rewards[i], K[slot], i, buffers.num_rows))
    for each in rounds[:k]:
        each.run_rounds(arm_update.naive.update_)
    return rounds[k]


def _low_rank_bytes(shape: Shape, dtype: torch.dtype) -> float:
    # Rows, pending rows and the prior row in; the pending row out; mean and variance in and out; half of R twice.
    s, n, m, k = (shape[x] for x in "snmk")
    return float(s * (n * (m + k + 1 + 1 + 4) + m * m) * _item(dtype))


def _dense_bytes(shape: Shape, dtype: torch.dtype) -> float:
    s, n, k = (shape[x] for x in "snk")
    return float(s * n * (k + 1 + 1 + 4) * _item(dtype))


ARM_UPDATE_LOW_RANK = Op(
    name="arm_update_low_rank",
    shapes=[
        {"s": 1, "n": 1_000_000, "m": 1000, "k": 16},
        {"s": 1, "n": 999_999, "m": 1000, "k": 16},  # rows not aligned
        {"s": 1, "n": 100_000, "m": 500, "k": 16},
        {"s": 64, "n": 1000, "m": 200, "k": 16},
        {"s": 1, "n": 1000, "m": 200, "k": 16},
    ],
    small={"s": 2, "n": 500, "m": 20, "k": 3},
    make=lambda shape, device, dtype: _arm_round(shape, device, dtype, dense=False),
    naive=lambda inputs: inputs.run_rounds(arm_update.naive.update_),
    fused=lambda inputs: inputs.run_rounds(_fused("arm_update").update_),
    bytes=_low_rank_bytes,
    flops=lambda x: x["s"] * (x["n"] * (2.0 * (x["m"] + x["k"]) + 6.0) + 4.0 * x["m"] ** 2),
    check=_check(2e3),  # the root of the inverse loses digits like the condition of I + S K S: 1.2e3 on an H100
)

ARM_UPDATE_DENSE = Op(
    name="arm_update_dense",
    shapes=[
        {"s": 1024, "n": 1000, "k": 16},
        {"s": 128, "n": 250, "k": 16},
        {"s": 1, "n": 1000, "k": 16},
    ],
    small={"s": 2, "n": 100, "k": 3},
    make=lambda shape, device, dtype: _arm_round(shape, device, dtype, dense=True),
    naive=lambda inputs: inputs.run_rounds(arm_update.naive.update_),
    fused=lambda inputs: inputs.run_rounds(_fused("arm_update").update_),
    bytes=_dense_bytes,
    flops=lambda x: x["s"] * x["n"] * (2.0 * x["k"] + 6.0),
    check=_check(1e3),
)


# --- scores under sparse posteriors -----------------------------------------------------------------------------------


def _make_scoring(shape: Shape, device: Device, dtype: torch.dtype) -> tuple[Any, ...]:
    n, r, d = shape["n"], shape["r"], shape["d"]
    covariance = Matern(2.5, 0.5)
    arms = _draw((n, d), 0, device, dtype, torch.rand)
    points = arms[:r].double()
    eye = torch.eye(r, dtype=torch.float64, device=device)
    K = covariance(points, points) + 1e-6 * eye
    R = torch.linalg.solve_triangular(torch.linalg.cholesky(K), eye, upper=False)
    Z = covariance(arms[: 4 * r].double(), points) @ R.mT
    L = torch.linalg.cholesky(Z.mT @ Z + 0.1 * eye)
    F = torch.linalg.solve_triangular(L, R, upper=False)
    y = _draw((len(Z), 1), 1, device, torch.float64)
    weights = F.mT @ torch.linalg.solve_triangular(L, Z.mT @ y, upper=False)
    parts = (x.to(dtype).unsqueeze(0).contiguous() for x in (points, R, F, weights.squeeze(1)))
    return arms, Dictionary(*parts), covariance, torch.full((1,), 0.1, dtype=dtype, device=device)


def _fused_scores(arms: Tensor, dictionary: Dictionary, covariance: Matern, noise_var: Tensor) -> tuple[Tensor, Tensor]:
    scores = _fused("dtc_scores").dtc_scores(arms, dictionary, form_of(covariance, dictionary.points), noise_var)
    return scores.mean, scores.variance


def _naive_scores(*inputs: Any) -> tuple[Tensor, Tensor]:
    scores = dtc_scores.naive.dtc_scores(*inputs)
    return scores.mean, scores.variance


DTC_SCORES = Op(
    name="dtc_scores",
    shapes=[{"n": 1_000_000, "r": 500, "d": 6}, {"n": 1_000_000, "r": 100, "d": 6}],
    small={"n": 500, "r": 20, "d": 3},
    make=_make_scoring,
    naive=lambda inputs: _naive_scores(*inputs),
    fused=lambda inputs: _fused_scores(*inputs),
    bytes=lambda x, dtype: float((x["n"] * (x["d"] + 2) + 2 * x["r"] ** 2) * _item(dtype)),
    flops=lambda x: x["n"] * (2.0 * x["r"] ** 2 + x["r"] * (2.0 * x["d"] + 32.0)),
    # Weights and R have entries up to 1e3: sums cancel. Float32 weights leave some 1e-3.
    check=lambda a, b, dtype: difference(a, b, 1e-9 if dtype == torch.float64 else 2e-2),
    also=(("COLUMNS_POINTS", 64),),  # 64 registers where Triton 3.9 gives 128 points 145 to 200
)


OPS: dict[str, Op] = {op.name: op for op in (ARM_UPDATE_LOW_RANK, ARM_UPDATE_DENSE, DTC_SCORES)}
