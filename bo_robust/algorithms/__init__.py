"""Finite-arm algorithms: one published method, one file. ``gp_ucb`` is the reference."""

from __future__ import annotations

from bo_robust.algorithms.ata_gp_ucb import ATAGPUCB
from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.expected_improvement import ExpectedImprovement
from bo_robust.algorithms.gp_ucb import GPUCB
from bo_robust.algorithms.irgp_ucb import IRGPUCB
from bo_robust.algorithms.mom_gp_ucb import MoMGPUCB
from bo_robust.algorithms.probability_of_improvement import ProbabilityOfImprovement
from bo_robust.algorithms.pure_mean import PureMean
from bo_robust.algorithms.pure_variance import PureVariance
from bo_robust.algorithms.random_arm import RandomArm
from bo_robust.algorithms.tgp_ucb import TGPUCB

__all__ = [
    "ALGORITHMS",
    "ATAGPUCB",
    "GPUCB",
    "IRGPUCB",
    "TGPUCB",
    "ArmAlgorithm",
    "ExpectedImprovement",
    "Info",
    "MoMGPUCB",
    "ProbabilityOfImprovement",
    "PureMean",
    "PureVariance",
    "RandomArm",
    "Selection",
    "State",
]

ALGORITHMS: dict[str, type[ArmAlgorithm]] = {
    "gp-ucb": GPUCB,
    "irgp-ucb": IRGPUCB,
    "tgp-ucb": TGPUCB,
    "ata-gp-ucb": ATAGPUCB,
    "mom-gp-ucb": MoMGPUCB,
    "ei": ExpectedImprovement,
    "pi": ProbabilityOfImprovement,
    "mean": PureMean,
    "variance": PureVariance,
    "random": RandomArm,
}
