"""The page of a run: whole, escaped, self-contained, its numbers those of summary.json, readable in a browser."""

import base64
import itertools
import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

from bo_robust.experiments import cli, report
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.problems import make_conditions_problem as make
from bo_robust.experiments.problems.conditions import value_at_risk
from bo_robust.experiments.report import write_report
from bo_robust.experiments.report.pictures import curves_picture, legend, plain_log, plt
from bo_robust.experiments.store import ShardKey, write_run
from bo_robust.experiments.summary import elimination_line
from bo_robust.experiments.tables import COLUMNS, Column, closing_lines

TAG = "<img src=x>"
SCRIPT, AMPERSAND = "<script>alert(1)</script>", "A & B"
ARMS = {
    "name": "<i>run & co",
    "description": 'Says "2 < 3".',
    "trials": 3,
    "horizon": 30,
    "panels": [
        {
            "name": "<b>t</b>(3)",
            "problem": {"kind": "rkhs_function", "num_arms": 40, "noise": {"kind": "student_t", "df": 3}},
            "methods": [
                {"name": "gp-ucb", "label": SCRIPT},
                {"name": "tgp-ucb", "label": AMPERSAND, "truncation": {"kind": "tgp", "moment_bound": 1.0}},
                {"name": "bkb", "label": "BKB", "oversampling": 5.0},
                {"name": "random", "label": "$_x"},
            ],
            "compare": [[AMPERSAND, SCRIPT]],
            "intervals": True,
        },
        {
            "name": "unknown",
            "problem": {"kind": "unknown_period", "num_arms": 40},
            "methods": [
                {"name": "he-gp-ucb", "label": "HE", "width": {"kind": "self_normalised", "norm_bound": 0.3}},
                {"name": "random"},
            ],
        },
    ],
}
ROBUST = {
    "loop": "conditions",
    "name": "robust",
    "trials": 2,
    "horizon": 2,
    "methods": [
        {"name": "v-ucb", "label": SCRIPT, "restarts": 2, "raw_samples": 16},
        {"name": "random", "label": AMPERSAND},
    ],
    "compare": [[SCRIPT, AMPERSAND]],
    "panels": [{"name": "<b>Branin</b>", "problem": {"kind": "branin"}}],
}
BAD_TAGS = {"script", "link", "iframe", "object", "embed", "base", "form", "image", "foreignobject"}
PICTURE = "data:image/svg+xml;base64,"
VOID = {"meta", "br", "hr", "link", "img"}


class Page(HTMLParser):
    """What a page holds, its nesting checked: tags with attributes, ids, tables by caption, headings, all text."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open, self.tags, self.tables, self.headings, self.text = [], [], {}, [], ""
        self.rows, self.caption = None, ""
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows, self.caption = [], ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif re.fullmatch(r"h[1-6]", tag):
            self.headings.append([int(tag[1]), ""])

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "table":
            assert self.caption not in self.tables
            self.tables[self.caption] = self.rows

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if "caption" in self.open:
            self.caption += data
        elif {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data
        elif self.open and re.fullmatch(r"h[1-6]", self.open[-1]):
            self.headings[-1][1] += data

    def of(self, tag):
        return [attributes for name, attributes, _ in self.tags if name == tag]


def copy(folder, to):
    return shutil.copytree(folder, to / "copy", ignore=lambda *_: ["report.html"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("html") / "arms"
    runs.start(parse(ARMS), folder)
    assert write_report(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def robust(tmp_path_factory):
    folder = tmp_path_factory.mktemp("html") / "robust"
    runs.start(parse(ROBUST), folder)
    write_report(folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return copy(finished, tmp_path)


@pytest.fixture(params=["finished", "robust"])
def folder(request):
    return request.getfixturevalue(request.param)


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_panels_labels_and_sections_are_there_and_escaped(finished):
    page = Page(finished / "report.html")
    assert {SCRIPT, AMPERSAND, "$_x", "<b>t</b>(3)", "<i>run & co"} <= {*re.split(r"\n+", page.text)}
    assert 'Says "2 < 3".' in page.text
    titles = [title for _, title in page.headings]
    assert titles[0] == "<i>run & co"
    assert [title for level, title in page.headings if level == 2] == [
        "What was found",
        "<b>t</b>(3)",
        "unknown",
        "Provenance",
    ]
    assert [title for level, title in page.headings if level == 3] == 2 * ["Results", "Settings"]
    told = [picture["alt"].split(" of ")[0].split(" eliminated")[0] for picture in page.of("img")]
    regrets = ["average regret", "simple regret", "coverage"]
    more = ["truncated rewards", "dictionary size (solid), effective dimension (dashed)"]
    assert [alt for alt in told if not alt.startswith("Final interval")] == [
        *(*regrets, *more),
        *(*regrets, "Rounds in which HE"),
    ]
    assert len(told) == 9 + 4  # with the final intervals of the first panel's methods
    rows = page.tables["<b>t</b>(3): settings"]
    assert "tgp(moment_bound=1, alpha=1, scale=1)" in rows[2][2]
    info = json.loads((finished / "run.json").read_text())
    for value in (info["git"] or "-", info["fingerprint"]["torch"], info["started"], info["platform"]):
        assert value in page.text


def test_numbers_are_those_of_the_summary(finished):
    page = Page(finished / "report.html")
    for panel in summary_of(finished)["panels"]:
        rows = page.tables[f"{panel['name']}: results"]
        for row, (label, entry) in zip(rows[1:], panel["methods"].items(), strict=True):
            assert row[0].removesuffix(" lowest") == label
            assert ("lowest" in row[0]) == (label == panel["best"])
            assert row[1:] == [column.text(entry) for column in COLUMNS["arms"]]
            mean, error = entry["average_regret"]
            assert row[1] == f"{mean:.3g} ± {error:.2g}"


def test_closing_words_and_warnings_are_those_of_the_terminal(finished):
    page = Page(finished / "report.html")
    summary = summary_of(finished)
    lines = closing_lines(summary) + [line for panel in summary["panels"] for line in panel["warnings"]]
    assert len(lines) > 4
    assert all(line.strip() in page.text for line in lines)


def test_nothing_comes_from_elsewhere(folder):
    page = Page(folder / "report.html")
    assert not re.search(r"https?:|//[a-z]|@import|javascript:|url\(", re.sub('src="data:[^"]*"', "", page.source))
    assert not {tag for tag, _, _ in page.tags} & BAD_TAGS
    ids = [attributes["id"] for _, attributes, _ in page.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    for tag, attributes, _ in page.tags:
        assert not [key for key in attributes if key.startswith("on")]
        assert ("src" in attributes) == (tag == "img")
        assert attributes.get("src", PICTURE).startswith(PICTURE)
        assert "href" not in attributes or attributes["href"].removeprefix("#") in ids


def test_pictures_and_tables_are_described(folder):
    page = Page(folder / "report.html")
    pictures = page.of("img")
    assert len(pictures) >= 2
    for attributes in pictures:
        assert len(attributes["alt"]) > 30
        assert ElementTree.fromstring(base64.b64decode(attributes["src"].removeprefix(PICTURE))).tag.endswith("svg")
    assert len(page.of("figure")) == len(page.of("figcaption"))
    assert len(page.of("table")) == len(page.of("caption"))
    assert all("scope" in attributes for attributes in page.of("th"))
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.of("html")[0]["lang"] == "en"


def test_a_phone_shows_every_number_below_its_title(finished):
    """At 400 px the edge of the screen cut .0082 into .008."""
    page = Page(finished / "report.html")
    titles = {title for rows in page.tables.values() for title in rows[0][1:]}
    assert {attributes["data-title"] for attributes in page.of("td")} == titles
    assert "td::before { content: attr(data-title)" in page.source.split("max-width: 40rem")[1]


@pytest.mark.parametrize("largest", [1.3, 2.0, 6.0, 40.0, 1e4, 1e9])
def test_labels_of_a_logarithmic_axis_do_not_overlap(largest):
    figure, axis = plt.subplots(figsize=(4.6, 3.1), layout="constrained")
    axis.plot([1.0, largest], [0.0, 1.0])
    axis.set_xscale("log")
    plain_log(axis.xaxis)
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    labels = [
        tick for tick in axis.get_xticklabels(which="both") if tick.get_text() and low <= tick.get_position()[0] <= high
    ]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    plt.close(figure)
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_pictures_say_how_many_rewards_were_truncated_and_how_large_dictionaries_are(finished):
    told = [picture["alt"] for picture in Page(finished / "report.html").of("img")]
    traces = pd.read_parquet(finished / "traces.parquet")
    truncated = traces[traces["panel"] == "<b>t</b>(3)"].groupby("method", observed=True)["truncated"].sum() / 3
    assert truncated[AMPERSAND] > 1.0
    assert (
        f"truncated rewards of <b>t</b>(3) against the round. At the end: {AMPERSAND} {truncated[AMPERSAND]:.3g}."
        in told
    )
    last = traces[(traces["method"] == "BKB") & (traces["round"] == 30)]["dictionary_size"].mean()
    assert any(words.startswith("dictionary size") and words.endswith(f"BKB {last:.3g}.") for words in told)
    (record,) = (
        one["eliminations"] for one in summary_of(finished)["panels"][1]["methods"].values() if one["eliminations"]
    )
    assert record["eliminations"]
    assert any(words.endswith(elimination_line(record)) for words in told)


def test_value_at_risk_page(robust):
    page = Page(robust / "report.html")
    (panel,) = summary_of(robust)["panels"]
    rows = page.tables["<b>Branin</b>: results"][1:]
    for row, (label, entry) in zip(rows, panel["methods"].items(), strict=True):
        assert row[0].removesuffix(" lowest") == label
        assert row[1:] == [column.text(entry) for column in COLUMNS["conditions"]]
        assert row[2] == f"{entry['median_regret']:.3g}"
    assert all(line.strip() in page.text for line in closing_lines(summary_of(robust)))


def test_recommended_designs_are_those_of_the_median_trials(robust):
    page = Page(robust / "report.html")
    rows = page.tables["<b>Branin</b>: recommended designs"][1:]
    assert [row[0] for row in rows] == [SCRIPT, AMPERSAND, "best design found"]
    traces, problem = pd.read_parquet(robust / "traces.parquet"), make("branin")
    last = traces[(traces["round"] == 2) & (traces["method"] == SCRIPT)].sort_values("regret").iloc[0]
    x = torch.tensor([[float(v) for v in last["recommended"]]], dtype=torch.float64)
    f = problem.f(torch.cat([x.expand(len(problem.points), -1), problem.points], -1))
    numbers = [value_at_risk(problem, x), (f * problem.probabilities).sum(), f.min(), f.max()]
    assert rows[0][1:3] == [str(last["trial"]), f"({float(x):.4g})"]
    assert rows[0][3:] == [f"{float(v):.4g}" for v in numbers]
    (panel,) = summary_of(robust)["panels"]
    assert rows[2][3] == f"{panel['optimum']['value']:.4g}"


def test_unfinished_runs_say_what_is_missing(copied):
    ShardKey(0, 0, 0, 3).path(copied).unlink()
    page = Page(write_report(copied))
    assert f"<b>t</b>(3): {SCRIPT}" in page.text
    assert f"bo-robust resume {copied}" in page.text
    rows = page.tables["<b>t</b>(3): results"][1:]
    entries = summary_of(copied)["panels"][0]["methods"]
    assert [row[1].split()[0] for row in rows] == [
        f"{entries[row[0].removesuffix(' lowest')]['average_regret'][0]:.3g}" for row in rows
    ]
    assert len(rows) == 3
    shutil.rmtree(copied / "shards")
    page = Page(write_report(copied))
    assert page.tables == {}
    assert "unknown: all of it" in page.text
    assert "Provenance" in page.text


def test_unfinished_value_at_risk_runs(robust, tmp_path):
    folder = copy(robust, tmp_path)
    ShardKey(0, 1, 1, 2).path(folder).unlink()
    page = Page(write_report(folder))
    assert f"<b>Branin</b>: {AMPERSAND}, 1 of 2 trials" in page.text
    assert f"1 more trials of {SCRIPT} are played, and left out" in page.text
    assert "1 trials x 2 rounds" in page.text
    one = summary_of(robust)["panels"][0]["methods"][SCRIPT]["final"][0]
    assert page.tables["<b>Branin</b>: results"][1][1] == f"{one:.2f}"
    ShardKey(0, 1, 0, 1).path(folder).unlink()
    page = Page(write_report(folder))
    assert len(page.tables["<b>Branin</b>: results"]) == 2


def _with_html(value):
    """The same data with a tag in every text."""
    if isinstance(value, dict):
        return {key: _with_html(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_html(one) for one in value]
    return f"{value}{TAG}" if isinstance(value, str) else value


def test_no_text_of_a_folder_is_markup(copied):
    path = copied / "run.json"
    info = json.loads(path.read_text())
    kept = {key: info[key] for key in ("config", "config_digest")}
    used = _with_html(info["used"])
    for panel in used.values():
        for one in panel["methods"].values():
            if "truncation" in one:
                one["truncation"]["kind"] = one["truncation"]["kind"].removesuffix(TAG)
    resumed = {"when": TAG, "fingerprint": {"torch": TAG}, "from_round": {TAG: 3}}
    write_run({**_with_html(info), **kept, "used": used, "resumed": [resumed]}, copied)
    page = Page(write_report(copied))
    assert all(attributes["src"].startswith(PICTURE) for attributes in page.of("img"))
    for key in ("git", "platform", "started", "device"):
        assert f"{info[key] or '-'}{TAG if info[key] else ''}" in page.text
    assert f"TGPUCB{TAG}" in page.text
    assert "resumed elsewhere" in page.text


def test_nothing_is_marked_as_safe():
    folder = Path(report.__file__).parent
    safe = re.compile(r"\|\s*safe|autoescape|Markup|tojson")
    files = {
        path.name for path in folder.rglob("*.*") if path.suffix in (".py", ".j2") and safe.search(path.read_text())
    }
    assert files == {"page.py"}
    assert "autoescape=True" in (folder / "page.py").read_text()


def test_templates_and_configurations_are_packaged(tmp_path):
    folder = Path(report.__file__).parent
    root = folder.parents[2]
    names = {path.relative_to(root).as_posix() for path in folder.rglob("*.j2")}
    assert names
    names |= {f"bo_robust/{path.relative_to(root).as_posix()}" for path in (root / "configs").rglob("*.yaml")}
    with open(root / "pyproject.toml", "rb") as file:
        targets = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]
    assert "bo_robust" in targets["wheel"]["packages"]
    assert targets["wheel"]["force-include"] == {"configs": "bo_robust/configs"}
    assert "/bo_robust" in targets["sdist"]["include"]
    assert all("exclude" not in target and "only-include" not in target for target in targets.values())
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (wheel,) = wheels.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    assert names <= {*zipfile.ZipFile(wheel).namelist()}


def test_a_column_of_the_results_is_declared_once(copied, monkeypatch):
    column = Column("rounds cubed", lambda entry: "two and a half")
    monkeypatch.setitem(COLUMNS, "arms", [*COLUMNS["arms"], column])
    head, *rows = Page(write_report(copied)).tables["unknown: results"]
    assert head[-1] == "rounds cubed"
    assert [row[-1] for row in rows] == ["two and a half"] * 2


def test_a_picture_says_in_words_what_it_shows():
    looks = {label: {"color": colour, "linestyle": "-"} for label, colour in ((SCRIPT, "C0"), ("b", "C1"))}
    curves = {SCRIPT: np.array([1.0, 3.0]), "b": np.array([5.0, 2.0])}
    shown = curves_picture("regret", "a panel", curves, looks, "")
    assert shown.description == f"regret of a panel against the round. At the end: b 2, {SCRIPT} 3."
    assert legend(looks) == [(SCRIPT, "#1f77b4", "solid"), ("b", "#ff7f0e", "solid")]


def test_command_and_same_page_twice(finished, capsys):
    path = finished / "report.html"
    before = path.read_bytes()
    cli.app(["report", str(finished)], standalone_mode=False)
    assert str(path) in capsys.readouterr().out
    assert path.read_bytes() == before


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_real_browser_shows_it(finished, tmp_path):
    path, shot = finished / "report.html", tmp_path / "shot.png"
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=900,2400"]
    subprocess.run([*command, f"--screenshot={shot}", path.as_uri()], check=True, capture_output=True, timeout=100)
    picture = imread(shot)[..., :3]
    assert picture.shape[:2] == (2400, 900)
    assert picture.var() > 0.005
    inked = (picture.min(-1) < 0.9).any(1)  # of rows of pixels: text and curves down to the bottom
    assert inked[:1200].mean() > 0.3
    assert inked[1200:].mean() > 0.3
    coloured = np.ptp(picture, -1) > 0.3
    assert coloured.mean() > 0.001  # curves, not only text
