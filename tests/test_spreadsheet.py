import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bo_robust.spreadsheet import main
from bo_robust.suggest import suggest

HEADER = ["temperature", "solvent", "yield"]


def best(temperature, solvent):
    return 50.0 - ((temperature - 70.0) / 8.0) ** 2 + {"water": 0.0, "DMF": 6.0}[solvent]


def rows(n=16):
    solvents = ["water", "DMF"]
    made = [[40 + (i * 37) % 60 + 0.5 * (i % 2), solvents[i % 3 % 2]] for i in range(n)]
    return [[*row, round(best(*row), 2)] for row in made]


@pytest.fixture
def write(tmp_path):
    def write(table, name="results.csv", header=HEADER, separator=","):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter=separator).writerows([header, *table])
        return str(path)

    return write


def call(*arguments, target="yield"):
    return main([*arguments, "--target", target, "--maximize"])


def test_designs_outliers_and_the_design_to_use_now(write, capsys):
    table = rows()
    table[4][-1] = 480.0  # a typing error
    path = write(table)
    before = Path(path).read_bytes()
    assert call(path, "-n", "2") == 0
    assert Path(path).read_bytes() == before
    out, err = capsys.readouterr()
    designs = list(csv.DictReader(out.splitlines()))
    assert len(designs) == 2
    assert all(40.0 <= float(d["temperature"]) <= 100.0 and d["solvent"] in ("water", "DMF") for d in designs)
    assert err.count("looks wrong") == 1
    assert "Row 6 looks wrong: yield = 480.0 is" in err
    (row,) = re.findall(r"Recommended now: row (\d+) \(", err)
    assert best(*table[int(row) - 2][:2]) > max(best(*row[:2]) for row in table) - 1.0


def test_it_is_what_suggest_returns(write, capsys):
    table = rows()
    assert call(write(table), "--seed", "3") == 0
    (design,) = csv.DictReader(capsys.readouterr().out.splitlines())
    codes = {"DMF": 0.0, "water": 1.0}
    X = [[t, codes[s]] for t, s, _ in table]
    low, high = (end(x[0] for x in X) for end in (min, max))
    found = suggest(X, [y for *_, y in table], bounds=[[low, 0.0], [high, 1.0]], categorical={1: range(2)}, seed=3)
    assert float(design["temperature"]) == pytest.approx(float(found.X[0, 0]), rel=1e-5)
    assert codes[design["solvent"]] == float(found.X[0, 1])


def test_a_list_of_candidates_with_names_and_an_outlier_that_is_measured_again(write, capsys):
    table = rows()
    table[4][-1] = 480.0
    listed = [[f"recipe {i}", *row[:-1]] for i, row in enumerate(rows(60))]
    names = ["name", *HEADER[:-1]]
    results = write([[*row, "a note"] for row in table], header=[*HEADER, "remarks"])
    assert call(results, "--candidates", write(listed, "list.csv", names)) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [",".join(names), f"recipe 4,{table[4][0]},{table[4][1]}"]
    assert "Measure again: temperature = " in err
    assert "not used: remarks" in err


def test_blank_readings_are_under_way_and_failed_ones_failed(write, monkeypatch):
    table = rows()
    table[2][-1], table[5][-1] = "", "failed"
    seen = {}
    monkeypatch.setattr(
        "bo_robust.spreadsheet.suggest", lambda X, Y, **given: seen.update(given) or suggest(X, Y, **given)
    )
    assert call(write(table, separator=";")) == 0
    assert [x[0] for x in seen["X_pending"]] == [table[2][0]]
    assert [x[0] for x in seen["X_failed"]] == [table[5][0]]


def test_whole_numbers_are_recognised(write, capsys):
    table = [[i, i * 1.5, -((i - 6) ** 2)] for i in range(14)]
    assert call(write(table, header=["count", "dose", "y"]), "-n", "3", target="y") == 0
    designs = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert all(d["count"] == str(int(d["count"])) for d in designs)


def test_a_wide_range_of_whole_numbers_is_no_list(write, capsys):
    table = [[10**9 + 10**7 * i, f"{i}.0", -((i - 6) ** 2)] for i in range(14)]
    assert call(write(table, header=["rate", "dose", "y"]), "-n", "3", target="y") == 0
    out, err = capsys.readouterr()
    designs = list(csv.DictReader(out.splitlines()))
    assert all(d["rate"] == str(int(d["rate"])) for d in designs)
    assert any(float(d["dose"]) % 1.0 for d in designs)  # 3.0 is no whole number
    assert "Parameters: rate (1e+09 to 1.13e+09, whole), dose (0 to 13)." in err


def test_names_of_rows_and_ignored_columns_are_no_parameters(write, capsys):
    table = [[f"exp-{i}", *row[:2], i, "" if i % 2 else "hazy", row[2]] for i, row in enumerate(rows())]
    path = write(table, header=["id", "temperature", "solvent", "number", "notes", "yield"])
    assert call(path) == 2
    assert "column 'notes' is blank: every design needs a value; --ignore notes leaves" in capsys.readouterr().err
    assert call(path, "--ignore", "notes", "number") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "temperature,solvent"
    assert "Parameters: temperature (40 to 96), solvent (DMF, water)." in err
    assert "A text of its own in every row, so not varied: id." in err


def test_decimal_commas_are_read_where_they_do_not_separate(write, capsys):
    header, plain = ["temperature", "solvent", "yield"], rows()
    assert call(write(plain)) == 0
    expected = capsys.readouterr()
    commas = [[str(cell).replace(".", ",") for cell in row] for row in plain]
    assert call(write(commas, header=header, separator=";")) == 0
    out, err = capsys.readouterr()
    assert out.replace(";", ",") == expected.out
    assert err == expected.err


def test_commas_that_are_no_separators_are_refused_elsewhere(write, capsys):
    table = [[f"{40 + i},500", *row[1:]] for i, row in enumerate(rows())]
    for separator in (",", "\t"):
        path = write(table, separator=separator)
        assert call(path) == 2
        assert "row 2, column 'temperature': '40,500' has a comma; write a decimal point" in capsys.readouterr().err


def test_a_scale_is_named_and_can_be_ruled_out(write, capsys):
    table = [[i, round(20.0 ** (math.cos(0.5 * i) + 0.1 * (i * 7 % 5 - 2)), 4)] for i in range(24)]
    path = write(table, header=["dose", "y"])
    assert call(path, target="y") == 0
    assert "a scale of its own (logarithm), on which" in capsys.readouterr().err
    assert call(path, "--outcome-scale", "none", target="y") == 0
    assert "scale" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda t: t[3].__setitem__(0, "6O"), (), r"row 5, column 'temperature': '6O' is no number"),
        (lambda t: t[3].__setitem__(0, ""), (), r"row 5, column 'temperature' is blank"),
        (lambda t: t[3].__setitem__(2, "12,5"), (), r"row 5, column 'yield': '12,5' is no number"),
        (lambda t: t[3].append("x"), (), r"row 5 has 4 cells where the first row has 3"),
        (lambda t: [row.__setitem__(2, "") for row in t], (), r"column 'yield' has no reading yet"),
        (lambda t: t.clear(), (), r"column 'yield' has no reading yet"),
        (lambda t: None, ("--integer", "temperature"), r"row 3, column 'temperature': '77.5' is no whole number"),
        (lambda t: None, ("--categorical", "solven"), r"no parameter 'solven'; did you mean 'solvent'\?"),
        (lambda t: None, ("-n", "-1"), "q must be"),
    ],
)
def test_bad_tables_are_refused_by_row_and_column(write, capsys, change, arguments, message):
    table = rows()
    change(table)
    path = write(table)
    assert call(path, *arguments) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(message, error), error


def test_files_and_headers_that_do_not_fit(write, capsys, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    listed = write([[50, "DMF"], [60, "water"]], "list.csv", ["temprature", "solvent"])
    for arguments, target, message in (
        ([str(empty)], "yield", "empty.csv is empty"),
        ([str(tmp_path / "absent.csv")], "yield", "absent.csv: No such file"),
        ([write(rows())], "yeild", "no column 'yeild'; did you mean 'yield'?"),
        ([write(rows(), "twice.csv", ["a", "a", "yield"])], "yield", "two columns 'a'"),
        ([write(rows()), "--candidates", listed], "yield", "no column 'temprature'"),
    ):
        assert call(*arguments, target=target) == 2
        assert message in capsys.readouterr().err


def test_the_page_shows_what_is_printed(tmp_path, capsys):
    """But for digits, which depend on the machine."""
    page = (Path(__file__).resolve().parents[1] / "docs/pages/spreadsheet.md").read_text(encoding="utf-8")
    table, console = re.findall(r"```(?:text|console)\n(.+?)```", page, flags=re.S)
    (tmp_path / "results.csv").write_text(table)
    assert call(str(tmp_path / "results.csv"), "-n", "2") == 0
    printed = "".join(capsys.readouterr())
    command, *shown = console.splitlines()
    assert command == "$ bo-robust suggest results.csv --target yield --maximize -n 2"
    for one, other in zip(printed.splitlines(), shown, strict=True):
        assert re.sub(r"\d+(\.\d+)?", "", one) == re.sub(r"\d+(\.\d+)?", "", other)
    assert printed.splitlines()[:2] == shown[:2]


@pytest.mark.slow
def test_ten_thousand_candidates(write, capsys):
    generator = torch.Generator().manual_seed(0)
    listed = torch.rand(10_000, 4, generator=generator).tolist()
    table = [[*x, -sum((v - 0.5) ** 2 for v in x)] for x in listed[:40]]
    header = ["a", "b", "c", "d"]
    command = [sys.executable, "-m", "bo_robust", "suggest", write(table, header=[*header, "y"]), "--target", "y"]
    command += ["--maximize", "--candidates", write(listed, "list.csv", header)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
