"""BoTorch acquisition functions; importing this registers their input constructors."""

from bo_robust.acquisition import input_constructors
from bo_robust.acquisition.elimination import Elimination, EliminationUCB, eliminate
from bo_robust.acquisition.fresh_pair import fresh_pair
from bo_robust.acquisition.knowledge_gradient import ValueAtRiskKnowledgeGradient
from bo_robust.acquisition.lnso import optimize_lnso, search_lacing_value
from bo_robust.acquisition.noisy_improvement import OnePointLogNoisyExpectedImprovement
from bo_robust.acquisition.several_outcomes import OnePointLogNoisyExpectedHypervolumeImprovement
from bo_robust.acquisition.ucb import GPUCB
from bo_robust.acquisition.value_at_risk import StableOpt, ValueAtRiskUCB, recommend_design

__all__ = [
    "GPUCB",
    "Elimination",
    "EliminationUCB",
    "OnePointLogNoisyExpectedHypervolumeImprovement",
    "OnePointLogNoisyExpectedImprovement",
    "StableOpt",
    "ValueAtRiskKnowledgeGradient",
    "ValueAtRiskUCB",
    "eliminate",
    "fresh_pair",
    "input_constructors",
    "optimize_lnso",
    "recommend_design",
    "search_lacing_value",
]
