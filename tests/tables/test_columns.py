"""What the reader of laboratories' tables takes each column for, without a model."""

import csv
import io

import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.command import _parser, main

ROWS = [
    (60, 6, 0.5, 16.4),
    (85, 4, 2, 61.1),
    (110, 2, 0.5, 2.5),
    (80, 4, 2.5, 33.7),
    (110, 1, 2, 3.4),
    (95, 1, 1.5, 17.9),
    (50, 1, 0.5, 15.0),
    (80, 8, 1, 36.1),
]
NAMES = ["temperature", "time", "catalyst", "yield"]
ALL = {"temperature", "time", "catalyst"}


def text(rows=ROWS, names=NAMES, separator=",", cell=str):
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator="\n").writerows([names, *([cell(c) for c in r] for r in rows)])
    return file.getvalue()


@pytest.fixture
def campaign(tmp_path):
    def read(table, *options, goal="yield", candidates=None, encoding="utf-8", name="results.csv"):
        path = tmp_path / name
        if isinstance(table, str):
            path.write_bytes(table.encode(encoding))
        arguments = [str(path), *(["--maximize", goal] if goal else []), *options]
        if candidates is not None:
            (tmp_path / "list.csv").write_text(candidates, encoding="utf-8")
            arguments += ["--candidates", str(tmp_path / "list.csv")]
        return Campaign(_parser().parse_args(arguments))

    return read


def names(campaign):
    return {column.name for column in campaign.columns}


def with_column(name, cells, rows=ROWS, place=0):
    made = [[*row[:place], cell, *row[place:]] for row, cell in zip(rows, cells, strict=True)]
    return text(made, [*NAMES[:place], name, *NAMES[place:]])


def test_rows_that_sum_up_are_not_read(campaign):
    """Spreadsheets have them below, a blank row between."""
    read = campaign(text([*ROWS, [""] * 4, ["", "", "mean", 51.2], ["max", "", "", 80]]))
    assert len(read.read) == len(ROWS)
    assert "Rows 11 and 12 sum up what is above, and are not read." in read.introduction()


@pytest.mark.parametrize(
    "word", ["Mean", "SD", "Max.", "n", "average (n=8)", "Mittelwert", "moyenne", "标准差", "St. Dev."]
)
@pytest.mark.parametrize("place", [0, 4])
def test_rows_of_statistics_are_not_read(campaign, word, place):
    """Beside identifiers, or with the word behind."""
    table = with_column("id", [f"R{i:02d}" for i in range(8)]) if place == 0 else text()
    row = [81.2, 3.1, 1.4, 30.1]
    row.insert(place, word)
    for rest, what in (
        ("", "Row 10 sums up what is above, and is"),
        (",".join(["Median", *map(str, row[1:])]) + "\n", "Rows 10 and 11 sum up what is above, and are"),
    ):
        read = campaign(table + ",".join(map(str, row)) + "\n" + rest)
        assert len(read.read) == len(ROWS)
        assert f"{what} not read." in read.introduction()


def test_statistics_between_blocks_are_not_read_and_levels_are(campaign):
    table = with_column("id", ["R1", "R2", "R3", "mean", "R4", "R5", "R6", "mean"])
    assert len(campaign(table).read) == 6
    speeds = ["min", "max", "mid", "max", "mid", "min", "mid", "max"]
    assert len(campaign(with_column("speed", speeds)).read) == 8
    assert len(campaign(with_column("dried", ["y", "y", "n", "y", "y", "n", "y", "n"])).read) == 8


def test_numbers_of_experiments_to_come_are_not_read(campaign):
    read = campaign(with_column("id", range(1, 9)) + "9,,,,\n10,,,,\n")
    assert (len(read.read), len(read.pending)) == (8, 0)
    assert "Rows 10 and 11 have the numbers of experiments alone, and are not read." in read.introduction()


def test_columns_without_names_are_no_matter_to_named_parameters(campaign):
    rows = [(i, *row[:2], 9 - i, *row[2:], "a") for i, row in enumerate(ROWS)]
    table = text(rows, ["", *NAMES[:2], "", *NAMES[2:]])
    with pytest.raises(TableError, match="row 2 has the cell 'a' beyond the last name"):
        campaign(table)
    read = campaign(table, "--parameters", "temperature,catalyst")
    assert names(read) == {"temperature", "catalyst"}
    lines = [f"Column {i} has no name, and is not read." for i in (1, 4)]
    assert set(read.introduction()) >= {*lines, "Cells beyond the last name are not read."}
    with pytest.raises(TableError, match="column 4 has no name"):
        campaign(table.replace(",a\n", "\n"))


@pytest.mark.parametrize(
    ("name", "cells"), [("heat", range(60, 140, 10)), ("heat (°C)", range(21, 29)), ("speed", range(65, 105, 5))]
)
def test_a_parameter_that_rises_row_by_row_is_one(campaign, name, cells):
    assert name in names(campaign(with_column(name, cells)))


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("exp", range(1, 9), "counts the rows"),
        ("exp", range(112, 120), "counts the rows"),
        ("exp", [1, 2, 3, 5, 6, 7, 8, 11], "counts the rows"),
        ("exp", [100, 103, 106, 109, 112, 115, 118, 121], "names the rows"),
        ("Versuch", [100, 103, 106, 109, 112, 115, 118, 121], "names the rows"),
        ("new_index", [1642, 299, 1680, 1633, 7, 12, 900, 35], "names the rows"),
        ("T", [f"{60 + i}-{65 + i} C" for i in range(8)], "ranges such as 60-65 C; write one number"),
        ("rep 1", [row[-1] + 0.1 for row in ROWS], "nearly the same as yield, so readings of it"),
        ("rep 2", [row[-1] + (400.0 if i == 3 else 0.1) for i, row in enumerate(ROWS)], "nearly the same as yield"),
        ("ID", [1642, 299, 1680, 1633, 7, 12, 900, 35], "names the rows"),
        ("date", ["2026-03-03"] * 4 + ["2026-03-04"] * 4, "dates"),
        ("date", ["03.11.2026"] * 4 + ["04.11.2026"] * 4, "dates"),
        ("date", ["3/11/26"] * 4 + ["4/11/26"] * 4, "dates"),
        ("date", ["2026-03-03 14:30"] * 8, "dates"),
        ("stirred", [f"{i}:30" for i in range(14, 22)], "times of day such as 14:30; write durations as"),
        ("remark", ["hazy", "dark", "", "", "", "", "", ""], "blank in most rows"),
        ("sample", [f"JB-{i}" for i in range(8)], "a text of its own in most rows"),
        ("code", ["094", "182", "071", "407", "069", "119", "137", "413"], "codes with leading zeros"),
        ("pressure", [5] * 8, "one value only"),
        ("empty", [""] * 8, "empty; --bounds empty=LOW:HIGH"),
    ],
)
def test_columns_that_are_no_parameters_are_left_out_and_named(campaign, name, cells, reason):
    table = with_column(name, cells)
    read = campaign(table)
    assert names(read) == ALL
    assert f"Left out: {name} ({reason}" in read.introduction()[0]
    if reason in ("counts the rows", "codes with leading zeros"):
        assert names(campaign(table, "--parameters", f"{name},temperature")) == {name, "temperature"}


@pytest.mark.parametrize(
    ("name", "cells", "question"),
    [
        (
            "stirred",
            ["0:30", "2:15"] * 4,
            "may hold ratios or times such as 0:30 .*; add one of: --ratio stirred .*, --ignore",
        ),
        ("A:B", ["1:1", "2026-02-01", "1:1", "2:1"] * 2, "has '2026-02-01', maybe a level such as 1-2 that Excel made"),
        ("levels", ["2-Jan", "1-Feb"] * 4, "has '2-Jan', maybe a level such as 1-2"),
        ("levels", ["2026-02-01", "2026-01-02"] * 4, "has '2026-02-01', maybe a level such as 1-2"),
        ("levels", ["02. Jan", "03. Mrz"] * 4, "has '02. Jan', maybe a level such as 1-2"),
        ("levels", ["1/2/2026", "2/1/2026"] * 4, "has '1/2/2026', maybe a level such as 1-2"),
        (
            "p",
            ["85 ± 2", "90 ± 2"] * 4,
            "has '85 ± 2', which is no number .*; add one of: --categorical p .*, --ignore p",
        ),
        ("dose", ["5 + 5", "10 + 5"] * 4, "has '5 \\+ 5', which is no number"),
        ("c", ["<5", "none"] * 4, "has '<5', which is no number"),
        (
            "alkene",
            list("ABCDEFGH"),
            "'alkene' has a text of its own in most rows, such as 'A': a factor",
        ),
        (
            "solvent",
            ["DMF", "", "", "", "THF", "", "", ""],
            "row 3 has no solvent: fill it in",
        ),
        ("solvent", ["DMF", '"', '"', '"', "THF", '"', '"', '"'], "'solvent' has '\"', which is no value"),
        ("solvent", ["DMF", "-", "-", "-", "THF", "-", "-", "-"], "row 3 has no solvent: fill it in"),
        ("dose", [5, 10, "", "", "", "", "", ""], "row 4 has no dose: fill it in"),
    ],
)
def test_what_can_mean_two_things_is_asked(campaign, name, cells, question):
    with pytest.raises(TableError, match=question):
        campaign(with_column(name, cells))
    assert names(campaign(with_column(name, cells), "--ignore", name)) == ALL
    assert names(campaign(with_column(name, cells, place=4), "--ignore", name)) == ALL


def test_the_kind_of_a_named_parameter_is_asked_where_it_is_unclear(campaign):
    table = with_column("mix", ["1:10", "1:20"] * 4)
    with pytest.raises(TableError, match="'mix' may hold ratios or times such as 1:10"):
        campaign(table, "--parameters", "mix,time")
    for kind in ("--ratio", "--categorical"):
        assert names(campaign(table, "--parameters", "mix,time", kind, "mix")) == {"mix", "time"}


def test_a_screen_of_solvents_is_a_category(campaign):
    cells = ["DMF", "2-MeTHF", "1,4-dioxane", "NMP", "THF", "CPME", "EtOAc", "water"]
    assert names(campaign(with_column("Solvent", cells))) == {*ALL, "Solvent"}
    assert names(campaign(with_column("solvent_name", cells))) == {*ALL, "solvent_name"}
    for name in ("entry", "name", "solvent id"):
        assert names(campaign(with_column(name, cells))) == ALL
    with pytest.raises(TableError, match="'ligand' has a text of its own in most rows, such as 'C-1'"):
        campaign(with_column("ligand", [f"C-{i}" for i in range(1, 9)]))


@pytest.mark.parametrize(
    ("cells", "first", "printed"),
    [
        (["1:5", "1:10", "1:20", "1:2.5"], 5.0, "1:5"),
        (["5:1", "10:1", "20:1", "2:1"], 5.0, "5:1"),
        (["1:4", "2:1", "1:1", "2:3"], 0.25, "0.25:1"),
    ],
)
def test_ratios_are_numbers(campaign, cells, first, printed):
    read = campaign(with_column("acid : base", cells * 2))
    (column,) = (column for column in read.columns if column.name == "acid : base")
    assert column.codes(read.results)[0] == first
    assert column.decode(first) == printed


def test_half_a_row_is_refused_with_row_and_column(campaign):
    table = text() + "85,,-,\n"
    with pytest.raises(TableError, match=r"row 10 has no time, catalyst: fill them in; if"):
        campaign(table)
    with pytest.raises(TableError, match="row 10, column 'time' is blank: fill it in; if the value above is"):
        campaign(table, "--parameters", "temperature,time")


def test_a_second_outcome_is_no_parameter(campaign):
    table = with_column("purity", [81.9, 85.2, 82.1, 88.1, 84.0, 87.0, 88.0, 86.8], place=4)
    with pytest.raises(TableError, match="'purity' may be an outcome, not a parameter; add one of: --ignore purity"):
        campaign(table)
    read = campaign(table, "--maximize", "purity")
    assert names(read) == ALL
    assert read.Y[0].tolist() == [16.4, 81.9]
    read = campaign(table, "--require", "purity >= 85")
    assert read.C[:3, 0].tolist() == pytest.approx([3.1, -0.2, 2.9])
    blank = [[*row, "" if i == 2 else 80 + 3 * i % 7] for i, row in enumerate(ROWS)]
    blank[2][3] = ""
    assert "purity (blank where yield is, so an outcome)" in campaign(text(blank, [*NAMES, "purity"])).introduction()[0]


def test_results_before_the_outcome_are_asked_about_in_one_question(campaign):
    header = ["T", "Conversion %", "min", "mass obtained (g)", "Er (mol%)", "OD600 at induction", "Room temp", "yield"]
    rows = [
        [60 + 7 * i % 30, 50 + i * i % 7, 5 * i % 7, 3 + i * i / 7, i * i % 5, 2 + 3 * i % 4, 20 + i % 3, i]
        for i in range(9)
    ]
    both = '"Conversion %" "mass obtained \\(g\\)"'
    with pytest.raises(TableError, match=rf"not a parameter; add one of: --ignore {both} .left(.|\n)*--observe \"Room"):
        campaign(text(rows, header))
    options = ["--ignore", "Conversion %", "Room temp", "--continuous", "mass obtained (g)"]
    found = names(campaign(text(rows, header), *options))
    assert found == {"T", "min", "mass obtained (g)", "Er (mol%)", "OD600 at induction"}


@pytest.mark.parametrize(
    ("cell", "value", "title"),
    [
        ("{} °C", 1100.0, "temperature [°C]"),
        ("{}0 %", 11000.0, "temperature [%]"),
        ("\u2212{}", -1100.0, "temperature"),
        ("{:,}", 1100.0, "temperature"),
        ("{}e1", 11000.0, "temperature"),
    ],
)
def test_units_signs_and_exponents_in_cells(campaign, cell, value, title):
    rows = [(cell.format(1000 + 100 * (i % 4 + 1)).replace(",", " "), *row[1:]) for i, row in enumerate(ROWS)]
    read = campaign(text(rows))
    assert read.X[0][0] == value
    assert read.columns[0].title == title


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f", "\u2009", "'"])
def test_thousands_that_are_separated_by_spaces(campaign, space):
    rows = [(f"1{space}{200 + 100 * (i % 3)}", *row[1:]) for i, row in enumerate(ROWS)]
    assert campaign(text(rows)).X[1][0] == 1300.0


def test_a_decimal_mark_is_read_only_where_it_is_beyond_doubt(campaign):
    def costs(cells, separator=";"):
        return text([(*row[:2], cell) for row, cell in zip(ROWS, cells, strict=True)], ["a", "b", "cost"], separator)

    unclear = ["1.234", "987", "1.402", "1.120", "875", "1.010", "940", "1.300"]
    with pytest.raises(TableError, match=r"'1.234' may be 1.234 or 1234; with --decimal . or --decimal , say"):
        campaign(costs(unclear), goal="cost")
    assert campaign(costs(unclear), "--decimal", ",", goal="cost").Y[0, 0] == 1234.0
    assert campaign(costs(unclear), "--decimal", ".", goal="cost").Y[0, 0] == 1.234
    assert campaign(costs(unclear, ","), goal="cost").Y[0, 0] == 1.234
    with pytest.raises(TableError, match=r"'1.050' may be 1.05 or 1050"):
        campaign(costs(["31,2", "1.050", *["44,0"] * 6]), goal="cost")
    grouped = campaign(costs(["1.234,5", "1.050", *["44,0"] * 6]), goal="cost")
    assert grouped.Y[:2, 0].tolist() == [1234.5, 1050.0]
    with pytest.raises(TableError, match="write one decimal mark"):
        campaign(costs(["31,2", "31.2", *["44"] * 6]), goal="cost")


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (lambda t: "Suzuki screening March,,,\n" + t, 3),
        (lambda t: "Suzuki screening March\n\n" + t, 4),
        (lambda t: t.replace("yield\n", "yield\n°C,h,mol%,%\n"), 3),
        (lambda t: "°C,h,mol%,%\n" + t, 3),
        (lambda t: t.replace("\n", ",,\n"), 2),
        (lambda t: t + ",,,\n,,,\n", 2),
        (lambda t: t + "\nNote: all by JB\n", 2),
        (lambda t: "sep=;\n" + t.replace(",", ";"), 2),
        (lambda t: t.replace(",", "\t"), 2),
        (lambda t: t.replace("\n", "\r\n"), 2),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_as_excel_writes_them(campaign, change, first, encoding):
    read = campaign(change(text()), encoding=encoding)
    assert names(read) == ALL
    assert [[float(c) for c in row[:3]] for row in ROWS] == read.X
    assert read.Y[:, 0].tolist() == [row[3] for row in ROWS]
    assert read.results.lines[0] == first
    assert read.columns[0].unit == ("°C" if "°C" in change(text()) else "")


def test_latin_1_is_read_and_said_and_other_code_pages_are_refused(campaign):
    table = with_column("Lösungsmittel", ["Äthanol", "Wasser"] * 4)
    read = campaign(table, encoding="latin-1")
    assert "was read as Latin-1" in read.introduction()[1]
    assert read.columns[0].categories == ("Wasser", "Äthanol")
    with pytest.raises(TableError, match="save it as CSV"):
        campaign(table, encoding="cp850")


def test_headers_with_commas_and_units(campaign):
    header = ["temp, set [°C]", "time, h", "cat (mol%)", "yield [%]"]
    for separator in (";", ","):
        read = campaign(text(names=header, separator=separator), "--bounds", "temp, set=20:120")
        assert [column.name for column in read.columns] == header[:3]
        assert read.columns[0].span == (20.0, 120.0)


def test_sheets_of_excel(campaign, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["Screening"], NAMES, *ROWS]:
        book.active.append(row)
    book.active["C3"].number_format = "0.0%"
    book.save(tmp_path / "book.xlsx")
    read = campaign(None, "--ignore", "catalyst", name="book.xlsx")
    assert read.results.lines[0] == 3
    assert read.X[1] == [85.0, 4.0]
    assert read.results.cells("catalyst")[0] == "50 %"
    book.create_sheet("Notes").append(["a", "b"])
    book.save(tmp_path / "book.xlsx")
    with pytest.raises(TableError, match=r"has the sheets Sheet, Notes; say which, such as .*book.xlsx:Sheet"):
        campaign(None, name="book.xlsx")
    assert len(campaign(None, "--ignore", "catalyst", name="book.xlsx:Sheet").read) == 8
    book["Sheet"]["D4"] = "=1+1"
    book.save(tmp_path / "book.xlsx")
    with pytest.raises(TableError, match="cell D4 has a formula without a value"):
        campaign(None, name="book.xlsx:Sheet")


def test_readings_that_are_pending(campaign):
    marks = ["", "-", "n/a", "NA", "#N/A", "–", "nan", "failed"]
    read = campaign(text([(*row[:3], mark) for row, mark in zip(ROWS, marks, strict=True)] + ROWS[:2]))
    assert (len(read.read), len(read.pending), len(read.failed)) == (2, 7, 1)
    assert read.summary() == "2 readings, 7 pending, 1 failed; 512 of 520 designs left."


def test_steps_are_recognized_and_can_be_said(campaign):
    def step(cells, *options):
        (column,) = (c for c in campaign(with_column("x", cells), *options).columns if c.name == "x")
        return column.step

    assert step([5, 10, 20, 15, 30, 5, 10, 25]) == 5.0
    assert step(["0.5", "2.0", "1.0", "2.5", "0.5", "1.5", "3.0", "2.0"]) == 0.5
    assert step([40, 60, 80, 40, 60, 80, 40, 60]) == 1.0  # levels of a plan
    assert step([0.123, 0.71, 0.5, 0.9, 0.31, 0.42, 0.77, 0.6]) == 0.001
    assert step([1 / 3, 0.71, 0.5, 0.9, 0.31, 0.42, 0.77, 0.6]) is None
    assert step([5, 10, 20, 15, 30, 5, 10, 25], "--step", "x=2.5") == 2.5
    assert step([5, 10, 20, 15, 30, 5, 10, 25], "--continuous", "x") is None


def test_levels_where_commas_are_decimal_marks(campaign):
    table = text(separator=";", cell=lambda c: str(c).replace(".", ","))
    assert campaign(table, "--levels", "catalyst=0,5;2,5").columns[2].levels == (0.5, 2.5)
    with pytest.raises(TableError, match="write ; between levels"):
        campaign(table, "--levels", "catalyst=0,5")


def test_candidates_and_readings_are_looked_at_together(campaign):
    readings = "temperature,solvent,yield\n60,DMF,20\n70,water,30\n80,DMF,44\n60,water,11\n"
    read = campaign(readings, candidates="temperature,solvent\n65,DMF\n65,water\n65,MeCN\n")
    assert names(read) == {"temperature", "solvent"}
    assert read.left == (3, 3)
    table = with_column("id", ["094", "182", "071", "407", "069", "119", "137", "413"])
    listed = "id,temperature,time,catalyst\n0,60,2,1\n1,70,2,1\n2,60,4,1\n3,60,1,2\n"
    read = campaign(table, candidates=listed)
    assert names(read) == ALL
    assert read.identifiers == ["id"]


def test_spellings_of_a_level_get_a_line(campaign):
    table = with_column("solvent", ["DMF", "dmf", "water", "DMF", "water", "water", "dmf", "DMF"])
    assert "solvent has DMF and dmf, taken for 2 levels; write one if not." in campaign(table).introduction()


def test_the_sum_of_a_mixture_is_recognized(campaign):
    parts = [(46, 16), (26, 48), (28, 59), (54, 42), (40, 0), (31, 48)]
    table = text([(a, b, 100 - a - b, 40 + a % 7) for a, b in parts], ["A", "B", "C", "yield"])
    read = campaign(table)
    assert read.space.equality_constraints == [([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]
    assert "A + B + C = 100 in every row, and so in proposals." in read.introduction()
    assert campaign(table, "--sum", "none").space.equality_constraints == []
    read = campaign(table, "--sum", "A,B=60", "--where", "A + 2 B <= 90", "B - 0.5*C>=-20")
    assert read.space.equality_constraints == [([0, 1], [1.0, 1.0], 60.0), ([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]
    assert campaign(table, "--sum", "A,B,C=90").space.equality_constraints == [([0, 1, 2], [1.0, 1.0, 1.0], 90.0)]
    assert read.space.inequality_constraints == [([0, 1], [-1.0, -2.0], -90.0), ([1, 2], [1.0, -0.5], -20.0)]


def test_names_of_an_inequality_may_leave_out_units(campaign):
    table = text([(a, 10 - a, 40 + a % 7) for a in range(1, 9)], ["A (mm)", "AB (mm)", "yield"])
    read = campaign(table, "--where", "a + 2 AB <= 18", "A (mm) >= 2")
    assert read.space.inequality_constraints == [([0, 1], [-1.0, -2.0], -18.0), ([0], [1.0], 2.0)]


def test_a_missing_excel_reader_or_plot_loses_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.csv").write_text(text(), encoding="utf-8")
    assert main([str(tmp_path / "r.csv"), "--maximize", "yield", "--plot", str(tmp_path / "absent" / "p.png")]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "Recommended now" in err
    assert "No such file or directory" in err.splitlines()[-1]
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    assert main([str(tmp_path / "r.xlsx"), "--maximize", "yield"]) == 2
    assert 'pip install "bo-robust[excel]"' in capsys.readouterr().err


def test_an_index_without_a_name_is_left_out_and_said(campaign):
    read = campaign(with_column("", [7, 3, 9, 1, 4, 8, 2, 6]))
    assert "" not in names(read)
    assert "Column 1 has no name, and is not read." in read.introduction()


def test_words_for_pending_and_units_behind_brackets(campaign):
    table = text(with_pending, [*NAMES[:-1], "yield (measured) (%)"])
    read = campaign(table, goal="yield (measured)")
    assert len(read.pending) == 2


with_pending = [(*row[:-1], mark) for row, mark in zip(ROWS[:2], ("PENDING", "tbd"), strict=True)] + ROWS[2:]


def test_sodium_is_no_missing_value(campaign):
    cells = ["Na", "K", "Na", "Li", "Na", "Na", "K", "Na"]
    assert "cation" in names(campaign(with_column("cation", cells)))


def test_decimals_of_a_computer_are_no_step(campaign):
    cells = ["1.558826153", "0.1", "10", "4.2", "3.1", "7.7", "2.2", "9.1"]
    (column,) = (c for c in campaign(with_column("speed", cells)).columns if c.name == "speed")
    assert column.step is None


@pytest.mark.parametrize("off", [0.0, 0.09])
def test_a_mixture_as_it_was_weighed_is_recognized(campaign, off):
    parts = [(46, 16, 38), (26, 48, 26), (28, 59, 13), (54, 42, 4), (40, 0, 60), (31, 48, 21)]
    rows = [(a + off * (-1) ** i, b, c, 10 + i) for i, (a, b, c) in enumerate(parts)]
    read = campaign(text(rows, ["A", "B", "C", "yield"]))
    assert read.space.equality_constraints == [([0, 1, 2], [1.0, 1.0, 1.0], 100.0)]
    assert ("to within 0.09" in "".join(read.mixture)) == (off > 0.0)


def test_columns_that_change_little_in_sum_are_no_mixture(campaign):
    rows = [(60 + i * i, 1 + i % 2, 2 - i % 2, 10 + i) for i in range(8)]
    assert campaign(text(rows, ["temperature", "a", "b", "yield"])).equalities == [(["a", "b"], [1.0, 1.0], 3.0)]
    rows = [(60 + i * i, 1 + i % 2, 2 - i % 2 + (i == 5), 10 + i) for i in range(8)]
    assert campaign(text(rows, ["temperature", "a", "b", "yield"])).equalities == []


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("batch", [1, 1, 1, 2, 2, 2, 3, 3]),
        ("Lot no.", ["L17", "L18", "L17", "L18"] * 2),
        ("day", ["Tue", "Wed", "Tue", "Wed"] * 2),
        ("chemist", ["AK", "BM"] * 4),
        ("plate_id", [1, 2] * 4),
        ("catalyst lot", ["a", "b"] * 4),
        ("measured on", ["HPLC-1", "HPLC-2"] * 4),
        ("place", ["A1", "A2", "B1", "B2"] * 2),
        ("ELN", [204, 204, 204, 205, 205, 206, 206, 206]),
    ],
)
def test_a_column_that_looks_like_a_batch_is_asked_about(campaign, name, cells):
    table = with_column(name, cells)
    answers = "add one of: --batch .* --ignore .* --condition .* --categorical"
    with pytest.raises(TableError, match=f"{name!r} looks like a batch; {answers}"):
        campaign(table)
    assert name not in names(campaign(table, "--ignore", name))
    assert name in names(campaign(table, "--categorical", name))


@pytest.mark.parametrize("name", ["run time", "batch size", "day length", "charge", "block copolymer", "lab scale"])
def test_parameters_of_such_names_are_read(campaign, name):
    assert name in names(campaign(with_column(name, [0.5, 1.5, 1, 2, 0.5, 1, 2, 1.5])))


def test_a_row_must_be_one_experiment(campaign):
    rows = [[*row[:3], what, row[3]] for row in ROWS for what in ("yield", "ee")]
    with pytest.raises(
        TableError, match="'analyte' may say what was measured; correct the table, as a row must be one experiment"
    ):
        campaign(text(rows, [*NAMES[:3], "analyte", "value"]), goal="value")


def test_names_of_recipes_beside_replicates_are_left_out(campaign):
    def table(label):
        return text(
            [[label(i), *row[:3], row[3] + j] for i, row in enumerate(ROWS) for j in range(3)], ["medium", *NAMES]
        )

    assert "medium (names the designs)" in campaign(table(lambda i: f"M{i:02d}")).introduction()[0]
    words = ["rich", "poor", "sweet", "salty", "acid", "buffered", "defined", "minimal"]
    with pytest.raises(
        TableError, match="'medium' has a design of the other columns for each text; add one of: --ignore"
    ):
        campaign(table(lambda i: words[i]))
    assert "medium" in names(campaign(table(lambda i: words[i]), "--categorical", "medium"))


@pytest.mark.parametrize(
    ("once", "often", "said"),
    [
        *[(w, "toluene", True) for w in ("tolune", "toulene", "toluenee", "toluane", "tolueno")],
        *[("K2C03", "K2CO3", True), ("KHCO3", "K2CO3", False), ("DME", "DMF", False), ("XPhos", "SPhos", False)],
        *[("m-xylene", "o-xylene", False), ("2-propanol", "1-propanol", False), ("(S)-BINAP", "(R)-BINAP", False)],
        *[("LigandB", "LigandA", False), ("methanol", "ethanol", False), ("lot 12", "lot 21", False)],
    ],
)
def test_a_category_with_a_typing_error_is_said(campaign, once, often, said):
    read = campaign(with_column("additive", [often, "none", often, "none", once, often, "none", "none"]))
    line = f"additive = {once} (row 6) occurs once; is it {often}?"
    assert (line in read.introduction()) == said


def test_names_that_stand_among_the_rows_are_left_out(campaign):
    read = campaign(text([*ROWS[:4], NAMES, *ROWS[4:]]))
    assert len(read.read) == 8
    assert "Row 6 repeats the names, and is not read." in read.introduction()


def test_decimal_commas_between_commas_are_said(campaign):
    with pytest.raises(TableError, match=r"cell '0' beyond .*, or save it with semicolons if commas are decimal marks"):
        campaign(text(cell=lambda c: f"{c:.1f}".replace(".", ",")).replace('"', ""))


def test_a_row_of_dashes_has_no_units(campaign):
    with pytest.raises(TableError, match="row 2 has no temperature, time, catalyst"):
        campaign(text([("-",) * 4, *ROWS]))


def test_names_with_commas_are_offered_so_that_they_can_be_pasted(campaign):
    table = text([[*row, i * i % 5] for i, row in enumerate(ROWS)], ["Temp, °C", *NAMES[1:], "pH, end"])
    with pytest.raises(TableError, match='--parameters "Temp, °C" time catalyst "pH, end"'):
        campaign(table)
    assert names(campaign(table, "--parameters", "Temp, °C", "time", "catalyst", "pH, end")) == {
        "Temp, °C",
        "time",
        "catalyst",
        "pH, end",
    }


def test_an_outcome_of_two_units_is_no_category(campaign):
    with pytest.raises(TableError, match=r"another unit than .*; write one unit, or none\.$"):
        campaign(text([[*row[:3], f"{row[3]} {'mg' if i else 'g'}"] for i, row in enumerate(ROWS)]))


@pytest.mark.parametrize(
    ("name", "cells", "asked"),
    [
        ("oil", ["sunflower", "saturated"] * 4, False),
        ("when", ["Sat", "Sunday"] * 4, True),
        ("R group", ["OMe", "CF3", "H", "NO2"] * 2, False),
        ("functional set", ["amide", "ester"] * 4, False),
        ("set", ["A", "B"] * 4, True),
        ("group", ["group 1", "group 2"] * 4, True),
    ],
)
def test_texts_are_batches_where_they_look_like_labels(campaign, name, cells, asked):
    table = with_column(name, cells)
    if not asked:
        assert name in names(campaign(table))
        return
    with pytest.raises(TableError, match="looks like a batch"):
        campaign(table)


def test_a_design_that_is_pending_twice_is_said(campaign):
    assert "Rows 10 and 12 are the same pending design." in campaign(text() + "85,1,2,\n90,1,2,\n85,1,2,\n").notes
