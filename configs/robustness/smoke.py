"""Every method of BoTorch's loop once, on a function and on the table that is in the repository: it needs no data."""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.loops.outliers import DeadSensor, Shift
from benchmarks.methods.designs import RelevancePursuit
from benchmarks.problems.designs import Function, Laboratory
from benchmarks.run import main
from configs.robustness.methods import COMPARE, METHODS

ALL = {**METHODS, "RobustRelevancePursuitSingleTaskGP": RelevancePursuit()}
WRONG = Shift(share=0.3, side="good")
PANELS = [
    DesignsPanel("a bump", Function("bump2"), ALL, trials=1, rounds=9, compare=COMPARE, outliers=WRONG),
    DesignsPanel("a table", Laboratory(), ALL, trials=1, rounds=12, compare=COMPARE, outliers=DeadSensor(share=0.3)),
]

if __name__ == "__main__":
    main(PANELS)
