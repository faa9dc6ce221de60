"""From traces of runs over arms to numbers: the content of ``summary.json``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.comparisons import best_and_ties, compare_pairs, difference, mean_and_error
from bo_robust.experiments.config import PanelConfig, Run, ValueAtRiskPanelConfig
from bo_robust.experiments.value_at_risk.summary import summarise_panel as summarise_value_at_risk

# An arm is reported when more than half of its rewards, and at least this many, were set to zero: one lost reward of an
# arm pulled once says nothing.
MIN_TRUNCATED = 3
Metadata = Mapping[str, Mapping[str, Any]]


def summarise(config: Run, traces: pd.DataFrame, metadata: Mapping[str, Metadata]) -> dict[str, Any]:
    """Numbers of every panel and entry, comparisons and warnings, as plain data.

    Value-at-risk panels are those of :mod:`bo_robust.experiments.value_at_risk.summary`. ``metadata`` is
    :attr:`bo_robust.experiments.results.RunResults.metadata`.
    """
    panels = []
    for panel in config.panels:
        rows, known = traces[traces["panel"] == panel.name], metadata[panel.name]
        if isinstance(panel, ValueAtRiskPanelConfig):
            panels.append(summarise_value_at_risk(panel, rows, known))
        else:
            panels.append(_summarise_panel(panel, rows, known))
    return {"loop": config.loop, "name": config.name, "description": config.description, "panels": panels}


def _summarise_panel(panel: PanelConfig, rows: pd.DataFrame, metadata: Metadata) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    measures: dict[str, dict[str, np.ndarray]] = {"average_regret": {}, "simple_regret": {}}
    for algorithm in panel.algorithms:
        label, of = algorithm.label, rows[rows["algorithm"] == algorithm.label]
        by_trial = of.groupby("trial", sort=True)
        measures["average_regret"][label] = by_trial["regret"].mean().to_numpy()
        measures["simple_regret"][label] = by_trial["simple_regret"].last().to_numpy()
        with_width = bool(of["width"].notna().any())
        entries[label] = {
            **{measure: mean_and_error(values[label]) for measure, values in measures.items()},
            "coverage": float(of["coverage"].mean()) if with_width else None,
            "final_coverage": float(by_trial["coverage"].last().mean()) if with_width else None,
            "mean_width": float(of["width"].mean()) if with_width else None,
            "truncated": float(of["truncated"].mean()),
            "failed_pulls": int((~of["ok"]).sum()),
            "first_failed": _first_failed(of),
            "seconds": metadata[label]["seconds"],
            "eliminations": _summarise_eliminations(metadata[label]["eliminations"], panel.trials),
        }
    average = measures["average_regret"]
    baselines = [a.label for a in panel.algorithms if ALGORITHMS[a.name].is_baseline]
    warnings = [
        *(
            line
            for a in panel.algorithms
            if (line := _truncation_warning(a.label, rows[rows["algorithm"] == a.label], metadata[a.label], a.name))
        ),
        *(line for label in entries for line in _elimination_warnings(label, entries[label]["eliminations"], panel)),
    ]
    return {
        "name": panel.name,
        "trials": panel.trials,
        "horizon": panel.horizon,
        "delta": panel.delta,
        "notes": metadata[panel.labels[0]]["notes"],
        "algorithms": entries,
        **best_and_ties(average),
        "no_better_than_random": [
            label
            for label in average
            for baseline in baselines
            if label not in baselines and not _lower(average[label], average[baseline])
        ],
        "comparisons": compare_pairs(panel.compare, measures),
        "warnings": warnings,
    }


def _lower(ours: np.ndarray, theirs: np.ndarray) -> bool:
    found = difference(ours, theirs)
    return found["significant"] and found["mean"] < 0


def _first_failed(rows: pd.DataFrame) -> list[int] | None:
    """Trial and round of the first failed pull."""
    failed = rows[~rows["ok"]]
    if failed.empty:
        return None
    first = failed.sort_values(["round", "trial"]).iloc[0]
    return [int(first["trial"]), int(first["round"])]


def _truncation_warning(label: str, rows: pd.DataFrame, metadata: Mapping[str, Any], name: str) -> str | None:
    """Warn if an algorithm lost more than half of the rewards of an arm, or of all, to truncation.

    Algorithms that truncate all rewards anew each round may get lost ones back: a warning then needs more than half of
    all rewards to be lost in their own round.
    """
    by_arm = rows.groupby("arm")["truncated"]
    lost, pulls = by_arm.sum(), by_arm.size()
    most = lost[lost > 0.5 * pulls]
    share = float(rows["truncated"].mean())
    if ALGORITHMS[name].truncates_anew:
        if share <= 0.5:
            return None
        return (
            f"{label}: {100 * share:.3g} % of all rewards lost more than half of their weight in their own "
            f"round. Final b_t = {metadata['level']:.3g} (for u y with |u| <= 1), median |reward| = "
            f"{float(rows['reward'].abs().median()):.3g}: v (moment_bound) is too small for these rewards."
        )
    if share <= 0.5:
        most = most[most >= MIN_TRUNCATED]
    if most.empty:
        return None
    arm = int(most.index.to_numpy()[most.to_numpy().argmax()])
    arm_name = metadata["arm_names"][arm] if metadata["arm_names"] else str(arm)
    scale = float(rows.loc[rows["arm"] == arm, "reward"].abs().median())
    return (
        f"{label}: {len(most)} of {len(pulls)} arms pulled lost more than half of their rewards to truncation "
        f"({100 * share:.3g} % of all rewards); the most in number is arm {arm_name} with {lost[arm]} of {pulls[arm]}. "
        f"Final b_t = {metadata['level']:.3g}, median |reward| of that arm = {scale:.3g}: v (moment_bound) is "
        "too small for these rewards, or they are not centred."
    )


def _summarise_eliminations(record: dict[str, Any] | None, trials: int) -> dict[str, Any] | None:
    """Numbers of an :func:`bo_robust.experiments.records.elimination_record`, and the record itself.

    ``survived``, ``true_survived`` and ``all_failed`` count trials; ``all_failed`` those whose candidates all failed.
    """
    if record is None:
        return None
    names, survivors, true = record["candidates"], record["survivors"], record["true"]
    return {
        "trials": trials,
        "candidates": len(names),
        "mean_eliminated": len(names) - sum(len(row) for row in survivors) / trials,
        "survived": {name: sum(name in row for row in survivors) for name in names},
        "true_survived": None if true is None else sum(t in row for t, row in zip(true, survivors, strict=True)),
        "all_failed": sum(not row["eliminated"] for row in record["eliminations"]),
        **{key: record[key] for key in ("true", "survivors", "eliminations")},
    }


def elimination_line(found: dict[str, Any]) -> str:
    """The eliminations of an entry of the summary, in words."""
    of = f"of {found['trials']} trials"
    if found["true_survived"] is None:
        start = "no candidate is known to be right"
    else:
        start = f"the true candidate survived in {found['true_survived']} {of}"
    line = f"{start}; on average {found['mean_eliminated']:.3g} of {found['candidates']} were eliminated"
    if found["mean_eliminated"] == 0.0:
        return f"{start}; none was ever eliminated."
    survived = ", ".join(f"{name} in {count}" for name, count in found["survived"].items())
    return f"{line}; left at the end ({of}): {survived}."


def _elimination_warnings(label: str, found: dict[str, Any] | None, panel: PanelConfig) -> list[str]:
    """Warn where assumptions did not hold."""
    if found is None:
        return []
    lines = []
    if found["all_failed"]:
        lines.append(
            f"{label}: in {found['all_failed']} of {found['trials']} trials every candidate failed its test: no "
            "candidate fits, the noise is larger than noise_scale, or the width does not hold (B too small). The "
            "last survivor was kept."
        )
    lost = 0 if found["true_survived"] is None else found["trials"] - found["true_survived"]
    if lost > panel.delta * found["trials"]:
        lines.append(
            f"{label}: the true candidate was eliminated in {lost} of {found['trials']} trials, more than delta = "
            f"{panel.delta:g}: its width or noise_scale does not hold."
        )
    return lines
