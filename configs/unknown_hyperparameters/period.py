"""Ziomek, Adachi & Osborne 2024, experiment (b): four sine waves, unknown period.

Stated there: the function (with misprints, see the problem), that candidates were fitted to f and to its waves, 5
uniform initial points, 50 rounds, 50 seeds, delta = 0.1. Not stated: the candidates in numbers, kernel, noise, grid, R,
B. Widths as in lengthscale.py; B = 10 is what the noise lets see of the norm. RANDOM has the posterior of the true
period.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, self_normalized
from benchmarks.problems.unknown_hyperparameters import UnknownPeriod
from benchmarks.run import main
from bo_robust.bandits import GPUCB, HEGPUCB, CandidateAlgorithm, ExpectedUCB, RandomArm

METHODS = {
    "HE-GP-UCB": lambda p: HEGPUCB(self_normalized(p, 2.0), p.noise_scale, DELTA),
    "MLE-GP-UCB": lambda p: CandidateAlgorithm(self_normalized(p, 2.0)),
    "ExpectedUCB": lambda p: ExpectedUCB(self_normalized(p, 2.0)),
    "GP-UCB, true period": lambda p: GPUCB(self_normalized(p, 2.0)),
    "HE-GP-UCB, B = 10": lambda p: HEGPUCB(self_normalized(p), p.noise_scale, DELTA),
    "GP-UCB, true period, B = 10": lambda p: GPUCB(self_normalized(p)),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("HE-GP-UCB", "MLE-GP-UCB"),
    ("HE-GP-UCB", "ExpectedUCB"),
    ("HE-GP-UCB", "GP-UCB, true period"),
    ("HE-GP-UCB", "RANDOM"),
]
PANELS = [ArmsPanel("(b) period", UnknownPeriod(), METHODS, trials=50, rounds=55, initial=5, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
