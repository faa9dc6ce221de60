"""Ray Chowdhury & Gopalan 2019, Fig. 1 (d): 29 DJIA prices, the paper's data. It needs the data folder.

On the paper's scale, and with centred rewards. Stocks have no locations, so Nystrom only.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.tables import DJIA29
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
)

METHODS = {
    **PRACTICAL,
    **NYSTROM_PRACTICAL,
    **THEOREMS,
    **NYSTROM_THEOREM,
    **PUBLISHED,
    **NYSTROM_PUBLISHED,
    "random": RandomArm(),
}
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=10, rounds=10000, compare=COMPARE_NYSTROM)
    for name, problem in (("(d) DJIA prices", DJIA29()), ("DJIA prices, centred", DJIA29(scaling="centered")))
]

if __name__ == "__main__":
    main(PANELS)
