"""The methods of GP-UCB and TGP-UCB on random functions with heavy noise, tiny: it needs no data."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import practical, tgp_level
from benchmarks.problems.rewards import StudentT
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.run import main
from bo_robust.bandits import GPUCB, TGPUCB, ExpectedImprovement, RandomArm

METHODS = {
    "GP-UCB": lambda p: GPUCB(practical(p)),
    "TGP-UCB": lambda p: TGPUCB(practical(p), tgp_level(p)),
    "EI": ExpectedImprovement(),
    "random": RandomArm(),
}
PANELS = [
    ArmsPanel(
        "Student-t noise",
        RKHSFunction(noise=StudentT(df=3.0)),
        METHODS,
        trials=3,
        rounds=40,
        compare=[("TGP-UCB", "GP-UCB")],
    )
]

if __name__ == "__main__":
    main(PANELS)
