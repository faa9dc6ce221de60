"""Random problems for every op that has a Triton path: what :mod:`bo_robust.ops.checked` runs on both paths.

A case takes the module of a path, ``naive`` or ``fused``, and an empty tensor of the dtype and on the device to check.
It returns tensors that the paths must agree on. Its numbers are drawn on the CPU: they are the same on every device.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import TypeAlias

import torch
from torch import Tensor

from bo_robust.ops.arm_update.naive import ArmBuffers
from bo_robust.ops.dtc_scores.naive import Dictionary, form_of
from bo_robust.utils.covariance import Matern, SquaredExponential

Case: TypeAlias = Callable[[ModuleType, Tensor], tuple[Tensor, ...]]


def _numbers(like: Tensor, *shape: int) -> Tensor:
    """Normal variates; the same ones for the same shape."""
    generator = torch.Generator("cpu").manual_seed(0)  # whatever the default device is
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").to(like)


def _arm_update(
    path: ModuleType, like: Tensor, s: int, n: int, layouts: tuple[bool, ...] = (True, False)
) -> tuple[Tensor, ...]:
    """Rounds over two blocks in dense and other layouts, some of them with rewards that are means of several."""
    block, rounds = 4, 6
    X, covariance = _numbers(like, n, 2), SquaredExponential(1.0)
    rewards, counts = _numbers(like, rounds, s), torch.full_like(_numbers(like, s), 3.0)
    kernel = SimpleNamespace(rows=lambda arms: covariance(X[arms], X))
    found: list[Tensor] = []
    for dense in layouts:
        rows = covariance(X, X).repeat(s, 1, 1) if dense else like.new_zeros(s, rounds + 1, n)
        prior = like.new_full((s,), 0.1), like.new_zeros(s, n), like.new_ones(s, n)
        buffers = ArmBuffers.of_no_rewards(*prior, rows, block, dense)
        for t in range(rounds):
            arms = (torch.arange(s, device=like.device) * 7 + t % 5) % n  # one arm comes twice
            ok = path.update_(buffers, arms, rewards[t], kernel, counts if t % 2 else None)
            found.append(ok)
        found += [buffers.mean, buffers.variance, buffers.counts, buffers.information_gain]
    return tuple(found)


def _dtc_scores(path: ModuleType, like: Tensor, r: int, d: int, num_arms: int) -> tuple[Tensor, ...]:
    """Every covariance, with arms of both dtypes."""
    numbers = 0.02 * _numbers(like, r, r)
    dictionary = Dictionary(_numbers(like, 1, r, d), numbers.tril()[None], numbers.mT.tril()[None], numbers[:1])
    found: list[Tensor] = []
    for covariance in (SquaredExponential(1.0), Matern(0.5, 1.0), Matern(1.5, 1.0), Matern(2.5, 1.0)):
        how = covariance if path.__name__.endswith("naive") else form_of(covariance, dictionary.points)
        for dtype in (torch.float32, torch.float64):
            arms = _numbers(like, num_arms, d).float().to(dtype)
            scores = path.dtc_scores(arms, dictionary, how, like.new_full((1,), 0.1))
            found += [scores.mean, scores.variance]
    return tuple(found)


def _dtc_round(path: ModuleType, like: Tensor, n: int, slots: int) -> tuple[Tensor, ...]:
    """Draws of one trial that overflows and one without variance; roots with near duplicates and without. NaN is 0."""
    variance, counts = _numbers(like, 4, n).abs().split(2)
    variance[0, 5:50], variance[1], most = torch.nan, 0.0, torch.zeros(2, dtype=torch.long, device=like.device)
    draws, dictionary = 0.3 * counts[:, 0], torch.zeros_like(counts, dtype=torch.bool)
    totals, pulled = torch.stack([counts, counts.round()]), counts[:, :2].clone()
    kept = totals, totals.clone(), pulled, dictionary, most
    given, pulls = (like.new_full((2,), 0.1), variance, *kept), (slots, 0.01, most + 3, draws)
    drawn = *path.draw_(*pulls, draws, *given), *path.draw_(*pulls, variance % 1.0, *given)
    X = _numbers(like, 2, slots, 2)
    X[0, 1] = X[0, 0]
    C, eye = SquaredExponential(1.0)(X, X), torch.eye(slots, dtype=like.dtype, device=like.device)
    roots = [path.inverse_root(A, most * 0 + slots - 1, A is C) for A in (C, C + eye)]
    return *drawn, *kept, *(C @ W.mT @ W @ C for W in roots)


CASES: dict[str, Case] = {
    "arm_update": partial(_arm_update, s=2, n=40),
    "dtc_scores": partial(_dtc_scores, r=150, d=3, num_arms=50),
    "dtc_round": partial(_dtc_round, n=1100, slots=32),
}
