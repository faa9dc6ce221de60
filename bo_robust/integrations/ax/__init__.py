"""The methods of bo_robust in Ax: :func:`generation_strategy` makes what ``Client.set_generation_strategy`` takes.

Importing this module registers models and acquisitions for Ax' storage. In a new process, do so before
``Client.load_from_json_file``.

Rewards reach the models as reported, in the order of their trials; Ax' Winsorize, BilogY and StandardizeY are left out.
The default method and "bkb" take rewards in any units: their models standardize, and see rewards divided by a power of
1024 where they are very small or large. For the other methods report rewards in units in which f is of order one about
zero, (y - center) / scale with numbers chosen beforehand: their prior is the theory's, mean zero and k(x, x) = 1.
Parameters are mapped to the unit box. Both senses of the objective are understood.

Trials that run, or were abandoned, are hallucinated: their means stay, their variances are as if observed. Ax never
forgets an abandoned trial, so mark a trial that says nothing about its point as failed. A design whose second
observation fails is measured again; abandon the trial to have it left alone.
"""

from bo_robust.integrations.ax.acquisition import RobustAcquisition
from bo_robust.integrations.ax.reports import complete_observed, held_trials, outlier_trials, recommend, slips
from bo_robust.integrations.ax.strategy import generation_strategy

__all__ = [
    "RobustAcquisition",
    "complete_observed",
    "generation_strategy",
    "held_trials",
    "outlier_trials",
    "recommend",
    "slips",
]
