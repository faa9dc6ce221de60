"""The methods of Fig. 5. "/5": the width of Theorem 1 with w^2 divided by 5, as in the paper."""

from benchmarks.methods.arms import finite, practical
from bo_robust.bandits import GPUCB, IRGPUCB, ExpectedImprovement, ProbabilityOfImprovement, PureMean, PureVariance
from bo_robust.confidence import RandomizedWidth

METHODS = {
    "GP-UCB /5": lambda p: GPUCB(practical(p)),
    "GP-UCB theory": lambda p: GPUCB(finite(p)),
    "IRGP-UCB": lambda p: IRGPUCB(RandomizedWidth(p.num_arms)),
    "EI": ExpectedImprovement(),
    "MPI": ProbabilityOfImprovement(),
    "mean": PureMean(),
    "variance": PureVariance(),
}
COMPARE = [("GP-UCB /5", "EI"), ("GP-UCB /5", "mean"), ("GP-UCB /5", "variance")]
