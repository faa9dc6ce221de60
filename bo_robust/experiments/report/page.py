"""The page: sections of every panel, and what is common to all of them, put into the template."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bo_robust.experiments.config import Panel
from bo_robust.experiments.provenance import differences
from bo_robust.experiments.report import arms, conditions
from bo_robust.experiments.report.parts import Cell, Facts, Folded, Lines, Section, Table, Words
from bo_robust.experiments.report.pictures import legend, looks_of
from bo_robust.experiments.results import RunResults, load
from bo_robust.experiments.store import put_files
from bo_robust.experiments.tables import COLUMNS, LEGEND, closing_lines

NAME = "report.html"
# Longer lists are cut.
LONGEST = 12
# Keys of a panel that the page shows elsewhere.
ELSEWHERE = ("name", "methods", "compare")
# Of the fingerprint, what stands beside the versions.
MACHINE = ("source", "processor", "cpu_capability", "blas", "threads")


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a result folder and return its path. For an unfinished run it says what is missing."""
    content = page(load(folder, unfinished=True))
    put_files(folder, {NAME: content.encode()})
    return folder / NAME


def page(run: RunResults) -> str:
    """One HTML page without scripts or anything from elsewhere. The template escapes all text."""
    templates = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["legend"] = legend
    count = len(run.config.panels)
    kind = "Run over arms" if run.config.over_arms else "Run over designs and conditions"
    head: list[Any] = [Words(run.config.description), Words(f"{kind} of {count} panel{'s'[: count > 1]}.", "soft")]
    if run.missing:
        words = (
            "This run is not finished. Everything below is of what is stored. "
            f"`bo-robust resume {run.folder}` plays the rest. Missing:"
        )
        head += [Words(words, "warning"), Lines([(line, []) for line in run.missing])]
    panels = [
        Section(panel.name, _panel(run, panel, summary), f"panel-{i}")
        for i, (panel, summary) in enumerate(zip(run.panels, run.summary["panels"], strict=True))
    ]
    lines = closing_lines(run.summary)
    summary_first = [Section("What was found", [Lines(_grouped(lines))], "results")] if lines else []
    template = templates.get_template("report.html.j2")
    return template.render(title=run.config.name, head=head, sections=[*summary_first, *panels, _provenance(run)])


def _panel(run: RunResults, panel: Panel, summary: dict[str, Any]) -> list[Any]:
    """What the page shows of a panel."""
    looks, columns = looks_of(panel.labels), COLUMNS[panel.loop]
    size = f"{panel.trials} trials × {panel.horizon} rounds."
    if not panel.over_arms:
        x = ", ".join(f"{v:.4g}" for v in summary["optimum"]["x"])
        size += (
            f" Value at risk at level alpha = {summary['alpha']:g}; the largest found is "
            f"{summary['optimum']['value']:.4g}, at x = ({x})."
        )
    rows = {
        label: [Cell(column.text(method), column.value(method)) for column in columns]
        for label, method in summary["methods"].items()
    }
    head = ["method", *(column.title for column in columns)]
    results = Table(f"{panel.name}: results", head, rows, LEGEND[panel.loop], summary["best"])
    sections = arms.sections if panel.over_arms else conditions.sections
    return [
        Words(size, "soft"),
        Words(summary["notes"]),
        *(Words(f"Warning: {warning}", "warning") for warning in summary["warnings"]),
        Section("Results", [results]),
        *sections(run, panel, summary, looks),
        _settings(run, panel),
    ]


def _settings(run: RunResults, panel: Panel) -> Section:
    """The problem of a panel, and the settings of its methods with all constants filled in."""
    (given,) = (known for known in run.info["config"]["panels"] if known["name"] == panel.name)
    used = run.info["used"][panel.name]
    known = {key: value for key, value in given.items() if value is not None} | used
    rows = {
        label: [
            Cell(settings.get("class", "-")),
            Cell("\n".join(f"{key}: {text}" for key, text in _texts(settings, ("class",))) or "-"),
        ]
        for label, settings in used["methods"].items()
    }
    table = Table(f"{panel.name}: settings", ["method", "class", "settings"], rows)
    return Section(
        "Settings",
        [
            Folded("Problem and panel", [Facts(_texts(known, ELSEWHERE))]),
            Folded("Settings of every method, with all constants filled in", [table]),
        ],
    )


def _provenance(run: RunResults) -> Section:
    """Command, versions, code, machine, seeds and time spent."""
    info, of = run.info, run.info["fingerprint"]
    seconds = sum(method["seconds"] for known in run.metadata.values() for method in known.values())
    facts = {
        "command": shlex.join(map(str, info["command"])),
        "started": info["started"],
        "git revision": info["git"],
        "source digest": of.get("source"),
        "configuration digest": info["config_digest"],
        "versions": ", ".join(f"{name} {version}" for name, version in of.items() if name not in MACHINE),
        "device": info["device"],
        "machine": ", ".join(str(of[name]) for name in MACHINE[1:4] if name in of),
        "platform": info["platform"],
        "CPU threads": of.get("threads"),
        "data folder": info["data_dir"],
        "seeds": "\n".join(f"{name}: {seed}" for name, seed in info["seeds"].items()),
        "time played": f"{seconds:.1f} s",
    }
    pairs = [(name, "-" if value is None else str(value)) for name, value in facts.items()]
    return Section("Provenance", [Facts([*pairs, *_resumed(info)])], "provenance")


def _resumed(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What changed where a run went on by force, and which rounds of which shards were played since."""
    before, facts = info["fingerprint"], []
    for entry in info.get("resumed", []):
        changed = differences(before, entry["fingerprint"])
        before = entry["fingerprint"]
        words = ", ".join(f"{key} {then} -> {here}" for key, then, here in changed)
        shards = ", ".join(f"{name} from round {n + 1}" for name, n in entry["from_round"].items())
        facts.append(("resumed elsewhere", f"{entry['when']}, by force: {words}. Played since: {shards}."))
    return facts


def _grouped(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Closing lines, each with the indented ones below it."""
    groups: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and groups:
            groups[-1][1].append(line.strip())
        else:
            groups.append((line, []))
    return groups


def _texts(values: Mapping[str, Any], without: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in values.items() if key not in without]


def _text(value: Any) -> str:
    """A specification as ``tgp(moment_bound=4, alpha=1)``, a number to nine digits, a long list cut."""
    if isinstance(value, dict):
        kind = value.get("kind", "")
        inside = ", ".join(f"{key}={_text(v)}" for key, v in value.items() if key != "kind")
        return f"{kind}({inside})" if inside or not kind else str(kind)
    if isinstance(value, list):
        shown = ", ".join(_text(v) for v in value[:LONGEST])
        return f"[{shown}, … {len(value)} in all]" if len(value) > LONGEST else f"[{shown}]"
    if isinstance(value, float):
        return f"{value:.9g}"
    return "none" if value is None else str(value)
