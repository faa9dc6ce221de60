"""The picture of ``bo-robust suggest --plot``: every reading by its row in the file, and along each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from botorch.cross_validation import efficient_loo_cv

from bo_robust.models.verdict import predict
from bo_robust.tables.cells import TableError
from bo_robust.utils.input_checks import shortened

ACROSS = 5  # panels side by side, at most
POINTS = 61  # of a curve
LETTERS, LEVEL_LETTERS = 28, 16  # of a title, of a category
ROWS = 4  # that a text beside them names
NEAR = np.array([0.3, 0.1])  # of a panel, within which texts overlap

if TYPE_CHECKING:
    from bo_robust.proposals.suggest import Suggestion
    from bo_robust.tables.campaign import Campaign


def plot(found: Suggestion, campaign: Campaign, path: Path) -> None:
    """Draw the readings of each objective against what the other readings predict, and along each parameter.

    Flagged and held rows are red and have their number in the file. Raises ``TableError`` where nothing was read, and
    ``ImportError`` without Matplotlib.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ImportError("--plot draws with Matplotlib: pip install matplotlib.") from None
    if found.model is None:
        raise TableError("there is no reading yet, so --plot draws nothing.")
    labels, families = _labels(campaign)
    with rc_context({"font.family": families, "text.parse_math": False}):  # a dollar is money
        _figure(found, campaign, labels).savefig(path, dpi=120)


def _labels(campaign: Campaign) -> tuple[dict[str, str], list[str]]:
    """What is written for titles and categories, and the fonts that have its letters.

    Long texts are shortened. Where no font has a letter the title has the number of its column.
    """
    from matplotlib import font_manager, ft2font, rcParams

    places = {name: f" (column {place})" for place, name in enumerate(campaign.results.names, 1)}
    texts = {campaign.titles[name]: places[name] for name in campaign.objectives}
    texts |= {column.axis: places[column.name] for column in campaign.columns}
    texts |= {column.decode(x): "" for column in campaign.columns if not column.ordered for x in column.grid}
    families, missing = list(rcParams["font.family"]), {ord(letter) for letter in "".join(texts)}
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: font.name != "DejaVu Sans"):
        if missing and not font.name.startswith("Last Resort"):  # which has a box for every letter
            letters = missing & ft2font.FT2Font(font.fname).get_charmap().keys()
            families, missing = families + [font.name] * bool(letters), missing - letters
    labels: dict[str, str] = {}
    for text, place in texts.items():
        most = LETTERS if place else LEVEL_LETTERS
        label = shortened(text.translate(dict.fromkeys(missing, "?")), most)
        label += place * any(ord(letter) in missing for letter in text)
        alike = list(labels.values()).count(label)
        labels[text] = f"{label} [{alike + 1}]" if alike else label
    return labels, families


def _figure(found: Suggestion, campaign: Campaign, labels: Mapping[str, str]) -> Any:
    from matplotlib.figure import Figure

    models: Any = getattr(found.model, "models", [found.model])
    goals, panels = campaign.objectives, 1 + len(campaign.columns)
    rows = -(-panels // ACROSS)
    size = rows * len(goals), -(-panels // rows)
    figure = Figure(figsize=(3.4 * size[1], 3.0 * size[0]), layout="constrained")
    axes = figure.subplots(*size, squeeze=False).reshape(len(goals), -1)
    for j, name in enumerate(goals):
        y, inlier = campaign.Y[:, j], models[j].inlier_mask.cpu().numpy()
        out = ~inlier | models[j].verdict(maximize=True).held.cpu().numpy()
        predicted = found.expected[:, j].numpy().copy()
        # The readings that look right leave no room for what does not, which would squeeze them to a line.
        right = np.concatenate([y[~out], predicted])
        room = 0.1 * float(np.ptp(right)) or 1.0
        limits = float(right.min()) - room, float(right.max()) + room
        left_out: Any = efficient_loo_cv(models[j]).posterior
        predicted[~out] = _in_units(models[j], campaign, j, left_out.mean.detach()).ravel()[~out[inlier]]
        _scatter(axes[j, 0], predicted, y, out, campaign, limits)
        axes[j, 0].plot(limits, limits, "-", color="0.7", zorder=0)
        axes[j, 0].set(xlabel="predicted from all other readings", ylabel=labels[campaign.titles[name]], xlim=limits)
        for i, (axis, column) in enumerate(zip(axes[j, 1:], campaign.columns, strict=False)):
            _response(axis, models[j], campaign, found, j, i)
            _scatter(axis, np.array([campaign.X[row][i] for row in campaign.read]), y, out, campaign, limits)
            axis.set(xlabel=labels[column.axis], ylabel=labels[campaign.titles[name]])
            if not column.ordered:
                ticks = [labels[column.decode(x)] for x in column.grid]
                axis.set_xlim(-0.5, len(column.grid) - 0.5)
                axis.set_xticks(column.grid, ticks, rotation=30, ha="right", fontsize=8)
        for axis in axes[j, panels:]:
            figure.delaxes(axis)
    return figure


def _response(axis: Any, model: Any, campaign: Campaign, found: Suggestion, j: int, i: int) -> None:
    """Draw mean and 95 % interval along column i, where the others are those of the design to use now."""
    expected = found.expected[:, j]
    best = found.best if found.best is not None else int((expected if campaign.maximize[j] else -expected).argmax())
    at, column = campaign.read[best], campaign.columns[i]
    x, seen = np.array(campaign.X[at]), [campaign.X[row][i] for row in campaign.read]
    low, high = min(*column.span, *seen), max(*column.span, *seen)
    values = np.linspace(low, high, POINTS) if column.ordered else column.grid
    moved = (_moved(campaign, x, i, float(value)) for value in values)
    designs = np.array([design for design in moved if design is not None])
    if len(designs) == 0:
        return
    U = campaign.encoded.encode(torch.from_numpy(designs))
    mean, lower, upper = (_in_units(model, campaign, j, part) for part in predict(model, U))
    if not column.ordered:
        errors = np.abs(np.sort([lower, upper], 0) - mean)
        axis.errorbar(designs[:, i], mean, errors, fmt="_", color="tab:orange", markersize=14, zorder=1)
    else:
        axis.fill_between(designs[:, i], lower, upper, color="tab:orange", alpha=0.2, linewidth=0, zorder=0)
        axis.plot(designs[:, i], mean, "-", color="tab:orange", zorder=1)
    shared = any(i in columns for columns, *_ in campaign.space.equality_constraints)
    others = "the rest in the ratios of" if shared else "all else as in"
    axis.set_title(f"model, {others} row {campaign.results.lines[at]}", fontsize=8, color="tab:orange", pad=9)


def _moved(campaign: Campaign, x: Any, i: int, value: float) -> Any:
    """The design with another value in column i; parts of its mixture share the rest as before. None if they cannot."""
    moved = x.copy()
    moved[i] = value
    for columns, factors, total in campaign.space.equality_constraints:
        if i in columns:
            factor = dict(zip(columns, factors, strict=True))
            others = [k for k in columns if k != i]
            share = sum(factor[k] * x[k] for k in others)
            if share == 0.0 or (scale := (total - factor[i] * value) / share) < 0.0:
                return None
            moved[others] = scale * x[others]
    return moved


def _in_units(model: Any, campaign: Campaign, j: int, values: Any) -> Any:
    """What the model predicts, in units of the readings."""
    # The model has readings of its own, in units that those of the table are a line of.
    observed, read = model.train_Y_all.cpu().numpy().ravel(), campaign.Y[:, j]
    slope, start = np.polyfit(observed, read, 1) if np.ptp(observed) > 0.0 else (1.0, 0.0)
    return start + slope * values.cpu().numpy()


def _scatter(axis: Any, x: Any, y: Any, out: Any, campaign: Campaign, limits: tuple[float, float]) -> None:
    """Readings, those beyond the limits as triangles at the edge."""
    inside = np.clip(y, *limits)
    axis.plot(x[~out], inside[~out], "o", markersize=4)
    for far, mark in ((y > inside, "^"), (y < inside, "v"), (y == inside, "x")):
        if (out & far).any():  # an empty line that is not clipped spoils the layout
            axis.plot(x[out & far], inside[out & far], mark, color="tab:red", markersize=7, clip_on=False)
    places, sizes = np.stack([x, inside], 1), np.array([np.ptp(x), limits[1] - limits[0]])
    rest = np.flatnonzero(out)
    while len(rest):  # rows whose texts would overlap share one
        at = places[rest[0]]
        near = (np.abs(places[rest] - at) <= NEAR * sizes).all(1)
        texts = [f"row {campaign.results.lines[campaign.read[row]]}: {y[row]:g}" for row in rest[near]]
        text = "\n".join([*texts[:ROWS], *[f"and {len(texts) - ROWS} more"] * (len(texts) > ROWS)])
        side, shift = ("right", -6) if at[0] > 0.5 * (np.min(x) + np.max(x)) else ("left", 6)
        place: dict[str, Any] = {"ha": side, "va": "top" if at[1] > sum(limits) / 2.0 else "bottom"}
        note = axis.annotate(text, at, (shift, 0), textcoords="offset points", fontsize=8, **place)
        note.set_in_layout(False)
        rest = rest[~near]
    axis.set_ylim(limits)
