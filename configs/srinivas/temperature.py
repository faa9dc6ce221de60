"""Srinivas et al. 2010, Fig. 5 (b): find the hottest sensor. It needs the data folder.

The data are a substitute of 50 sensors. The 46 rounds are the paper's, whose data have 46 sensors.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.sensors import IntelLab
from benchmarks.run import main
from bo_robust.bandits import ProbabilityOfImprovement
from configs.srinivas.methods import COMPARE, METHODS

# The place of MPI, whose margin is 0.1 degrees in METHODS, depends on it, and the paper states none.
MARGINS = {f"MPI, margin {margin}": ProbabilityOfImprovement(margin) for margin in (0.01, 0.5)}
PANELS = [ArmsPanel("(b) temperature", IntelLab(), METHODS | MARGINS, trials=2000, rounds=46, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
