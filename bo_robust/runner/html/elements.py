"""Pieces of HTML. Whatever comes from a run goes through :func:`text`; functions return markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["details", "figure", "items", "note", "number", "pairs", "paragraph", "section", "table", "text"]


def text(value: Any) -> str:
    """Anything as text that is safe in elements and in quoted attributes."""
    return html.escape(str(value), quote=True)


def number(shown: str, value: float | None) -> str:
    """A number as it is shown, with all its digits for machines."""
    return text(shown) if value is None else f'<data value="{text(repr(float(value)))}">{text(shown)}</data>'


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text, if there is any."""
    return f"<p{_class(kind)}>{text(words)}</p>\n" if words.strip() else ""


def note(words: str) -> str:
    """A warning."""
    return f'<p class="warning"><strong>Warning</strong> {text(words)}</p>\n'


def items(lines: Iterable[str], kind: str = "") -> str:
    """A list of markup."""
    content = "".join(f"<li>{line}</li>\n" for line in lines)
    return f"<ul{_class(kind)}>\n{content}</ul>\n" if content else ""


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A description list of (plain term, markup)."""
    return "<dl>\n" + "".join(f"<dt>{text(term)}</dt><dd>{what}</dd>\n" for term, what in rows) + "</dl>\n"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], below: str = "") -> str:
    """A table that scrolls sideways where it is too wide.

    Args:
        caption: Plain text above it.
        head: Plain column titles, the first that of the row titles.
        rows: Markup, the first cell of each the row's title.
        below: Plain text that explains the columns.
    """
    top = "".join(f'<th scope="col">{text(title)}</th>' for title in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{text(caption)}" tabindex="0">\n<table>\n'
        f"<caption>{text(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n"
        + paragraph(below, "legend")
    )


def figure(pictures: Sequence[str], caption: str, legend: str = "", kind: str = "") -> str:
    """Pictures side by side where there is room, their legend (markup), and a caption (plain text)."""
    shown = "".join(f"<div>{picture}</div>\n" for picture in pictures)
    return (
        f'<figure>\n<div class="pictures {text(kind)}">\n{shown}</div>\n{legend}'
        f"<figcaption>{text(caption)}</figcaption>\n</figure>\n"
    )


def details(title: str, content: str) -> str:
    """Markup that opens when asked for."""
    return f"<details>\n<summary>{text(title)}</summary>\n{content}</details>\n"


def section(title: str, content: str, level: int = 3, anchor: str = "") -> str:
    """A section with its heading."""
    named = f' id="{text(anchor)}"' if anchor else ""
    return f"<section{named}>\n<h{level}>{text(title)}</h{level}>\n{content}</section>\n"


def _class(kind: str) -> str:
    return f' class="{text(kind)}"' if kind else ""
