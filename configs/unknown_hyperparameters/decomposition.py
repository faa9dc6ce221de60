"""Ziomek, Adachi & Osborne 2024, experiment (c): unknown additive decomposition in three dimensions.

Stated there: the four candidates, 50 rounds, 100 seeds, delta = 0.1. Not stated: initial points (none here), kernel,
noise, grid, R, B. Widths as in lengthscale.py; B = 8.5 is above the norm on this grid. RANDOM has the posterior of the
true one. The paper's claim is about the beginning, "before other methods can catch up"; the authors' later code has 10
initial points and little noise, so these are panels too.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, self_normalized
from benchmarks.problems.unknown_hyperparameters import UnknownDecomposition
from benchmarks.run import main
from bo_robust.bandits import GPUCB, HEGPUCB, CandidateAlgorithm, ExpectedUCB, RandomArm

METHODS = {
    "HE-GP-UCB": lambda p: HEGPUCB(self_normalized(p, 2.0), p.noise_scale, DELTA),
    "MLE-GP-UCB": lambda p: CandidateAlgorithm(self_normalized(p, 2.0)),
    "ExpectedUCB": lambda p: ExpectedUCB(self_normalized(p, 2.0)),
    "GP-UCB, true groups": lambda p: GPUCB(self_normalized(p, 2.0)),
    "HE-GP-UCB, B = 8.5": lambda p: HEGPUCB(self_normalized(p), p.noise_scale, DELTA),
    "GP-UCB, true groups, B = 8.5": lambda p: GPUCB(self_normalized(p)),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("HE-GP-UCB", "MLE-GP-UCB"),
    ("HE-GP-UCB", "ExpectedUCB"),
    ("HE-GP-UCB", "GP-UCB, true groups"),
    ("HE-GP-UCB", "RANDOM"),
]
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=100, rounds=50 + (initial or 0), compare=COMPARE, initial=initial)
    for name, problem, initial in (
        ("(c) decomposition", UnknownDecomposition(), None),
        ("(c) decomposition, 10 random arms first", UnknownDecomposition(), 10),
        ("(c) decomposition, noise of 0.01", UnknownDecomposition(noise_scale=0.01), None),
    )
]

if __name__ == "__main__":
    main(PANELS)
