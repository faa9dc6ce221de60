"""The PNG files of a run: regret, confidence intervals and eliminations over arms; one file per panel over (x, z)."""

import re
from collections.abc import Callable
from functools import partial

from bo_robust.experiments.report import panels
from bo_robust.experiments.report.pictures import looks_of, png_bytes
from bo_robust.experiments.results import RunResults

COLUMNS = 3


def pictures(run: RunResults) -> dict[str, Callable[[], bytes]]:
    """Functions that draw the PNG files of a finished run, by file name."""
    looks = looks_of([*dict.fromkeys(label for panel in run.panels for label in panel.labels)])
    if not run.config.over_arms:
        return {
            _picture_name(i, panel.name): partial(
                png_bytes, [[(panel.name, one) for one in panels.regret_of_recommendations(run, panel, looks)]]
            )
            for i, panel in enumerate(run.panels)
        }
    regret = [[(panel.name, one) for one in panels.regret_of_rounds(run, panel, looks)] for panel in run.panels]
    files: dict[str, Callable[[], bytes]] = {"regret.png": partial(png_bytes, list(zip(*regret, strict=True)))}
    intervals = [
        [(panel.name, one) for one in panels.intervals(run, panel, looks)] for panel in run.panels if panel.intervals
    ]
    if intervals:
        files["intervals.png"] = partial(png_bytes, intervals, panels.INTERVAL)
    timelines = [
        (panel.name, one)
        for panel, numbers in zip(run.panels, run.summary["panels"], strict=True)
        for one in panels.timelines(panel, numbers)
    ]
    if timelines:
        rows = [timelines[i : i + COLUMNS] for i in range(0, len(timelines), COLUMNS)]
        files["eliminations.png"] = partial(png_bytes, rows, panels.TIMELINE)
    return files


def _picture_name(index: int, panel: str) -> str:
    """Such as ``00-branin-hoo-1-1.png``."""
    slug = re.sub(r"[^a-z0-9]+", "-", panel.lower()).strip("-")
    return f"{index:02d}-{slug or 'panel'}.png"
