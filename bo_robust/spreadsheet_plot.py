"""The picture of ``bo-robust suggest --plot``: every reading by its row in the file, and along each parameter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from botorch.cross_validation import efficient_loo_cv

from bo_robust.cells import TableError

if TYPE_CHECKING:
    from bo_robust.campaign import Campaign
    from bo_robust.suggest import Suggestion


def plot(found: Suggestion, campaign: Campaign, path: Path) -> None:
    """Draw the readings of each objective against what the other readings predict, and along each parameter.

    Flagged and held rows are red and have their number in the file. Raises ``TableError`` where nothing was read, and
    ``ImportError`` without Matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('--plot draws with Matplotlib: pip install "bo-robust[experiments]".') from None
    if found.model is None:
        raise TableError("there is no reading yet, so --plot draws nothing.")
    models: Any = getattr(found.model, "models", [found.model])
    goals, columns = campaign.objectives, campaign.columns
    figure = Figure(figsize=(3.2 * (1 + len(columns)), 3.0 * len(goals)), layout="constrained")
    axes = figure.subplots(len(goals), 1 + len(columns), squeeze=False)
    lines = [campaign.results.lines[i] for i in campaign.read]
    for j, name in enumerate(goals):
        y, inlier = campaign.Y[:, j], models[j].inlier_mask.cpu().numpy()
        out = ~inlier | models[j].held_on_good_side(maximize=True).cpu().numpy()
        # The readings that look right leave no room for what does not, which would squeeze them to a line.
        limits = _limits(np.concatenate([y[~out], found.expected[:, j].numpy()]))
        predicted = found.expected[:, j].numpy().copy()
        left_out = predicted.copy()
        left_out[inlier] = _left_out(models[j], campaign, found, j)
        predicted[~out] = left_out[~out]
        _scatter(axes[j, 0], predicted, y, out, lines, limits)
        axes[j, 0].plot(limits, limits, "-", color="0.7", zorder=0)
        axes[j, 0].set(xlabel="predicted from all other readings", ylabel=campaign.titles[name], xlim=limits)
        for axis, column in zip(axes[j, 1:], columns, strict=True):
            x = np.array([campaign.X[i][columns.index(column)] for i in campaign.read])
            _scatter(axis, x, y, out, lines, limits)
            axis.set(xlabel=column.title)
            if column.categories:
                axis.set_xticks(range(len(column.categories)), column.categories, rotation=30, ha="right")
    figure.savefig(path, dpi=120)


def _left_out(model: Any, campaign: Campaign, found: Suggestion, j: int) -> Any:
    """Predictions of the inliers, each from all others, in units of the readings."""
    posterior: Any = efficient_loo_cv(model).posterior
    mean = posterior.mean.detach().cpu().numpy().ravel()
    # The model has readings of its own, in units that those of the table are a line of.
    own, read = model.train_Y_all.cpu().numpy().ravel(), campaign.Y[:, j]
    slope, start = np.polyfit(own, read, 1) if np.ptp(own) > 0.0 else (1.0, 0.0)
    return start + slope * mean


def _limits(y: Any) -> tuple[float, float]:
    low, high = float(np.min(y)), float(np.max(y))
    room = 0.1 * (high - low) or 1.0
    return low - room, high + room


def _scatter(axis: Any, x: Any, y: Any, out: Any, lines: list[int], limits: tuple[float, float]) -> None:
    """Readings, those beyond the limits as triangles at the edge."""
    inside = np.clip(y, *limits)
    axis.plot(x[~out], inside[~out], "o", markersize=4)
    for far, mark in ((y > limits[1], "^"), (y < limits[0], "v"), ((y >= limits[0]) & (y <= limits[1]), "x")):
        if (out & far).any():  # an empty line that is not clipped spoils the layout
            axis.plot(x[out & far], inside[out & far], mark, color="tab:red", markersize=7, clip_on=False)
    for place in np.flatnonzero(out):
        text = f"row {lines[place]}: {y[place]:g}"
        side, shift = ("right", -6) if x[place] > 0.5 * (np.min(x) + np.max(x)) else ("left", 6)
        at = (x[place], inside[place])
        note = axis.annotate(text, at, (shift, -10), textcoords="offset points", fontsize=8, ha=side)
        note.set_in_layout(False)
    axis.set_ylim(limits)
