import numpy as np
import pytest
import torch

from benchmarks.loops.outliers import Cauchy, DeadSensor, Factor, Shift, StudentT, draw
from benchmarks.problems.designs import Function
from benchmarks.problems.skewed import Skewed

MANY = 20_000


@pytest.mark.parametrize(("side", "signs"), [("good", {1.0}), ("bad", {-1.0}), ("either", {1.0, -1.0})])
def test_shifts_have_their_share_size_and_side(side, signs):
    draws = draw("branin", Shift(0.1, 3.0, side), 3, MANY)
    hit = draws.shift != 0.0
    assert hit.mean() == pytest.approx(0.1, abs=0.01)
    assert set(draws.shift[hit]) == {3.0 * sign for sign in signs}
    assert (draws.shift[hit] > 0).mean() == pytest.approx(np.mean([sign > 0 for sign in signs]), abs=0.03)
    assert (hit == draws.outlier).all()


def test_other_kinds_have_their_laws():
    kinds = (Cauchy(0.2), StudentT(), DeadSensor(0.15))
    cauchy, student, dead, none = (draw("branin", kind, 3, MANY) for kind in (*kinds, None))
    assert cauchy.outlier.mean() == pytest.approx(0.2, abs=0.01)
    assert np.median(np.abs(cauchy.shift[cauchy.outlier])) == pytest.approx(1.0, abs=0.05)  # a Cauchy's scale
    assert not cauchy.shift[~cauchy.outlier].any()
    quartile = 0.816497 * 0.3  # of Student-t(2), by the default scale
    assert np.median(np.abs(student.shift)) == pytest.approx(quartile, rel=0.03)
    assert not student.normal.any()
    stuck = dead.stuck[dead.outlier]
    assert dead.outlier.mean() == pytest.approx(0.15, abs=0.01)
    assert len(set(stuck)) == 1
    assert np.isnan(dead.stuck[~dead.outlier]).all()
    problem = Function("branin").make()
    t = int(np.flatnonzero(dead.outlier)[0])
    assert dead.observation(problem, torch.zeros(2).double(), t) == stuck[0]
    assert not none.outlier.any()
    assert not none.shift.any()
    assert none.normal.std() == pytest.approx(1.0, abs=0.02)


def test_kinds_share_their_numbers_and_seeds_do_not():
    few, many = (draw("levy4", Shift(share), 0, MANY) for share in (0.1, 0.3))
    assert (many.outlier >= few.outlier).all()
    assert (few.normal == many.normal).all()
    assert not (few.normal == draw("levy4", None, 1, MANY).normal).any()


def test_factors_multiply_what_is_observed():
    problem, draws = Skewed("reaction").make(), draw("reaction", Factor(0.1, 10.0), 3, MANY)
    x, right = problem.candidates[0], draw("reaction", None, 3, MANY)
    t = int(np.flatnonzero(draws.outlier)[0])
    wrong, as_it_is = (problem.center + each.observation(problem, x, t) for each in (draws, right))
    assert wrong / as_it_is == pytest.approx(draws.factor[t])
    assert set(draws.factor) == {0.1, 1.0, 10.0}
    with pytest.raises(ValueError, match="share"):
        Factor(1.0)
