"""Which of 4,177 abalones has the most rings (UCI; the real target, on [0, 1])? It needs the data folder.

A random arm loses .68 a round: divide by it for regret relative to random arms. No such experiment is printed in
Calandriello et al. 2019; features, lengthscale and noise are ours (benchmarks/problems/tables.py).
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, practical
from benchmarks.problems.tables import Abalone
from benchmarks.run import main
from bo_robust.bandits import BBKB, BKB, GPUCB, MiniGPUCB, RandomArm
from bo_robust.confidence import BKBWidth

METHODS = {
    # The same practical width for all (Srinivas et al., Theorem 1, w^2 / 5).
    "GP-UCB": lambda p: GPUCB(practical(p)),
    "BKB": lambda p: BKB(practical(p), oversampling=5.0),
    "BKB, persistent": lambda p: BKB(practical(p), oversampling=5.0, redraw="persistent"),
    "BKB, q = 1": lambda p: BKB(practical(p), oversampling=1.0),
    "BBKB": lambda p: BBKB(practical(p), oversampling=5.0, batch_constant=0.3),
    "mini-GP-UCB": lambda p: MiniGPUCB(practical(p), batch_constant=1.7),
    # The theorem's width, with F = max|f| = 1 (the RKHS norm is larger).
    "BKB, theorem": lambda p: BKB(
        BKBWidth(p.norm_bound, p.noise_scale, p.noise_var, DELTA, epsilon=0.5), oversampling=5.0
    ),
    "random": RandomArm(),
}
COMPARE = [
    ("BKB", "GP-UCB"),
    ("BKB, persistent", "BKB"),
    ("BKB, q = 1", "BKB"),
    ("BBKB", "GP-UCB"),
    ("mini-GP-UCB", "GP-UCB"),
    ("BKB", "random"),
]
PANELS = [ArmsPanel("abalone", Abalone(), METHODS, trials=5, rounds=2000, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
