"""Pages of results: their tables come from files, and their figures exist."""

import json
import re

import pytest

from docs.hooks import ROOT
from docs.result_pages import PAGES, RESULTS, columns_table, page, rows

FAMILIES = sorted(PAGES.glob("*.md"))


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_the_tables_of_a_page_have_rows(path):
    assert "{{" not in page(path)


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
