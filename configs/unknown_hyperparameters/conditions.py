"""Branin on 25 designs and the 100 conditions of Nguyen et al. 2021, as arms, the lengthscale unknown.

Regret is that of the value at risk at 0.1. V-UCB is given the middle lengthscale; HE-StableOpt and StableOpt look at
the worst condition instead, GP-UCB at no risk.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA
from benchmarks.problems.conditions.synthetic import Branin
from benchmarks.problems.pairs import Conditions
from benchmarks.run import main
from bo_robust.bandits import GPUCB, VUCB, HEStableOpt, RandomArm, StableOpt
from bo_robust.confidence import ConstantWidth

TWO = ConstantWidth(2.0)
METHODS = {
    "V-UCB": lambda p: VUCB(TWO, p.functional, p.num_conditions, p.probabilities),
    "V-UCB Unif": lambda p: VUCB(TWO, p.functional, p.num_conditions, p.probabilities, selection_rule="uniform"),
    "STABLE-OPT": lambda p: StableOpt(TWO, p.num_conditions),
    "HE-STABLE-OPT": lambda p: HEStableOpt(TWO, p.noise_scale, DELTA, p.num_conditions),
    "GP-UCB": GPUCB(TWO),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("V-UCB", "STABLE-OPT"),
    ("V-UCB", "GP-UCB"),
    ("V-UCB", "RANDOM"),
    ("HE-STABLE-OPT", "STABLE-OPT"),
]
PANELS = [
    ArmsPanel("Branin, value at risk", Conditions(Branin()), METHODS, trials=10, rounds=63, initial=3, compare=COMPARE)
]

if __name__ == "__main__":
    main(PANELS)
