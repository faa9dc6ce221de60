"""Sheets of Excel as a person sees them: formats, merged, hidden and struck cells, charts."""

import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.command import _parser

openpyxl = pytest.importorskip("openpyxl")

NAMES = ["solvent", "T", "time", "yield"]
ROWS = [
    (solvent, 60 + 7 * i % 50, 1 + i * 5 % 8, round(40 + 10 * (i * 37 % 11) / 7, 1))
    for i, solvent in enumerate(["DMF"] * 4 + ["THF"] * 3 + ["MeCN"] * 5)
]


@pytest.fixture
def sheet(tmp_path):
    """A book with a sheet to change, and what the command makes of it."""
    book = openpyxl.Workbook()
    for row in [NAMES, *ROWS]:
        book.active.append(row)

    def read(*options, name="book.xlsx"):
        book.save(tmp_path / "book.xlsx")
        return Campaign(_parser().parse_args([str(tmp_path / name), "--maximize", "yield", *options]))

    return book.active, read


@pytest.mark.parametrize(
    ("form", "first", "unit"),
    [
        ('0.0"%"', ROWS[0][-1], "%"),
        (r"0.0\%", ROWS[0][-1], "%"),
        ('0.0" mol%"', ROWS[0][-1], "mol%"),
        ('[Red]General"%";-0.0"%"', ROWS[0][-1], "%"),
        ("0.0%", 100.0 * ROWS[0][-1], "%"),
        ('0.0,"k"', ROWS[0][-1], ""),
    ],
)
def test_a_percent_sign_multiplies_where_excel_does(sheet, form, first, unit):
    cells, read = sheet
    for row in range(2, len(ROWS) + 2):
        cells.cell(row, 4).number_format = form
    campaign = read()
    assert campaign.Y[0, 0] == pytest.approx(first)
    assert campaign.results.unit("yield") == unit


def test_a_row_without_the_format_has_the_unit_too(sheet):
    cells, read = sheet
    for row in range(2, len(ROWS) + 1):
        cells.cell(row, 2).number_format = '0" °C"'
    assert read().X[-1][1] == ROWS[-1][1]


def test_merged_cells_hold_their_text_in_each_row(sheet):
    cells, read = sheet
    for group in ("A2:A5", "A6:A8", "A9:A13"):
        cells.merge_cells(group)
    campaign = read()
    assert campaign.results.cells("solvent") == [row[0] for row in ROWS]
    assert "Merged cells hold their text in each row and column: A2:A5, A6:A8, A9:A13." in campaign.introduction()


def test_names_below_the_names_of_groups(sheet):
    cells, read = sheet
    cells.insert_rows(1)
    cells["A1"], cells["B1"], cells["D1"] = "solvent", "conditions", "yield"
    for group in ("A1:A2", "B1:C1", "D1:D2"):
        cells.merge_cells(group)
    assert [column.name for column in read().columns] == ["solvent", "T", "time"]
    cells["B2"] = cells["C2"] = "equiv"
    with pytest.raises(TableError, match="two columns 'conditions equiv'; rename one"):
        read()


def test_hidden_rows_are_read_and_struck_ones_left_out(sheet):
    cells, read = sheet
    cells.row_dimensions[3].hidden = cells.column_dimensions["C"].hidden = True
    for cell in cells[5]:
        cell.font = openpyxl.styles.Font(strike=True)
    campaign = read()
    assert len(campaign.read) == len(ROWS) - 1
    for line in ("Row 5 is struck out, and is not read.", "Hidden, but read: row 3, column C."):
        assert line in campaign.introduction()
    cells["D7"].font = openpyxl.styles.Font(strike=True)
    with pytest.raises(TableError, match="cell D7 is struck out, and others of its row are not; clear it"):
        read()


def test_a_chart_is_no_sheet_of_cells(sheet):
    cells, read = sheet
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(cells, min_col=4, min_row=1, max_row=9))
    cells.parent.create_chartsheet("Chart").add_chart(chart)
    assert len(read().read) == len(ROWS)
    with pytest.raises(TableError, match="the sheet 'Chart' is a chart; name one with cells: Sheet"):
        read(name="book.xlsx:Chart")
