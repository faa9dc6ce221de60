"""Every setting of a panel, with all constants filled in."""

from typing import Any

from bo_robust.experiments.results import RunResults

# Longer lists are cut.
LONGEST = 12
# Keys of a panel that the page shows elsewhere.
ELSEWHERE = ("name", "algorithms", "methods", "compare")


def settings(run: RunResults, name: str) -> dict[str, Any]:
    """The problem of a panel and the resolved settings of its algorithms or methods, as text."""
    (given,) = (panel for panel in run.info["config"]["panels"] if panel["name"] == name)
    used = run.info["used"][name]
    panel = {key: value for key, value in given.items() if value is not None} | used
    resolved = used["methods" if run.value_at_risk else "algorithms"]
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
