"""The pages: every block of Python runs, every figure of the site is there, and the site builds without a warning."""

import os
import re
import subprocess
import sys
import types

import pytest
import torch

from docs.hooks import ROOT, cells, home

PAGES = ROOT / "docs" / "pages"
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", flags=re.M | re.S)


def blocks(page):
    """Python of a page, in order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return ["\n".join(line.removeprefix(indent) for line in code.split("\n")) for indent, code in BLOCK.findall(text)]


FEWER = {  # rounds than a page has, where all of them take longer than a few seconds
    "ax_and_optuna.md": [("range(12)", "range(7)"), ("range(8)", "range(6)"), ("n_trials=10", "n_trials=3")],
    "heavy_tails.md": [("range(10)", "range(4)")],
    "truncation.md": [("range(25)", "range(2)"), ("range(500)", "range(20)")],
    "unknown_hyperparameters.md": [("range(25)", "range(2)"), ("range(60)", "range(4)")],
    "value_at_risk.md": [("range(10)", "range(2)")],
}
WITH_CODE = sorted(page.name for page in PAGES.glob("*.md") if blocks(page.name))


def run(page, monkeypatch, tmp_path, fewer=()):
    """Execute the blocks of a page one after the other, and return the names they define.

    Args:
        page: Its file.
        monkeypatch: The fixture.
        tmp_path: Working directory of the blocks.
        fewer: Pairs of texts: the second takes the place of the first, such as a smaller number of rounds.
    """
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict = {"__name__": "a_page"}
    monkeypatch.setitem(sys.modules, "a_page", types.ModuleType("a_page"))  # dataclasses look their module up
    code = blocks(page)
    for old, new in fewer:
        assert any(old in block for block in code), f"{page} has no {old}: change FEWER"
        code = [block.replace(old, new) for block in code]
    for i, block in enumerate(code):
        for needed in re.findall(r"bo_robust\.integrations\.(\w+)", block):
            pytest.importorskip(needed)
        exec(compile(block, f"{page}, block {i}", "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_CODE)
@pytest.mark.slow
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    assert run(page, monkeypatch, tmp_path, FEWER.get(page, ()))


def heavy_tails(names, printed):
    assert "of 17 readings are flagged as outliers" in printed
    assert names["batch"].shape == (4, 2)


def truncation(names, printed):
    assert abs(float(names["best"]) - 0.7) < 0.15
    assert float(torch.sin(6 * names["recommended"]).sum()) > 1.7  # of at most 2
    grid = torch.rand(500, 2, dtype=torch.float64)
    error = names["model"].posterior(grid).mean - torch.sin(6 * grid).sum(1, keepdim=True)
    assert float(error.abs().mean()) < 0.3  # of a standard deviation of 1
    assert float(names["regret"]) < 0.2  # of a range of 2; random arms lose 0.9
    assert names["found"].alpha < 1.0  # the variance is infinite


def unknown_hyperparameters(names, printed):
    active = names["tested"].active
    assert not active.all()
    assert active[:2].any()  # rbf, 0.2 or 0.4: f is a product of a sine of period 0.8 and a line
    assert names["best"].shape == (2,)
    assert names["f"].max() - names["f"][names["recommended"]].mean() < 0.1  # of a range of 2


def ax_and_optuna(names, printed):
    assert abs(names["x"]["x"] - 0.4) < 0.3  # of [0, 1]; the worst condition, z = 1, asks for x = 0.15
    assert names["value_at_risk"] < 0.0
    assert names["best"].value < 0.2  # 0 at (0.03, 2); one layer off costs 0.1
    assert sum(names["study"].sampler.recommend(names["study"]).x.values()) < 1.1  # the constraint


def value_at_risk(names, printed):
    assert 0.0 < float(names["found"].x) < 1.0
    assert 3 in (~names["model"].inlier_mask).nonzero().flatten().tolist()
    assert abs(float(names["best"])) < 3.0  # of rewards in [-1, 1.2]


def many_rounds_and_arms(names, printed):
    assert names["state"].round == 30
    assert torch.equal(names["best"], names["X"][torch.sin(5 * names["X"]).sum(1).argmax()])
    assert not names["inlier"][::20].any()
    assert int(names["inlier"].sum()) >= 560  # of 570
    best = float(torch.sin(5 * names["arms"]).sum(1).max())
    assert best - float(torch.sin(5 * names["choice"].location).sum()) < 1.0  # of a range of 4


def gp_ucb(names, printed):
    assert names["bound"].shape == (100,)
    assert bool((names["bound"] > 0).all())
    assert len(names["X"]) == 16


SAYS = [heavy_tails, truncation, unknown_hyperparameters, ax_and_optuna, value_at_risk, many_rounds_and_arms, gp_ucb]
CHECKS = {f"{check.__name__}.md": check for check in SAYS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_does_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    names = run(page, monkeypatch, tmp_path)
    CHECKS.get(page, lambda names, printed: None)(names, capsys.readouterr().out)


MAP = (PAGES / "contributing.md").read_text(encoding="utf-8").split("| to change | look in |\n| --- | --- |\n")[1]


@pytest.mark.parametrize("row", MAP.split("\n\n")[0].splitlines(), ids=lambda row: row.split("|")[1].strip()[:50])
def test_the_map_names_what_is_there(row):
    """Every file that a row names exists, and every name of the package that stands in the row is in one of them."""
    words = re.findall(r"`([^`]+)`", row.split("|", 2)[2])
    files = [path for word in words if re.search(r"\.py$|/$", word) for path in named(word)]
    assert files
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    names = [word.rstrip("=") for word in words if re.fullmatch(r"\w+=?", word)]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def named(word):
    """Files that a path of the map means; it may begin anywhere below ``bo_robust``, and at ``benchmarks``."""
    if word.startswith("benchmarks/"):
        word = word.removesuffix("/")
        assert (ROOT / word).exists(), word
        return [ROOT / word] if word.endswith(".py") else [*(ROOT / word).glob("*.py")]
    word = word.removeprefix("bo_robust/")
    pattern = f"{word}**/*.py" if word.endswith("/") else word
    found = [*(ROOT / "bo_robust").glob(pattern)] or [*(ROOT / "bo_robust").rglob(pattern)]
    assert found, word
    return found


def test_the_files_that_pages_include_exist():
    included = [name for page in PAGES.glob("*.md") for name in re.findall(r'^--8<-- "(.+)"$', page.read_text(), re.M)]
    assert "configs/quickstart.py" in included
    assert [name for name in included if not (ROOT / name).is_file()] == []


def test_links_of_the_readme_lead_to_the_site():
    assert home("[a](docs/pages/gp_ucb.md#a-loop), [b](CHANGELOG.md)") == "[a](gp_ucb.md#a-loop), [b](changelog.md)"
    assert home("[c](docs/results/speed.md)") == "[c](results/speed.md)"
    assert home("![p](benchmarks/results/x.png) [t](docs/tutorials/o.py)") == "![p](results/x.png) [t](tutorials/o.md)"
    assert home("[MIT](LICENSE), [torch](https://pytorch.org)") == "MIT, [torch](https://pytorch.org)"


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


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/mkdocs.yml", "-d", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    page = (site / "results" / "heavy_tails.html").read_text(encoding="utf-8")
    assert 'src="robustness/regret.png"' in page
    assert "<td>10% 10sd either</td>" in page
    assert 'src="results/robustness/regret.png"' in (site / "heavy_tails.html").read_text(encoding="utf-8")
    assert (site / "results" / "robustness" / "regret.png").is_file()
    assert 'id="bo_robust.models.TruncatedGP"' in (site / "reference" / "models.html").read_text(encoding="utf-8")
    assert "a million arms" in (site / "tutorials" / "million_arms.html").read_text(encoding="utf-8").lower()
    assert "configs/quickstart.py" in (site / "experiments.html").read_text(encoding="utf-8")
    foreign = re.compile(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?|png|svg))"')
    assert [found for p in site.rglob("*.html") for found in foreign.findall(p.read_text(encoding="utf-8"))] == []
