"""The PNG files of a run: regret, confidence intervals and eliminations over arms; one file per panel over (x, z)."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bo_robust.experiments.report import arms, conditions
from bo_robust.experiments.report.pictures import Picture, looks_of, png_bytes
from bo_robust.experiments.results import RunResults

COLUMNS = 3
ELIMINATIONS = "dots: eliminations (size: how far beyond the limit); crosses: failed but kept; right: trials survived"


def pictures(run: RunResults) -> dict[str, Callable[[], bytes]]:
    """Functions that draw the PNG files of a finished run, by file name."""
    looks = looks_of([*dict.fromkeys(label for panel in run.panels for label in panel.labels)])
    if not run.config.over_arms:
        return {
            _picture_name(i, panel.name): partial(
                png_bytes,
                [[*conditions.regret(run, panel, looks), conditions.seconds(run, panel, looks)]],
                title=f"{panel.name} ({panel.trials} trials)",
            )
            for i, panel in enumerate(run.panels)
        }
    regret = [_headed(panel.name, arms.regret(run, panel, looks)) for panel in run.panels]
    found: dict[str, Callable[[], bytes]] = {"regret.png": partial(png_bytes, list(zip(*regret, strict=True)))}
    intervals = [
        _headed(panel.name, [arms.interval(run, panel, label, looks) for label in panel.labels])
        for panel in run.panels
        if panel.intervals
    ]
    if intervals:
        found["intervals.png"] = partial(png_bytes, intervals)
    timelines = [
        replace(arms.timeline(panel, label, one["eliminations"]), heading=f"{panel.name}: {label}")
        for panel, numbers in zip(run.panels, run.summary["panels"], strict=True)
        for label, one in numbers["methods"].items()
        if one["eliminations"] is not None
    ]
    if timelines:
        rows = [timelines[i : i + COLUMNS] for i in range(0, len(timelines), COLUMNS)]
        found["eliminations.png"] = partial(png_bytes, rows, note=ELIMINATIONS)
    return found


def _headed(panel: str, pictures: list[Picture]) -> list[Picture]:
    """The pictures with the panel's name above them."""
    return [replace(one, heading=f"{panel}: {one.heading}" if one.heading else panel) for one in pictures]


def _picture_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"
