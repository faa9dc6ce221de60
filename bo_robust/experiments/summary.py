"""From traces to numbers: the content of ``summary.json``."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bo_robust.experiments.config import RunConfig
from bo_robust.experiments.loop import Metadata
from bo_robust.experiments.statistics import difference


def summarize(config: RunConfig, traces: pd.DataFrame, metadata: Mapping[str, Metadata]) -> dict[str, Any]:
    """Numbers of every panel and method, comparisons and warnings, as plain data.

    ``metadata`` are those of the jobs, joined, by name of the panel and label. Which numbers there are is up to the
    loop.
    """
    panels = []
    for panel in config.panels:
        rows, of_methods = traces[traces["panel"] == panel.name], metadata[panel.name]
        by_label = {label: rows[rows["method"] == label] for label in panel.labels}
        methods, measures, others = panel.runner.summary(panel, by_label, of_methods)
        by = next(iter(measures.values()))
        best = min(by, key=lambda label: by[label].mean())
        ties = [label for label in by if label != best and not difference(by[label], by[best])["significant"]]
        compared = [
            {"pair": [a, b], **{name: difference(of[a], of[b]) for name, of in measures.items()}}
            for a, b in panel.compare
        ]
        panels.append(
            {
                "name": panel.name,
                "loop": panel.loop,
                "trials": panel.trials,
                "horizon": panel.horizon,
                "notes": of_methods[panel.labels[0]]["notes"],
                "methods": methods,
                "best": best,
                "not_distinguishable_from_best": ties,
                "comparisons": compared,
                "warnings": [],
                **others,
            }
        )
    return {"name": config.name, "description": config.description, "panels": panels}
