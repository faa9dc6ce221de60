"""A kind of column is one class, and one row of ``KINDS``."""

import csv
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.columns import Column
from bo_robust.tables.command import _parser, main
from bo_robust.tables.kinds import KINDS, Numeric


def minutes(cell):
    hours, rest = cell.split(":")
    return 60.0 * int(hours) + int(rest)


@dataclass(frozen=True)
class Duration(Column):
    """Hours and minutes, which a search sees in minutes."""

    options: ClassVar = {"duration": "columns of durations, h:mm"}
    has_form: ClassVar = True

    @classmethod
    def recognizes(cls, name, cells, options):
        return bool(cells) and all(re.fullmatch(r"\d+:\d\d", cell) for cell in cells)

    @classmethod
    def read(cls, name, cells, tables, options):
        for cell in cells:
            if not cls.recognizes(name, [cell.text], options):
                raise TableError(f"{cell.where}: {cell.text!r} is no duration such as 1:30.")
        seen = [minutes(cell.text) for cell in cells]
        return cls(name, (min(seen), max(seen)), name in options.conditions)

    def codes(self, table):
        return [minutes(cell) for cell in table.cells(self.name)]

    def decode(self, value):
        return f"{int(value) // 60}:{round(value) % 60:02d}"

    def on_grid(self, value):
        return float(round(value))


@pytest.fixture
def results(tmp_path):

    def write(cells):
        rows = [[cell, 40 + 7 * i % 30, round(50 - (minutes(cell) - 90) ** 2 / 400, 2)] for i, cell in enumerate(cells)]
        with (tmp_path / "results.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["stirred", "temperature", "yield"], *rows])
        return str(tmp_path / "results.csv")

    KINDS.insert(0, Duration)
    yield write
    KINDS.remove(Duration)


CELLS = ["0:30", "2:15", "1:20", "3:00", "1:45", "0:50", "2:40", "1:05", "2:00", "0:40"]


def test_a_third_kind_is_recognized_and_proposed(results, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = results(CELLS)
    read = Campaign(_parser().parse_args([path, "--maximize", "yield"]))
    assert [type(column) for column in read.columns] == [Duration, Numeric]
    assert [x[0] for x in read.X] == [minutes(cell) for cell in CELLS]
    assert main([path, "--maximize", "yield", "-n", "2", "--plot", str(tmp_path / "plot.png")]) == 0
    out, err = capsys.readouterr()
    assert "Parameters: stirred (0:30 to 3:00), temperature (" in err
    for design in csv.DictReader(out.splitlines()):
        assert 30.0 <= minutes(design["stirred"]) <= 180.0


def test_a_third_kind_is_said_by_its_option(results, capsys):
    path = results(CELLS)
    assert main([path, "--maximize", "yield", "--duration", "stirred", "--categorical", "temperature"]) == 0
    assert main([path, "--maximize", "yield", "--duration", "temperature"]) == 2
    assert "row 2, column 'temperature': '40' is no duration such as 1:30." in capsys.readouterr().err
    assert main([path, "--maximize", "yield", "--categorical", "stirred"]) == 0
    assert "stirred (0:30, 0:40, 0:50, 1:05" in capsys.readouterr().err


def test_without_it_durations_are_left_out(results, monkeypatch):
    path = results(CELLS)
    monkeypatch.setattr("bo_robust.tables.kinds.KINDS", KINDS[1:])
    read = Campaign(_parser().parse_args([path, "--maximize", "yield"]))
    assert "times of day such as 0:30" in read.left_out["stirred"]
    with pytest.raises(TableError, match="'0:30' is no number; correct one of them, or name the column with --cat"):
        Campaign(_parser().parse_args([path, "--maximize", "yield", "--integer", "stirred"]))


def decades(tmp_path, *options):
    """A table of a concentration over four decades, best at 0.001."""
    path = tmp_path / "decades.csv"
    rows = [(f"{10.0 ** -(i % 5 + 1):g}", 20 + i * 7 % 40) for i in range(15)]
    readings = [(*row, round(60 - 9 * (math.log10(float(row[0])) + 3) ** 2 + row[1] / 10, 1)) for row in rows]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["conc", "T", "yield"], *readings])
    return [str(path), "--maximize", "yield", *options]


def test_a_column_over_decades_is_searched_by_factors(tmp_path, capsys):
    assert main(decades(tmp_path)) == 0
    assert "conc spans 4 decades; --log conc searches it by factors." in capsys.readouterr().err
    assert main(decades(tmp_path, "--log", "conc", "-n", "3")) == 0
    out, err = capsys.readouterr()
    assert "conc (1e-05 to 0.1, by factors)" in err
    assert "spans" not in err
    assert all(1e-4 < float(line.split(",")[0]) < 1e-2 for line in out.splitlines()[1:])
    assert "(conc = 0.001" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bounds", "conc=0:1"), "'conc' has 0, which has no logarithm, as --log says"),
        (("--step", "conc=0.1"), "--log and --step contradict each other for 'conc'"),
        (("--where", "conc + T <= 60"), "a column that is in a sum or an inequality is searched as it is"),
    ],
)
def test_what_has_no_logarithm_is_refused(tmp_path, options, message):
    with pytest.raises(TableError, match=message):
        Campaign(_parser().parse_args(decades(tmp_path, "--log", "conc", *options)))


def test_levels_of_a_logarithm_are_proposed_as_listed(tmp_path, capsys):
    levels = "conc=1e-5,0.0001,0.001,0.0050,0.01,0.1"
    assert main(decades(tmp_path, "--log", "conc", "--levels", levels, "-n", "3")) == 0
    cells = {line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]}
    assert cells <= {"0.0001", "0.001", "0.005", "0.01"}
