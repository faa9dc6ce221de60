"""HE-GP-UCB's elimination test over the rows of a data set, with a message in words for every row.

Row by row :func:`bo_robust.posteriors.elimination.judge` runs with one trial, on the host and in double precision.

Axes: ``h`` candidates, ``k`` new rows.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bo_robust.confidence import BayesianFiniteWidth, BKBWidth, RandomisedWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.candidate_widths import Widths, check_number, each, widths_at
from bo_robust.models.candidate_gps import CandidateGPs
from bo_robust.models.candidate_priors import lengthscale_of
from bo_robust.models.candidate_risk import Risk
from bo_robust.posteriors import elimination as errors
from bo_robust.posteriors.elimination import (
    ELIMINATION_KINDS,
    Failures,
    check_elimination,
    evidence_bound,
    judge_evidence,
    plausible,
    shrunk,
)
from bo_robust.validation import check_count, check_delta, check_positive, quoted

GRID = 1000  # points that stand for a continuous space in a width over finitely many: a heuristic


@dataclass(frozen=True)
class Observation:
    """What one observation did to the candidates; ``str`` says it in words.

    Attributes:
        round: The observation's round t, counted from 1.
        tested: Index in U of the tested candidate u_t; None in an initial design, and where the test is not by errors.
        left: |sum of the errors of u_t|, in units of the (standardised) reward; 0 if nobody was tested. By likelihood:
            the nats from the likeliest candidate to the least likely one.
        right: The limit of ``left``.
        eliminated: Indices in U of the candidates eliminated in this round; ``names`` are their names.
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
class CandidateHistory:
    """The candidates with their data, and the settings and state of the test. Immutable: methods return a new one.

    Tensors are ``1 x h`` unless said otherwise, double precision, on the host. Settings are those of
    :class:`~bo_robust.models.CandidateEnsemble`.

    Attributes:
        alive: Bool.
        sums: The sums of the test, ``3 x 1 x h``.
        failures: The first test that each candidate failed.
        evidence: Log marginal likelihood, in nats.
        gains: Information gain, in nats.
        last_gain: Information gain of the last reward under every candidate, in nats; infinite before the first.
        struck: Indices of the candidates eliminated by hand, in that order.
        elimination: By which evidence a candidate loses its say, as the ensemble has it.
    """

    gps: CandidateGPs
    width: Widths
    noise_scale: float
    delta: float
    num_initial: int
    maximize: bool
    alive: Tensor
    sums: Tensor
    failures: Failures
    evidence: Tensor
    gains: Tensor
    last_gain: Tensor
    struck: tuple[int, ...] = ()
    elimination: str | None = "errors"

    @classmethod
    def start(
        cls,
        gps: CandidateGPs,
        width: Widths | None,
        noise_scale: float | None,
        delta: float,
        num_initial: int,
        maximize: bool,
        elimination: str | None = "errors",
    ) -> CandidateHistory:
        """The history before any reward, settings checked and defaults filled in; ``gps`` has no rows."""
        if not isinstance(maximize, bool):
            raise ValueError(f"maximize must be True or False, got {quoted(maximize)}.")
        check_elimination(elimination, (*ELIMINATION_KINDS, "shrinking", None))
        if noise_scale is None:
            noise_scale = math.sqrt(max(c.noise_var for c in gps.candidates))
        check_positive(noise_scale=noise_scale)
        check_delta(delta)
        if width is None:
            width = BayesianFiniteWidth(GRID, delta, scale=1.0 if elimination == "errors" else EXPLORING)
        check_count(0, num_initial=num_initial)
        check_number(width, len(gps.candidates))
        for w in each(width):
            if isinstance(w, type) or not callable(w) or isinstance(w, RandomisedWidth | BKBWidth):
                raise ValueError(
                    "width must be a schedule of bo_robust.confidence that depends on the round and the information "
                    f"gain only, such as BayesianFiniteWidth(1000, 0.1), or a tuple of such; got {quoted(w)}."
                )
        zeros = torch.zeros(1, len(gps.candidates), dtype=torch.float64)
        alive, (sums, failures) = torch.ones_like(zeros, dtype=torch.bool), errors.untested(zeros)
        settings = (gps, width, noise_scale, delta, num_initial, maximize)
        last_gain = torch.full_like(zeros, math.inf)
        history = cls(*settings, alive, sums, failures, zeros, zeros.clone(), last_gain, elimination=elimination)
        return replace(history, alive=history._believed(zeros, 0))

    def widths(self, t: int, gains: Tensor | None = None) -> Tensor:
        """w^u_t, ``1 x h``, at these information gains (default: the gains so far)."""
        gains = self.gains if gains is None else gains
        w = torch.as_tensor(widths_at(self.width, t, lambda _: gains), dtype=gains.dtype).expand(gains.shape)
        return w * errors.shrinkage(self.evidence, self.bound) if self.elimination == "likelihood" else w

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(str(c.name) for c in self.gps.candidates)

    @property
    def members(self) -> list[int]:
        """Indices of the candidates alive."""
        return self.alive[0].nonzero().flatten().tolist()

    @property
    def choosing(self) -> Tensor:
        """The candidates of which that of largest bound chooses the next point, ``1 x h`` bool."""
        if self.elimination != "likelihood":
            return self.alive
        return errors.choosers(self.alive, self.evidence, self.last_gain)

    @property
    def leader(self) -> int:
        """Index of the candidate alive with the largest evidence; the first of equals."""
        return int(self.evidence.masked_fill(~self.alive, -math.inf).argmax())

    @property
    def violated(self) -> bool:
        """Whether the last survivor failed as well."""
        return bool(errors.violated(self.alive, self.failures))

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """The failed tests in the order of their rounds."""
        rows = errors.timeline(self.alive, self.failures)
        return [{"name": self.names[row["candidate"]]} | {k: row[k] for k in row if k != "trial"} for row in rows]

    def record(self, t: int) -> dict[str, Any]:
        """The state of the test before round ``t``, as plain JSON."""
        return {
            "t": t,
            "names": list(self.names),
            "alive": self.alive[0].tolist(),
            "leader": self.leader,
            "evidence": self.evidence[0].tolist(),
            "eliminations": self.timeline,
            "struck_by_hand": list(self.struck),
            "assumptions_violated": self.violated,
        }

    @cached_property
    def alive_gps(self) -> CandidateGPs:
        """The GPs of the candidates alive."""
        return self.gps if bool(self.alive.all()) else self.gps.subset(self.members)

    def after(
        self, points: Tensor, y: Tensor, conditions: Tensor | None = None, risk: Risk | None = None
    ) -> tuple[CandidateHistory, list[Observation]]:
        """The history after ``k x d`` points and their ``k`` rewards, tested one by one, and what each of them did.

        With a ``risk``, ``conditions`` are the design of every point under all conditions, ``k x w x d``.

        Raises ``ValueError`` if a kernel is not positive semi-definite on the points, or too large for its width. Warns
        if the last survivor fails for the first time.
        """
        self.gps.check_scale(self.width, points)
        start, gps = len(self.gps.points), self.gps.extended(points, y)
        y = gps.standardised(y)
        predictions, rounding = gps.factor.predictions(y), math.sqrt(torch.finfo(y.dtype).eps)
        gains = torch.cat([self.gains.mT, predictions.gain], 1).cumsum(1)
        history, observations = replace(self, gps=gps), []
        if self.elimination != "errors":
            evidence = (self.evidence.mT + predictions.log_density.cumsum(1)).mT
            last_gain = predictions.gain.mT
            for i in range(len(y)):
                history, observation = history._weighed(start + i + 1, evidence[i : i + 1], last_gain[i : i + 1])
                observations.append(observation)
            return replace(history, gains=gains[:, -1:].mT), observations
        bounds = None if conditions is None or risk is None else self._risks(gps, gains, conditions, risk)
        mean, sd, gain = predictions.mean.mT, predictions.sd.mT, gains.mT
        untested = min(max(self.num_initial - start, 0), len(y))
        for t in range(start + 1, start + untested + 1):
            message = f"round {t}: initial design, no candidate is tested"
            observations.append(Observation(t, None, 0.0, 0.0, (), (), message))
        rounds = range(start + untested + 1, start + len(y) + 1)
        reach = torch.cat([sd[:0], *(self.widths(t, gain[t - start - 1, None]) for t in rounds)]) * sd[untested:]
        # The acquisition function computes its bounds in another way, so bounds equal there differ by rounding here.
        bounds = (mean if self.maximize else -mean)[untested:] + reach if bounds is None else bounds[untested:]
        error = y.double()[untested:, None] - mean[untested:]
        while len(observations) < len(y):
            rest = slice(len(observations) - untested, None)
            t = start + len(observations) + 1
            history, played = history._tested(t, error[rest], reach[rest], bounds[rest], rounding)
            observations += played
        if history.violated and not self.violated:
            last = history.members[0]
            warnings.warn(
                f"every candidate failed its test; the last survivor, {last} ({self.names[last]}), is kept: "
                f"{errors.UNFIT}. `eliminations` says who failed when and by how much.",
                UserWarning,
                stacklevel=5,  # past _append, the wrapper of no_grad and __init__: the line that built the model
            )
        evidence = self.evidence + predictions.log_density.sum(1)
        return replace(history, gains=gains[:, -1:].mT, evidence=evidence), observations

    def restarted(self, center: float, scale: float) -> CandidateHistory:
        """The history before any reward, of rewards standardised by these; who was struck by hand stays so."""
        gps = replace(self.gps.empty(self.gps.candidates, self.gps.points[:0]), center=center, scale=scale)
        settings = (self.width, self.noise_scale, self.delta, self.num_initial, self.maximize, self.elimination)
        history = CandidateHistory.start(gps, *settings)
        for index in self.struck:
            history = history.without(index)
        return history

    def without(self, index: int) -> CandidateHistory:
        """The history with a candidate eliminated by hand; it must be alive, and not the last one."""
        members = self.members
        if self.elimination != "errors":  # those not plausible may be so again
            members = [u for u in range(len(self.names)) if u not in self.struck]
        if index not in members:
            raise ValueError(f"candidate {index} is not alive; those alive are {members}.")
        if len(members) == 1:
            raise ValueError(f"candidate {index} ({self.names[index]}) is the last one alive; add candidates to U.")
        history = replace(self, struck=(*self.struck, index))
        alive = history._believed(self.evidence, len(self.gps.points)).clone()
        alive[0, index] = False
        return replace(history, alive=alive)

    @property
    def bound(self) -> float:
        """How many nats below the likeliest a candidate is plausible, where the test is not by errors."""
        return evidence_bound(self.elimination, len(self.names), self.delta)

    def _believed(self, evidence: Tensor, rewards: int) -> Tensor:
        """Who is alive at this evidence and number of rewards, ``1 x h`` bool; by errors, who was."""
        if self.elimination == "errors":
            return self.alive
        if self.elimination == "shrinking":
            t = max(rewards - self.num_initial, 0) + 1
            evidence = -(evidence.new_tensor([self._lengthscales]) - shrunk(self._lengthscales, t)).abs()
        struck = torch.zeros_like(self.alive)
        struck[:, list(self.struck)] = True
        evidence = evidence.masked_fill(struck, -math.inf)
        return plausible(evidence, self.bound) & (evidence > -math.inf)

    @cached_property
    def _lengthscales(self) -> list[float]:
        return [lengthscale_of(c, name) for c, name in zip(self.gps.candidates, self.gps.labels, strict=True)]

    def _weighed(self, t: int, evidence: Tensor, last_gain: Tensor) -> tuple[CandidateHistory, Observation]:
        """Round t where the test is not by errors, from the evidence with its reward and its gain (``1 x h``)."""
        alive = self._believed(evidence, t)
        failures = judge_evidence(alive, self.failures, evidence, self.bound, t)
        gap, (gone, back) = evidence.amax() - evidence, (self.alive & ~alive, alive & ~self.alive)
        changes = [
            f"candidate {u} ({self.names[u]}), {float(gap[0, u]):.4g} nats below the likeliest, {verb}"
            for verb, who in (("eliminated", gone), ("plausible again", back))
            for u in who[0].nonzero().flatten().tolist()
        ]
        message = f"round {t}: {'; '.join(changes or ['no change'])}; {int(alive.sum())} of {len(self.names)} alive"
        out = tuple(gone[0].nonzero().flatten().tolist())
        observation = Observation(
            t, None, float(gap.max()), self.bound, out, tuple(self.names[u] for u in out), message
        )
        return replace(self, alive=alive, failures=failures, evidence=evidence, last_gain=last_gain), observation

    def _risks(self, gps: CandidateGPs, gains: Tensor, conditions: Tensor, risk: Risk) -> Tensor:
        """F(u(x, Z)) of every new row's design under each candidate before the row's reward, ``k x h``."""
        mean, variance = (x.double().cpu().movedim(0, 1) for x in gps.before(conditions))
        first = len(gps.points) - len(conditions) + 1
        w = torch.cat([self.widths(first + i, gains[:, i].unsqueeze(0)) for i in range(len(conditions))])
        reach = w.unsqueeze(-1) * variance.sqrt()
        p = risk.environment.probabilities
        p = None if p is None else p.to(reach)
        return risk.functional.upper_bound(mean - reach, mean + reach, p)

    def _tested(
        self, t: int, error: Tensor, reach: Tensor, bounds: Tensor, rounding: float
    ) -> tuple[CandidateHistory, list[Observation]]:
        """Rounds t, t + 1, ... up to the first failed test: each tests the candidate alive with the largest bound.

        ``error``, ``reach`` and ``bounds`` are those of every candidate in k rounds, ``k x h``.
        """
        k, h = error.shape
        chosen = errors.largest_alive(bounds, self.alive.expand(k, h), rounding)
        xi = [errors.noise_allowance(t + i, self.noise_scale, h, self.delta) for i in range(k)]
        # The sums of all rounds as if nobody failed: until then they are those of errors.judge.
        own = torch.nn.functional.one_hot(chosen, h).to(error)
        sums = torch.cat([self.sums, torch.stack([own * error, own, own * reach])], 1).cumsum(1)
        left, count, reached = sums[:, 1:].gather(2, chosen.view(1, k, 1).expand(3, k, 1)).squeeze(2)
        left, right = left.abs(), (count * error.new_tensor(xi)).sqrt_().add_(reached)
        passed = int((left <= right).long().cumprod(0).sum())
        tests = zip(chosen.tolist(), left.tolist(), right.tolist(), strict=True)
        names, alive = self.names, int(self.alive.sum())
        observations: list[Observation] = []

        def note(u: int, left: float, right: float, outcome: str, alive: int, gone: tuple[int, ...] = ()) -> None:
            message = (
                f"round {t + len(observations)}: candidate {u} ({names[u]}) tested, |sum of errors| {left:.4g} "
                f"{'>' if left > right else '<='} {right:.4g}: {outcome}; {alive} of {h} alive"
            )
            out = tuple(names[i] for i in gone)
            observations.append(Observation(t + len(observations), u, left, right, gone, out, message))

        for test in itertools.islice(tests, passed):
            note(*test, "kept", alive)
        history, now = replace(self, sums=sums[:, passed : passed + 1]), slice(passed, passed + 1)
        if passed < k:
            of, ok = (self.alive, history.sums, self.failures, chosen[now]), torch.ones(1, dtype=torch.bool)
            verdict = errors.judge(*of, error[now], reach[now], xi[passed], t + passed, ok)
            gone = (self.alive & ~verdict.alive)[0].nonzero().flatten().tolist()
            outcome = "eliminated" if gone else "kept, as the last one"
            note(*next(tests), outcome, int(verdict.alive.sum()), tuple(gone))
            history = replace(self, alive=verdict.alive, sums=verdict.sums, failures=verdict.failures)
        return history, observations
