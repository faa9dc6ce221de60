"""The page: title, what was found, a section per panel, provenance."""

from __future__ import annotations

from pathlib import Path

from bo_robust.runner.checkpoint import write_atomic
from bo_robust.runner.html import arms, robust
from bo_robust.runner.html.elements import details, items, paragraph, section, text
from bo_robust.runner.html.load import Stored, load
from bo_robust.runner.html.pictures import number_ids
from bo_robust.runner.html.settings import provenance
from bo_robust.runner.html.style import STYLE
from bo_robust.runner.report import closing_lines
from bo_robust.runner.robust.report import closing_lines as robust_closing_lines

__all__ = ["page", "write_report"]

NAME = "report.html"
# Of more closing words only the first of each panel is open.
FEW_LINES = 12


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a result folder and return its path; of an unfinished run it says what is missing.

    Raises:
        RunError: when the folder is no run, its configuration was changed, a part is damaged, or writing fails.
    """
    content = page(load(folder))
    write_atomic(folder / NAME, lambda temporary: temporary.write_text(content, encoding="utf-8"))
    return folder / NAME


def page(stored: Stored) -> str:
    """One HTML page without scripts, nothing in it from anywhere else."""
    summary, config = stored.summary, stored.config
    sections = robust.panel_sections if stored.robust else arms.panel_sections
    panels = [section(p.name, sections(stored, i), 2, _anchor(i)) for i, p in enumerate(stored.panels)]
    kind = "Value-at-risk run" if stored.robust else "Run over arms"
    top = (
        f"<header>\n<h1>{text(config.name)}</h1>\n"
        + paragraph(config.description)
        + paragraph(f"{kind} of {len(config.panels)} panel{'s' if len(config.panels) > 1 else ''}.", "kind")
        + _unfinished(stored)
        + "</header>\n"
    )
    found = (robust_closing_lines if stored.robust else closing_lines)(summary)
    body = section("What was found", _words(found), 2, "found") if found else ""
    body += "".join(panels) + section("Provenance", provenance(stored), 2, "provenance")
    return number_ids(
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(config.name)} · bo-robust report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{top}<main>\n{_contents(stored)}{body}</main>\n"
        "<footer><p>Written by bo-robust report. All numbers are computed from the stored traces; where a number is "
        "rounded, the page's source holds all its digits.</p></footer>\n</body>\n</html>\n"
    )


def _anchor(index: int) -> str:
    return f"panel-{index}"


def _contents(stored: Stored) -> str:
    links = [_link(_anchor(i), p.name) for i, p in enumerate(stored.panels)]
    return f'<nav aria-label="Contents">\n{items([*links, _link("provenance", "Provenance")])}</nav>\n'


def _link(anchor: str, words: str) -> str:
    return f'<a href="#{text(anchor)}">{text(words)}</a>'


def _unfinished(stored: Stored) -> str:
    if not stored.missing:
        return ""
    return (
        '<div class="unfinished" role="note">\n<p><strong>This run is not finished.</strong> Everything below is of '
        f"what is stored. <code>bo-robust resume {text(stored.folder)}</code> plays the rest. Missing:</p>\n"
        f"{items(text(line) for line in stored.missing)}</div>\n"
    )


def _words(lines: list[str]) -> str:
    """Closing lines, of which those that are indented belong to the one before."""
    groups: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and groups:
            groups[-1][1].append(text(line.strip()))
        else:
            groups.append((text(line), []))
    few = len(lines) <= FEW_LINES
    return items((head + _below(below, few) for head, below in groups), "words")


def _below(lines: list[str], few: bool) -> str:
    if few or not lines:
        return items(lines)
    return details(f"{len(lines)} more line{'s' if len(lines) > 1 else ''}", items(lines))
