"""What may have happened to readings: slips of one, of several at once, and copied rows."""

import math

import numpy as np
import pytest
import torch

from bo_robust import RobustGP
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.slips import COPIED, GROSS, POINTS, Expected, Readings, exchange_log_priors, slip_of
from bo_robust.proposals.suggest import suggest
from tests.problems import fit


def yields(n=30, seed=1):
    """A bump in %, read to one decimal."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    Y = 5.0 + 80.0 * np.exp(-8.0 * ((X - 0.5) ** 2).sum(1)) + 0.5 * rng.standard_normal(n)
    return X, Y.round(1)


def told(X, Y, **options):
    X, Y = torch.from_numpy(X), torch.from_numpy(np.asarray(Y, dtype=float)).unsqueeze(-1)
    model = fit(RobustGP(X, Y, **options))
    return model, [(slip.kind, slip.rows) for slip in model.slips]


def around(mean, sd=1.0, log_p0=-20.0, scale=IDENTITY, n=3):
    return Expected(scale, np.full(n, mean), np.full(n, sd**2), np.full(n, log_p0))


def test_the_log_odds_of_a_decimal_point_by_hand():
    slip = slip_of(0, Readings(np.array([685.0, 20.0, 30.0]), 1.0), around(67.5))
    density = -0.5 * math.log(2.0 * math.pi) - 0.5 * 1.0**2
    assert slip[:3] == ("decimal point", (0,), 68.5)
    assert slip.log_odds == pytest.approx(math.log(POINTS[0.1] / GROSS) + density + math.log(0.1) + 20.0)


def test_a_logarithm_has_the_density_of_its_slope():
    expected = around(math.log(68.0), 0.1, scale=OutcomeScale(0.0))
    density = -0.5 * math.log(2.0 * math.pi * 0.01) - 0.5 * (math.log(68.5 / 68.0) / 0.1) ** 2 - math.log(68.5)
    assert expected.log_density(0, 68.5) == pytest.approx(density)
    assert expected.log_density(0, -1.0) == -math.inf


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [("sign", -51.3, 51.3), ("digits", 15.3, 51.3), ("decimal point", 0.513, 513.0), ("fraction", 0.513, 51.3)],
)
def test_the_slip_that_fits_is_named(kind, wrong, right):
    slip = slip_of(0, Readings(np.array([wrong, 20.1, 30.2]), 1.0), around(right, log_p0=-9.0))
    assert (slip.kind, slip.value) == (kind, pytest.approx(right))


def test_a_reading_of_the_row_before_is_a_copy_whose_log_odds_are_those_of_a_value_among_all():
    slip = slip_of(1, Readings(np.array([90.5, 90.5, 20.0]), 1.0), around(500.0, log_p0=-9.0))
    assert slip[:2] == ("copied", (0, 1))
    assert slip.log_odds == pytest.approx(math.log(COPIED / GROSS) + math.log(10.0) + 9.0)
    assert slip_of(0, Readings(np.array([90.5, 90.5, 20.0]), 1.0), around(500.0, log_p0=-9.0)) is None


def test_slips_do_not_depend_on_units():
    y = np.array([685.0, 20.1, 30.2])
    one = slip_of(0, Readings(y, 1.0), around(67.5))
    other = slip_of(0, Readings(-y / 7.0, -7.0), around(-67.5 / 7.0, 1.0 / 7.0, -20.0 + math.log(7.0)))
    assert other.value == pytest.approx(one.value)
    assert other.log_odds == pytest.approx(one.log_odds)


def test_readings_of_a_computer_have_no_digits():
    assert Readings(np.array([0.1234567890123, 20.0]), 1.0).texts == []
    assert Readings(np.array([12.34, 0.5]) / 3.7, 3.7).texts == ["12.34", "0.5"]


@pytest.mark.parametrize(
    ("readings", "rows"),
    [
        ([45.2, 8.1, 0.853, 0.021], [2, 3]),
        ([45.2, 8.1, 0.8, 0.1], []),
        ([45.2, 4.52, 0.452], []),  # three digits each
        ([45.0, 30.0, 0.85], [2]),
        ([2.5, 1.5, 0.25], []),
    ],
)
def test_fractions_have_more_decimals(readings, rows):
    assert Readings(np.array(readings), 1.0).fractions.tolist() == rows


def test_priors_of_exchanges_sum_to_a_share_of_the_errors():
    upper = np.triu(np.exp(exchange_log_priors(40, 2.0)), 1)
    assert upper.sum() == pytest.approx(0.1 * 2.0)
    assert upper.diagonal(1).sum() > 0.5 * upper.sum()


def test_the_best_and_the_worst_reading_exchanged_are_left_out():
    X, Y = yields()
    i, j = sorted((int(Y.argmax()), int(Y.argmin())))
    Y[[i, j]] = Y[[j, i]]
    model, slips = told(X, Y)
    assert slips == [("exchanged", (i, j))]
    assert (~model.inlier_mask).nonzero().flatten().tolist() == [i, j]
    assert (model.inlier_probability[[i, j]] < 0.05).all()


def test_fractions_are_left_out_together():
    X, Y = yields()
    rows = [3, 8, 13, 21]
    Y[rows] = (Y[rows] / 100.0).round(3)
    model, slips = told(X, Y)
    assert slips == [("fraction", tuple(rows))]
    assert (~model.inlier_mask).nonzero().flatten().tolist() == rows


def test_a_copy_of_the_best_reading_is_left_out():
    X, Y = yields()
    row = int(Y[:-1].argmax())
    Y[row + 1] = Y[row]
    model, slips = told(X, Y)
    assert slips == [("copied", (row, row + 1))]
    assert (~model.inlier_mask).nonzero().flatten().tolist() == [row + 1]
    assert model.inlier_probability[row] > 0.5
    assert model.inlier_probability[row + 1] < 0.05


def test_equal_readings_of_one_design_are_no_copies():
    X, Y = yields()
    row = int(Y[:-1].argmax())
    X[row + 1], Y[row + 1] = X[row], Y[row]
    assert told(X, Y)[1] == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("digits", [0, 1, 9])
def test_right_readings_have_no_slip(seed, digits):
    X, Y = yields(24, seed)
    model, slips = told(X, Y.round(digits))
    assert slips == []
    assert model.inlier_mask.all()


def test_slips_of_several_respect_the_share():
    X, Y = yields()
    i, j = int(Y.argmax()), int(Y.argmin())
    Y[[i, j]] = Y[[j, i]]
    assert told(X, Y, outlier_share=1e-300)[1] == []


@pytest.mark.parametrize("unit", [1.0, -0.01, 1e3])
def test_suggest_names_a_slip_in_the_units_of_the_readings(unit):
    X, Y = yields()
    row = int(Y.argsort()[-3])
    Y[row] *= 10.0
    found = suggest(X, unit * Y, bounds=[[0.0] * 2, [1.0] * 2], q=0, maximize=unit > 0.0)
    (slip,) = found.slips
    assert slip[:2] == ("decimal point", (row,))
    assert slip.value == pytest.approx(0.1 * unit * Y[row])
    assert slip.outcome == 0


def twice(X, Y, row):
    return np.concatenate([X, X[row : row + 1]]), np.append(Y, Y[row])


def test_a_row_twice_confirms_nothing():
    X, Y = yields()
    row = int(Y.argsort()[-3])
    Y[row] *= 10.0
    found = suggest(*twice(X, Y, row), bounds=[[0.0] * 2, [1.0] * 2], q=1)
    assert ("same row", (row, len(Y))) in [slip[:2] for slip in found.slips]
    assert found.outliers.nonzero().flatten().tolist() == [row, len(Y)]
    assert found.best not in (row, len(Y))
    assert found.replicate.all()
    assert torch.allclose(found.X, torch.from_numpy(X[row : row + 1]))


@pytest.mark.parametrize("ids", ["dates", "a third reading", "zero"])
def test_equal_rows_that_are_no_copies_count(ids):
    X, Y = yields()
    row = int(Y.argsort()[-3])
    Y[row] = 0.0 if ids == "zero" else 10.0 * Y[row]
    X, Y = twice(X, Y, row)
    if ids == "a third reading":
        X, Y = np.append(X, X[row : row + 1], 0), np.append(Y, Y[row] / 10.0)
    names = range(len(Y)) if ids == "dates" else None
    found = suggest(X, Y, ids=names, bounds=[[0.0] * 2, [1.0] * 2], q=0)
    assert not [slip for slip in found.slips if slip.kind == "same row"]


def test_equal_readings_that_noise_makes_likely_count():
    X, Y = yields()
    found = suggest(*twice(X, Y.round(), 4), bounds=[[0.0] * 2, [1.0] * 2], q=0)
    assert found.slips == ()


def test_readings_of_a_computer_may_repeat():
    X, Y = yields()
    Y = Y + 1e-9 * np.pi
    assert suggest(*twice(X, Y, 4), bounds=[[0.0] * 2, [1.0] * 2], q=0).slips == ()
