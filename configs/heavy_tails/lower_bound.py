"""Ray Chowdhury & Gopalan 2019, Theorem 2: the hard instance of the lower bound. Rewards are almost always zero.

"TGP width": that of Theorem 1 for TGP-UCB; for GP-UCB, which does not truncate, it is no theorem.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.synthetic import HardInstance
from benchmarks.run import main
from bo_robust.bandits import RandomArm
from configs.heavy_tails.methods import PRACTICAL, THEOREMS

METHODS = {**PRACTICAL, **THEOREMS, "random": RandomArm()}
COMPARE = [("TGP-UCB", "GP-UCB"), ("TGP-UCB, TGP width", "GP-UCB, TGP width")]
PANELS = [ArmsPanel("hard instance", HardInstance(), METHODS, trials=20, rounds=10000, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
