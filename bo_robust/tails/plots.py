"""Pictures of a tail."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from bo_robust.models import RobustGP
from bo_robust.tails.data import as_labels, as_rewards, within_arms
from bo_robust.tails.index import default_k

# More points than these cannot be told apart in a picture.
POINTS = 1000


def tail_plot(y: Any, path: Path | str | None = None, *, arms: Any = None) -> Figure:
    """Draw three pictures of the tail of rewards minus their median, and save them if there is a path.

    Left, quantiles against those of a Gaussian of the same median and MAD. Middle, the mean excess
    E[|y| - u | |y| > u]: it rises in a straight line for power tails and stays level for exponential ones. Right,
    Hill's estimate and its 95 % interval for every k, with the default k marked: look for a stretch that is level.

    Rewards may have any shape (numpy, torch or pandas). With ``arms``, the label of each reward's arm, the median is
    that of its arm. Raises ``ValueError`` if rewards are not finite, fewer than 100, or more than half equal the
    median.
    """
    values = as_rewards(y)
    n, k = len(values), default_k(len(values))
    r = np.sort(within_arms(values, as_labels(arms, n)))
    sigma = float(np.median(np.abs(r))) / float(stats.norm.ppf(0.75))
    if sigma == 0.0:
        raise ValueError("more than half of the rewards equal their median: there is no scale to draw by.")
    figure = Figure(figsize=(13, 4), layout="constrained")
    qq, excess, hills = figure.subplots(1, 3)

    shown = _thin(n)
    normal = sigma * stats.norm.ppf((shown + 0.5) / n)
    qq.plot(normal, r[shown], ".", markersize=3)
    qq.plot(normal[[0, -1]], normal[[0, -1]], "k--", linewidth=1)
    qq.set(title="quantiles against a Gaussian", xlabel="Gaussian", ylabel="reward - median")
    qq.set_yscale("symlog", linthresh=5.0 * sigma)

    x = np.sort(np.abs(r))[::-1]
    ranks = np.arange(1, n)
    mean_above = np.cumsum(x)[:-1] / ranks
    some = ranks[_thin(n - 1)]
    # Means of fewer than 5 values are noise; thresholds below the median are no tail.
    some = some[(some >= 5) & (some <= n // 2)]
    excess.plot(x[some], mean_above[some - 1] - x[some], ".", markersize=3)
    excess.set(title="mean excess of |reward - median|", xlabel="threshold u", ylabel="mean of |.| - u beyond u")
    excess.set_xscale("log")
    excess.set_yscale("log")

    logs = np.log(x[x > 0.0])
    ks = np.arange(1, len(logs))
    gamma = np.cumsum(logs)[:-1] / ks - logs[1:]
    some = ks[_thin(len(ks))]
    some = some[(some >= 5) & (some <= n // 4) & (gamma[some - 1] > 0.0)]
    index = 1.0 / gamma[some - 1]
    low, high = (index * stats.chi2.ppf(q, 2 * some) / (2 * some) for q in (0.025, 0.975))
    hills.plot(some, index)
    hills.fill_between(some, low, high, alpha=0.2)
    hills.axvline(k, color="k", linestyle="--", linewidth=1, label=f"k = {k}")
    hills.axhline(2.0, color="r", linewidth=1, label="below: infinite variance")
    hills.set(title="Hill estimate of the tail index", xlabel="k", xscale="log", ylim=(0.0, 6.0))
    hills.legend(fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def plot_outliers(model: RobustGP, path: Path | str | None = None, *, maximize: bool | None = None) -> Figure:
    """Draw the surprise of each reward against the limit from which the model does not believe it, by row.

    Suspects (:meth:`bo_robust.RobustGP.suspects`, for ``maximize``) have a ring: measure them again. The figure is
    saved if there is a path. Before a fit no reward is surprising. Raises ``TypeError`` for another model.
    """
    if not isinstance(model, RobustGP):
        raise TypeError(f"plot_outliers draws a RobustGP, got {type(model).__name__}; of a list, pass one model.")
    believed, surprise, limit = (x.cpu().numpy() for x in (model.believed, model.surprise.abs(), model.surprise_limit))
    rows, suspects = np.arange(len(believed)), model.suspects(maximize).cpu().numpy()
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rows, limit, "k_", label="limit")
    axes.plot(rows[believed], surprise[believed], ".", label="believed")
    axes.plot(rows[~believed], surprise[~believed], "x", label="not believed")
    axes.plot(suspects, surprise[suspects], "o", fillstyle="none", markersize=10, label="suspect: measure again")
    axes.set(title="which rewards RobustGP believes", xlabel="row", ylabel="|surprise|, standard deviations")
    axes.set_yscale("symlog", linthresh=10.0)
    axes.legend(fontsize=8)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _thin(n: int) -> np.ndarray:
    """Positions of 0..n-1 to draw: all, or about POINTS, densest at both ends."""
    if n <= POINTS:
        return np.arange(n)
    near = np.unique(np.geomspace(1, n // 2, POINTS // 2).astype(int)) - 1
    return np.concatenate([near, (n - 1 - near)[::-1]])
