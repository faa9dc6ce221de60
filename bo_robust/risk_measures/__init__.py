"""Environments Z, functionals of f(x, Z) such as the value at risk, and rules that select a lacing value."""

from bo_robust.risk_measures.environments import (
    ContinuousEnvironment,
    Environment,
    FiniteEnvironment,
    PerturbationEnvironment,
)
from bo_robust.risk_measures.functionals import (
    FUNCTIONALS,
    CVaR,
    Expectile,
    Functional,
    Mean,
    MeanVariance,
    ValueAtRisk,
    WorstCase,
)

__all__ = [
    "FUNCTIONALS",
    "CVaR",
    "ContinuousEnvironment",
    "Environment",
    "Expectile",
    "FiniteEnvironment",
    "Functional",
    "Mean",
    "MeanVariance",
    "PerturbationEnvironment",
    "ValueAtRisk",
    "WorstCase",
]
