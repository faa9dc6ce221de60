"""10,000 arms uniform in [0, 1]^6, f a sum of 100 bumps of the kernel."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import practical
from benchmarks.problems.synthetic import ManyArms
from benchmarks.run import main
from bo_robust.bandits import BBKB, BKB, GPUCB, MiniGPUCB, RandomArm

METHODS = {
    "GP-UCB": lambda p: GPUCB(practical(p)),
    "BKB, persistent": lambda p: BKB(practical(p), oversampling=5.0, redraw="persistent"),
    "BBKB": lambda p: BBKB(practical(p), oversampling=5.0, batch_constant=0.3),
    "mini-GP-UCB": lambda p: MiniGPUCB(practical(p), batch_constant=1.7),
    "random": RandomArm(),
}
COMPARE = [("BKB, persistent", "GP-UCB"), ("BBKB", "GP-UCB"), ("mini-GP-UCB", "GP-UCB")]
PROBLEM = ManyArms(num_arms=10000, dim=6, lengthscale=0.5)
PANELS = [ArmsPanel("10,000 arms, d = 6", PROBLEM, METHODS, trials=3, rounds=1500, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
