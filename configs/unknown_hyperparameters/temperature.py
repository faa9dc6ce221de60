"""Ours, no experiment of Ziomek et al.: find the hottest of 50 sensors without trusting one kernel.

It needs the data folder. GP-UCB and RANDOM have the empirical covariance, which no one says is right.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, FIFTH, bayesian
from benchmarks.problems.sensors import UnknownKernelTemperature
from benchmarks.run import main
from bo_robust.bandits import GPUCB, HEGPUCB, CandidateAlgorithm, ExpectedUCB, RandomArm

METHODS = {
    "HE-GP-UCB": lambda p: HEGPUCB(bayesian(p), p.noise_scale, DELTA),
    "MLE-GP-UCB": lambda p: CandidateAlgorithm(bayesian(p)),
    "ExpectedUCB": lambda p: ExpectedUCB(bayesian(p)),
    "GP-UCB": lambda p: GPUCB(bayesian(p)),
    "HE-GP-UCB /5": lambda p: HEGPUCB(bayesian(p, FIFTH), p.noise_scale, DELTA),
    "MLE-GP-UCB /5": lambda p: CandidateAlgorithm(bayesian(p, FIFTH)),
    "GP-UCB /5": lambda p: GPUCB(bayesian(p, FIFTH)),
    "RANDOM": RandomArm(),
}
COMPARE = [
    ("HE-GP-UCB", "MLE-GP-UCB"),
    ("HE-GP-UCB", "ExpectedUCB"),
    ("HE-GP-UCB", "GP-UCB"),
    ("HE-GP-UCB", "RANDOM"),
    ("HE-GP-UCB /5", "MLE-GP-UCB /5"),
]
PANELS = [
    ArmsPanel("temperature", UnknownKernelTemperature(), METHODS, trials=100, rounds=53, initial=3, compare=COMPARE),
]

if __name__ == "__main__":
    main(PANELS)
