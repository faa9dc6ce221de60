"""Tables that once were read wrongly, from the shared folder where it is there: what each column is taken for."""

from pathlib import Path

import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.command import _parser

TABLES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "tables"
RECIPE = ("temperature", "time_h", "catalyst_mol%")
EXPECTED = {
    "dates": ("yield", RECIPE),
    "decimal_point_14_rows": ("yield", RECIPE),
    "flagged_is_recommended": ("yield", ("T", "t", "c")),
    "mixture": ("strength", ("A", "B", "C")),
    "numeric_ids": ("yield", ("solvent", "ligand", "temperature", "equiv")),
    "percent_signs": ("yield", RECIPE),
    "run_number": ("yield", RECIPE),
    "solvent_once_in_list": ("yield", ("temperature", "solvent")),
    "spaces_in_numbers": ("yield", ("pressure", "temp")),
    "thousands_or_decimals": ("cost", "--decimal"),
    "title_row": ("yield", RECIPE),
    "trailing_columns": ("yield", RECIPE),
    "two_targets": ("yield", "'purity' stands behind 'yield' and may be an outcome"),
    "unicode_minus": ("y", ("T", "p")),
    "units_in_cells": ("yield", RECIPE),
    "units_row": ("yield", RECIPE),
}


@pytest.mark.skipif(not TABLES.is_dir(), reason="no shared folder")
@pytest.mark.parametrize("name", EXPECTED)
def test_parameters_of_a_table(name):
    goal, expected = EXPECTED[name]
    arguments = [str(TABLES / f"{name}.csv"), "--maximize", goal]
    if (candidates := TABLES / f"{name}_candidates.csv").exists():
        arguments += ["--candidates", str(candidates)]
    if isinstance(expected, str):
        with pytest.raises(TableError, match=expected):
            Campaign(_parser().parse_args(arguments))
        return
    read = Campaign(_parser().parse_args(arguments))
    assert tuple(column.name for column in read.columns) == expected
    if name == "mixture":
        assert len(read.equalities) == 1
