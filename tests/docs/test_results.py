"""Pages of results: their tables come from files, their figures exist, and numbers of the README stand in files."""

import json
import re

import pytest

from docs.hooks import ROOT
from docs.result_pages import PAGES, RESULTS, columns_table, page, rows

README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
HEAVY_TAILS = " ".join((ROOT / "docs" / "pages" / "heavy_tails.md").read_text(encoding="utf-8").split())
FAMILIES = sorted(PAGES.glob("*.md"))


def words(text):
    return len([word for word in text.split() if re.search(r"\w", word)])


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_page_is_short_and_its_tables_have_rows(path):
    text = page(path)
    assert "{{" not in text
    assert words(text) <= 600 or path.name == "papers.md"  # which a command writes


def test_pages_link_to_files_that_exist_and_every_figure_is_shown():
    shown = [*FAMILIES, *(ROOT / "docs" / "pages").glob("*.md"), ROOT / "README.md"]
    text = "".join(path.read_text(encoding="utf-8") for path in shown)
    linked = set(re.findall(r"benchmarks/results/([^)\s]+)\)", text))
    files = {path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*") if path.is_file()}
    assert linked - files == set()
    assert {file for file in files if file.endswith(".png")} - linked == set()


def test_the_data_are_small_and_say_where_they_come_from():
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) <= 1_000_000
    for path in RESULTS.rglob("*.jsonl"):
        if path.name != "cells.jsonl":  # of which every line has it
            about, found = rows(path.relative_to(RESULTS).as_posix())
            assert {"command", "date", "processor", "git", "versions"} <= set(about), path
            assert found, path
    for path in RESULTS.rglob("*.json"):
        assert "command" in json.loads(path.read_text(encoding="utf-8"))["environment"], path


def test_a_column_that_no_row_has_is_refused():
    with pytest.raises(ValueError, match="nobody"):
        columns_table("robustness/report.jsonl", "RobustGP against SingleTaskGP = a, nobody = b")


@pytest.mark.parametrize(
    ("regime", "method", "said", "text"),
    [
        ("10%", "RobustGP", "ends with {:.0f} times less regret", README),
        ("10%", "RobustGP", "ends with {:.0f} times less regret", HEAVY_TAILS),
        ("10%", "Winsorised", "Winsorised readings have {:.1f} times less", HEAVY_TAILS),
        ("10%", "known", "knowing the wrong readings {:.0f} times less", HEAVY_TAILS),
        ("30%", "RobustGP", "in ten wrong it has {:.0f} times less", HEAVY_TAILS),
        ("30%", "known", "knowing them {:.0f} times", HEAVY_TAILS),
    ],
)
def test_what_is_said_of_the_loop_stands_in_the_report(regime, method, said, text):
    row = rows("robustness/report.jsonl")[1][f"{regime} 10sd either: {method} against SingleTaskGP"]
    assert said.format(10 ** -row["value"]) in text


def test_what_is_said_of_other_families_stands_in_their_files():
    tuning = rows("value_at_risk/fine_tuning.jsonl")[1]
    text = " ".join((ROOT / "docs" / "pages" / "value_at_risk.md").read_text(encoding="utf-8").split())
    assert f"accuracy of {tuning['held-out worst 10 %: value at risk']['value']:.3f} in the worst 10 %" in text
    ratios = rows("unknown_hyperparameters/elimination.jsonl")[1]
    better = [row["value"] for name, row in ratios.items() if "likelihood over MLE" in name and row["value"] <= 0.7]
    assert f"in {len(better)} of [20 settings]" in README
    arms = rows("many_rounds_and_arms/arms.jsonl")[1]
    text = (ROOT / "docs" / "pages" / "many_rounds_and_arms.md").read_text(encoding="utf-8")
    assert f"`MiniGPUCB` takes {arms['mini-GP-UCB: n=100000']['value']:.2f} ms" in text
