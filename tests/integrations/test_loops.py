"""What Ax and Optuna have in common: the same loops, asked and told through either."""

import math
import random

import pytest

from tests.integrations.hosts import LOOPS

SQUARE = {"a": (0.0, 1.0), "z": (0.0, 1.0)}
RECIPES = {"T": (50.0, 110.0), "t": (1.0, 8.0), "c": (0.5, 2.5)}
UNIT_NOISE = {"noise_var": 0.01}
METHODS = {
    "robust": {},
    "gp-ucb": UNIT_NOISE,
    "tgp-ucb": {"moment_bound": 1.0, "alpha": 1.0, **UNIT_NOISE},
    "he-gp-ucb": {
        "candidates": [{"kernel": "rbf", "lengthscale": ell, "noise_var": 0.01} for ell in (0.2, 0.5)],
        "noise_scale": 0.1,
        "width": 1.0,
    },
}


@pytest.fixture(params=LOOPS)
def loop(request):
    """Starts a loop of a host."""

    def start(space=SQUARE, objectives=None, constraints=(), method="robust", **settings):
        return LOOPS[request.param](space, objectives or {"y": True}, constraints, method, **settings)

    return start


def f(x):
    """At most 0.5, at (0.5, 0.5)."""
    return 0.5 - 4.0 * (x["a"] - 0.5) ** 2 - (x["z"] - 0.5) ** 2


def spread(space, n, seed=0):
    """Designs of a space."""
    rng = random.Random(seed)
    draw = {tuple: lambda v: rng.uniform(*v[:2]), list: rng.choice, range: rng.choice}
    return [{name: draw[type(values)](values) for name, values in space.items()} for _ in range(n)]


def run(loop, start, rounds, outcomes):
    """The designs of trials: those to start with, then those asked for; ``outcomes`` are of number and design."""
    designs = []
    for t in range(len(start) + rounds):
        trial, x = (loop.attach(start[t]), start[t]) if t < len(start) else loop.ask()
        loop.tell(trial, outcomes(t, x))
        designs.append(x)
    return designs


@pytest.mark.parametrize("method", METHODS)
def test_a_loop_finds_the_best_and_mirrors_where_it_minimizes(loop, method):
    runs = []
    for good, sign in ((True, 1.0), (False, -1.0)):
        one = loop(objectives={"y": good}, method=method, **METHODS[method])
        designs = run(one, spread(SQUARE, 7), 5, lambda t, x, sign=sign: {"y": sign * f(x)})
        assert max(map(f, designs[7:])) > (0.2 if method == "he-gp-ucb" else 0.4)  # bounds of elimination are wide
        x, value = one.recommend()
        assert x in designs
        assert f(x) > max(map(f, designs)) - 0.1
        assert sign * value == pytest.approx(f(x), abs=0.1)
        runs.append(designs)
    assert runs[0][7] == pytest.approx(runs[1][7], abs=1e-2)


@pytest.mark.parametrize("good", [True, False])
def test_on_a_box_a_reading_that_is_too_good_is_made_again_and_not_recommended(loop, good):
    """In any units, on a logarithmic axis; no other design is measured twice."""
    sign, space = (1e3 if good else -1e3), {"a": (-1.0, 3.0), "z": (1e-3, 1.0, "log")}

    def outcomes(t, x):
        return {"y": sign * (-((x["a"] - 1.0) ** 2) / 4.0 - (math.log10(x["z"]) + 1.0) ** 2 / 4.0 + 10.0 * (t == 3))}

    start = spread(space, 8)
    one = loop(space, {"y": good})
    designs = run(one, start, 3, outcomes)
    assert designs[8] == pytest.approx(start[3])
    assert len({tuple(round(v, 6) for v in x.values()) for x in designs}) == len(designs) - 1
    assert one.outliers() == [3]
    x, value = one.recommend()
    assert x in designs
    assert outcomes(0, x)["y"] / sign > max(outcomes(0, x)["y"] / sign for x in designs) - 0.1
    assert value / sign < 1.0


@pytest.mark.parametrize(
    "space",
    [
        {"s": ["u", "v", "w", "x"], "k": range(1, 9)},
        {"k": range(10), "m": range(5)},
        {"s": ["u", "v"], "x": (0.0, 1.0)},
    ],
    ids=["choice", "whole", "beside a float"],
)
def test_a_good_outlier_is_made_again_once_where_parameters_are_no_floats(loop, space):
    def outcomes(t, x):
        numbers = ["uvwx".index(v) if isinstance(v, str) else v for v in x.values()]
        return {"y": 20.0 * (t == 6) - 0.1 * sum((v - 1.3) ** 2 for v in numbers)}

    start = [dict(items) for items in dict.fromkeys(tuple(x.items()) for x in spread(space, 16))]
    one = loop(space)
    run(one, start, 0, outcomes)
    assert one.outliers() == [6]
    assert one.ask()[1] == start[6]
    assert one.ask()[1] != start[6]  # that is pending now


def test_any_units_are_the_same(loop):
    runs, values = [], []
    for unit in (1.0, 2.0**-30):
        one = loop()
        runs.append(run(one, spread(SQUARE, 6), 2, lambda t, x, unit=unit: {"y": unit * f(x)}))
        values.append(one.recommend()[1] / unit)
    for x, y in zip(*runs, strict=True):
        assert x == pytest.approx(y, abs=1e-3)
    assert values[0] == pytest.approx(values[1], abs=1e-3)


def yields(t, x):
    """Yields, of which that of trial 12 is typed ten times too large."""
    u = ((x["T"] - 82) / 22) ** 2 + ((x["t"] - 5) / 3.5) ** 2 + ((x["c"] - 1.4) / 1.2) ** 2
    return {"y": round(85.0 * math.exp(-u) * (10.0 if t == 12 else 1.0), 1)}


def recipes():
    X = [(60, 6, 0.5), (85, 4, 2.0), (110, 2, 0.5), (75, 3, 1.0), (90, 6, 2.5), (65, 2, 1.5), (105, 4, 1.0)]
    X += [(80, 8, 0.5), (95, 3, 2.0), (55, 6, 1.0), (100, 6, 1.5), (70, 4, 2.5), (85, 6, 1.0), (60, 3, 2.0)]
    return [dict(zip(RECIPES, map(float, x), strict=True)) for x in X]


def test_a_yield_ten_times_too_large_is_made_again_and_not_recommended(loop):
    one = loop(RECIPES)
    run(one, recipes(), 0, yields)
    assert 12 in one.outliers() + one.held()
    best, value = one.recommend()
    assert best != recipes()[12]
    assert value < 100.0
    assert one.ask()[1] == pytest.approx(recipes()[12])


def test_limits_of_an_outcome_are_kept(loop):
    """Without them the yield of 59.9 in trial 1 would be right."""
    one = loop(RECIPES, outcome_limits=(0, 55))
    run(one, recipes(), 0, yields)
    assert (one.outliers(), one.held()) == ([1, 12], [])
    assert 0.0 <= one.recommend()[1] <= 55.0


def circle(t, x):
    """The largest a + z with a^2 + z^2 <= 1/2 is 1, at a = z = 1/2; what is wrong, of either outcome."""
    wrong = {2: ("g", -30.0), 3: ("y", 30.0), 9: ("g", 30.0)}
    outcomes = {"y": x["a"] + x["z"], "g": x["a"] ** 2 + x["z"] ** 2 - 0.5}
    if t in wrong:
        name, by = wrong[t]
        outcomes[name] += by
    return outcomes


@pytest.mark.slow
def test_a_constraint_keeps_its_say_where_values_of_both_outcomes_are_wrong(loop):
    one = loop(constraints=["g"])
    run(one, spread(SQUARE, 8), 8, circle)
    assert one.outliers() == [2, 3, 9]
    x, value = one.recommend()
    assert x["a"] ** 2 + x["z"] ** 2 < 0.52
    assert value == pytest.approx(x["a"] + x["z"], abs=0.03)
    assert value > 0.95


def test_a_constraint_that_nothing_keeps_is_said(loop):
    one = loop(constraints=["g"])
    run(one, spread(SQUARE, 7), 0, lambda t, x: {"y": x["a"], "g": 5.0 + x["z"]})
    with pytest.raises(ValueError, match=r"no .* is predicted to keep the constraints; go on"):
        one.recommend()


def test_two_objectives_have_their_outliers_flagged(loop):
    """The best are between (.2, .2) and (.8, .8)."""
    outliers = {(3, "u"): 20.0, (8, "v"): -20.0, (4, "v"): 20.0}

    def outcomes(t, x):
        u, v = ((x["a"] - c) ** 2 + (x["z"] - c) ** 2 for c in (0.2, 0.8))
        return {"u": -u + outliers.get((t, "u"), 0.0), "v": v + outliers.get((t, "v"), 0.0)}

    one = loop(objectives={"u": True, "v": False})
    late = run(one, spread(SQUARE, 9), 4, outcomes)[10:]
    assert one.outliers() == [3, 4, 8]
    assert sum(abs(x["a"] - x["z"]) < 0.3 for x in late) >= 2
    with pytest.raises(ValueError, match=r"recommend takes one objective; (client\.get_pareto|study\.best_trials)"):
        one.recommend()


def test_trials_that_failed_are_no_data_and_those_that_run_are_not_asked_for_again(loop):
    one, designs = loop(), spread(SQUARE, 8)
    for t, x in enumerate(designs):
        trial = one.attach(x)
        if t < 6:
            one.tell(trial, {"y": f(x)})
        elif t == 6:
            one.fail(trial)
    asked = [one.ask()[1] for _ in range(3)]
    together = [tuple(x.values()) for x in [*designs, *asked]]
    assert len(set(together)) == len(together)
    assert one.outliers() == []
    assert one.recommend()[0] in designs[:6]


def test_another_run_of_the_same_seed_asks_the_same(loop):
    first, second = (run(loop(), spread(SQUARE, 6), 2, lambda t, x: {"y": f(x)}) for _ in range(2))
    assert first == second
