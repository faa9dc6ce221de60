"""What is printed is read back as the same design."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bo_robust.tables.columns import ColumnOptions
from bo_robust.tables.kinds import column_of
from bo_robust.tables.table import Table

COLUMNS = {
    "whole": ["60", "75", "90", "82"],
    "steps": ["0.5", "2.0", "1.0", "2.5", "0.5", "1.5", "3.0"],
    "levels": ["0.50", "1.0e1", "2"],
    "units": ["60 °C", "75.5 °C", "90 °C"],
    "pressures": ["1013250", "1500000", "2000000"],
    "narrow": ["12345.61", "12345.98", "12345.7"],
    "thirds": ["0.333333333333", "0.71", "0.6666666666666"],
    "small": ["1e-7", "3.2e-6", "1.00000000001e-6"],
    "large": ["6.02e23", "1.0000000001e24", "3e23"],
    "below zero": ["-3.3333333333", "4.1", "-0.25"],
    "thousands": ["1200.5", "1900.25", "1333.333333333"],
    "ratios": ["1:2", "1:5.5", "1:10"],
    "quotients": ["1:2", "2:1", "3:2.25"],
    "texts": ["DMF", "2-MeTHF", "1,4-dioxane"],
}
OPTIONS = {
    "given": ColumnOptions(),
    "bounds": ColumnOptions(bounds={"x": (0.1234567891234, 0.9876543219876)}),
    "fine steps": ColumnOptions(bounds={"x": (0.15, 9000.0)}, steps={"x": 0.1}),
    "continuous": ColumnOptions(kinds={"x": "continuous"}),
    "condition": ColumnOptions(conditions=["x"]),
    "log": ColumnOptions(kinds={"x": "log"}),
    "log, bounds": ColumnOptions(kinds={"x": "log"}, bounds={"x": (0.1234567891234, 9876.543219876)}),
}


def table(cells, mark):
    cells = [cell.replace(".", mark) if cell[0] in "-0123456789" and "-M" not in cell else cell for cell in cells]
    return Table(Path("t.csv"), ["x"], [[cell] for cell in cells], list(range(2, len(cells) + 2)), {}, ";", mark)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("mark", [".", ","])
@given(name=st.sampled_from(list(COLUMNS)), share=st.floats(0.0, 1.0))
def test_a_printed_value_is_read_as_the_same(options, mark, name, share):
    numeric = name not in ("texts", "ratios", "quotients")
    about = OPTIONS[options] if numeric and name != "below zero" else OPTIONS["given"]
    read = table(COLUMNS[name], mark)
    column = column_of("x", [read], about)
    low, high = column.span
    value = column.on_grid(low + share * (high - low))
    assert low <= value <= high
    assert column.on_grid(value) == value
    cells = [*read.cells("x"), column.decode(value)]
    unit = f" {column.unit}" * (column.unit != "")
    again = table([cells[-1] + unit if not cells[-1].endswith("C") else cells[-1]], mark)
    longer = Table(read.path, ["x"], [*read.rows, *again.rows], [*read.lines, 9], {}, ";", mark)
    assert column_of("x", [longer], about).codes(longer)[-1] == value
    assert math.isfinite(value)


@pytest.mark.parametrize(
    ("name", "value", "printed"),
    [
        ("pressures", 1013250.0, "1013250"),
        ("narrow", 12345.7512345, "12345.75"),
        ("levels", 0.5, "0.50"),
        ("steps", 1.2, "1.0"),
        ("whole", 77.3, "77"),
        ("thirds", 0.5123456789, "0.512346"),
    ],
)
def test_digits_are_those_of_the_step_or_the_range(name, value, printed):
    column = column_of("x", [table(COLUMNS[name], ".")], ColumnOptions())
    assert column.decode(column.on_grid(value)) == printed


def test_three_digits_behind_a_comma_are_no_thousands():
    column = column_of("x", [table(["1", "9"], ",")], ColumnOptions(kinds={"x": "continuous"}))
    assert column.decode(column.on_grid(1.234)) == "1,2340"
