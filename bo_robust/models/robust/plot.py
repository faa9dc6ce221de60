"""A figure of the outliers that a ``RobustGP`` detected."""

from pathlib import Path
from typing import Any

import numpy as np

from bo_robust.models.robust.replication import replication_candidates
from bo_robust.models.robust.robust_gp import RobustGP


def plot_outliers(model: RobustGP, path: Path | str | None = None) -> Any:
    """Draw the standardized leave-one-out residual of each observation and the limit of an inlier, by row.

    A ring marks the observations to measure again. The ``Figure`` of matplotlib is returned, and saved if there is a
    path. Before a fit all residuals are 0. Raises ``TypeError`` for another model.
    """
    if not hasattr(model, "loo_zscore"):
        raise TypeError(f"model must be a RobustGP, got {type(model).__name__}; of a list, pass one model.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plot_outliers draws with matplotlib: pip install matplotlib.") from error
    statistics = (model.inlier_mask, model.loo_zscore.abs(), model.loo_zscore_limit)
    inlier, residual, limit = (x.cpu().numpy() for x in statistics)
    rows, again = np.arange(len(inlier)), replication_candidates(model).cpu().numpy()
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rows, limit, "k_", label="limit")
    axes.plot(rows[inlier], residual[inlier], ".", label="inlier")
    axes.plot(rows[~inlier], residual[~inlier], "x", label="outlier")
    axes.plot(again, residual[again], "o", fillstyle="none", markersize=10, label="measure again")
    axes.set(title="outliers of RobustGP", xlabel="row", ylabel="|leave-one-out residual|, standard deviations")
    axes.set_yscale("symlog", linthresh=10.0)
    axes.legend(fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
