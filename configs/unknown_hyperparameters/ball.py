"""Ziomek, Adachi & Osborne 2024, Algorithm 2 (Appendix I): HE-StableOpt on Berkenkamp's line with a bump.

Every design is run within 0.1 of it, and the lengthscale is unknown. The bump, best without a ball, is lost: the best
design is at the right end. The paper has no experiment of it. Widths as in lengthscale.py; StableOpt is given the
shortest lengthscale, GP-UCB and MLE-GP-UCB ignore the ball.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, self_normalized
from benchmarks.problems.pairs import Ball
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale
from benchmarks.run import main
from bo_robust.bandits import GPUCB, CandidateAlgorithm, HEStableOpt, RandomArm, StableOpt

METHODS = {
    "HE-STABLE-OPT": lambda p: HEStableOpt(self_normalized(p, 2.0), p.noise_scale, DELTA, p.num_conditions),
    "StableOpt, l = 0.3": lambda p: StableOpt(self_normalized(p, 2.0), p.num_conditions),
    "MLE-GP-UCB": lambda p: CandidateAlgorithm(self_normalized(p, 2.0)),
    "GP-UCB, l = 0.3": lambda p: GPUCB(self_normalized(p, 2.0)),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("HE-STABLE-OPT", "StableOpt, l = 0.3"),
    ("HE-STABLE-OPT", "MLE-GP-UCB"),
    ("HE-STABLE-OPT", "GP-UCB, l = 0.3"),
    ("HE-STABLE-OPT", "RANDOM"),
]
PROBLEM = Ball(UnknownLengthscale(num_arms=101), epsilon=0.1)
PANELS = [ArmsPanel("ball of 0.1", PROBLEM, METHODS, trials=50, rounds=53, initial=3, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
