"""Write ``docs/results/FAMILY.md`` from ``docs/results/templates/FAMILY.md`` and the files of ``benchmarks/results``.

``python -m docs.make_results`` writes all pages. A template is prose with directives; FILE is relative to
``benchmarks/results``:

- ``{{rows FILE | PATTERN}}`` alone on a line: rows of a JSON-lines file whose name has the regular expression (all, if
  it is left out), with their targets;
- ``{{differences FILE | PATTERN}}``: rows of two scores, and what value at risk gains in them, with 95 % intervals;
- ``{{columns FILE | SUFFIX, SUFFIX | PATTERN}}``: rows named "LABEL: SUFFIX", one line a label, one column a suffix;
- ``{{runs FILE | PATTERN}}``: methods of every panel of a run whose name has the pattern: arms, or pairs (x, z);
- ``{{shape FILE}}``: medians by model and problem, as ``continuous.json`` has them;
- ``{{pictures PATTERN}}``: the pictures of this file pattern, titled by their names;
- ``{{= FILE | ROW | PATH | FORMAT}}`` anywhere in a line: one figure. ROW is the name of a row, or "-" for the file
  itself, PATH leads into it ("value", "detail > pairs"), and FORMAT is that of Python. ``fold`` before the format turns
  decades into a factor, ``percent`` a share into per cent, ``size`` drops the sign.

Under every table stands where it comes from: the file, and command, date, machine, versions and revision, if the file
has them.
"""

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["TEMPLATES", "figure", "main", "page"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"
TEMPLATES = PAGES / "templates"
TRANSFORMS = {"fold": lambda x: 10 ** abs(x), "percent": lambda x: 100 * x, "size": abs}
FLOOR = 1e-3  # of regret over (x, z), as in benchmarks.value_at_risk_faults
NOTE = "<!-- Generated from docs/results/templates/{name} by python -m docs.make_results: do not edit. -->"


def rows(file: str) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines; what programs printed between them is left out."""
    lines = (RESULTS / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def groups(file: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Environment and rows of every part of a file: rows that were added later follow an environment of their own."""
    environment: dict[str, Any] = {}
    part: list[dict[str, Any]] = []
    for row in rows(file):
        found = row.get("environment") or (row["detail"] if row.get("name") == "environment" else None)
        if found:
            if part:
                yield environment, part
            environment, part = found, []
        elif "value" in row:
            part.append(row)
    if part:
        yield environment, part


def figure(file: str, row: str, path: str, form: str = "") -> str:
    """One figure of a file as text.

    Raises:
        ValueError: if there is no such row, or more than one.
        KeyError: if the row has no such entry.
    """
    if row != "-":
        found = [r for r in rows(file) if r.get("name") == row]
        if len(found) != 1:
            raise ValueError(f"{file} has {len(found)} rows named {row!r}.")
        value: Any = found[0]
    else:
        value = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    for key in path.split(" > "):
        value = value[int(key)] if isinstance(value, list) else value[key]
    transform, _, plain = form.rpartition(" ")
    if transform:
        value = TRANSFORMS[transform](value)
    return format(value, plain).replace("-", "−") if plain else str(value)


def number(value: Any) -> str:
    """A number with three digits, or more where it is whole; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value)).replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def table(head: list[str], body: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def is_gone(environment: dict[str, Any]) -> bool:
    """Whether the benchmark that wrote a file was removed."""
    module = re.search(r"-m (benchmarks[\w.]*)", environment["command"])
    path = ROOT.joinpath(*module.group(1).split(".")) if module else ROOT
    return not (path.is_dir() or path.with_suffix(".py").is_file())


def origin(file: str, environment: dict[str, Any]) -> str:
    """The sentence under a table: where its figures are from."""
    parts = [f"[{file}](../../benchmarks/results/{file})"]
    if environment:
        versions = environment["versions"]
        parts += [
            f"`{environment['command']}`",
            environment["date"][:10],
            f"{environment['processor']}, {environment['threads']} thread" + "s" * (environment["threads"] > 1),
            ", ".join(f"{name} {version.split('+')[0]}" for name, version in versions.items()),
            f"revision {environment['git']}"
            + (
                "; the script is gone, and `benchmarks/results/README.md` names its commit"
                if is_gone(environment)
                else ""
            ),
        ]
    else:
        parts.append("the file says neither date nor machine")
    return "*" + "; ".join(parts) + ".*"


def short(value: Any) -> str:
    """Numbers, short texts, and short lists and groups of them as text; else nothing."""
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return value if len(value) < 40 else ""
    if isinstance(value, list):
        parts = [short(entry) for entry in value]
        return ", ".join(parts) if len(parts) <= 5 and all(parts) else ""
    if isinstance(value, dict) and len(value) <= 6:
        parts = [f"{key}: {short(entry)}" for key, entry in value.items() if short(entry)]
        return " / ".join(parts)
    return ""


def details(detail: dict[str, Any]) -> str:
    """Entries of a row's detail that are short."""
    return "; ".join(f"{key} {short(value)}" for key, value in detail.items() if short(value))


def rows_table(file: str, pattern: str = "") -> list[str]:
    """Rows by name, value, target and detail; a target that was missed stands in bold."""
    lines: list[str] = []
    for environment, part in groups(file):
        body = []
        for row in part:
            if re.search(pattern, row["name"]):
                value = f"{number(row['value'])} {row.get('unit') or ''}".strip()
                value = f"**{value}**" if row.get("met") is False else value
                body.append([row["name"], value, row.get("target") or "", details(row.get("detail") or {})])
        if body:
            lines += ["", *table(["what", "measured", "wanted", "detail"], body), "", origin(file, environment)]
    return lines


def differences_table(file: str, pattern: str) -> list[str]:
    """Scores of every method in the tail and on average, and the difference to value at risk."""
    lines: list[str] = []
    for environment, part in groups(file):
        body = []
        for row in part:
            if re.search(pattern, row["name"]):
                cells = [row["name"].rpartition(": ")[2]]
                for score in (row["detail"]["tail"], row["detail"]["mean"]):
                    difference, low, high = score["value at risk less this"]
                    cells += [f"{score['score']:.3f}", f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]".replace("-", "−")]
                body.append(cells)
        if body:
            head = ["method", "worst 10 %", "value at risk less this", "on average", "value at risk less this"]
            lines += ["", *table(head, body), "", origin(file, environment)]
    return lines


def columns_table(file: str, suffixes: str, pattern: str = "") -> list[str]:
    """One line a label that has the pattern; an entry is a value with its 95 % interval."""
    lines: list[str] = []
    wanted = [suffix.strip() for suffix in suffixes.split(",")]
    for environment, part in groups(file):
        found = {row["name"]: row for row in part}
        labels = dict.fromkeys(name.rpartition(": ")[0] for name in found if name.rpartition(": ")[2] in wanted)
        labels = {label: None for label in labels if re.search(pattern, label)}
        if unknown := [suffix for suffix in wanted if not any(name.endswith(f": {suffix}") for name in found)]:
            raise ValueError(f"{file} has no row that ends in {', '.join(unknown)}.")
        body = []
        for label in labels:
            cells = [found.get(f"{label}: {suffix}") for suffix in wanted]
            pairs = sorted({cell["detail"]["pairs"] for cell in cells if cell and "pairs" in cell["detail"]})
            span = " to ".join(map(str, pairs[:: max(len(pairs) - 1, 1)]))
            body.append([label, span, *(interval(cell) if cell else "" for cell in cells)])
        if body:
            lines += ["", *table(["", "pairs", *wanted], body), "", origin(file, environment)]
    return lines


def interval(row: dict[str, Any]) -> str:
    """A value and its 95 % interval, if it has one."""
    limits = row["detail"].get("95 %")
    value = f"{row['value']:+.2f}" if limits else number(row["value"])
    return (value + (f" [{limits[0]:+.2f}, {limits[1]:+.2f}]" if limits else "")).replace("-", "−")


def pm(pair: list[float] | None) -> str:
    """Mean and standard error."""
    return f"{pair[0]:.3g} ± {pair[1]:.2g}".replace("-", "−") if pair else "-"


def runs_table(file: str, pattern: str = "") -> list[str]:
    """What a run's summary says of each method, panel by panel."""
    summary = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    lines: list[str] = []
    for panel in summary["panels"]:
        if not re.search(pattern, panel["name"]):
            continue
        methods = panel.get("algorithms") or panel["methods"]
        trials, rounds = (
            panel.get(new) or panel[old] for new, old in (("trials", "repetitions"), ("horizon", "rounds"))
        )
        if "average_regret" in next(iter(methods.values())):
            head = ["method", "average regret", "simple regret", "coverage", "truncated"]
            body = [
                [name, pm(m["average_regret"]), pm(m["simple_regret"]), percent(m["coverage"]), percent(m["truncated"])]
                for name, m in methods.items()
            ]
        else:
            head = ["method", "log10 regret at the end", "median regret", "certificate held", "s an acquisition"]
            body = [
                [
                    name,
                    decades(m["final"]),
                    number(m["median_regret"]),
                    percent(m["certificate_held"]),
                    number(m["seconds"]),
                ]
                for name, m in methods.items()
            ]
        lines += ["", f"**{panel['name']}**, {trials} trials of {rounds} rounds", "", *table(head, body)]
    return [*lines, "", origin(file, summary.get("environment", {}))]


def decades(regrets: list[float]) -> str:
    """Mean and standard error of log10 regret; regrets below FLOOR count as FLOOR."""
    logs = [math.log10(max(regret, FLOOR)) for regret in regrets]
    return f"{statistics.mean(logs):.2f} ± {statistics.stdev(logs) / math.sqrt(len(logs)):.2f}".replace("-", "−")


def percent(share: float | None) -> str:
    """A share in per cent."""
    return "-" if share is None else f"{number(100 * share)} %"


def shape_table(file: str) -> list[str]:
    """Median simple / average regret of every model on every problem, and seconds of a round on the first."""
    found = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    panels = found["panels"]
    first = next(iter(panels.values()))
    body = [
        [
            f"{model} ({entry['seeds']} seeds)" if entry["seeds"] != found["seeds"] else model,
            *(f"{p[model]['simple_regret'][1]:.3f} / {p[model]['average_regret'][1]:.2f}" for p in panels.values()),
            number(entry["seconds_per_round"]),
        ]
        for model, entry in first.items()
    ]
    return ["", *table(["model", *panels, "s a round"], body), "", origin(file, found["environment"])]


def pictures(pattern: str) -> list[str]:
    """Pictures, each titled by its name."""
    found = sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.glob(pattern))
    if not found:
        raise ValueError(f"no picture is named {pattern}.")
    lines: list[str] = []
    for file in found:
        title = file.removesuffix(".png").replace("/", ", ").replace("_", " ")
        lines += ["", f"![{title}](../../benchmarks/results/{file}){{ loading=lazy width=720 }}"]
    return lines


TABLES: dict[str, Callable[..., list[str]]] = {
    "pictures": pictures,
    "rows": rows_table,
    "columns": columns_table,
    "differences": differences_table,
    "runs": runs_table,
    "shape": shape_table,
}


def page(template: Path) -> str:
    """The page of a template."""
    lines = [NOTE.format(name=template.name), ""]
    for line in template.read_text(encoding="utf-8").splitlines():
        directive = re.fullmatch(r"\{\{(\w+) (.+)\}\}", line)
        if directive:
            name, given = directive.groups()
            made = TABLES[name](*(part.strip() for part in given.split(" | ")))
            if not any(cell.startswith(("|", "!")) for cell in made):
                raise ValueError(f"{template.name}: {line} has no rows.")
            lines += made[1:] if not lines[-1] else made
        else:
            lines.append(
                re.sub(r"\{\{= (.+?)\}\}", lambda m: figure(*(p.strip() for p in m.group(1).split(" | "))), line)
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line of this module."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for template in sorted(TEMPLATES.glob("*.md")):
        (PAGES / template.name).write_text(page(template), encoding="utf-8")
        print(f"docs/results/{template.name}")


if __name__ == "__main__":
    main()
