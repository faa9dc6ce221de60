"""Small problems for :func:`bo_robust.suggest`: designs, what is measured at them, and the data of each round.

The data of the next round are the proposals, rounded to two digits of their range, so that they do not depend on the
last digits of an optimizer's result.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bo_robust import suggest
from tests.record.values import numbers

ROUNDS = 3
SEARCH = {"restarts": 2, "raw_samples": 16}
UNIT = [[0.0, 0.0], [1.0, 1.0]]
BOX = [[50.0, 1.0, 0.5], [110.0, 8.0, 2.5]]
STEPS = (range(50, 111, 5), (1, 2, 3, 4, 6, 8), (0.5, 1.0, 1.5, 2.0, 2.5))


def hill(x):
    """At most 1, at (0.3, 0.6)."""
    return 1.0 - 2.0 * (x[0] - 0.3) ** 2 - (x[1] - 0.6) ** 2


def slope(x):
    """A second outcome, which is best elsewhere."""
    return x[0] + 0.5 * x[1] ** 2


def yields(x):
    """A yield of at most 85 %, over decades."""
    return 85.0 * math.exp(-(((x[0] - 82) / 22) ** 2) - ((x[1] - 5) / 3.5) ** 2 - ((x[2] - 1.4) / 1.2) ** 2)


def mixed(x):
    """A number, a number of steps and a category."""
    return 1.0 - (x[0] - 0.4) ** 2 - 0.1 * (x[1] - 2.0) ** 2 + (0.0, 0.3, -0.2)[int(x[2])]


def humid(x):
    """Best at 3 on average, but bad there in humid air."""
    return 5.0 - abs(x[0] - 3.0) - 8.0 * x[1] * (x[0] > 0.75)


@dataclass
class Problem:
    """Rounds of suggestions; ``outcomes`` has one function for each objective, ``constraints`` for each constraint."""

    start: list[list[float]]
    outcomes: tuple[Callable[[Any], float], ...] = (hill,)
    space: dict[str, Any] = field(default_factory=lambda: {"bounds": UNIT})
    noise: float = 0.03
    wrong: dict[int, Callable[[float], float]] = field(default_factory=dict)  # what is written down instead, by row
    constraints: tuple[Callable[[Any], float], ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def record(self, rounds: int = ROUNDS) -> dict[str, Any]:
        X, seen = [list(x) for x in self.start], {}
        for index in range(rounds):
            found = suggest(X, self._measured(X), **self.space, **self._given(X), **SEARCH | self.options)
            seen[str(index)] = {
                **{name: numbers(getattr(found, name)) for name in ("X", "replicate", "outliers", "held", "expected")},
                **{name: numbers(getattr(found, name)) for name in ("best", "mean", "interval")},
            }
            X += [[float(f"{v:.2g}") if math.isfinite(v) else 0.5 for v in x] for x in found.X.tolist()]
        return seen

    def _measured(self, X):
        noise = random.Random(0)
        rows = [[f(x) + self.noise * noise.gauss(0.0, 1.0) for f in self.outcomes] for x in X]
        for row, mistake in self.wrong.items():
            if row < len(rows):
                rows[row][0] = mistake(rows[row][0])
        return rows if len(self.outcomes) > 1 else [row[0] for row in rows]

    def _given(self, X):
        held = [[c(x) if i != 1 else math.nan for c in self.constraints] for i, x in enumerate(X)]
        return {**self.data, **({"constraints": held} if self.constraints else {})}


def drawn(n, *columns, seed=0):
    """Designs of columns that are a range ``(low, high)`` of numbers or a list of values."""
    of = random.Random(seed)
    return [[float(of.uniform(*c) if isinstance(c, tuple) else of.choice(c)) for c in columns] for _ in range(n)]


def square(n=9, seed=0):
    return drawn(n, (0.0, 1.0), (0.0, 1.0), seed=seed)


def recipes(seed, n=14):
    """Yields of random recipes, one of them written down ten times too large."""
    of = random.Random(seed)
    X = [[float(of.choice(list(steps))) for steps in STEPS] for _ in range(n)]
    wrong = sorted(range(n), key=lambda i: -yields(X[i]))[of.randrange(n // 2)]
    return {"start": X, "outcomes": (yields,), "space": {"bounds": BOX}, "noise": 1.0, "wrong": {wrong: ten_times}}


def ten_times(y):
    return 10.0 * y


def far_above(y):
    return y + 40.0


def far_below(y):
    return y - 40.0


LIST = drawn(40, (0.0, 1.0), (0.0, 1.0), seed=5)
MIXED = {
    "bounds": [[0.0, 0.0, 0.0], [1.0, 4.0, 2.0]],
    "discrete": {1: [0.0, 1.0, 2.0, 4.0]},
    "categorical": {2: range(3)},
}
MIXED_START = drawn(12, (0.0, 1.0), [0, 1, 2, 4], [0, 1, 2], seed=2)
FINITE = {
    "bounds": [[0.0, 0.0], [5.0, 2.0]],
    "discrete": {0: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]},
    "categorical": {1: [0, 1, 2]},
}
CUBE = [[0.0] * 3, [1.0] * 3]
MIXTURE = [[a / 10, b / 10, (10 - a - b) / 10] for a, b in [(1, 2), (3, 3), (6, 1), (2, 7), (0, 5), (8, 1), (4, 4)]]
AIR = [[x, z] for x in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0) for z in (0.0, 0.5, 1.0)]
WEATHER = {"bounds": [[0.0, 0.0], [4.0, 1.0]], "conditions": [1]}
CANDIDATES = [{"kernel": "rbf", "lengthscale": ell, "noise_var": 0.01} for ell in (0.2, 0.5)]
ONE_WRONG = {"wrong": {3: far_above}}

PROBLEMS = {
    "nothing measured": Problem([], options={"q": 3}),
    "initial design": Problem(square(3), options={"q": 2}),
    "box": Problem(square(), options={"q": 2}),
    "box, three columns": Problem(drawn(10, (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)), space={"bounds": CUBE}),
    "box, another seed": Problem(square(seed=3), options={"seed": 7}),
    "minimize": Problem(square(), (slope,), data={"maximize": False}),
    "large units": Problem(square(), (lambda x: 1e6 * hill(x),), noise=3e4),
    "outlier, good": Problem(square(), **ONE_WRONG),
    "outlier, bad": Problem(square(), wrong={3: far_below}),
    "outlier of a minimizer": Problem(square(), (slope,), data={"maximize": False}, wrong={3: far_below}),
    "two outliers": Problem(square(12), wrong={2: far_above, 6: far_above}, options={"q": 2}),
    "replicated outlier": Problem([*square(), square()[3]], wrong={3: far_above, 9: lambda y: y + 41.0}),
    "held": Problem(**recipes(3)),
    "held, another table": Problem(**recipes(5), options={"q": 2}),
    "held, with limits": Problem(**recipes(3), data={"outcome_limits": (0.0, 100.0)}),
    "held, of a minimizer": Problem(**recipes(5) | {"outcomes": (lambda x: -yields(x),)}, data={"maximize": False}),
    "pending": Problem(square(), data={"X_pending": [[0.3, 0.6], [0.5, 0.5]]}),
    "failed": Problem(square(), data={"X_failed": [[0.3, 0.6], [0.32, 0.58], [0.9, 0.9]]}),
    "pending and failed, outlier": Problem(
        square(), data={"X_failed": [[0.9, 0.9]], "X_pending": [[0.1, 0.7]]}, **ONE_WRONG
    ),
    "fixed": Problem(square(), space={"bounds": UNIT, "fixed": {1: 0.25}}),
    "candidates": Problem(LIST[:8], space={"candidates": LIST}),
    "candidates, outlier": Problem(LIST[:8], space={"candidates": LIST}, **ONE_WRONG, options={"q": 2}),
    "candidates, never again": Problem(LIST[:8], space={"candidates": LIST}, options={"repeats": "never"}),
    "candidates, failed": Problem(LIST[:8], space={"candidates": LIST}, data={"X_failed": LIST[8:10]}),
    "mixed": Problem(MIXED_START, (mixed,), space=MIXED),
    "mixed, outlier": Problem(MIXED_START, (mixed,), space=MIXED, wrong={4: far_above}),
    "finite": Problem(
        drawn(9, [0, 1, 2, 3, 4, 5], [0, 1, 2], seed=1), (lambda x: -((x[0] - 3.0) ** 2) + x[1],), space=FINITE
    ),
    "mixture": Problem(
        MIXTURE,
        space={"bounds": CUBE, "equality_constraints": [([0, 1, 2], [1.0, 1.0, 1.0], 1.0)]},
    ),
    "inequality": Problem(square(), space={"bounds": UNIT, "inequality_constraints": [([0, 1], [-1.0, -1.0], -0.8)]}),
    "conditions": Problem(AIR, (humid,), space=WEATHER),
    "conditions, not set": Problem(AIR, (humid,), space=WEATHER | {"set_conditions": False, "worst": 0.3}),
    "conditions, candidates": Problem(
        AIR, (humid,), space={"candidates": [[0.2], [0.4], [3.5]], "conditions": [1], "worst": 0.4}
    ),
    "conditions, outlier": Problem(AIR, (humid,), space=WEATHER, wrong={5: far_above}),
    "constraint": Problem(square(12), constraints=(lambda x: 0.4 - x[0],)),
    "constraint, outlier": Problem(square(12), constraints=(lambda x: 0.4 - x[0], lambda x: x[1] - 0.9), **ONE_WRONG),
    "two objectives": Problem(square(), (hill, slope), data={"maximize": (True, False)}),
    "two objectives, outlier": Problem(square(), (hill, slope), **ONE_WRONG),
    "two objectives, constraint": Problem(square(), (hill, slope), constraints=(lambda x: x[1] - 0.9,)),
    "limits": Problem(
        square(), (lambda x: 100.0 * hill(x),), data={"outcome_limits": (0.0, 100.0)}, wrong={3: far_above}
    ),
    "gp-ucb": Problem(square(), options={"method": "gp-ucb"}),
    "tgp-ucb": Problem(square(), options={"method": "tgp-ucb"}, **ONE_WRONG),
    "ata-gp-ucb": Problem(square(), options={"method": "ata-gp-ucb"}, **ONE_WRONG),
    "he-gp-ucb": Problem(square(), options={"method": "he-gp-ucb", "settings": {"candidates": CANDIDATES}}),
    "bkb": Problem(square(), options={"method": "bkb"}),
}
