"""The page: what every panel shows, and what is common to all of them, put into the template."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bo_robust.experiments.config import Panel
from bo_robust.experiments.provenance import differences
from bo_robust.experiments.report.panels import Table, pictures_of, recommended_designs
from bo_robust.experiments.report.pictures import legend, looks_of
from bo_robust.experiments.results import RunResults, load
from bo_robust.experiments.store import put_files
from bo_robust.experiments.tables import COLUMNS, LEGEND, closing_lines, size_of

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
    summaries = run.summary["panels"]
    return templates.get_template("report.html.j2").render(
        run=run,
        findings=closing_lines(run.summary),
        panels=[_panel(run, panel, summary) for panel, summary in zip(run.panels, summaries, strict=True)],
        provenance=_provenance(run),
    )


def _panel(run: RunResults, panel: Panel, summary: dict[str, Any]) -> dict[str, Any]:
    looks, columns = looks_of(panel.labels), COLUMNS[panel.loop]
    size = f"{size_of(summary)}."
    if not panel.over_arms:
        best = summary["optimum"]["value"]
        size += f" Value at risk at alpha = {summary['alpha']:g}; the largest found is {best:.4g}."
    rows = {label: [column.text(method) for column in columns] for label, method in summary["methods"].items()}
    head = ["method", *(column.title for column in columns)]
    results = Table(f"{panel.name}: results", head, rows, LEGEND[panel.loop], summary["best"])
    (given,) = (known for known in run.info["config"]["panels"] if known["name"] == panel.name)
    used = run.info["used"][panel.name]
    known = {key: value for key, value in given.items() if value is not None} | used
    settings = {
        label: [
            method.get("class", "-"),
            "\n".join(f"{key}: {text}" for key, text in _texts(method, ("class",))) or "-",
        ]
        for label, method in used["methods"].items()
    }
    return {
        "name": panel.name,
        "size": size,
        "notes": summary["notes"],
        "warnings": summary["warnings"],
        "tables": [results] if panel.over_arms else [results, recommended_designs(run, panel)],
        "looks": looks,
        "pictures": pictures_of(run, panel, summary, looks),
        "problem": _texts(known, ELSEWHERE),
        "settings": Table(f"{panel.name}: settings", ["method", "class", "settings"], settings),
    }


def _provenance(run: RunResults) -> list[tuple[str, str]]:
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
    return [*pairs, *_resumed(info)]


def _resumed(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What changed where a run went on by force, and which rounds of which shards were played since."""
    before, facts = info["fingerprint"], []
    for entry in info.get("resumed", []):
        changed = differences(before, entry["fingerprint"])
        before = entry["fingerprint"]
        shards = ", ".join(f"{name} from round {n + 1}" for name, n in entry["from_round"].items())
        facts.append(("resumed elsewhere", f"{entry['when']}, by force: {changed}. Played since: {shards}."))
    return facts


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
