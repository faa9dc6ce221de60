"""From what was told to the next trial and to the recommendation: one model a round, built from all of it.

Everything here is a function of (space, settings, seed, what was told in its order, what failed, what is pending, the
trial's number). Random numbers come from streams keyed by the seed and that number, so nothing is carried from trial to
trial.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.random import stream
from bo_robust.study.posteriors import Posterior
from bo_robust.study.space import Arms, Space
from bo_robust.study.surrogates import Posteriors, last_step, seeded, stream_seed

__all__ = ["History", "Method", "Recommendation"]

BLOCK = 4096  # arms evaluated at once
TAIL = 0.15  # of the rewards, at either end, that do not count for their scale: more than outliers are
NORMAL_RANGE = 2.0729  # what is left between these ends of a normal distribution, in standard deviations
GROWTHS = ((math.inf, 1.3),)  # of the number of rewards, until the units are looked at again
LARGEST = 1e100  # of a reward as models see it, whose square they take
STARTS = 100  # points told that the search may start about
CERTIFIED = 1e8  # beyond such a reward nothing is certified: rounding may be larger than all others
SPOILT = 1e3  # center or scale beyond so many spreads of the rewards were made by outliers
Point = dict[str, float]


@dataclass(frozen=True)
class History:
    """What is known when something is decided.

    Attributes:
        told: Points and their rewards, in the order told; failures are not among them.
        failed: Points told FAILED, in that order: models see there the worst reward told so far (of those that were
            not truncated).
        pending: Points asked and not told, in the order asked: their means stay, their variances fall, so that others
            are asked, unless the width is so small that even so nothing beats them.
    """

    told: list[tuple[Point, float]]
    failed: list[Point]
    pending: list[Point]


@dataclass(frozen=True)
class Recommendation:
    """The point to use, in units of the rewards.

    Attributes:
        x: The point (v-ucb: without its condition).
        value: Posterior mean of f there (v-ucb: value at risk of the mean).
        worst: With probability 1 - delta f(x) is no worse, where the assumptions of the certificate's width hold (see
            ``certificate`` in :mod:`bo_robust.study.settings`; on a box its default is a heuristic). f is that with
            the failed points as the worst reward. None, like ``regret_bound``, where there is no certificate: a reward
            better than ``value`` was truncated, so that the model did not see what may be the best there is; all
            rewards are equal and no ``scale`` was given, so that nothing says how far f may go; or one is beyond 1e8
            times the scale, beside which floating point loses the others.
        regret_bound: How far from optimal x can be, with the same probability: the largest upper confidence bound there
            is minus the lower one of x, as far as the search finds the former.
    """

    x: Point
    value: float
    worst: float | None
    regret_bound: float | None


class Method:
    """A method on a space.

    Args:
        space: What is searched.
        name: Of the method.
        settings: All of them, as :func:`~bo_robust.study.settings.complete` returns them.
        seed: Of the study.
        fits: Hyperparameters that are known already (see :attr:`fits`).
    """

    def __init__(
        self, space: Space, name: str, settings: dict[str, Any], seed: int, fits: Mapping[str, Any] | None = None
    ) -> None:
        self.space, self.name, self.settings, self.seed = space, name, settings, seed
        self.environment: Arms | None = None
        self._warned_at = 0
        if name == "v-ucb":
            self.environment = Arms(settings["environment"]["points"])
        self._posteriors = Posteriors(space, name, settings, seed, self.environment, fits or {})

    @property
    def fits(self) -> Mapping[str, Any]:
        """Hyperparameters given and fitted since, plain JSON by a digest of the data they were fitted to."""
        return self._posteriors.fits

    def propose(self, history: History, trial: int) -> Point:
        """The point of trial number ``trial``."""
        seed = stream_seed(self.seed, "ask", trial)
        if trial < self.settings["num_initial"] or not history.told:
            return self._initial(trial)
        posterior = self._posterior(history)
        pending = self._unit(history.pending) if history.pending else None
        acqf = posterior.acquisition(pending, torch.Generator().manual_seed(seed))
        x = self._maximise(acqf, seed, history)[0]
        if self.environment is None:
            return x
        choice = acqf.select_environment(self._unit([x])[0])
        return x | dict(self.environment.points[int(choice.index)])

    def recommend(self, history: History) -> Recommendation:
        """The point of largest lower confidence bound, of those told (of all, where they are arms)."""
        names = self.space.names
        posterior = self._posterior(history)
        designs = {tuple(x[n] for n in names): {n: x[n] for n in names} for x, _ in history.told}
        points = [dict(p) for p in self.space.points] if isinstance(self.space, Arms) else list(designs.values())
        with torch.no_grad():
            mean, lower, upper = posterior.bounds(self._unit(points))
        best = int(lower.argmax())
        top = max(
            self._maximise(posterior.upper(), stream_seed(self.seed, "recommend", len(history.told)), history)[1],
            float(upper.max()),
        )
        center, scale, sign, known = self._units([y for _, y in history.told])
        value, low = float(mean[best]), float(lower[best])
        if not known or posterior.truncated_top > value or posterior.largest > CERTIFIED:
            return Recommendation(points[best], center + sign * scale * value, None, None)
        return Recommendation(
            points[best], center + sign * scale * value, center + sign * scale * low, scale * (top - low)
        )

    def checked(self, x: Any) -> Point:
        """A point of the space, with its condition for v-ucb, as stored; raises ``ValueError`` if it is none."""
        if self.environment is None or not isinstance(x, Mapping):
            return self.space.check(x)
        names = self.space.names
        design = self.space.check({k: v for k, v in x.items() if k in names})
        return design | self.environment.check({k: v for k, v in x.items() if k not in names})

    def try_out(self) -> None:
        """Build everything once from two points, for what the checks of single settings do not see.

        Raises:
            ValueError: if settings do not fit each other, the space or the machine.
        """
        try:
            told = [(self._initial(0), 0.0), (self._initial(1), 1.0)]
            posterior = self._posterior(History(told, [], []))
            posterior.acquisition(None, torch.Generator().manual_seed(0))
            posterior.upper()
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ValueError(f"{self.name} cannot be built with these settings: {error}") from error

    def _initial(self, trial: int) -> Point:
        generator = stream(self.seed, "study.initial", trial)
        if isinstance(self.space, Arms):
            # the first num_initial of one permutation of the arms, so that none comes twice
            order = stream(self.seed, "study.arms", 0).permutation(len(self.space.points))
            x = dict(self.space.points[int(order[trial % len(order)])])
        else:
            engine = SobolEngine(
                len(self.space.names), scramble=True, seed=stream_seed(self.seed, "initial", 0) % 2**31
            )
            x = self.space.from_unit(engine.fast_forward(trial).draw(1, dtype=torch.float64)[0].tolist())
        if self.environment is not None:
            p = self.settings["environment"].get("probabilities")
            n = len(self.environment.points)
            x |= self.environment.points[int(generator.choice(n, p=p))]
        return x

    def _unit(self, points: list[Point]) -> Tensor:
        """Coordinates ``n x d`` of points; with those of the condition where they have one."""
        rows = [self.space.to_unit(p) for p in points]
        if self.environment is not None and len(points[0]) > len(self.space.names):
            rows = [row + self.environment.to_unit(p) for row, p in zip(rows, points, strict=True)]
        return torch.tensor(rows, dtype=torch.float64, device=self.settings["device"])

    def _units(self, rewards: list[float]) -> tuple[float, float, float, bool]:
        """Center, scale and sign by which rewards become those of the model, and whether the scale is one.

        The center is the median of the initial design. The scale is the largest spread there was when there were
        num_initial * 1.3^k rewards: those of the initial design may all lie where f is flat, and later ones all where
        it is best. (So a share of outliers above TAIL at one of these spoils it for good, which few rewards may have.)
        If all rewards are equal it is 1, which stands for nothing.
        """
        center, scale = self.settings["center"], self.settings["scale"]
        num_initial = self.settings["num_initial"]
        if center is None:
            center = statistics.median(rewards[:num_initial])
        if scale is None:
            scale, last = 0.0, last_step(len(rewards), num_initial, GROWTHS)
            m = last
            while True:
                scale = max(scale, _spread(rewards[:m], center))
                if m <= num_initial:
                    break
                m = last_step(m - 1, num_initial, GROWTHS)
            if not scale > 1e-290:  # most rewards are equal
                usable = [gap for gap in (abs(y - center) for y in rewards[:last]) if gap > 1e-290]
                scale = 1.4826 * statistics.median(usable) if usable else 0.0
        known = self.settings["scale"] is not None or max(rewards) > min(rewards)
        return center, scale or 1.0, -1.0 if self.settings["minimize"] else 1.0, known

    def _best(self, history: History) -> Tensor:
        """Points ``n x d`` of the best rewards: the search looks at those of the largest means among them."""
        worse = 1.0 if self.settings["minimize"] else -1.0
        return self._unit([x for x, _ in sorted(history.told, key=lambda told: worse * told[1])[:STARTS]])

    def _maximise(self, acqf: AcquisitionFunction, seed: int, history: History) -> tuple[Point, float]:
        """The best point and its value before rounding."""
        device = self.settings["device"]
        if isinstance(self.space, Arms):
            with torch.no_grad():
                blocks = self.space.unit_points().to(device).unsqueeze(-2).split(BLOCK)
                values = torch.cat([acqf(block) for block in blocks])
            best = int(values.argmax())
            return dict(self.space.points[best]), float(values[best])
        bounds = torch.zeros(2, len(self.space.names), dtype=torch.float64, device=device)
        bounds[1] = 1.0
        options: dict[str, Any] = {"seed": seed % 2**31}
        if self.environment is None:  # start about the best points told, too: others may not fall into their hollow
            acqf.X_baseline = self._best(history)  # where BoTorch looks for them
            options |= {"sample_around_best": True, "sample_around_best_sigma": 0.05}
        with seeded(seed, device):
            x, value = optimize_acqf(
                acqf,
                bounds,
                q=1,
                num_restarts=self.settings["restarts"],
                raw_samples=self.settings["raw_samples"],
                options=options,
                retry_on_optimization_warning=False,  # the kinks of a value at risk end line searches, at good points
            )
        return self.space.from_unit(x[0].tolist()), float(cast(Tensor, value))

    def _posterior(self, history: History) -> Posterior:
        X, rewards = self._unit([x for x, _ in history.told]), [y for _, y in history.told]
        center, scale, sign, _ = self._units(rewards)
        self._warn_of(rewards, center, scale)
        Y = (sign / scale) * (X.new_tensor(rewards).unsqueeze(-1) - center)
        failed = self._unit(history.failed) if history.failed else X[:0]
        return self._posteriors.of(X, Y.clamp(-LARGEST, LARGEST), failed)

    def _warn_of(self, rewards: list[float], center: float, scale: float) -> None:
        """Say so, once per units, if outliers in the good direction among the first rewards may have made them.

        In the bad direction nobody can tell them from an objective that is steep far from its optimum.
        """
        median, m = statistics.median(rewards), last_step(len(rewards), self.settings["num_initial"], GROWTHS)
        spread = _spread(rewards, median)
        best = median - min(rewards) if self.settings["minimize"] else max(rewards) - median
        found = {"center": abs(center - median), "scale": scale}
        spoilt = [k for k, v in found.items() if self.settings[k] is None and min(v, best) > SPOILT * spread > 0.0]
        if spoilt and m != self._warned_at:
            self._warned_at = m
            warnings.warn(
                f"the {' and '.join(spoilt)} of the first rewards (center {center:.3g}, scale {scale:.3g}) is far from "
                f"that of all (median {median:.3g}, spread {spread:.3g}): there may have been outliers among them. If "
                "so, give `center` and `scale` to a new study and `add` these results to it.",
                UserWarning,
                stacklevel=2,
            )


def _spread(rewards: list[float], center: float) -> float:
    """Their standard deviation if they are normal, little moved by outliers of up to TAIL of them at either end."""
    spread = 1.4826 * statistics.median(abs(y - center) for y in rewards)
    # Lopsided rewards, such as a peak above a plain, have a small median deviation.
    ordered, k = sorted(rewards), min(math.ceil(TAIL * len(rewards)), (len(rewards) - 1) // 2)
    return max(spread, (ordered[-1 - k] - ordered[k]) / NORMAL_RANGE)
