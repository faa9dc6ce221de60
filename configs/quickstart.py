"""A Suzuki coupling from a laboratory's table: which of 247 recipes has the largest yield?

One reading in ten is wrong by 10 standard deviations. BoTorch's loop with RobustGP and with SingleTaskGP.
"""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.loops.outliers import Shift
from benchmarks.methods.designs import Plain, Robust
from benchmarks.problems.designs import Laboratory
from benchmarks.run import main

PANELS = [
    DesignsPanel(
        "one reading in ten wrong",
        Laboratory("suzuki"),
        {"RobustGP": Robust(), "SingleTaskGP": Plain()},
        trials=12,
        rounds=30,
        compare=[("RobustGP", "SingleTaskGP")],
        outliers=Shift(share=0.1, size=10.0),
    )
]

if __name__ == "__main__":
    main(PANELS)
