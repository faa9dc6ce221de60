"""Every setting of a panel, with all constants filled in, and where the run comes from."""

from __future__ import annotations

import shlex
from typing import Any

from bo_robust.runner.html.elements import details, items, pairs, table, text
from bo_robust.runner.html.load import Stored

__all__ = ["provenance", "settings"]

# Longer lists are cut.
LONGEST = 12
WORLD = ("processor", "threads", "source")


def settings(stored: Stored, index: int) -> str:
    """The problem and the resolved settings of every algorithm or method of a panel."""
    name = stored.panels[index].name
    used = stored.info.get("used", {}).get(name, {})
    (given,) = (p for p in stored.info["config"]["panels"] if p["name"] == name)
    panel = {k: v for k, v in given.items() if k not in ("name", "algorithms", "methods", "compare") and v is not None}
    panel |= {k: v for k, v in used.items() if k not in ("algorithms", "methods")}
    rows = [[text(label), text(one.get("class", "-")), _listed(one)] for label, one in _of_parts(used).items()]
    head = ["method" if stored.robust else "algorithm", "class", "settings"]
    return details("Problem and panel", pairs((key, _code(value)) for key, value in panel.items())) + details(
        "Settings of every algorithm, with all constants filled in", table(f"{name}: settings", head, rows)
    )


def provenance(stored: Stored) -> str:
    """Command, versions, code, machine, seeds and time spent."""
    info, versions = stored.info, stored.info["versions"]
    rows = [
        ("command", f"<code>{text(shlex.join(map(str, info.get('command', []))))}</code>"),
        ("started", text(info.get("started", "-"))),
        ("git revision", text(info.get("git") or "-")),
        ("source digest", text(versions.get("source", "-"))),
        ("configuration digest", text(info["config_digest"])),
        ("versions", text(", ".join(f"{k} {v}" for k, v in versions.items() if k not in WORLD))),
        ("device", text(info["device"])),
        ("machine", text(f"{versions.get('processor', '-')}, {info.get('platform', '-')}")),
        ("CPU threads", text(versions.get("threads", "-"))),
        ("data folder", text(info["data_dir"] or "-")),
        ("seeds", items(f"{text(name)}: {text(seed)}" for name, seed in info.get("seeds", {}).items())),
    ]
    if not stored.robust:
        seconds = sum(sum(facts["seconds"].values()) for facts in stored.facts)
        rows.append(("time played", text(f"{seconds:.1f} s")))
    if info.get("resumed_elsewhere"):
        rows.append(("resumed elsewhere", "yes: part of it was played by other code or on another machine (--force)"))
    return pairs(rows)


def _of_parts(used: dict[str, Any]) -> dict[str, Any]:
    return used.get("algorithms") or used.get("methods") or {}


def _listed(one: dict[str, Any]) -> str:
    return items((f"{text(k)}: {_code(v)}" for k, v in one.items() if k != "class"), "plain") or "-"


def _code(value: Any) -> str:
    return f"<code>{text(_plain(value))}</code>"


def _plain(value: Any) -> str:
    """``tgp(moment_bound=4, alpha=1)`` of a specification; numbers to nine digits; long lists cut."""
    if isinstance(value, dict):
        kind = value.get("kind", "")
        inside = ", ".join(f"{k}={_plain(v)}" for k, v in value.items() if k != "kind")
        return f"{kind}({inside})" if inside or not kind else str(kind)
    if isinstance(value, list):
        shown = ", ".join(_plain(v) for v in value[:LONGEST])
        return f"[{shown}, … {len(value)} in all]" if len(value) > LONGEST else f"[{shown}]"
    if isinstance(value, float):
        return f"{value:.9g}"
    return "none" if value is None else str(value)
