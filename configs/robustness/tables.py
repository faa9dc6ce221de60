"""Five laboratory tables with 10 % of the readings wrong by 10 standard deviations.

But for suzuki they need the data folder.
"""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.loops.outliers import Shift
from benchmarks.problems.designs import Laboratory
from benchmarks.run import main
from configs.robustness.methods import COMPARE, METHODS

WRONG = Shift(share=0.1, size=10.0)
PANELS = [
    DesignsPanel(name, Laboratory(name), METHODS, trials=8, rounds=40, compare=COMPARE, outliers=WRONG)
    for name in ("alkox", "suzuki", "fullerenes", "photo_wf3", "benzylation")
]

if __name__ == "__main__":
    main(PANELS)
