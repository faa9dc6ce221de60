"""Values of parameters that may be typing errors: their rows are left out until the user says that they are right."""

import csv

import numpy as np
import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.command import _parser, main


def table(seed, n=18):
    random = np.random.default_rng(seed)
    levels = {"T": range(50, 125, 5), "time": (1, 2, 3, 4, 6, 8, 12, 16), "loading": (0.5, 1, 2, 3, 4)}
    made = {name: random.choice(values, n).astype(float) for name, values in levels.items()}
    return made | {"yield": random.uniform(1.0, 90.0, n).round(1).astype(object)}


@pytest.fixture
def write(tmp_path):
    def write(columns):
        with (tmp_path / "results.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
        return str(tmp_path / "results.csv")

    return write


@pytest.fixture
def read(write):
    return lambda columns, *options: Campaign(_parser().parse_args([write(columns), "--maximize", "yield", *options]))


@pytest.mark.parametrize("reading", [50.0, "", "failed"])
@pytest.mark.parametrize("factor", [10.0, 100.0, 0.1, -1.0])
def test_a_wrong_value_of_a_parameter_does_not_stretch_the_range(read, factor, reading):
    for seed in range(3):
        columns = table(seed)
        columns["T"][7], columns["yield"][7] = 85.0 * factor, reading
        campaign = read(columns)
        assert list(campaign.doubtful) == [7]
        assert f"Row 9 left out: T = {85.0 * factor} is far from all others" in campaign.doubtful[7]
        assert "; 85 would fit" in campaign.doubtful[7]
        assert campaign.parameters[0].span[0] >= 50.0
        assert campaign.parameters[0].span[1] <= 120.0
        assert len(campaign.X) == 17
        assert "1 left out" in campaign.summary()


def test_bounds_say_that_a_value_is_right(read):
    columns = table(0)
    columns["T"][7] = 850.0
    assert read(columns, "--bounds", "T=50:850").doubtful == {}
    assert list(read(columns, "--bounds", "T=50:120").doubtful) == [7]


@pytest.mark.parametrize(
    ("name", "rows", "wrong", "text"),
    [
        ("T", slice(14, 18), lambda v: v + 273.15, "(kelvin?)"),
        ("time", slice(3, 6), lambda v: v * 60.0, "(minutes or hours?)"),
        ("loading", slice(5, 6), lambda v: v * 1e4, "(a decimal point?)"),
    ],
)
def test_a_block_in_another_unit(read, name, rows, wrong, text):
    columns = table(1)
    columns[name][rows] = wrong(columns[name][rows])
    campaign = read(columns)
    assert list(campaign.doubtful) == list(range(18))[rows]
    assert all(text in line for line in campaign.doubtful.values())


def test_two_columns_exchanged_in_a_row(read):
    columns = table(2)
    columns["T"][3], columns["time"][3] = 4.0, 85.0
    assert "Row 5 left out: T = 4.0 and time = 85.0 look exchanged." in read(columns).doubtful[3]
    assert 3 not in read(columns, "--bounds", "T=4:120", "--bounds", "time=1:85").doubtful


def test_a_lost_sign_of_a_level(read):
    columns = table(2)
    columns["T"][:] = np.random.default_rng(2).choice([-78, -40, -20, 0], 18)
    columns["T"][4] = 78
    assert "; -78 would fit (a sign?)" in read(columns).doubtful[4]
    columns["T"][4] = 60
    assert read(columns).doubtful == {}


@pytest.mark.parametrize("option", ["--condition", "--observe"])
def test_a_wrong_value_of_a_condition(read, option):
    columns = {"humidity": np.random.default_rng(6).integers(35, 71, 18)} | table(2)
    columns["humidity"][4] = 450
    campaign = read(columns, option, "humidity")
    assert list(campaign.doubtful) == [4]
    assert campaign.conditions[0].span[1] <= 70.0
    right = read(columns, option, "humidity", "--bounds", "humidity=35:900")
    assert (right.doubtful, right.conditions[0].span[1]) == ({}, 450.0)
    assert "--bounds humidity says which values are right; conditions are those seen." in right.introduction()


def test_two_categories_exchanged_in_a_row(read):
    columns = {"solvent": ["DMF", "THF", "THF"] * 6, "base": ["DBU", "Et3N"] * 9} | table(2)
    columns["solvent"][4], columns["base"][4] = "Et3N", "DMF"
    said = "Row 6 left out: solvent = Et3N and base = DMF look exchanged. Correct it, or say --categorical solvent base"
    assert read(columns).doubtful[4].startswith(said)
    assert read(columns, "--categorical", "solvent", "base").doubtful == {}


@pytest.mark.parametrize(
    ("name", "values", "new"),
    [
        ("T", range(60, 125, 5), 150.0),  # one new design beyond the range
        ("T", (60, 80, 100), 130.0),
        ("loading", (2, 3, 4, 5), 0.0),  # a control
        ("loading", (0.01, 0.1, 1.0), 10.0),  # over decades
        ("time", (1, 2, 4, 8), 24.0),
    ],
)
@pytest.mark.parametrize("n", [10, 18, 40])
def test_new_extremes_are_read(read, name, values, new, n):
    for seed in range(3):
        columns = table(seed, n)
        columns[name][:] = np.random.default_rng(seed).choice(values, n)
        columns[name][4] = new
        assert read(columns).doubtful == {}


def test_nothing_is_proposed_beyond_the_others(write, capsys):
    columns = table(3)
    columns["T"][7], columns["yield"][7] = 850.0, 99.0
    assert main([write(columns), "--maximize", "yield", "-n", "4"]) == 0
    out, err = capsys.readouterr()
    assert all(50.0 <= float(line.split(",")[0]) <= 120.0 for line in out.splitlines()[1:])
    assert "Recommended now: row 9" not in err


PERCENTS = [15.9, 9.6, 0.4, 3.7, 7.7, 47.2, 7.1, 0.2, 8.6, 0.8, 30.1, 20.7, 2.9, 23.7, 20.5, 7.6, 27.0, 19.5]


def notes(read, readings, *options):
    columns = table(4) | {"yield": np.array(readings, dtype=object)}
    return read(columns, *options).notes


def test_a_stuck_sensor_is_said(read):
    stuck = [*PERCENTS[:6], 7.1, 7.1, 7.1, *PERCENTS[9:]]
    assert notes(read, stuck) == ["Rows 8 to 10: yield is 7.1 at different designs; is the sensor stuck?"]
    assert notes(read, [*PERCENTS[:6], 0, 0, 0, *PERCENTS[9:]]) == []


def test_a_reading_above_100_percent_asks_for_limits_once(read):
    above = [*PERCENTS[:6], 710, *PERCENTS[7:]]
    assert notes(read, above) == ["Row 8: yield is above 100; say --limits yield=0:100 if nothing above 100 can be."]
    assert notes(read, above, "--limits", "yield=0:100") == []
    (many,) = notes(read, [-PERCENTS[0], *(100 * y for y in PERCENTS[1:])])
    assert many == "14 of 18 rows: yield is above 100; say --limits yield=-100:100 if nothing above 100 can be."
    assert notes(read, [70] * 18) == ["yield is 70 in all rows, which tells nothing of what is better."]
