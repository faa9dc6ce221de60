"""From what was told to the next trial and the recommendation: every round builds one model from all of it.

Every result is a function of the space, the settings, the seed, what was told in its order, what failed, what is
pending, and the trial's number. Random numbers come from streams keyed by the seed and that number, so no state is
carried from trial to trial.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.models.training_data import recommendable
from bo_robust.random import stream
from bo_robust.study.failures import stand_in
from bo_robust.study.round_models import RoundModel, RoundModels
from bo_robust.study.search import expected_ignored, maximise, maximise_among
from bo_robust.study.settings import StudySettings
from bo_robust.study.space import Arms, Box, Point, Space, all_points
from bo_robust.study.steps import seeded, stream_seed
from bo_robust.study.units import RewardUnits, coarse_units, units_of, warn_of_spoilt_units

LARGEST_SEEN = 1e100  # limit of |reward| as models see it: they square it
STARTS = 100  # best points told, about which the search may start
CERTIFIED = 1e8  # beside a reward beyond this, rounding may exceed all others: nothing is certified


@dataclass(frozen=True)
class History:
    """What is known when something is decided.

    Attributes:
        told: Points and their rewards in the order told, without failures.
        failed: Points told FAILED, in that order. The next trial of a method with ``failures_apart`` keeps away from
            where failure is likelier than success. The model of others sees the worst reward told so far there (of
            those not truncated). That of the recommendation does not see failures.
        pending: Points asked and not told, in the order asked. Their means stay and their variances fall, so that
            others are asked, unless the width is so small that even then nothing beats them.
        elsewhere: Points asked and told under another condition.
    """

    told: list[tuple[Point, float]]
    failed: list[Point]
    pending: list[Point]
    elsewhere: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Recommendation:
    """The point to use, in units of the rewards.

    ``worst`` and ``regret_bound`` hold with probability 1 - delta where the assumptions of the certificate's width
    hold: see ``certificate`` of :class:`bo_robust.study.settings.KernelSettings`. On a box its default is a heuristic.
    They speak of f where trials succeed.

    Both are None in four cases. The method certifies nothing (:attr:`bo_robust.methods.Method.certifies`). A reward
    better than ``value`` was truncated or not believed, at a point without another: the model did not see what may be
    the best there is. All rewards (that the model believes) are equal and no ``scale`` was given: nothing says how far
    f may go. A reward is beyond 1e8 times the scale: beside it floating point loses the others.

    Under conditions ``value`` is that of all of them, and a reward is of one. There the reward must be better than all
    believed ones too; the others that are not believed count as faults.

    Attributes:
        x: The point (without its condition, where the method chooses one).
        value: Posterior mean of f there (of the value at risk, where that is maximised).
        worst: f(x) is no worse than this.
        regret_bound: x is at most this far from optimal: the largest upper confidence bound, as far as the search finds
            it, minus the lower one of x.
    """

    x: Point
    value: float
    worst: float | None
    regret_bound: float | None


class Policy:
    """From a history to the next point: a method on a space."""

    def __init__(self, space: Space, settings: StudySettings, seed: int) -> None:
        self.space, self.settings, self.seed = space, settings, seed
        conditions = settings.method.environment
        self.environment = None if conditions is None else Arms(conditions["points"])
        self._warned_at = 0
        self._warned_of: float | None = None
        self._models = RoundModels(settings, seed, self.environment)

    def propose(self, history: History, trial: int) -> Point:
        """Return the point of trial number ``trial``."""
        seed = stream_seed(self.seed, "ask", trial)
        if trial < self.settings.known["num_initial"] or not history.told:
            return self._initial(trial)
        now = self.round_model(history)
        # Another reading of these is under way, or would fail or come under another condition again, maybe for ever.
        asked = [*history.pending, *history.failed, *history.elsewhere]
        for row in now.suspects:
            suspect = history.told[row][0]
            if suspect not in asked:
                return dict(suspect)
        pending = self._unit(history.pending) if history.pending else None
        acqf = self._acquisition(now, pending, seed)
        x = self._maximise(acqf, seed, history)[0]
        if self.environment is None:
            return x
        choice = acqf.select_condition(self._unit([x])[0])
        return x | dict(self.environment.points[int(choice.index)])

    def recommend(self, history: History) -> Recommendation:
        """Recommend the point of largest lower confidence bound among those told, or among all of a finite space.

        Bounds are those of the rewards alone, without failures. Points that only failed, or whose only rewards were too
        bad to be believed, are left out. Raises ``ValueError`` if nothing was told.
        """
        if not history.told:
            raise ValueError("no value was told yet: there is nothing to recommend.")
        names = self.space.names
        # A failure says nothing of what was told elsewhere: a model that smooths a cliff gets its edge wrong.
        now = self.round_model(replace(history, failed=[]))
        designs = {tuple(x[n] for n in names): {n: x[n] for n in names} for x, _ in history.told}
        points = list(designs.values()) if self.space.points is None else [dict(p) for p in self.space.points]
        with torch.no_grad():
            mean, lower, upper = now.bounds(self._unit(points))
        told = self._unit([x for x, _ in history.told])
        sign = -1.0 if self.settings.common.minimize else 1.0
        rewards = torch.tensor([sign * y for _, y in history.told], dtype=told.dtype, device=told.device)
        may = recommendable(told, rewards, now.set_aside)
        left_out = {tuple(x[n] for n in names) for (x, _), ok in zip(history.told, may.tolist(), strict=True) if not ok}
        left_out |= {tuple(x[n] for n in names) for x in history.failed} - designs.keys()
        allowed = torch.tensor([tuple(p[n] for n in names) not in left_out for p in points], device=lower.device)
        best = int(lower.where(allowed, -math.inf).argmax())
        # The search may miss the maximum on a box, so the bounds at the points told count too.
        top = max(
            self._maximise(now.upper(), stream_seed(self.seed, "recommend", len(history.told)), history)[1],
            float(upper.max()),
        )
        units = self._units([y for _, y in history.told])
        value, low = float(mean[best]), float(lower[best])
        known = units.known and now.varied and self.settings.method.certifies
        if not known or now.best_unseen > value or now.largest > CERTIFIED:
            return Recommendation(points[best], units.of_model(value), None, None)
        return Recommendation(points[best], units.of_model(value), units.of_model(low), units.scale * (top - low))

    def set_aside(self, history: History) -> list[int]:
        """Rows of ``history.told`` whose rewards the model does not see as they are."""
        return [row for row, unseen in enumerate(self.round_model(history).set_aside.tolist()) if unseen]

    def checked(self, x: Any) -> Point:
        """Return a point as stored, with its condition if any; raise ``ValueError`` if it is not in the space."""
        if self.environment is None or not isinstance(x, Mapping):
            return self.space.check(x)
        names = self.space.names
        design = self.space.check({k: v for k, v in x.items() if k in names})
        return design | self.condition({k: v for k, v in x.items() if k not in names})

    def condition(self, z: Any) -> Point:
        """Return an observed condition as stored; raise ``ValueError`` if the model does not take it.

        The model of (x, z) takes every z in the box of the environment's points: its coordinates are in [0, 1].
        """
        if self.environment is None:
            raise ValueError(f"a study of {self.settings.name} has no conditions: leave `condition` out.")
        return self.environment.check_condition(z)

    def try_out(self) -> None:
        """Build everything once from two points, to find what the checks of single settings miss.

        Raises ``ValueError`` if settings do not fit each other, the space or the machine.
        """
        try:
            center, scale = self.settings.common.center or 0.0, self.settings.common.scale or 1.0
            told = [(self._initial(0), center), (self._initial(1), center + scale)]
            now = self.round_model(History(told, [], []))
            self._acquisition(now, None, 0)
            now.upper()
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ValueError(f"{self.settings.name} cannot be built with these settings: {error}") from error

    def _initial(self, trial: int) -> Point:
        generator = stream(self.seed, "study.initial", trial)
        if self.space.points is not None:
            # the first num_initial of one permutation of the points, so that none comes twice
            order = stream(self.seed, "study.arms", 0).permutation(len(self.space.points))
            x = dict(self.space.points[int(order[trial % len(order)])])
        else:
            engine = SobolEngine(
                len(self.space.columns), scramble=True, seed=stream_seed(self.seed, "initial", 0) % 2**31
            )
            x = self.space.decode(engine.fast_forward(trial).draw(1, dtype=torch.float64)[0].tolist())
        if self.environment is not None:
            p = self.settings.method.environment.get("probabilities")
            n = len(self.environment.points)
            x |= self.environment.points[int(generator.choice(n, p=p))]
        return x

    def _unit(self, points: list[Point]) -> Tensor:
        """Coordinates ``n x d`` of points in the unit cube; conditions are included where points have them."""
        rows = [self.space.encode(p) for p in points]
        if self.environment is not None and len(points[0]) > len(self.space.names):
            rows = [row + self.environment.encode(p) for row, p in zip(rows, points, strict=True)]
        return torch.tensor(rows, dtype=torch.float64, device=self.settings.common.device)

    @cached_property
    def _all_points(self) -> Tensor:
        """Coordinates ``n x d`` of all points of a finite space; of 50,000 arms they take .3 s."""
        return all_points(self.space).to(self.settings.common.device)

    def _acquisition(self, now: RoundModel, pending: Tensor | None, seed: int) -> Any:
        with seeded(seed, self.settings.common.device), expected_ignored():
            return now.acquisition(pending, torch.Generator().manual_seed(seed))

    def _best(self, history: History) -> Tensor:
        """Points ``n x d`` of the best rewards; among them the search takes those of the largest means."""
        worse = 1.0 if self.settings.common.minimize else -1.0
        return self._unit([x for x, _ in sorted(history.told, key=lambda told: worse * told[1])[:STARTS]])

    def _maximise(self, acqf: AcquisitionFunction, seed: int, history: History) -> tuple[Point, float]:
        # Other starts may miss the peak of the points told. An acquisition on conditions too takes no such starts.
        best = self._best(history) if self.environment is None else None
        if self.space.points is not None:
            return maximise_among(acqf, self.space.points, self._all_points)
        assert isinstance(self.space, Box)
        return maximise(acqf, self.space, self.settings.common, seed, best)

    def _units(self, rewards: list[float]) -> RewardUnits:
        method, common = self.settings.method, self.settings.common
        if method.judges_rewards:
            return coarse_units(rewards, common, as_told=not method.any_units)
        return units_of(rewards, common)

    def _warn_of_stand_in(self, history: History) -> None:
        value = stand_in(history.told)
        if value is not None and value != self._warned_of:
            self._warned_of = value
            warnings.warn(
                f"{value:g} was told at several points, and lies far from all other values: where it stands for "
                "a run that failed, tell FAILED (in Optuna raise TrialPruned); the model takes numbers for rewards.",
                UserWarning,
                stacklevel=3,
            )

    def round_model(self, history: History) -> RoundModel:
        """The model of all that was told; raises ``ValueError`` if most rewards are too large for their unit."""
        X, rewards = self._unit([x for x, _ in history.told]), [y for _, y in history.told]
        units = self._units(rewards)
        self._warn_of_stand_in(history)
        if not self.settings.method.judges_rewards:
            self._warned_at = warn_of_spoilt_units(rewards, units, self.settings.common, self._warned_at)
        Y = (units.sign / units.scale) * (X.new_tensor(rewards).unsqueeze(-1) - units.center)
        if not math.isfinite(units.scale) or 2 * int((Y.abs() <= LARGEST_SEEN).sum()) < len(Y):
            raise ValueError(
                f"most rewards are too large for their unit, {units.scale:g}: give a `scale` (and `noise_var`) of "
                "their size, or divide them."
            )
        failed = self._unit(history.failed) if history.failed else X[:0]
        return self._models.make(X, Y.clamp(-LARGEST_SEEN, LARGEST_SEEN), failed)
