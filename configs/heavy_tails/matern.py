"""Ray Chowdhury & Gopalan 2019, Fig. 1 (c): Matern-5/2 kernel, Student-t noise of 3 degrees of freedom."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.rewards import StudentT
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.run import main
from bo_robust.bandits import RandomArm
from configs.heavy_tails.methods import (
    COMPARE_NYSTROM,
    NYSTROM_PRACTICAL,
    NYSTROM_PUBLISHED,
    NYSTROM_THEOREM,
    PRACTICAL,
    PUBLISHED,
    THEOREMS,
    gp_ucb_of_ata,
    gp_ucb_of_published_ata,
)

METHODS = {
    **PRACTICAL,
    **NYSTROM_PRACTICAL,
    **THEOREMS,
    **gp_ucb_of_ata(64),
    **NYSTROM_THEOREM,
    **PUBLISHED,
    **gp_ucb_of_published_ata(64),
    **NYSTROM_PUBLISHED,
    "random": RandomArm(),
}
PROBLEM = RKHSFunction(kernel="matern52", noise=StudentT(df=3.0))
PANELS = [ArmsPanel("(c) Matern, t(3)", PROBLEM, METHODS, trials=20, rounds=20000, compare=COMPARE_NYSTROM)]

if __name__ == "__main__":
    main(PANELS)
