"""Srinivas et al. 2010, Fig. 5 (c): find the slowest point of the road. It needs the data folder.

The data are METR-LA's instead of I-880's.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.sensors import MetrLAWeek
from benchmarks.run import main
from configs.srinivas.methods import COMPARE, METHODS

PANELS = [ArmsPanel("(c) traffic", MetrLAWeek(), METHODS, trials=900, rounds=207, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
