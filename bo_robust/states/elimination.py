"""The elimination test of HE-GP-UCB, for any posteriors: pure functions of numbers per trial and hypothesis.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1, lines 8-14. With S^u the rounds that hypothesis u chose and
eta_i = y_i - mu^u_{i-1}(x_i) the error of what it predicted, u is eliminated when

    |sum_{S^u} eta_i| > sqrt(xi_t |S^u|) + sum_{S^u} w^u_i sigma^u_{i-1}(x_i),
    xi_t = 2 R^2 log(|U| pi^2 t^2 / (3 delta)).

The paper prints sigma_i for sigma_{i-1} and, in Theorem 4.1, pi for pi^2; the proofs need what stands here. |U| is the
number of hypotheses at the start. The true one passes every test with probability 1 - delta if its width holds with
probability 1 - delta / 2, for |U| >= 2 (the two-sided bound adds delta / |U|; HE-StableOpt's two families of sums twice
that, which asks for |U| >= 4). The last survivor is never eliminated: if it fails too, the assumptions do not hold.

Axes: ``s`` trials, ``h`` hypotheses; indices of hypotheses are those of U throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.validation import check_count, check_delta, check_positive, check_round

__all__ = ["Failures", "Tally", "Verdict", "judge", "noise_allowance", "start", "timeline", "violated"]


@dataclass(frozen=True)
class Tally:
    """Sums over S^u.

    Attributes:
        sums: ``3 x s x h``: :attr:`errors`, :attr:`rounds`, :attr:`reaches`.
    """

    sums: Tensor

    @property
    def errors(self) -> Tensor:
        """Sum of eta_i, ``s x h``, in units of the reward."""
        return self.sums[0]

    @property
    def rounds(self) -> Tensor:
        """|S^u|, ``s x h``."""
        return self.sums[1]

    @property
    def reaches(self) -> Tensor:
        """Sum of w_i sigma_{i-1}(x_i), ``s x h``, in units of the reward."""
        return self.sums[2]


@dataclass(frozen=True)
class Failures:
    """The first test that each hypothesis failed, ``s x h`` each.

    Attributes:
        at: Its round, counted from 1; 0: none was failed.
        left: |sum eta| there, 0 where none was.
        right: What it exceeded, 0 where none was.
        reach: Of it, sum w_i sigma_{i-1}(x_i); the rest is allowed to the noise.
    """

    at: Tensor
    left: Tensor
    right: Tensor
    reach: Tensor


@dataclass(frozen=True)
class Verdict:
    """What a round's test found.

    Attributes:
        alive: After it, ``s x h`` bool.
        tally: With this round, ``s x h``.
        failures: With this round, ``s x h``.
        left: |sum eta| of the hypothesis tested, ``s``.
        right: Its limit, ``s``.
        failed: Where left > right, ``s`` bool; eliminated, unless it is the last of its trial.
    """

    alive: Tensor
    tally: Tally
    failures: Failures
    left: Tensor
    right: Tensor
    failed: Tensor


def start(like: Tensor) -> tuple[Tally, Failures]:
    """No rounds yet, with the shape ``s x h``, dtype and device of ``like``."""
    tally = Tally(like.new_zeros(3, *like.shape))
    return tally, Failures(torch.zeros_like(like, dtype=torch.long), *(torch.zeros_like(like) for _ in range(3)))


def noise_allowance(t: int, noise_scale: float, hypotheses: int, delta: float) -> float:
    """xi_t = 2 R^2 log(|U| pi^2 t^2 / (3 delta)), in squared units of the reward.

    Args:
        t: Round, counted from 1.
        noise_scale: R > 0, the noise is R-sub-Gaussian.
        hypotheses: |U| at the start, >= 1.
        delta: Failure probability in (0, 1).

    Raises:
        ValueError: if an argument is outside its range.
    """
    check_round(t)
    check_positive(noise_scale=noise_scale)
    check_count(1, hypotheses=hypotheses)
    check_delta(delta)
    return 2.0 * noise_scale**2 * math.log(hypotheses * math.pi**2 * t**2 / (3.0 * delta))


def judge(
    alive: Tensor,
    tally: Tally,
    failures: Failures,
    chosen: Tensor,
    error: Tensor,
    reach: Tensor,
    xi: float,
    t: int,
    ok: Tensor,
) -> Verdict:
    """Lines 8 and 11-14: enter the round and test the hypothesis that chose. Nothing given is written to.

    Args:
        alive: ``s x h`` bool, at least one per trial.
        tally: Up to the round before.
        failures: Up to the round before.
        chosen: u_t, ``s`` long.
        error: eta_t = y_t - mu^{u_t}_{t-1}(x_t), ``s``.
        reach: w_t sigma^{u_t}_{t-1}(x_t), ``s``, of before the reward.
        xi: :func:`noise_allowance` of this round.
        t: Round, counted from 1.
        ok: ``s`` bool, False where the pull failed: nothing is entered or tested.
    """
    index, taken = chosen.unsqueeze(1), ok.unsqueeze(1)
    entered = torch.stack([error, torch.ones_like(error), reach]).masked_fill_(~ok, 0.0).unsqueeze(2)
    thrice = index.expand(3, -1, 1)
    sums = tally.sums.scatter_add(2, thrice, entered)
    tally = Tally(sums)
    left, count, reached = sums.gather(2, thrice).unbind(0)
    right = count.mul_(xi).sqrt_().add_(reached)
    failed = (left.abs_() > right).logical_and_(taken)
    if failed.is_cuda or bool(failed.any()):  # on a CPU looking costs nothing and nearly always ends it here
        failed.logical_and_(alive.gather(1, index))
        first = failed & (failures.at.gather(1, index) == 0)
        failures = Failures(
            _put(failures.at, index, first, torch.full_like(index, t)),
            _put(failures.left, index, first, left),
            _put(failures.right, index, first, right),
            _put(failures.reach, index, first, reached),
        )
        dies = failed & (alive.sum(1, keepdim=True) > 1)
        alive = _put(alive, index, dies, torch.zeros_like(dies))
    return Verdict(alive, tally, failures, left.squeeze(1), right.squeeze(1), failed.squeeze(1))


def _put(x: Tensor, index: Tensor, where: Tensor, value: Tensor) -> Tensor:
    """``x`` (``s x h``) with ``value`` at ``index`` of the rows where it says so."""
    return x.scatter(1, index, torch.where(where, value, x.gather(1, index)))


def violated(alive: Tensor, failures: Failures) -> Tensor:
    """Trials whose last survivor failed its test as well, ``s`` bool: no hypothesis fits, the assumptions are wrong."""
    return (alive & (failures.at > 0)).any(1)


def timeline(alive: Tensor, failures: Failures) -> list[dict[str, Any]]:
    """Who failed when and by how much, by trial and round; read to the host.

    Returns:
        One entry per failure: ``trial``, ``hypothesis`` (its index in U), ``round`` (from 1), ``left`` > ``right``
        (both sides of the test, in units of the reward), ``noise_factor``, by how much that one test was exceeded in
        multiples of what it allows to the noise, and ``eliminated``, False for a last survivor that was kept. The
        factor says how sudden the failure was, not what was wrong: sums that drift slowly fail with one near 1.
    """
    factor = (failures.left - failures.reach) / (failures.right - failures.reach)
    parts = (failures.at, failures.left, failures.right, factor, alive)
    at, left, right, factors, kept = (x.tolist() for x in parts)
    rows = [
        {
            "trial": i,
            "hypothesis": u,
            "round": t,
            "left": left[i][u],
            "right": right[i][u],
            "noise_factor": factors[i][u],
            "eliminated": not kept[i][u],
        }
        for i, row in enumerate(at)
        for u, t in enumerate(row)
        if t > 0
    ]
    return sorted(rows, key=lambda row: (row["trial"], row["round"]))
