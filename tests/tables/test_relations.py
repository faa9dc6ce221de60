"""Columns that follow from others are printed along with proposals, not varied."""

import csv
from itertools import product

import numpy as np
import pytest

from bo_robust.tables.campaign import Campaign
from bo_robust.tables.cells import TableError
from bo_robust.tables.command import _parser

N = 18
RANDOM = np.random.default_rng(0)
T, LOADING, TIME = (RANDOM.choice(values, N).tolist() for values in (range(50, 125, 5), (0.5, 1, 2, 4), (1, 2, 4, 8)))
SOLVENT = RANDOM.choice(["DMF", "MeCN", "THF", "water"], N).tolist()
CAS = {"DMF": "68-12-2", "MeCN": "75-05-8", "THF": "109-99-9", "water": "7732-18-5"}
SMILES = {"DMF": "CN(C)C=O", "MeCN": "CC#N", "THF": "C1CCOC1", "water": "O"}
RATIO = np.divide(LOADING, TIME).round(4).tolist()
KELVIN = [f"{t + 273.15:.2f}" for t in T]


@pytest.fixture
def read(tmp_path):
    def read(columns, *options):
        path = tmp_path / "results.csv"
        rows = zip(*columns.values(), strict=True)
        readings = np.random.default_rng(1).uniform(0, 100, len(next(iter(columns.values())))).round(1)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([[*columns, "yield"], *([*r, y] for r, y in zip(rows, readings, strict=True))])
        return Campaign(_parser().parse_args([str(path), "--maximize", "yield", *options]))

    return read


@pytest.mark.parametrize(
    ("columns", "name", "reason"),
    [
        ({"T_C": T, "T_K": KELVIN, "time": TIME}, "T_K", "= T_C + 273.15"),
        ({"T": T, "time_h": TIME, "time_min": [60 * t for t in TIME]}, "time_min", "= 60 * time_h"),
        ({"T": T, "l": LOADING, "mg": [round(11.2245 * x, 1) for x in LOADING]}, "mg", "= 11.22 * l"),
        (
            {"T": T, "A": LOADING, "B": TIME, "A/B": RATIO},
            "A/B",
            "= A / B",
        ),
        (
            {"A": LOADING, "B": TIME, "A+B": np.add(LOADING, TIME).tolist(), "T": T},
            "A+B",
            "= A + B",
        ),
        (
            {"A": LOADING, "B": TIME, "min": np.divide(10, np.add(LOADING, TIME)).round(2).tolist(), "T": T},
            *("min", "= 1 / (0.1 * A + 0.1 * B)"),
        ),
        ({"T": T, "1000/T": [round(1e3 / (t + 273), 3) for t in T]}, "1000/T", "= 1 / (0.001 * T + 0.273)"),
        ({"c": T, "log c": np.log10(T).round(2).tolist(), "l": LOADING}, "log c", "= log10(c)"),
        ({"solvent": SOLVENT, "SMILES": [SMILES[s] for s in SOLVENT], "T": T}, "SMILES", "goes with solvent"),
        ({"solvent": SOLVENT, "CAS": [CAS[s] for s in SOLVENT], "T": T}, "CAS", "goes with solvent"),
        ({"boils": [len(s) * 31 for s in SOLVENT], "solvent": SOLVENT, "T": T}, "boils", "goes with solvent"),
    ],
)
def test_a_column_that_follows_is_carried_along(read, columns, name, reason):
    campaign = read(columns)
    assert [c.name for c in campaign.columns] == [other for other in columns if other != name]
    assert f"Left out: {name} ({reason})." in campaign.introduction()[0]
    for row, x in enumerate(campaign.X):  # a row of the table is printed as it stands there
        cell = list(campaign.cells_of(x).values())[-1]
        assert cell == str(columns[name][row]) or float(cell) == columns[name][row]


def test_what_one_row_breaks_is_asked_about_and_answered(read):
    columns = {"T_C": T, "T_K": [*KELVIN[:4], "35.15", *KELVIN[5:]], "time": TIME}
    with pytest.raises(
        TableError, match=r"'T_K' is T_C \+ 273.15 but for row 6, which may be wrong; add one of: --ignore T_K"
    ):
        read(columns)
    assert [c.name for c in read(columns, "--ignore", "T_K").columns] == ["T_C", "time"]
    assert [c.name for c in read(columns, "--bounds", "T_K=300:400").columns] == ["T_K", "time"]


def test_a_column_follows_through_others_that_follow(read):
    mmol = np.round(np.multiply(LOADING, TIME) * 0.37, 3)
    columns = {"A": LOADING, "equiv": TIME, "mmol": mmol.tolist(), "mg": np.round(98.1 * mmol, 1).tolist(), "T": T}
    campaign = read(columns)
    assert list(campaign.left_out) == ["mmol", "mg"]
    assert [*campaign.cells_of([0.5, 2.0, 60.0]).values()] == ["0.5", "2", "60", "0.370", "36.3"]


def test_two_categories_that_always_go_together_are_asked_about(read):
    ligand = ["dppf" if t % 10 else "XPhos" for t in T]
    columns = {
        "ligand": ligand,
        "base": ["K2CO3" if one == "dppf" else "KOtBu" for one in ligand],
        "time": TIME,
        "volume": [(7 * i) % N for i in range(N)],
    }
    with pytest.raises(
        TableError, match=r"'base' goes with ligand in all rows; add one of: --ignore base .* --categorical base"
    ):
        read(columns)
    assert len(read(columns, "--categorical", "base").columns) == 4
    columns = {"ligand": ligand, "ligand_CAS": columns["base"], "volume": columns["volume"]}
    assert [c.name for c in read(columns).columns] == ["ligand", "volume"]  # two names of one thing


def test_codes_of_factors_follow_from_their_levels(read):
    codes = np.array([*product([-1, 0, 1], repeat=2), (0, 0)])
    columns = {"x1": codes[:, 0], "x2": codes[:, 1], "T": 70 + 10 * codes[:, 0], "flow": (4 + codes[:, 1]) / 2}
    campaign = read(columns)
    assert campaign.cells_of([73.0, 1.8]) == {"T": "73", "flow": "1.8", "x1": "0.3", "x2": "-0.4"}
    assert list(read(columns, "--bounds", "x1=-1:1").left_out) == ["x2", "T"]
    few = {name: column[1:8] for name, column in columns.items()}
    with pytest.raises(TableError, match=r"'x1' is 0.1 \* T - 7 in all rows; add one of: --ignore x1"):
        read(few)
    assert list(read(few, "--bounds", "x1=-1:1", "--ignore", "x2").left_out) == ["x2", "T"]


def test_a_quotient_has_digits_of_its_own(read):
    columns = {
        "volume": LOADING,
        "flow": TIME,
        "minutes": [round(v / f, 1) for v, f in zip(LOADING, TIME, strict=True)],
    }
    campaign = read(columns | {"T": T})
    assert campaign.cells_of([0.5, 7.0, 60.0])["minutes"] == "0.0714"


F = np.array(list(product([-1, 1], repeat=3)))
STARS = np.vstack([F, 1.7 * np.eye(3), -1.7 * np.eye(3), np.zeros((3, 3))])
DESIGNS = {
    "half a factorial": np.column_stack([F, F.prod(1)]),
    "2^(7-4)": np.column_stack([F, F[:, 0] * F[:, 1], F[:, 0] * F[:, 2], F[:, 1] * F[:, 2], F.prod(1)]),
    "half, in units": np.column_stack([F[:, 0] * 10 + 70, F[:, 1] + 3, F[:, 2] * 0.5 + 1, F.prod(1) + 2]),
    "central composite": STARS,
    "central composite, in units": (STARS * [10, 1, 0.5] + [70, 4, 2]).round(2),
    "L9": np.array([(a, b, (a + b) % 3, (a + 2 * b) % 3) for a, b in product(range(3), range(3))]) * 5 + 20,
    "one at a time": np.array([(60, 4, 1), (70, 4, 1), (80, 4, 1), (90, 4, 1), (80, 1, 1), (80, 2, 1), (80, 4, 2)]),
    "six at random": np.random.default_rng(2).integers(0, 10, (6, 4)) * 5,
    "eight at random": np.random.default_rng(3).uniform(0, 1, (8, 5)).round(2),
    "plots of four": np.column_stack([np.repeat(np.random.default_rng(4).permutation(80)[:16].reshape(8, 2), 4, 0)]),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_nothing_follows_in_a_design(read, name):
    design = DESIGNS[name]
    campaign = read({f"x{i}": column.tolist() for i, column in enumerate(design.T)})
    assert len(campaign.columns) == design.shape[1]
    assert not campaign.left_out


def test_a_mixture_stays_one(read):
    A, B = (np.random.default_rng(5).integers(0, 10, (2, 12)) * 5).tolist()
    campaign = read({"A": A, "B": B, "C": [100 - a - b for a, b in zip(A, B, strict=True)], "T": T[:12]})
    assert len(campaign.columns) == 4
    assert campaign.mixture == ["A + B + C = 100 in every row, and so in proposals."]


def test_a_row_that_breaks_the_sum_of_a_mixture_is_asked_about(read):
    A, B = (np.random.default_rng(5).integers(0, 10, (2, 12)) * 5).tolist()
    columns = {"A": A, "B": B, "C": [100 - a - b for a, b in zip(A, B, strict=True)]}
    columns["C"][6] += 20
    with pytest.raises(
        TableError, match=r"A \+ B \+ C = 100 but for row 8 \(120\), which may be wrong; add one of: --sum A,B,C"
    ):
        read(columns)
    assert read(columns, "--sum", "A,B,C=100").keeps_limits.tolist() == [row != 6 for row in range(12)]
    assert read(columns, "--sum", "none").equalities == []
