"""Every benchmark is a suite of ``benchmarks.all``, and what it prints is read from among other lines."""

import importlib
import json

import torch

from benchmarks import width_rule
from benchmarks.all import SMALL, rows_of
from benchmarks.common import ROOT
from bo_robust.experiments.build import build_algorithm, build_problem
from bo_robust.experiments.errors import RunError


def test_every_benchmark_can_be_imported_and_is_a_suite():
    files = [path for path in (ROOT / "benchmarks").glob("*.py") if "def main()" in path.read_text()]
    folders = [path.parent for path in (ROOT / "benchmarks").glob("*/__main__.py")]
    assert {path.stem for path in (*files, *folders)} - {"all", "mutants"} == set(SMALL)
    for suite in SMALL:
        importlib.import_module(f"benchmarks.{suite}")


def test_every_panel_of_the_width_rule_can_be_built():
    """It could not start once configurations of other suites had been added."""
    built = 0
    for panel in width_rule.panels(2, 50):
        try:
            problem = build_problem(panel, range(1), None, torch.device("cpu"))
        except RunError as error:
            if "needs the data file" not in str(error):
                raise
            continue
        assert len([build_algorithm(entry, panel, problem) for entry in panel.methods]) == len(width_rule.CANDIDATES)
        built += 1
    assert built >= 8


def test_rows_among_other_lines():
    row = {"name": "x", "value": 1.0, "unit": "s", "target": None, "met": None, "detail": {}}
    environment = {**row, "name": "environment"}
    lines = ["no row", json.dumps({"environment": {}}), json.dumps(row), "3", json.dumps(environment)]
    assert rows_of("\n".join(lines)) == [row]
