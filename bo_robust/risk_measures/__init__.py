"""Environments Z, functionals of f(x, Z) such as the value at risk, and rules that select a lacing value."""

from typing import TYPE_CHECKING

from bo_robust.utils.first_use import on_first_use

if TYPE_CHECKING:
    from bo_robust.risk_measures.environments import ContinuousEnvironment as ContinuousEnvironment
    from bo_robust.risk_measures.environments import Environment as Environment
    from bo_robust.risk_measures.environments import FiniteEnvironment as FiniteEnvironment
    from bo_robust.risk_measures.environments import PerturbationEnvironment as PerturbationEnvironment
    from bo_robust.risk_measures.functionals import FUNCTIONALS as FUNCTIONALS
    from bo_robust.risk_measures.functionals import CVaR as CVaR
    from bo_robust.risk_measures.functionals import Expectile as Expectile
    from bo_robust.risk_measures.functionals import Functional as Functional
    from bo_robust.risk_measures.functionals import Mean as Mean
    from bo_robust.risk_measures.functionals import MeanVariance as MeanVariance
    from bo_robust.risk_measures.functionals import ValueAtRisk as ValueAtRisk
    from bo_robust.risk_measures.functionals import WorstCase as WorstCase
else:
    __all__, __getattr__, __dir__ = on_first_use(__name__)
