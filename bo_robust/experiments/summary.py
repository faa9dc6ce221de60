"""From traces to numbers: the content of ``summary.json``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bo_robust.algorithms import ALGORITHMS
from bo_robust.experiments.comparisons import best_and_ties, compare_pairs, difference, mean_and_error, mean_interval
from bo_robust.experiments.config import Panel, RunConfig

# An arm is reported when more than half of its rewards, and at least this many, were truncated: one such reward of an
# arm pulled once says nothing.
MIN_TRUNCATED = 3
# Over (x, z), regrets below count as this much: the noise has standard deviation 0.1, and the value at risk of a
# continuous Z is known to 1e-4.
FLOOR = 1e-3
# Of the intervals around means of log10 regret, as in the figures of Nguyen et al. 2021.
CONFIDENCE = 0.7
Metadata = Mapping[str, Mapping[str, Any]]


def summarise(config: RunConfig, traces: pd.DataFrame, metadata: Mapping[str, Metadata]) -> dict[str, Any]:
    """Numbers of every panel and method, comparisons and warnings, as plain data.

    ``metadata`` is :attr:`bo_robust.experiments.results.RunResults.metadata`. Every panel has ``name``, ``loop``,
    ``trials``, ``horizon``, ``notes``, ``methods`` by label, ``best``, ``not_distinguishable_from_best``,
    ``comparisons`` and ``warnings``. Other keys are those of one loop, see :func:`_over_arms` and
    :func:`_over_conditions`.
    """
    panels = []
    for panel in config.panels:
        rows, known = traces[traces["panel"] == panel.name], metadata[panel.name]
        by_label = {label: rows[rows["method"] == label] for label in panel.labels}
        methods, measures, others = (_over_arms if panel.over_arms else _over_conditions)(panel, by_label, known)
        panels.append(
            {
                "name": panel.name,
                "loop": panel.loop,
                "trials": panel.trials,
                "horizon": panel.horizon,
                "notes": known[panel.labels[0]]["notes"],
                "methods": methods,
                **best_and_ties(next(iter(measures.values()))),
                "comparisons": compare_pairs(panel.compare, measures),
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
    measures: dict[str, dict[str, np.ndarray]] = {"average_regret": {}, "simple_regret": {}}
    for label, of in rows.items():
        by_trial = of.groupby("trial", sort=True)
        measures["average_regret"][label] = by_trial["regret"].mean().to_numpy()
        measures["simple_regret"][label] = by_trial["simple_regret"].last().to_numpy()
        with_width = bool(of["width"].notna().any())
        methods[label] = {
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
    average, named = measures["average_regret"], {method.label: method.name for method in panel.methods}
    baselines = [label for label, name in named.items() if ALGORITHMS[name].is_baseline]
    truncation = [_truncation_warning(label, rows[label], metadata[label], named[label]) for label in methods]
    elimination = [_elimination_warnings(label, one["eliminations"], panel) for label, one in methods.items()]
    others = {
        "delta": panel.delta,
        "no_better_than_random": [
            label
            for label in average
            for baseline in baselines
            if label not in baselines and not _lower(average[label], average[baseline])
        ],
        "warnings": [*filter(None, truncation), *(line for lines in elimination for line in lines)],
    }
    return methods, measures, others


def _over_conditions(panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summarised:
    """Numbers of methods over (x, z).

    - ``log10_regret``, ``interval``: mean after the last round and its 70 % interval (None for one trial);
    - ``final``: log10 regret of every trial after the last round; ``median_regret``: its median there;
    - ``seconds``: median per acquisition;
    - ``certificate``: median after the last round; ``certificate_held``, ``bound_held``: share of rounds in which the
      certificate and the bound 2 w sigma held. None where a method has none.
    """
    methods = {label: _conditions_method(panel, of) for label, of in rows.items()}
    final = {label: np.array(one["final"]) for label, one in methods.items()}
    known = metadata[panel.labels[0]]
    others = {
        "problem": panel.problem,
        "optimum": {"x": known["x"], "value": known["value"]},
        "alpha": known["alpha"],
        "regret_floor": FLOOR,
    }
    return methods, {"log10_regret": final}, others


def _conditions_method(panel: Panel, rows: pd.DataFrame) -> dict[str, Any]:
    def table(column: str) -> np.ndarray:
        return rows[column].to_numpy(dtype=float).reshape(panel.trials, panel.rows)

    regret, certificate = table("regret"), table("certificate")
    final = log_regret(regret[:, -1])
    mean, low, high = mean_interval(final, CONFIDENCE)
    held: dict[str, Any] = {"certificate": None, "certificate_held": None, "bound_held": None}
    if not np.isnan(certificate).all():  # methods that do not certify have none in any round
        held |= {
            "certificate": float(np.median(certificate[:, -1])),
            "certificate_held": float((certificate >= regret).mean()),
        }
    # After the last round no point is chosen.
    bound, chosen = table("bound")[:, :-1], table("chosen_regret")[:, :-1]
    if not np.isnan(bound).all():
        held["bound_held"] = float((bound >= chosen).mean())
    return {
        "log10_regret": float(mean),
        "interval": [float(low), float(high)] if len(final) > 1 else None,
        "median_regret": float(np.median(regret[:, -1])),
        "final": final.tolist(),
        "seconds": float(np.nanmedian(table("seconds"))),
        **held,
        "failed_fits": int((~rows["fit_ok"]).sum()),
    }


def log_regret(regret: Any) -> np.ndarray:
    """log10 of regrets, with regrets below :data:`FLOOR` replaced by it."""
    return np.log10(np.maximum(np.asarray(regret, dtype=float), FLOOR))


def _lower(ours: np.ndarray, theirs: np.ndarray) -> bool:
    found = difference(ours, theirs)
    return found["significant"] and found["mean"] < 0


def _first_failed(rows: pd.DataFrame) -> list[int] | None:
    failed = rows[~rows["ok"]]
    if failed.empty:
        return None
    first = failed.sort_values(["round", "trial"]).iloc[0]
    return [int(first["trial"]), int(first["round"])]


def _truncation_warning(label: str, rows: pd.DataFrame, metadata: Mapping[str, Any], name: str) -> str | None:
    """Warn if more than half of the rewards of an arm, or of all, were truncated.

    Algorithms that truncate all rewards anew each round may believe them later: a warning then needs more than half of
    all rewards to be truncated in their own round.
    """
    by_arm = rows.groupby("arm")["truncated"]
    truncated, pulls = by_arm.sum(), by_arm.size()
    most = truncated[truncated > 0.5 * pulls]
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
        f"({100 * share:.3g} % of all rewards); the most in number is arm {arm_name} with {truncated[arm]} of "
        f"{pulls[arm]}. Final b_t = {metadata['level']:.3g}, median |reward| of that arm = {scale:.3g}: v "
        "(moment_bound) is too small for these rewards, or they are not centred."
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


def elimination_line(eliminations: dict[str, Any]) -> str:
    """The eliminations of a method of the summary, in words."""
    of = f"of {eliminations['trials']} trials"
    if eliminations["true_survived"] is None:
        start = "no candidate is known to be right"
    else:
        start = f"the true candidate survived in {eliminations['true_survived']} {of}"
    line = f"{start}; on average {eliminations['mean_eliminated']:.3g} of {eliminations['candidates']} were eliminated"
    if eliminations["mean_eliminated"] == 0.0:
        return f"{start}; none was ever eliminated."
    survived = ", ".join(f"{name} in {count}" for name, count in eliminations["survived"].items())
    return f"{line}; left at the end ({of}): {survived}."


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
