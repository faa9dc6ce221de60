"""The pages: every block of Python runs, every figure of the site is there, and the site builds without a warning."""

import os
import re
import subprocess
import sys
import types

import pytest
import yaml

from docs.hooks import MARKER, RESULTS, ROOT, cells, command_reference

PAGES = ROOT / "docs" / "pages"
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", flags=re.M | re.S)
FAMILIES = ("gp_ucb", "heavy_tails", "value_at_risk", "unknown_hyperparameters", "many_rounds_and_arms")


def blocks(page):
    """Python of a page, in order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return ["\n".join(line.removeprefix(indent) for line in code.split("\n")) for indent, code in BLOCK.findall(text)]


WITH_CODE = sorted(page.name for page in PAGES.glob("*.md") if blocks(page.name))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "a_page"}
    monkeypatch.setitem(sys.modules, "a_page", types.ModuleType("a_page"))  # dataclasses look their module up
    for i, code in enumerate(blocks(page)):
        for needed in re.findall(r"bo_robust\.integrations\.(\w+)", code):
            pytest.importorskip(needed)
        exec(compile(code, f"{page}, block {i}", "exec"), names)
    if page == "heavy_tails.md":
        assert abs(float(names["best"]) - 0.7) < 0.15
    if page == "value_at_risk.md":
        assert 0.0 < float(names["found"].x) < 1.0
    if page == "many_rounds_and_arms.md":
        assert names["state"].round == 30
        assert names["mean"].shape == (7, 1, 1)
    if page == "gp_ucb.md":
        assert names["bound"].shape == (100,)
        assert bool((names["bound"] > 0).all())
        assert len(names["X"]) == 16


def test_every_family_has_its_parts():
    for family in FAMILIES:
        text = (PAGES / f"{family}.md").read_text(encoding="utf-8")
        for part in (
            "## When to use",
            "## A loop",
            "## How to set its constants",
            "## What reproduced",
            "## Source",
            "![",
        ):
            assert part in text, (family, part)
        loop = blocks(f"{family}.md")[0].splitlines()
        assert len([line for line in loop if line and not line.startswith(("import", "from"))]) <= 15, family


def test_the_pictures_and_numbers_linked_to_exist():
    links = [
        (page.name, link)
        for page in PAGES.glob("*.md")
        for link in re.findall(r"\]\(\.\./\.\./benchmarks/results/([^)]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 40
    assert [(page, link) for page, link in links if not (RESULTS / link).is_file()] == []


def test_the_commands_are_those_of_the_program():
    assert MARKER in (PAGES / "command_line.md").read_text(encoding="utf-8")
    text = command_reference()
    for command in ("run", "resume", "plot", "list"):
        assert f"## bo-robust {command}\n" in text
    assert "| `--trials` | Trials (repetitions) of every panel. |" in text


def test_cells_of_a_script():
    prose, code = cells("# %% [markdown]\n# # Title\n#\n# text\n\n# %%\nx = 1  # %% no marker\n")
    assert prose == ("prose", "# Title\n\ntext")
    assert code == ("code", "x = 1  # %% no marker")


def test_roles_become_links():
    pytest.importorskip("griffe")
    from docs.roles import linked

    assert linked("see :class:`~bo_robust.GPUCB`") == (
        'see <autoref identifier="bo_robust.GPUCB" optional><code>GPUCB</code></autoref>'
    )
    assert linked("as :class:`.bkb.BKB`") == "as `BKB`"


def test_the_citation_file_names_every_method():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= citation.keys()
    papers = " ".join(reference["title"] for reference in citation["references"])
    for word in (
        "No Regret and Experimental Design",
        "Heavy-tailed",
        "Value-at-Risk",
        "Beyond Lengthscales",
        "Sketching",
    ):
        assert word in papers
    assert all(reference["authors"] and reference["year"] for reference in citation["references"])


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(ROOT / "docs" / "mkdocs.yml"),
        "-d",
        str(site),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    page = (site / "heavy_tails.html").read_text(encoding="utf-8")
    assert 'src="results/curves/heavy_tails_where_it_matters_regret.png"' in page
    assert (site / "results" / "curves" / "heavy_tails_where_it_matters_regret.png").is_file()
    assert 'id="bo_robust.models.TruncatedGP"' in (site / "reference" / "models.html").read_text(encoding="utf-8")
    assert "a million arms" in (site / "tutorials" / "million_arms.html").read_text(encoding="utf-8").lower()
    assert "bo-robust resume" in (site / "command_line.html").read_text(encoding="utf-8")
    foreign = re.compile(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?|png|svg))"')
    assert [found for p in site.rglob("*.html") for found in foreign.findall(p.read_text(encoding="utf-8"))] == []
