"""All algorithms, by class and by name."""

from bo_robust.bandits.a_gp_ucb import AGPUCB
from bo_robust.bandits.ata_gp_ucb import ATAGPUCB
from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State
from bo_robust.bandits.baselines import (
    IRGPUCB,
    ExpectedImprovement,
    ProbabilityOfImprovement,
    PureMean,
    PureVariance,
    RandomArm,
)
from bo_robust.bandits.bbkb import BBKB
from bo_robust.bandits.bkb import BKB
from bo_robust.bandits.candidate_algorithm import CandidateAlgorithm
from bo_robust.bandits.expected_ucb import ExpectedUCB
from bo_robust.bandits.gp_ucb import GPUCB
from bo_robust.bandits.he_gp_ucb import HEGPUCB
from bo_robust.bandits.he_stable_opt import HEStableOpt
from bo_robust.bandits.mini_gp_ucb import MiniGPUCB
from bo_robust.bandits.stable_opt import StableOpt
from bo_robust.bandits.streamed_bbkb import StreamedBBKB
from bo_robust.bandits.tgp_ucb import TGPUCB
from bo_robust.bandits.v_ucb import VUCB

__all__ = [
    "AGPUCB", "ALGORITHMS", "ATAGPUCB", "BBKB", "BKB", "GPUCB", "HEGPUCB", "IRGPUCB", "TGPUCB", "VUCB", "ArmAlgorithm",
    "CandidateAlgorithm", "ExpectedImprovement", "ExpectedUCB", "HEStableOpt", "Info", "MiniGPUCB",
    "ProbabilityOfImprovement", "PureMean", "PureVariance", "RandomArm", "Selection", "StableOpt", "State",
    "StreamedBBKB",
]  # fmt: skip

ALGORITHMS: dict[str, type[ArmAlgorithm]] = {
    "gp-ucb": GPUCB,
    "irgp-ucb": IRGPUCB,
    "tgp-ucb": TGPUCB,
    "ata-gp-ucb": ATAGPUCB,
    "bkb": BKB,
    "bbkb": BBKB,
    "mini-gp-ucb": MiniGPUCB,
    "he-gp-ucb": HEGPUCB,
    "mle-gp-ucb": CandidateAlgorithm,
    "expected-ucb": ExpectedUCB,
    "a-gp-ucb": AGPUCB,
    "v-ucb": VUCB,
    "stable-opt": StableOpt,
    "he-stable-opt": HEStableOpt,
    "ei": ExpectedImprovement,
    "pi": ProbabilityOfImprovement,
    "mean": PureMean,
    "variance": PureVariance,
    "random": RandomArm,
}
