"""Numbers from the traces of a value-at-risk run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bo_robust.experiments.comparisons import best_and_ties, compare_pairs, mean_interval
from bo_robust.experiments.config import ValueAtRiskPanelConfig

# Regrets below count as this much: the noise has standard deviation 0.1, and the value at risk of a continuous Z is
# known to 1e-4.
FLOOR = 1e-3
# Of the intervals around means, as in the paper's figures.
CONFIDENCE = 0.7


def log_regret(regret: Any) -> np.ndarray:
    """log10 of regrets, with regrets below :data:`FLOOR` replaced by it."""
    return np.log10(np.maximum(np.asarray(regret, dtype=float), FLOOR))


def summarise_panel(
    panel: ValueAtRiskPanelConfig, rows: pd.DataFrame, metadata: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Summarise one panel as plain data, given its traces ``rows`` and the ``metadata`` of each label.

    ``comparisons`` holds paired differences of the final log10 regret. ``methods`` holds for each label:

    - ``log10_regret``, ``interval``: mean after the last round and its 70 % interval (None for one repetition);
    - ``final``: log10 regret of every repetition after the last round; ``curve``: mean and interval by round;
    - ``seconds``: median per acquisition; ``median_regret`` and ``interval_length``: medians after the last round;
    - ``certificate``: median after the last round; ``certificate_held``, ``bound_held``: share of rounds in which the
      certificate and the bound 2 w sigma held. None where a method has none.
    """
    known = metadata[panel.labels[0]]
    entries = {label: _entry(panel, rows[rows["method"] == label]) for label in panel.labels}
    final = {label: np.array(entry["final"]) for label, entry in entries.items()}
    return {
        "name": panel.name,
        "problem": panel.problem,
        "notes": known["notes"],
        "optimum": {"x": known["x"], "value": known["value"]},
        "alpha": known["alpha"],
        "rounds": panel.rounds,
        "repetitions": panel.repetitions,
        "regret_floor": FLOOR,
        "methods": entries,
        **best_and_ties(final),
        "comparisons": compare_pairs(panel.compare, {"log10_regret": final}),
        "warnings": [],
    }


def _entry(panel: ValueAtRiskPanelConfig, rows: pd.DataFrame) -> dict[str, Any]:
    def table(column: str) -> np.ndarray:
        return rows[column].to_numpy(dtype=float).reshape(panel.repetitions, panel.rows)

    regret, certificate = table("regret"), table("certificate")
    logs = log_regret(regret)
    mean, low, high = mean_interval(logs, CONFIDENCE)
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
        "log10_regret": float(mean[-1]),
        "interval": [float(low[-1]), float(high[-1])] if len(logs) > 1 else None,
        "median_regret": float(np.median(regret[:, -1])),
        "initial_log10_regret": float(mean[0]),
        "final": logs[:, -1].tolist(),
        "seconds": float(np.nanmedian(table("seconds"))),
        "interval_length": float(np.median(table("interval")[:, -1])),
        **held,
        "failed_fits": int((~rows["fit_ok"]).sum()),
        "curve": {"log10_regret": mean.tolist(), "low": low.tolist(), "high": high.tolist()},
    }
