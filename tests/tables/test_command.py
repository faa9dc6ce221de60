import csv
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bo_robust.__main__ import main as program
from bo_robust.proposals.suggest import Space, suggest
from bo_robust.tables.command import main
from bo_robust.tables.plot import POINTS, _moved

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
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator).writerows([header, *table])
        return str(path)

    return write


def call(*arguments, target="yield"):
    return main([*arguments, "--maximize", target])


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
    assert err.count("looks wrong: ") == 1
    assert "Row 6 looks wrong: yield = 480.0 is" in err
    (row,) = re.findall(r"Recommended now: row (\d+) \(", err)
    assert best(*table[int(row) - 2][:2]) > max(best(*row[:2]) for row in table) - 1.0


def test_it_is_what_suggest_returns(write, capsys):
    table = rows()
    assert call(write(table), "--seed", "3", "--device", "cpu") == 0
    (design,) = csv.DictReader(capsys.readouterr().out.splitlines())
    codes = {"DMF": 0.0, "water": 1.0}
    X = [[t, codes[s]] for t, s, _ in table]
    low, high = (end(x[0] for x in X) for end in (min, max))
    steps = {"discrete": {0: [low + 0.5 * k for k in range(round(2.0 * (high - low)) + 1)]}}
    found = suggest(
        X, [y for *_, y in table], bounds=[[low, 0.0], [high, 1.0]], categorical={1: range(2)}, seed=3, **steps
    )
    assert float(design["temperature"]) == pytest.approx(float(found.X[0, 0]), rel=1e-5)
    assert codes[design["solvent"]] == float(found.X[0, 1])


def test_a_device_that_is_not_there_is_one_sentence(write, capsys):
    assert call(write(rows()), "--device", "cuda:99") == 2
    assert capsys.readouterr().err.startswith("bo-robust suggest: device cuda:99 was asked for, but torch ")


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
    assert "Left out: name (a text of its own in most rows); remarks (not in" in err


def test_blank_readings_are_under_way_and_failed_ones_failed(write, monkeypatch):
    table = rows()
    table[2][-1], table[5][-1] = "", "failed"
    seen = {}
    monkeypatch.setattr(
        "bo_robust.tables.command.suggest", lambda data, **given: seen.update(vars(data)) or suggest(data, **given)
    )
    assert call(write(table, separator=";")) == 0
    assert [x[0] for x in seen["X_pending"]] == [table[2][0]]
    assert [x[0] for x in seen["X_failed"]] == [table[5][0]]


def test_whole_numbers_are_recognized(write, capsys):
    table = [[i * 5 % 14, i * 1.55, -((i - 6) ** 2)] for i in range(14)]
    assert call(write(table, header=["count", "dose", "y"]), "-n", "3", target="y") == 0
    designs = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert all(d["count"] == str(int(d["count"])) for d in designs)


def test_a_wide_range_of_whole_numbers_is_no_list(write, capsys):
    table = [[10**9 + 10**7 * i + i % 2, f"{i * 5 % 14}.0", -((i - 6) ** 2)] for i in range(14)]
    assert call(write(table, header=["rate", "dose", "y"]), "-n", "3", target="y") == 0
    out, err = capsys.readouterr()
    designs = list(csv.DictReader(out.splitlines()))
    assert all(d["rate"] == str(int(d["rate"])) for d in designs)
    assert all(float(d["dose"]) % 1.0 == 0.0 for d in designs)  # a step, though written as 3.0
    assert "Parameters: rate (1000000000 to 1130000001, whole), dose (0 to 13, whole)." in err


def test_names_of_rows_and_ignored_columns_are_no_parameters(write, capsys):
    table = [[f"exp-{i}", *row[:2], i, "" if i % 2 else "hazy", row[2]] for i, row in enumerate(rows())]
    path = write(table, header=["id", "temperature", "solvent", "number", "notes", "yield"])
    assert call(path) == 2
    assert (
        "column 'notes' is blank: fill it in; if the value above is meant, repeat it (--ignore notes leaves it"
        in capsys.readouterr().err
    )
    assert call(path, "--ignore", "notes", "number") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "temperature,solvent"
    parameters = "Parameters: temperature (40 to 96, in steps of 0.5), solvent (DMF, water). Left out: "
    left_out = "id (a text of its own in most rows); number (as --ignore says); notes (as --ignore says)."
    assert parameters + left_out in err


def test_decimal_commas_are_read_where_they_do_not_separate(write, capsys):
    header, plain = ["temperature", "solvent", "yield"], rows()
    assert call(write(plain)) == 0
    expected = capsys.readouterr()
    commas = [[str(cell).replace(".", ",") for cell in row] for row in plain]
    assert call(write(commas, header=header, separator=";")) == 0
    out, err = capsys.readouterr()
    assert out.replace(",", ".").replace(";", ",") == expected.out
    assert re.sub(r"(\d),(\d)", r"\1.\2", err) == expected.err


def test_numbers_that_can_be_two_are_refused(write, capsys):
    table = [[f"{40 + i},500", *row[1:]] for i, row in enumerate(rows())]
    for separator in (",", "\t", ";"):
        path = write(table, separator=separator)
        assert call(path) == 2
        said = capsys.readouterr().err
        assert "row 2, column 'temperature': '40,500' may be 40.5 or 40500; with --decimal , or" in said
        assert call(path, "--decimal", ".") == 0
        assert "temperature (40500 to 55500, in steps of 500)" in capsys.readouterr().err


def test_a_scale_is_named_and_can_be_ruled_out(write, capsys):
    table = [[0.25 * i, round(20.0 ** (math.cos(0.5 * i) + 0.1 * (i * 7 % 5 - 2)), 4)] for i in range(24)]
    path = write(table, header=["dose", "y"])
    assert call(path, target="y") == 0
    assert "a scale of its own (logarithm), on which" in capsys.readouterr().err
    assert call(path, "--outcome-scale", "none", target="y") == 0
    assert "scale" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda t: t[3].__setitem__(0, "6O"), (), r"row 5, column 'temperature': '6O' is no number, but '40.0' may"),
        (lambda t: t[3].__setitem__(0, "O6"), (), r"row 5, column 'temperature': 'O6' is no number"),
        (lambda t: t[3].__setitem__(0, ""), (), r"row 5, column 'temperature' is blank"),
        (lambda t: t[3].__setitem__(2, "12,5"), (), ": write one decimal mark, or say"),
        (lambda t: t[3].append("x"), (), r"row 5 has the cell 'x' beyond the last name"),
        (lambda t: t[3].__setitem__(2, "<0.1"), (), r"'<0.1' is a limit; write the limit"),
        (lambda t: t[3].__setitem__(2, "33.7 ± 0.4"), (), r"has an error behind it; write the number alone"),
        (lambda t: t[3].__setitem__(2, "n.d."), (), r"may mean that nothing was found"),
        (
            lambda t: t[3].__setitem__(0, "60 C"),
            (),
            r"column 'temperature': .* has another unit than .* in row 2; write one unit",
        ),
        (
            lambda t: t.clear(),
            (),
            r"no parameter that varies; temperature: empty; --bounds temperature=LOW:HIGH",
        ),
        (lambda t: None, ("--integer", "temperature"), r"row 3, column 'temperature': '77.5' is no whole number"),
        (lambda t: None, ("--categorical", "solven"), r"no column 'solven'; did you mean 'solvent'\?"),
        (lambda t: None, ("-n", "-3"), "argument -n: must be a whole number of designs, such as 3, not -3"),
        (lambda t: None, ("-o", "next.xlsx"), "argument -o/--output: next.xlsx would hold text; name a .csv, which"),
        (lambda t: None, ("--minimise", "cost"), "no option --minimise; did you mean --minimize"),
        (lambda t: None, ("--target", "yield"), "--target yield has no =; write --target COLUMN=VALUE"),
        (lambda t: None, ("--target", "yield=abc"), "--target yield=abc: 'abc' is no number"),
        (lambda t: None, ("--target", "yield=70"), "yield has --target and --maximize; give one"),
        (lambda t: None, ("--limits", "yield=100:0"), "--limits yield=100:0: write the smaller number first"),
        (
            lambda t: t[3].__setitem__(0, "rt"),
            (),
            r"row 5, .*: temperature mixes numbers \(40.0\) and text \(rt\): write rt as a number",
        ),
        (lambda t: None, ("--bounds", "temperature=9:3"), "must be COLUMN=LOW:HIGH, the lower number first"),
        (lambda t: None, ("--levels", "solvent=DMF,toluene"), "'water' is not among --levels solvent; add it"),
        (
            lambda t: None,
            ("--bounds", "temperature=50:90", "--levels", "temperature=40,60"),
            "--levels temperature=40 lies beyond --bounds temperature=50:90; widen them",
        ),
        (lambda t: None, ("--levels", "solvent=water,DMF,DMF"), "--levels solvent=water,DMF,DMF has DMF twice"),
        (lambda t: None, ("--bounds", "temperature=1,000:2,000"), "'1,000' may be 1 or 1000; write it without"),
        (lambda t: None, ("--condition", "solvent", "--observe", "temperature"), "give --condition or --observe"),
        (lambda t: None, ("--observe", "solvent", "--levels", "solvent=a"), "'solvent' are those in the table; leave"),
        (lambda t: None, ("--condition", "solvent", "--fix", "temperature=50"), "--fix does not go with --condition"),
        (lambda t: None, ("--categorical", "solvent", "--step", "solvent=2"), "--categorical and --step contra"),
        (lambda t: None, ("--continuous", "temperature", "--step", "temperature=2"), "--continuous and --step contra"),
        (lambda t: None, ("--continuous", "solvent", "--categorical", "solvent"), "--categorical and --continuous"),
        (lambda t: None, ("--step", "temperature=40", "--bounds", "temperature=50:70"), "50 to 70 has no multiple"),
        (lambda t: None, ("--integer", "temperature", "--step", "temperature=.5"), "is no whole number"),
        (lambda t: None, ("--step", "solvent=2"), r"row 2, column 'solvent': 'water' is no number"),
        (lambda t: None, ("--require", "purity"), "no requirement such as"),
        (lambda t: None, ("--where", "temprature <= 50"), "did you mean 'temperature'"),
        (lambda t: None, ("--minimize", "yield"), "maximized or minimized twice"),
        (lambda t: None, ("--ignore", "solvent", "--categorical", "solvent"), "'solvent' cannot be a parameter and"),
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
        ([str(tmp_path / "table.ods")], "yield", "table.ods is of a kind that is not read; save it as CSV (UTF-8)"),
        ([write(rows())], "yeild", "no column 'yeild'; did you mean 'yield'?"),
        ([write(rows(), "twice.csv", ["a", "a", "yield"])], "yield", "two columns 'a'"),
        ([write(rows()), "--candidates", listed], "yield", "no column 'temprature'"),
        ([write(rows()), "--candidates", listed, "--sum", "a,b=1"], "yield", "--sum is for proposals of any design"),
    ):
        assert call(*arguments, target=target) == 2
        assert message in capsys.readouterr().err


def test_the_page_shows_what_is_printed(tmp_path, capsys, monkeypatch):
    """But for digits, which depend on the machine."""
    page = (Path(__file__).resolve().parents[2] / "docs/pages/spreadsheet.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    tables = re.findall(r"```text\n(.+?)```", page, flags=re.S)
    consoles = re.findall(r"```console\n(.+?)```", page, flags=re.S)
    for table, console in zip(tables, consoles, strict=True):
        command, *shown = console.splitlines()
        dollar, program, subcommand, *arguments = shlex.split(command)
        assert [dollar, program, subcommand] == ["$", "bo-robust", "suggest"]
        Path(arguments[0]).write_text(table, encoding="utf-8")
        assert main(arguments) == 0
        printed = "".join(capsys.readouterr()).splitlines()
        assert len(printed) == len(shown)
        for one, other in zip(printed, shown, strict=True):
            assert re.sub(r"\d+(\.\d+)?", "", one) == re.sub(r"\d+(\.\d+)?", "", other)


def test_many_pending_rows_look_like_a_list(write, capsys):
    rest = [[t, s, ""] for t in range(40, 70) for s in ("DMF", "water")]
    for pending in (50, 51):
        assert call(write(rows(12) + rest[:pending])) == 0
        said = f"{pending} rows are pending, as in a list of all designs; " in capsys.readouterr().err
        assert said == (pending > 50)


def test_a_list_that_is_all_measured_says_so(write, capsys):
    grid = [(t, s, h) for t in (60, 70, 80) for s in ("DMF", "water") for h in (2, 4)]
    table = [[t, s, h, round(50 - ((t - 80) / 8) ** 2 + 6 * (s == "DMF") + h, 2)] for t, s, h in grid]
    listed = write(grid, "list.csv", ["temperature", "solvent", "hours"])
    header = ["temperature", "solvent", "hours", "yield"]
    assert call(write(table, header=header), "-n", "2", "--candidates", listed) == 0
    out, err = capsys.readouterr()
    assert out == "temperature,solvent,hours\n"
    assert "12 readings; 0 of 12 recipes left." in err
    assert "0 of 2 designs: every other recipe of the list is measured, pending or failed." in err
    assert call(write(table[:9], header=header), "-n", "9", "--candidates", listed) == 0
    out, err = capsys.readouterr()
    assert {tuple(row.split(",")) for row in out.splitlines()[1:]} == {tuple(map(str, row)) for row in grid[9:]}
    assert "3 of 9 designs: every other" in err
    table[0][-1] = 480.0
    assert call(write(table, header=header), "-n", "2", "--candidates", listed) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["60,DMF,2"]
    assert "Measure again: temperature = 60, solvent = DMF, hours = 2; its reading" in err


def test_two_objectives_and_a_requirement(write, capsys):
    table = [[*row, round(2.0 + row[0] / 10, 2), 80 + i] for i, row in enumerate(rows())]
    table[3][-1] = ""
    options = ["--minimize", "cost", "--require", "purity >= 83"]
    assert call(write(table, header=[*HEADER, "cost", "purity"]), *options) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "temperature,solvent"
    assert err.startswith("Maximized: yield. Minimized: cost. Required: purity >= 83. Parameters: temperature")
    front = [int(row) - 2 for row in re.findall(r"^  row (\d+) ", err, flags=re.M)]
    may = [row for i, row in enumerate(table) if i >= 3]
    beaten = [any(b[2] > a[2] and b[3] < a[3] for b in may) for a in may]
    assert front
    assert not any(beaten[row - 3] for row in front)
    assert sorted((table[row][2] for row in front), reverse=True) == [table[row][2] for row in front]


def test_first_designs_come_from_a_header(write, capsys):
    space = ["--bounds", "temperature=40:120", "--levels", "solvent=DMF,water,toluene", "--step", "temperature=2.5"]
    for table in ([], [[60, "DMF", ""]]):
        assert call(write(table, separator=";"), *space, "-n", "9") == 0
        out, err = capsys.readouterr()
        designs = list(csv.DictReader(out.splitlines(), delimiter=";"))
        assert {d["solvent"] for d in designs} == {"DMF", "water", "toluene"}
        temperatures = [float(d["temperature"].replace(",", ".")) for d in designs]
        assert all(40.0 <= t <= 120.0 and t % 2.5 == 0.0 for t in temperatures)
        assert len(set(zip(temperatures, (d["solvent"] for d in designs), strict=True))) == 9
        assert "temperature (40 to 120, in steps of 2,5), solvent (DMF, water, toluene)." in err
        assert "No reading yet" in err


def test_a_recommendation_keeps_the_bounds(write, capsys):
    assert call(write(rows()), "--bounds", "temperature=80:100") == 0
    out, err = capsys.readouterr()
    assert 80.0 <= float(out.splitlines()[1].split(",")[0]) <= 100.0
    assert 80.0 <= float(re.search(r"Recommended now: row \d+ \(temperature = (\d+)", err)[1]) <= 100.0
    assert "measured designs lie outside the ranges, levels or sums given, and are not recommended." in err
    assert call(write(rows())) == 0
    assert "outside the ranges" not in capsys.readouterr().err


def test_conditions_are_proposed_or_left_to_the_day(write, capsys):
    table = [[row[0], 30 + 10 * (i % 4), row[2] - 5 * (i % 4)] for i, row in enumerate(rows())]
    path = write(table, header=["temperature", "humidity", "yield"])
    assert call(path, "--condition", "humidity", "--worst", "0.25", "-n", "2") == 0
    out, err = capsys.readouterr()
    assert {row.split(",")[1] for row in out.splitlines()[1:]} <= {"30", "40", "50", "60"}
    assert "Conditions: humidity (30 to 60, in steps of 10)." in err
    assert "expected yield in the worst 25 % of conditions" in err
    assert "An initial design" not in err
    assert call(write(table[:3], header=["temperature", "humidity", "yield"]), "--condition", "humidity") == 0
    assert "An initial design: proposals follow from the readings once there are 6 rows." in capsys.readouterr().err
    path = write(table, header=["temperature", "humidity", "yield"])
    assert call(path, "--observe", "humidity") == 0
    proposed = capsys.readouterr().out.splitlines()[1]
    assert proposed.endswith(",")
    path = write([*table, [*proposed.split(","), ""]], header=["temperature", "humidity", "yield"])
    assert call(path, "--observe", "humidity") == 0
    assert "16 readings, 1 pending." in capsys.readouterr().err
    assert (
        call(write([*table, [60, "", 40]], header=["temperature", "humidity", "yield"]), "--observe", "humidity") == 2
    )
    assert "row 18, column 'humidity' has no number; write it." in capsys.readouterr().err


def test_the_plot_names_rows_of_the_file(write, capsys, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure").Figure
    shown = []
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (shown.append(self), save(self, *a, **k))[1])
    table = rows()
    table[4][-1] = 480.0
    assert call(write(table), "--plot", str(tmp_path / "p.png")) == 0
    first, *others = shown[0].axes
    assert [note.get_text() for note in first.texts] == ["row 6: 480"]
    assert [axis.get_xlabel() for axis in others] == HEADER[:2]
    predicted, read = first.lines[0].get_data()
    assert len(read) == 15
    assert max(abs(predicted - read)) < 10.0
    (curve,) = (line for line in others[0].lines if len(line.get_xdata()) == POINTS)
    at, mean = curve.get_data()
    assert abs(at[mean.argmax()] - 70.0) < 4.0  # where `best` is largest
    assert "model, all else as in row" in others[1].get_title()
    assert "The picture of all readings is in" in capsys.readouterr().err


@pytest.mark.filterwarnings("error::UserWarning")
def test_the_plot_shortens_names_and_joins_rows_at_one_place(write, tmp_path, monkeypatch):
    """A font of Matplotlib has the Fraktur letter, none has the Japanese ones here, or the picture shows them."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    shown = []
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (shown.append(self), self.draw_without_rendering()))
    table = [[x, "C" * (30 + (solvent == "DMF")) + "O", y] for x, solvent, y in rows(20)]
    table[4] = [60.0, table[4][1], 480.0]
    table[6] = [60.2, table[6][1], 700.0]
    path = write(table, header=["反応温度", "𝔄" * 200, "yield"])
    assert call(path, "--parameters", "反応温度", "𝔄" * 200, "--plot", str(tmp_path / "p.png")) == 0
    _, one, two = shown[0].axes
    assert [note.get_text() for note in one.texts] == ["row 6: 480\nrow 8: 700"]
    assert one.get_xlabel() in ("???? (column 1)", "反応温度")
    assert two.get_xlabel() == "𝔄" * 14 + "…" + "𝔄" * 13
    ticks = [tick.get_text() for tick in two.get_xticklabels()]
    assert ticks == ["CCCCCCCC…CCCCCCO", "CCCCCCCC…CCCCCCO [2]"]


def test_a_curve_along_a_part_of_a_mixture_keeps_the_sum():
    class Asked:
        space = Space(bounds=[[0.0] * 4, [100.0] * 4], equality_constraints=[([0, 1, 2], [1.0] * 3, 100.0)])

    assert _moved(Asked, np.array([20.0, 20.0, 60.0, 7.0]), 0, 60.0).tolist() == [60.0, 10.0, 30.0, 7.0]
    assert _moved(Asked, np.array([100.0, 0.0, 0.0, 7.0]), 0, 60.0) is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 0, "usage: bo-robust suggest FILE"),
        (["--help"], 0, "\n  suggest  what to measure next"),
        (["sugest"], 2, "there is no command 'sugest'; there is suggest."),
    ],
)
def test_the_program_names_its_commands(arguments, code, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bo-robust", *arguments])
    with pytest.raises(SystemExit) as stop:
        program()
    assert stop.value.code == code
    assert said in "".join(capsys.readouterr())


@pytest.mark.slow
def test_ten_thousand_candidates(write, capsys):
    generator = torch.Generator().manual_seed(0)
    listed = torch.rand(10_000, 4, generator=generator).tolist()
    table = [[*x, -sum((v - 0.5) ** 2 for v in x)] for x in listed[:40]]
    header = ["a", "b", "c", "d"]
    command = [sys.executable, "-m", "bo_robust", "suggest", write(table, header=[*header, "y"]), "--maximize", "y"]
    command += ["--candidates", write(listed, "list.csv", header)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_the_design_to_use_keeps_the_limits(write, capsys):
    """Best is 70 and 8; what is recommended and proposed keeps the inequality, however good others were."""
    table = [
        [t, m, round(60.0 - 0.02 * (t - 70) ** 2 - 0.8 * (m - 8) ** 2, 1)] for t in (30, 50, 70, 90) for m in (1, 4, 8)
    ]
    path = write(table, header=["temp", "time", "yield"])
    assert call(path, "--where", "temp + time <= 60") == 0
    out, err = capsys.readouterr()
    temp, time = map(float, re.search(r"row \d+ \(temp = (\d+), time = (\d+)\)", err).groups())
    assert temp + time == 58.0
    assert "\n6 measured designs lie outside the ranges, levels or sums given, and are not recommended." in err
    assert sum(map(float, out.splitlines()[1].split(","))) <= 60.0
    assert call(path, "--where", "temp + time <= 20", "--bounds", "temp=10:90") == 0
    assert (
        "12 measured designs lie outside the ranges, levels or sums given, and are not recommended."
        in capsys.readouterr().err
    )


def test_few_readings_do_not_tell(write, capsys):
    for n, said in ((6, True), (16, False)):
        assert call(write(rows(n))) == 0
        assert ("No reading looks wrong. Among so few, a wrong one may pass." in capsys.readouterr().err) == said


def test_a_replicate_that_disagrees_is_named(write, capsys):
    table = [*rows(20), [*rows(20)[6][:2], 1.5]]
    assert call(write(table)) == 0
    assert re.search(
        r"Row 22 looks wrong: .* Row 8 repeats its design; a third reading decides\.", capsys.readouterr().err
    )


def test_remarks_behind_the_outcome_are_left_out(write, capsys):
    header = ["temp (°C)", "solvent", "yield", "remark"]
    table = [[*row, "hazy" if i == 2 else "dark, filtered" if i % 2 else ""] for i, row in enumerate(rows())]
    assert call(write(table, header=header)) == 0
    assert "remark (texts, blank in some rows)" in capsys.readouterr().err
    table = [[*row, f"{i % 3}"] for i, row in enumerate(rows())]
    assert call(write(table, header=header)) == 2
    assert (
        'add one of: --ignore remark, --parameters "temp (°C)" solvent remark (which it joins)'
        in capsys.readouterr().err
    )


def test_a_minimized_outcome_has_a_scale_of_its_own_sign(write, capsys):
    table = [
        [t, round(float(np.exp(0.15 * t + 0.3 * (i % 3))), 2)] for i, t in enumerate((*range(20, 80, 5), 30, 50, 70))
    ]
    assert main([write(table, header=["temp", "cost"]), "--minimize", "cost"]) == 0
    assert "cost is modeled on a scale of its own (logarithm), on" in capsys.readouterr().err


def test_a_file_of_designs_has_all_columns_of_the_readings(write, capsys, tmp_path):
    table = [
        [f"R{i}", "", f"{t:g} °C".replace(".", ","), s, "dark", str(y).replace(".", ",")]
        for i, (t, s, y) in enumerate(rows())
    ]
    header = ["id", "time ()", "temperature", "solvent", "colour", "yield"]
    path, new = write(table, header=header, separator=";"), tmp_path / "next.csv"
    assert call(path, "-n", "2", "--parameters", "temperature,solvent", "-o", str(new)) == 0
    printed = [row.split(";") for row in capsys.readouterr().out.splitlines()[1:]]
    names, *designs = csv.reader(new.read_text(encoding="utf-8-sig").splitlines(), delimiter=";")
    assert names == header
    assert designs == [["", "", f"{t} °C", s, "", ""] for t, s in printed]
    assert call(write([*table, *designs], header=header, separator=";"), "--parameters", "temperature,solvent") == 0
    assert "16 readings, 2 pending" in capsys.readouterr().err
    for existing in (str(new), path):
        assert call(path, "-o", existing) == 2
        assert capsys.readouterr().err.endswith("exists, and is not written over; name another file behind -o.\n")


def test_a_table_grows_by_files_of_designs(write, capsys, tmp_path):
    """Numbers of rows, second readings and what is the same in all rows are blank in what is added."""
    header = ["No.", "id", "pressure", "temperature", "solvent", "first", "yield"]
    table = [[i + 1, f"R{i}", 5, *row[:2], row[2] + 0.1, row[2]] for i, row in enumerate(rows())]
    for k in range(3):
        new = tmp_path / f"next{k}.csv"
        assert call(write(table, header=header), "-n", "2", "-o", str(new)) == 0
        said = capsys.readouterr().err
        assert "Parameters: temperature (40 to 96, in steps of 0.5), solvent (DMF, water). Left" in said
        assert k == 0 or f"16 readings, {2 * k} pending" in said
        table += list(csv.reader(new.read_text().splitlines()))[1:]
    assert len({tuple(row[3:5]) for row in table[16:]}) == 6


def test_a_fixed_value_is_kept(write, capsys):
    path = write(rows())
    assert call(path, "-n", "3", "--fix", "temperature=80", "--fix", "solvent=water") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["80,water"]  # the only design that is left
    assert call(path, "-n", "3", "--fix", "solvent=DMF") == 0
    out, err = capsys.readouterr()
    assert all(line.endswith(",DMF") for line in out.splitlines()[1:])
    assert "Fixed: solvent = DMF." in err
    for wrong in ("temperature=900", "temperature=80.3", "solvent=toluene"):
        assert call(path, "--fix", wrong) == 2
        assert f"--fix {wrong} is no value of {wrong.split('=')[0]} (" in capsys.readouterr().err


def test_a_target_is_approached(write, tmp_path, capsys):
    table = [[T, s, round(100 + 1.5 * (T - 50) + 30 * s, 1)] for T in range(50, 130, 20) for s in (1, 2, 4)]
    table[2][-1], table[5][-1] = 10 * table[2][-1], ""
    path, output = write(table, header=["T", "s", "size (nm)"]), tmp_path / "next.csv"
    assert main([path, "--target", "size=250", "-n", "3", "-o", str(output)]) == 0
    out, err = capsys.readouterr()
    assert "Minimized: |size (nm) - 250|. Parameters: T (50 to 110, " in err
    assert "Row 4 looks wrong: |size (nm) - 250| = 1950 is " in err
    sizes = [100 + 1.5 * (float(d["T"]) - 50) + 30 * float(d["s"]) for d in csv.DictReader(out.splitlines())]
    assert min(abs(size - 250) for size in sizes) < 10
    (row,) = re.findall(r"Recommended now: row (\d+) \(", err)
    assert abs(table[int(row) - 2][-1] - 250) < 20
    assert output.read_text(encoding="utf-8").splitlines()[0] == "T,s,size (nm)"
