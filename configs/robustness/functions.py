"""Eleven test functions in 2 to 6 dimensions: which model ends BoTorch's loop best?

The noise is of .1 standard deviations, and no reading is wrong. Other regimes: functions_10_percent.py,
functions_30_percent.py and ``python -m benchmarks.robustness``.
"""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.problems.designs import Function
from benchmarks.run import main
from configs.robustness.methods import COMPARE, METHODS

NAMES = ["bump2", "ackley2", "hartmann3", "bumps4", "levy2", "michalewicz2", "rosenbrock2", "needle2", "bump3"]
NAMES += ["hartmann6", "michalewicz5"]
PANELS = [DesignsPanel(name, Function(name), METHODS, trials=4, rounds=40, compare=COMPARE) for name in NAMES]

if __name__ == "__main__":
    main(PANELS)
