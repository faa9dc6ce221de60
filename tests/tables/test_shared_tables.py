"""Tables that once were read wrongly, from the shared folder where it is there: what each column is taken for."""

import re
from pathlib import Path

import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.command import _parser, ask, main
from bo_robust.tables.table import read_table

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
    "two_targets": ("yield", "'purity' may be an outcome"),
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


CASES = TABLES.parent / "tables2"
FACTORS = ("T", "time", "loading")
# The parameters, and what is said or asked; a question has none.
CASES_EXPECTED = {
    "batch_column.csv": (None, "'batch' looks like a batch; add one of: --batch batch"),
    "celsius_and_kelvin.csv": (("T_C", "time_h", "loading_molpct"), r"T_K \(= T_C \+ 273.15\)"),
    "chemist_column.csv": (None, "'chemist' looks like a batch"),
    "concentration_over_decades.csv": (("conc (mol/L)", "T"), "--log .* searches it by factors"),
    "dates_by_excel.xlsx": (None, "a level such as 1-2 that Excel made a date"),
    "degree_sign.csv": (("温度", "時間", "溶媒"), r"温度 \[°C\] \(50 to 120"),
    "fractions_among_percent.csv": (FACTORS, ""),
    "half_filled_pending_row.csv": (None, "row 18 has no time, loading"),
    "kelvin_among_celsius.csv": (FACTORS, "kelvin"),
    "literal_percent.xlsx": ((*FACTORS, "solvent"), r"yield \[%\]"),
    "long_format.csv": (None, "'analyte' may say what was measured"),
    "lots_as_conditions.csv": (None, "'lot' looks like a batch"),
    "mean_and_sd_rows.csv": (FACTORS, "Rows 20 to 22 sum up what is above"),
    "name_and_smiles.csv": (("ligand", "T", "time"), r"ligand_smiles \(goes with ligand\)"),
    "one_block_doubled.csv": (FACTORS, ""),
    "pending_row_850.csv": (FACTORS, "Row 18 left out: T = 850 is far from all others"),
    "percent_and_mg.csv": (("T", "time_h", "loading_molpct"), r"catalyst_mg \(= 11.23 \* loading_molpct\)"),
    "ratio_as_time.csv": (("acid:amine", "T"), ""),
    "ratio_of_two.csv": (("A_mmol", "T"), r"ratio \(= 2 / A_mmol\)"),
    "solvent_screen.csv": (("solvent", "T"), ""),
    "temperature_typed_850.csv": (FACTORS, "is far from all others"),
    "two_readings_exchanged.csv": (FACTORS, ""),
    "wells_on_two_plates.csv": (None, "'well' looks like a batch"),
    "wrong_row_twice.csv": (FACTORS, ""),
}


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared folder")
@pytest.mark.parametrize("name", CASES_EXPECTED)
def test_what_is_said_of_a_table(name):
    parameters, said = CASES_EXPECTED[name]
    goal = read_table(CASES / name).names[-1]
    arguments = _parser().parse_args([str(CASES / name), "--maximize", goal])
    if parameters is None:
        with pytest.raises(TableError, match=said):
            Campaign(arguments)
        return
    read = Campaign(arguments)
    assert tuple(column.name for column in read.columns) == parameters
    assert re.search(said, "\n".join(read.introduction()))


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared folder")
@pytest.mark.parametrize("path", sorted(CASES.glob("*lots*.csv")), ids=lambda path: path.stem)
def test_the_worst_lot_has_no_negative_yield(path, capsys):
    """Unless no scale of its own was learnt: then the command asks whether there are limits."""
    main([str(path), "--maximize", "yield", "--condition", "lot", "-n", "0"])
    said = capsys.readouterr().err
    below = "(95 % from -" in said
    assert below == ("--limits yield=0: if nothing below 0" in said)
    assert not (below and "scale of its own" in said)


FOUND = {
    "fractions_among_percent.csv": [("fraction", (12, 13, 14, 15, 16, 17))],
    "two_readings_exchanged.csv": [("exchanged", (4, 37))],
    "wrong_row_twice.csv": [("decimal point", (19,))],
}


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared folder")
@pytest.mark.parametrize("name", FOUND)
def test_slips_of_a_table(name):
    campaign = Campaign(_parser().parse_args([str(CASES / name), "--maximize", "yield", "-n", "0"]))
    found, _ = ask(campaign)
    assert [slip[:2] for slip in found.slips] == FOUND[name]
    assert found.best not in {row for slip in found.slips for row in slip.rows}
