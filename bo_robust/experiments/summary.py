"""From traces to numbers: the content of ``summary.json``."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bo_robust.bandits import ALGORITHMS
from bo_robust.experiments.config import Panel, RunConfig

# An arm is reported when more than half of its rewards, and at least this many, were truncated: one such reward of an
# arm pulled once says nothing.
MIN_TRUNCATED = 3
FLOOR = 1e-4  # in logarithms, regrets below count as this much, to which the value at risk of a continuous Z is known
CONFIDENCE = 0.7  # of the intervals around means of log10 regret, as in the figures of Nguyen et al. 2021

Metadata = Mapping[str, Mapping[str, Any]]


def mean_and_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error over trials; a single trial has no error."""
    return float(values.mean()), float(stats.sem(values)) if len(values) > 1 else None


def mean_interval(values: np.ndarray, confidence: float | None = None) -> tuple[Any, Any, Any]:
    """Mean over the first axis, and both ends of its Student-t confidence interval; all equal for one value.

    Without a ``confidence`` the interval reaches one standard error to both sides.
    """
    mean, n = values.mean(0), len(values)
    quantile = 1.0 if confidence is None else stats.t.ppf(0.5 + confidence / 2.0, n - 1)
    reach = quantile * stats.sem(values) if n > 1 else 0.0
    return mean, mean - reach, mean + reach


def difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Paired difference ours - theirs: ``mean``, its standard ``error``, and ``significant``, by a t test at 5 %.

    A single trial has error None and is never significant.
    """
    mean, error = mean_and_error(ours - theirs)
    significant = error is not None and abs(mean) > float(stats.t.ppf(0.975, len(ours) - 1)) * error
    return {"mean": mean, "error": error, "significant": bool(significant)}


def join_metadata(jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of all trials of a method, from those of its jobs, in order."""
    joined = jobs[0] | {"seconds": sum(of["seconds"] for of in jobs)}
    if known := joined.get("eliminations"):  # lists over the trials, or None
        parts = {key: [of["eliminations"][key] for of in jobs] for key in ("true", "survivors", "eliminations")}
        joined["eliminations"] = known | {key: [*chain(*of)] for key, of in parts.items() if known[key] is not None}
    return joined


def summarise(config: RunConfig, traces: pd.DataFrame, metadata: Mapping[str, Metadata]) -> dict[str, Any]:
    """Numbers of every panel and method, comparisons and warnings, as plain data.

    ``metadata`` are those of the jobs, joined, by name of the panel and label. What is not here is of one loop, see
    :func:`_over_arms`, :func:`_over_designs` and :func:`_over_conditions`.
    """
    panels = []
    for panel in config.panels:
        rows, known = traces[traces["panel"] == panel.name], metadata[panel.name]
        by_label = {label: rows[rows["method"] == label] for label in panel.labels}
        methods, measures, others = SUMMARISED[panel.loop](panel, by_label, known)
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
                "notes": known[panel.labels[0]]["notes"],
                "methods": methods,
                "best": best,
                "not_distinguishable_from_best": ties,
                "comparisons": compared,
                "warnings": [],
                **others,
            }
        )
    return {"name": config.name, "description": config.description, "panels": panels}


# Numbers by label; per trial, by measure and label, what pairs are compared by, the first of them also for the best;
# and what a panel has beside.
Summarised = tuple[dict[str, Any], dict[str, dict[str, np.ndarray]], dict[str, Any]]


def _over_arms(panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summarised:
    methods: dict[str, Any] = {}
    measures: dict[str, dict[str, np.ndarray]] = {"average_regret": {}, "simple_regret": {}, "best_queried": {}}
    for label, of in rows.items():
        by_trial = of.groupby("trial", sort=True)
        measures["best_queried"][label] = by_trial["regret"].min().to_numpy()
        measures["average_regret"][label] = by_trial["regret"].mean().to_numpy()
        measures["simple_regret"][label] = by_trial["simple_regret"].last().to_numpy()
        with_width = bool(of["width"].notna().any())
        failed = of.loc[~of["ok"], ["trial", "round"]].sort_values(["round", "trial"])
        methods[label] = {
            **{measure: mean_and_error(values[label]) for measure, values in measures.items()},
            "coverage": float(of["coverage"].mean()) if with_width else None,
            "final_coverage": float(by_trial["coverage"].last().mean()) if with_width else None,
            "mean_width": float(of["width"].mean()) if with_width else None,
            "truncated": float(of["truncated"].mean()),
            "failed_pulls": len(failed),
            "first_failed": failed.iloc[0].tolist() if len(failed) else None,
            "seconds": metadata[label]["seconds"],
            "dictionary": _dictionary(of),
            "eliminations": _summarise_eliminations(metadata[label]["eliminations"], panel.trials),
        }
    average, algorithms = measures["average_regret"], {of.label: ALGORITHMS[of.name] for of in panel.methods}
    baselines = [label for label, algorithm in algorithms.items() if algorithm.is_baseline]
    gaps = [(a, difference(average[a], average[b])) for a in average if a not in baselines for b in baselines]
    warnings: list[str] = []
    for label, algorithm in algorithms.items():
        truncation = _truncation_warning(label, rows[label], metadata[label], algorithm.truncates_anew)
        warnings += [truncation] if truncation else []
    for label, one in methods.items():
        warnings += _elimination_warnings(label, one["eliminations"], panel)
    no_better = [a for a, gap in gaps if not (gap["significant"] and gap["mean"] < 0)]
    return methods, measures, {"delta": panel.delta, "no_better_than_random": no_better, "warnings": warnings}


def _dictionary(of: pd.DataFrame) -> list[float] | None:
    """Mean size at the end, and mean over all rounds of the size over the effective dimension; None without one."""
    if "dictionary_size" not in of or bool(of["dictionary_size"].isna().all()):
        return None
    last = of[of["round"] == of["round"].max()]
    ratio = of["dictionary_size"] / of["effective_dimension"]
    return [float(last["dictionary_size"].mean()), float(ratio.mean())]


def _over_designs(panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summarised:
    """Numbers of methods over designs, after the last evaluation: ``final`` is the simple regret of every trial.

    ``found`` is the share of the outliers that are flagged, ``false_alarms`` that of the other readings. None where
    there are no such readings.
    """
    methods: dict[str, Any] = {}
    measures: dict[str, dict[str, np.ndarray]] = {"simple_regret": {}, "log10_regret": {}}
    for label, of in rows.items():
        final = of.groupby("trial", sort=True)["regret"].last().to_numpy()
        measures["simple_regret"][label], measures["log10_regret"][label] = final, log_regret(final)
        flagged, outlier = of["flagged"].to_numpy(dtype=bool), of["outlier"].to_numpy(dtype=bool)
        methods[label] = {
            "simple_regret": mean_and_error(final),
            **_log_mean(final),
            "final": final.tolist(),
            "found": float(flagged[outlier].mean()) if outlier.any() else None,
            "false_alarms": float(flagged[~outlier].mean()) if not outlier.all() else None,
            "seconds": metadata[label]["seconds"] / panel.trials,
        }
    return methods, measures, {}


def _log_mean(final: np.ndarray) -> dict[str, Any]:
    """Mean of log10 regret over trials, and its 70 % interval, None for one trial."""
    mean, low, high = mean_interval(log_regret(final), CONFIDENCE)
    return {"log10_regret": float(mean), "interval": [float(low), float(high)] if len(final) > 1 else None}


def _over_conditions(panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summarised:
    """Numbers of methods over (x, z), after the last round: ``final`` is the log10 regret of every trial.

    ``seconds`` and ``regret_bound`` are medians; ``regret_bound_held`` is the share of rounds in which the bound held,
    None where a method has none.
    """
    methods: dict[str, Any] = {}
    for label, of in rows.items():
        final, bound = of.groupby("trial", sort=True)[["regret", "regret_bound"]].nth(-1).T.to_numpy()
        bounds = bool(of["regret_bound"].notna().any())
        methods[label] = {
            **_log_mean(final),
            "median_regret": float(np.median(final)),
            "final": log_regret(final).tolist(),
            "seconds": float(of["seconds"].median()),
            "regret_bound": float(np.median(bound)) if bounds else None,
            "regret_bound_held": float((of["regret_bound"] >= of["regret"]).mean()) if bounds else None,
            "failed_fits": int((~of["fit_ok"]).sum()),
        }
    measures = {"log10_regret": {label: np.array(one["final"]) for label, one in methods.items()}}
    return methods, measures, {"optimum": metadata[panel.labels[0]]["optimum"]}


SUMMARISED: dict[str, Callable[[Panel, Mapping[str, pd.DataFrame], Metadata], Summarised]] = {
    "arms": _over_arms,
    "botorch": _over_designs,
    "environment": _over_conditions,
}


def log_regret(regret: Any) -> np.ndarray:
    """log10 of regrets, with regrets below :data:`FLOOR` replaced by it."""
    return np.log10(np.maximum(np.asarray(regret, dtype=float), FLOOR))


def _truncation_warning(label: str, rows: pd.DataFrame, metadata: Mapping[str, Any], anew: bool) -> str | None:
    """Warn if more than half of the rewards of an arm, or of all, were truncated.

    Algorithms that truncate all rewards ``anew`` each round may restore them later: a warning then needs more than half
    of all rewards to be truncated in their own round.
    """
    share = float(rows["truncated"].mean())
    if anew:
        if share <= 0.5:
            return None
        return (
            f"{label}: {100 * share:.3g} % of all rewards lost more than half of their weight in their own "
            f"round. Final b_t = {metadata['level']:.3g} (for u y with |u| <= 1), median |reward| = "
            f"{float(rows['reward'].abs().median()):.3g}: v (moment_bound) is too small for these rewards."
        )
    by_arm = rows.groupby("arm")["truncated"]
    truncated, pulls = by_arm.sum(), by_arm.size()
    most = truncated[(truncated > 0.5 * pulls) & (truncated >= (MIN_TRUNCATED if share <= 0.5 else 0))]
    if most.empty:
        return None
    arm = int(most.index.to_numpy()[most.to_numpy().argmax()])
    arm_name = metadata["arm_names"][arm] if metadata["arm_names"] else str(arm)
    scale = float(rows.loc[rows["arm"] == arm, "reward"].abs().median())
    return (
        f"{label}: {len(most)} of {len(pulls)} arms pulled lost more than half of their rewards to truncation "
        f"({100 * share:.3g} % of all rewards); the most in number is arm {arm_name} with {truncated[arm]} of "
        f"{pulls[arm]}. Final b_t = {metadata['level']:.3g}, median |reward| of that arm = {scale:.3g}: v "
        "(moment_bound) is too small for these rewards, or they are not centred."
    )


def _summarise_eliminations(record: dict[str, Any] | None, trials: int) -> dict[str, Any] | None:
    """Numbers of an :func:`bo_robust.experiments.loop_arms.elimination_record`, and the record itself.

    ``survived``, ``true_survived`` and ``all_failed`` count trials.
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


def _elimination_warnings(label: str, found: dict[str, Any] | None, panel: Panel) -> list[str]:
    if found is None:
        return []
    lines = []
    if found["all_failed"]:
        lines.append(
            f"{label}: in {found['all_failed']} of {found['trials']} trials every candidate failed its test: no "
            "candidate fits, the noise is larger than noise_scale, or the width does not hold (B too small). The "
            "last survivor was kept."
        )
    wrong = 0 if found["true_survived"] is None else found["trials"] - found["true_survived"]
    if wrong > panel.delta * found["trials"]:
        lines.append(
            f"{label}: the true candidate was eliminated in {wrong} of {found['trials']} trials, more than delta = "
            f"{panel.delta:g}: its width or noise_scale does not hold."
        )
    return lines
