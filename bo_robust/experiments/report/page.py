"""The page: plain data of every panel, put into the templates."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from bo_robust.experiments.provenance import differences
from bo_robust.experiments.report import arms, conditions
from bo_robust.experiments.report.pictures import legend, looks_of, number_ids
from bo_robust.experiments.results import RunResults, load
from bo_robust.experiments.store import put_files
from bo_robust.experiments.tables import COLUMNS, LEGEND, closing_lines

NAME = "report.html"
# Longer lists are cut.
LONGEST = 12
# Keys of a panel that the page shows elsewhere.
ELSEWHERE = ("name", "methods", "compare")


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a result folder and return its path. For an unfinished run it says what is missing."""
    content = page(load(folder, unfinished=True))
    put_files(folder, {NAME: content.encode()})
    return folder / NAME


def page(run: RunResults) -> str:
    """One HTML page without scripts or anything from elsewhere.

    The templates escape all text except the insides of pictures
    (:attr:`bo_robust.experiments.report.pictures.Picture.body`).
    """
    templates = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"legend": legend, "median": np.median}
    lines, loop = closing_lines(run.summary), run.config.panels[0].loop
    html = templates.get_template("page.html.j2").render(
        run=run,
        info=run.info,
        versions=run.info["fingerprint"],
        resumed=_resumed(run.info),
        command=shlex.join(map(str, run.info["command"])),
        seconds=sum(one["seconds"] for known in run.metadata.values() for one in known.values()),
        found=_grouped(lines),
        num_lines=len(lines),
        columns=COLUMNS[loop],
        columns_explained=LEGEND[loop],
        panels=[_panel(run, *of) for of in zip(run.panels, run.summary["panels"], strict=True)],
    )
    return number_ids(html)


def _panel(run: RunResults, panel: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """What the templates show of a panel; ``entry`` is its summary."""
    looks = looks_of(panel.labels)
    sections = arms.sections if panel.over_arms else conditions.sections
    return {
        "name": panel.name,
        "config": panel,
        "entry": entry,
        "looks": looks,
        "settings": settings(run, panel.name),
        **sections(run, panel, entry, looks),
    }


def _resumed(info: Mapping[str, Any]) -> list[dict[str, str]]:
    """What changed where a run went on by force, and which rounds of which shards were played since, in words."""
    before, lines = info["fingerprint"], []
    for entry in info.get("resumed", []):
        changed = differences(before, entry["fingerprint"])
        before = entry["fingerprint"]
        lines.append(
            {
                "when": entry["when"],
                "changed": ", ".join(f"{key} {then} -> {here}" for key, then, here in changed),
                "shards": ", ".join(f"{name} from round {n + 1}" for name, n in entry["from_round"].items()),
            }
        )
    return lines


def _grouped(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Closing lines, each with the indented ones below it."""
    groups: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and groups:
            groups[-1][1].append(line.strip())
        else:
            groups.append((line, []))
    return groups


def settings(run: RunResults, name: str) -> dict[str, Any]:
    """The problem of a panel and the resolved settings of its methods, as text."""
    (given,) = (panel for panel in run.info["config"]["panels"] if panel["name"] == name)
    used = run.info["used"][name]
    panel = {key: value for key, value in given.items() if value is not None} | used
    resolved = used["methods"]
    return {
        "panel": _texts(panel, ELSEWHERE),
        "resolved": {
            label: {"class": one.get("class", "-"), "settings": _texts(one, ("class",))}
            for label, one in resolved.items()
        },
    }


def _texts(of: dict[str, Any], without: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in of.items() if key not in without]


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
