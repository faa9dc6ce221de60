"""Alpha, v, B and noise_var for heavy-tailed rewards, chosen from data of the past.

``python -m bo_robust.tails FILE.csv --column NAME`` prints the constants for a column of a table.
"""

from bo_robust.tails.constants import TruncationAdvice, choose_constants, choose_rule
from bo_robust.tails.index import TailIndex, default_k, hill, is_power_law, moment_index
from bo_robust.tails.moments import MomentBound, moment_bound
from bo_robust.tails.plots import plot_outliers, tail_plot

__all__ = [
    "MomentBound",
    "TailIndex",
    "TruncationAdvice",
    "choose_constants",
    "choose_rule",
    "default_k",
    "hill",
    "is_power_law",
    "moment_bound",
    "moment_index",
    "plot_outliers",
    "tail_plot",
]
