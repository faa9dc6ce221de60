"""Ziomek, Adachi & Osborne 2024, experiment (a): Berkenkamp's line with a bump, unknown lengthscale.

Stated there: f (see the problem), the five lengthscales, 3 uniform initial points, 50 rounds, 50 seeds, delta = 0.1,
g(t) = t^0.9. Not stated: SE kernel, noise 0.1 = R, grid, B. The width is the paper's, with the realised information
gain in place of the largest possible one, and with the half of delta that its test leaves it; B = 2 is practical, B = 8
(the problem's) what the noise lets see of the norm under l = 0.3. With the lambda = R^2 of the paper a bound that is
proved has 1 for the width's R (sweep.py). Simple regret is that of the arm of largest posterior mean; RANDOM has the
posterior of l = 0.3.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, self_normalized
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale
from benchmarks.run import main
from bo_robust.bandits import AGPUCB, GPUCB, HEGPUCB, CandidateAlgorithm, ExpectedUCB, RandomArm

METHODS = {
    "HE-GP-UCB": lambda p: HEGPUCB(self_normalized(p, 2.0), p.noise_scale, DELTA),
    "MLE-GP-UCB": lambda p: CandidateAlgorithm(self_normalized(p, 2.0)),
    "ExpectedUCB": lambda p: ExpectedUCB(self_normalized(p, 2.0)),
    "A-GP-UCB": lambda p: AGPUCB(self_normalized(p, 2.0), p.candidates.lengthscales),
    "GP-UCB, l = 0.3": lambda p: GPUCB(self_normalized(p, 2.0)),
    "HE-GP-UCB, B = 8": lambda p: HEGPUCB(self_normalized(p), p.noise_scale, DELTA),
    "GP-UCB, l = 0.3, B = 8": lambda p: GPUCB(self_normalized(p)),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("HE-GP-UCB", "MLE-GP-UCB"),
    ("HE-GP-UCB", "ExpectedUCB"),
    ("HE-GP-UCB", "A-GP-UCB"),
    ("HE-GP-UCB", "GP-UCB, l = 0.3"),
    ("HE-GP-UCB", "RANDOM"),
]
PANELS = [
    ArmsPanel("(a) lengthscale", UnknownLengthscale(), METHODS, trials=50, rounds=53, initial=3, compare=COMPARE),
]

if __name__ == "__main__":
    main(PANELS)
