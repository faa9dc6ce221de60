"""Which truncation rule where? TGP-UCB with rewards beyond b_t left alone, set to zero or clipped, at one width.

Real tables are centred by median and MAD. They need the data folder.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import practical, tgp_level
from benchmarks.problems.rewards import RareSpikes, StudentT, SymmetricPareto
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.problems.tables import DJIA29, CMULight
from benchmarks.run import main
from bo_robust.bandits import GPUCB, TGPUCB, RandomArm

METHODS = {
    "none": lambda p: GPUCB(practical(p)),
    "zero": lambda p: TGPUCB(practical(p), tgp_level(p)),
    "clip": lambda p: TGPUCB(practical(p), tgp_level(p), rule="clip"),
    "random": RandomArm(),
}
SPIKES = RareSpikes(magnitude=100.0, probability=0.002, noise_var=1.0)
PROBLEMS = {
    "rules: t(3) noise": RKHSFunction(noise=StudentT(df=3.0)),
    "rules: symmetric Pareto 1.5": RKHSFunction(noise=SymmetricPareto(index=1.5)),
    "rules: spikes of 100 at 1/500": RKHSFunction(noise=SPIKES),
    "rules: DJIA prices, centred": DJIA29(scaling="centered"),
    "rules: light sensors, centred": CMULight(scaling="centered"),
}
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=40, rounds=2000, compare=[("zero", "none"), ("clip", "none")])
    for name, problem in PROBLEMS.items()
]

if __name__ == "__main__":
    main(PANELS)
