"""The test of HE-GP-UCB over the rows of a data set: who is tested, who is eliminated, and how to say so.

Row by row :func:`bo_robust.states.elimination.judge`, on the host and in double precision. ``h`` candidates.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bo_robust.schedules import BKBWidth, RandomisedWidth, Width
from bo_robust.states import elimination
from bo_robust.states.elimination import Failures, Tally
from bo_robust.validation import check_count, check_delta, check_positive

__all__ = ["CandidateTest", "Observation", "Widths"]

Widths = Width | tuple[Width, ...]
"""One width for all candidates, which is handed the information gain of each, or one per candidate."""


@dataclass(frozen=True)
class Observation:
    """What an observation did to the candidates; as a string, all of it in words.

    Attributes:
        round: Its round t, counted from 1.
        tested: u_t, index in U; None in an initial design.
        left: |sum of the errors of u_t|, in units of the reward; 0 if nobody was tested.
        right: Its limit.
        eliminated: Indices in U of who was eliminated.
        names: Their names.
        message: What ``str`` gives.
    """

    round: int
    tested: int | None
    left: float
    right: float
    eliminated: tuple[int, ...]
    names: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False)
class CandidateTest:
    """Settings and state of the test; the state is ``1 x h`` each, double precision, on the host.

    Attributes:
        names: Of the candidates.
        width: w^u_t, :data:`Widths`.
        noise_scale: R > 0.
        delta: Failure probability in (0, 1).
        num_initial: Rounds in which nobody is tested.
        maximize: Whether bounds are mu + w sigma, or -mu + w sigma.
        alive: Bool.
        tally: Sums of the test.
        failures: Its record.
        evidence: Log marginal likelihood, in nats.
        gains: Information gain, in nats.
        struck: Indices of who was eliminated by hand, in this order.
        rounding: Relative differences that count as none, the square root of the data's precision.
    """

    names: tuple[str, ...]
    width: Widths
    noise_scale: float
    delta: float
    num_initial: int
    maximize: bool
    alive: Tensor
    tally: Tally
    failures: Failures
    evidence: Tensor
    gains: Tensor
    struck: tuple[int, ...] = ()
    rounding: float = 0.0

    @classmethod
    def start(
        cls, names: tuple[str, ...], width: Widths, noise_scale: float, delta: float, num_initial: int, maximize: bool
    ) -> CandidateTest:
        """Before any reward.

        Raises:
            ValueError: if a setting is outside its range, there is no candidate, or widths are not as many as
                candidates or depend on more than the round and the information gain.
        """
        check_positive(noise_scale=noise_scale)
        check_delta(delta)
        check_count(0, num_initial=num_initial)
        if not names:
            raise ValueError("U is empty: give at least one candidate.")
        if isinstance(width, tuple) and len(width) != len(names):
            raise ValueError(f"{len(width)} widths for {len(names)} candidates; give one width, or one per candidate.")
        for w in width if isinstance(width, tuple) else (width,):
            if not callable(w) or isinstance(w, RandomisedWidth | BKBWidth):
                raise ValueError(
                    "width must be a schedule of bo_robust.schedules that depends on the round and the information "
                    f"gain only, such as BayesianFiniteWidth(1000, 0.1), or a tuple of such; got {w!r}."
                )
        zeros = torch.zeros(1, len(names), dtype=torch.float64)
        alive, (tally, failures) = torch.ones_like(zeros, dtype=torch.bool), elimination.start(zeros)
        settings = (names, width, noise_scale, delta, num_initial, maximize)
        return cls(*settings, alive, tally, failures, zeros, zeros.clone())

    def widths(self, t: int, gains: Tensor | None = None) -> Tensor:
        """w^u_t, ``h``, at information gains ``h`` (default those so far)."""
        gains = self.gains[0] if gains is None else gains
        if not isinstance(self.width, tuple):
            return torch.as_tensor(self.width(t, gains), dtype=gains.dtype).expand(gains.shape)
        values = [torch.as_tensor(w(t, gain), dtype=gains.dtype) for w, gain in zip(self.width, gains, strict=True)]
        return torch.stack(values)

    @property
    def members(self) -> list[int]:
        """Indices of those alive."""
        return self.alive[0].nonzero().flatten().tolist()

    @property
    def violated(self) -> bool:
        """Whether the last survivor failed as well."""
        return bool(elimination.violated(self.alive, self.failures))

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """Failed tests by round."""
        rows = elimination.timeline(self.alive, self.failures)
        return [{"name": self.names[row["hypothesis"]]} | {k: row[k] for k in row if k != "trial"} for row in rows]

    def after(
        self, start: int, y: Tensor, diagonal: Tensor, z: Tensor, noise: Tensor
    ) -> tuple[CandidateTest, list[Observation]]:
        """With rows entered and tested one by one.

        Args:
            start: Rows before these.
            y: Rewards, ``k``.
            diagonal: L_ii of these rows, ``h x k``.
            z: L^-1 (y - m) of these rows, ``h x k``.
            noise: lambda, ``h x 1``.

        Warns:
            UserWarning: if the last survivor fails for the first time.
        """
        rounding = math.sqrt(torch.finfo(y.dtype).eps)
        y, diagonal, z, noise = (x.detach().double().cpu() for x in (y, diagonal, z, noise))
        means, sds = y - diagonal * z, (diagonal.square() - noise).clamp_min(0.0).sqrt()
        gained = 0.5 * (diagonal.square() / noise).log()
        gains = torch.cat([self.gains.mT, gained], 1).cumsum(1)
        test, said = replace(self, rounding=rounding), []
        for i, reward in enumerate(y.tolist()):
            test, observation = test._tested(start + i + 1, reward, means[:, i], sds[:, i], gains[:, i])
            said.append(observation)
        if test.violated and not self.violated:
            last = test.members[0]
            warnings.warn(
                f"every candidate failed its test; the last survivor, {last} ({self.names[last]}), is kept. The "
                "assumptions do not hold: no candidate fits, the noise is larger than noise_scale, or the norm bound "
                "too small. `eliminations` says who failed when and by how much.",
                UserWarning,
                stacklevel=5,
            )
        seen = (diagonal.square() * (2.0 * math.pi)).log() + z.square()
        return replace(test, gains=gains[:, -1:].mT, evidence=self.evidence - 0.5 * seen.sum(1)), said

    def without(self, index: int) -> CandidateTest:
        """With a candidate struck by hand.

        Raises:
            ValueError: if it is not alive, or the last one.
        """
        if index not in self.members:
            raise ValueError(f"candidate {index} is not alive; those alive are {self.members}.")
        if len(self.members) == 1:
            raise ValueError(f"candidate {index} ({self.names[index]}) is the last one alive; add candidates to U.")
        alive = self.alive.clone()
        alive[0, index] = False
        return replace(self, alive=alive, struck=(*self.struck, index))

    def _tested(self, t: int, y: float, mean: Tensor, sd: Tensor, gains: Tensor) -> tuple[CandidateTest, Observation]:
        """Round t: test the candidate alive of largest bound, given what all (``h``) predicted."""
        if t <= self.num_initial:
            message = f"round {t}: initial design, no candidate is tested"
            return self, Observation(t, None, 0.0, 0.0, (), (), message)
        reach = self.widths(t, gains) * sd
        bound = (mean if self.maximize else -mean) + reach
        bound = bound.masked_fill(~self.alive[0], -math.inf)
        # First of equals, which from a factor are equal up to rounding only.
        top = bound.max()
        chosen = (bound >= top - self.rounding * (1.0 + top.abs())).to(torch.uint8).argmax().unsqueeze(0)
        verdict = elimination.judge(
            self.alive,
            self.tally,
            self.failures,
            chosen,
            y - mean[chosen],
            reach[chosen],
            elimination.noise_allowance(t, self.noise_scale, len(mean), self.delta),
            t,
            torch.ones(1, dtype=torch.bool),
        )
        u, left, right, failed = int(chosen), float(verdict.left), float(verdict.right), bool(verdict.failed)
        gone = (self.alive & ~verdict.alive)[0].nonzero().flatten().tolist()
        outcome = "eliminated" if gone else "kept, as the last one" if failed else "kept"
        message = (
            f"round {t}: candidate {u} ({self.names[u]}) tested, |sum of errors| {left:.4g} {'>' if failed else '<='} "
            f"{right:.4g}: {outcome}; {int(verdict.alive.sum())} of {len(mean)} alive"
        )
        observation = Observation(t, u, left, right, tuple(gone), tuple(self.names[i] for i in gone), message)
        return replace(self, alive=verdict.alive, tally=verdict.tally, failures=verdict.failures), observation
