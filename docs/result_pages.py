"""Tables of the pages in ``docs/results``, made from files of ``benchmarks/results`` when the site is built.

A page is Markdown with directives alone on their lines, FILE being relative to ``benchmarks/results``:

- ``{{rows FILE | PATTERN}}``: the rows of a JSON-lines file whose name has the expression, with intervals;
- ``{{columns FILE | SUFFIX = TITLE, ... | PATTERN}}``: rows "LABEL: SUFFIX", one line a label;

Under the first table of a file stands where it comes from: the file, and its command, date, machine and revision.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "page"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"


def rows(file: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The environment of a JSON-lines file, which its first line holds, and its rows by name."""
    first, *rest = (json.loads(line) for line in (RESULTS / file).read_text(encoding="utf-8").splitlines())
    return first["environment"], {row["name"]: row for row in rest}


def number(value: float) -> str:
    """Three digits, or more where the number is whole."""
    text = str(int(value)) if value == int(value) and abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "−")


def interval(row: dict[str, Any] | None) -> str:
    """A value and its interval, if it has one."""
    if row is None:
        return ""
    limits = row["detail"].get("95 %") or row["detail"].get("interval")
    if limits is None or None in limits:
        return number(row["value"])
    sign = "" if row["unit"].startswith("times") else "+"
    digits = 2 if abs(row["value"]) < 100.0 else 0
    value, low, high = (f"{x:{sign}.{digits}f}".replace("-", "−") for x in (row["value"], *limits))
    return f"{value} [{low}, {high}]"


def table(head: list[str], body: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]


def origin(file: str, about: dict[str, Any]) -> str:
    """The line under a table."""
    parts = [
        f"[{file}](../../benchmarks/results/{file})",
        f"`{about['command']}`",
        about["date"][:10],
        f"{about['processor']}, {about['threads']} thread",
        f"torch {about['versions']['torch'].split('+')[0]}",
        f"revision {about['git']}",
    ]
    return "*" + "; ".join(parts) + ".*"


def rows_table(file: str, pattern: str) -> list[str]:
    """Name, value and interval of some rows; their unit is the title where it is that of all."""
    about, found = rows(file)
    some = {name: row for name, row in found.items() if re.search(pattern, name)}
    units = {row["unit"] for row in some.values()}
    if len(units) == 1:
        lines = table(["", *units], [[name, interval(row)] for name, row in some.items()])
    else:
        lines = table(["", "value", "unit"], [[name, interval(row), row["unit"]] for name, row in some.items()])
    return [*lines, "", origin(file, about)]


def columns_table(file: str, titles: str, pattern: str = "") -> list[str]:
    """One line a label, one column a suffix."""
    about, found = rows(file)
    columns = dict(part.split(" = ") for part in titles.split(", "))
    if unknown := [suffix for suffix in columns if not any(name.endswith(f": {suffix}") for name in found)]:
        raise ValueError(f"{file} has no row that ends in {', '.join(unknown)}.")
    labels = dict.fromkeys(name.rpartition(": ")[0] for name in found if name.rpartition(": ")[2] in columns)
    body = [
        [label, *(interval(found.get(f"{label}: {suffix}")) for suffix in columns)]
        for label in labels
        if re.search(pattern, label)
    ]
    return [*table(["", *columns.values()], body), "", origin(file, about)]


TABLES: dict[str, Callable[..., list[str]]] = {"rows": rows_table, "columns": columns_table}


def page(path: Path) -> str:
    """The page with its tables.

    Raises:
        ValueError: if a table has no rows.
    """
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        directive = re.fullmatch(r"\{\{(\w+) (.+)\}\}", line)
        if directive is None:
            lines.append(line)
            continue
        name, given = directive.groups()
        made = TABLES[name](*(part.strip() for part in given.split(" | ")))
        if len(made) < 5:
            raise ValueError(f"{path.name}: {line} has no rows.")
        lines += made[:-2] if made[-1] in lines else made
    return "\n".join(lines) + "\n"
