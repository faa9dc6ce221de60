"""RobustGP against BoTorch's own robust model on the first four of the eleven functions, one reading in ten wrong.

RobustRelevancePursuitSingleTaskGP takes three to six minutes a loop.
"""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.loops.outliers import Shift
from benchmarks.methods.designs import Plain, RelevancePursuit, Robust
from benchmarks.problems.designs import Function
from benchmarks.run import main

METHODS = {
    "RobustGP": Robust(),
    "RobustRelevancePursuitSingleTaskGP": RelevancePursuit(),
    "SingleTaskGP": Plain(),
}
PANELS = [
    DesignsPanel(
        name,
        Function(name),
        METHODS,
        trials=5,
        rounds=40,
        seed=100,
        compare=[("RobustGP", "RobustRelevancePursuitSingleTaskGP")],
        outliers=Shift(share=0.1, size=10.0),
    )
    for name in ("bump2", "ackley2", "hartmann3", "bumps4")
]

if __name__ == "__main__":
    main(PANELS)
