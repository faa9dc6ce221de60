"""Calandriello et al. 2019, Theorem 1: a dictionary has at most 3 (1 + kappa^2 / lambda) alpha q d_eff points.

The lines below a table give its size, and the size over the effective dimension, sum of sigma~^2 over the rewards. At
epsilon = 0.5, whose alpha is 3, the q of the theorem is 697 for these rounds: it keeps nearly every arm pulled.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, practical
from benchmarks.problems.synthetic import GPDraw
from benchmarks.run import main
from bo_robust.bandits import BKB, GPUCB, RandomArm
from bo_robust.features.leverage import theory_oversampling

METHODS = {
    "exact GP": lambda p: GPUCB(practical(p)),
    "BKB, q = 1": lambda p: BKB(practical(p), oversampling=1.0),
    "BKB, q = 5": lambda p: BKB(practical(p), oversampling=5.0),
    "BKB, q = 20": lambda p: BKB(practical(p), oversampling=20.0),
    "BKB, theorem's q": lambda p: BKB(practical(p), oversampling=theory_oversampling(p.rounds, DELTA, 0.5)),
    "random": RandomArm(),
}
PANELS = [
    ArmsPanel(
        "GP draws",
        GPDraw(lengthscale=0.1),
        METHODS,
        trials=10,
        rounds=400,
        compare=[("BKB, q = 5", "exact GP")],
    )
]

if __name__ == "__main__":
    main(PANELS)
