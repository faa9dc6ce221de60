"""Eight positive, skewed functions with a noise of 5 %: does RobustGP cost anything where no reading is wrong?

``python -m benchmarks.robustness --config skewed --regimes clean "10% factor of 10" "10% 10sd either" --methods
SingleTaskGP "RobustGP + replicates"`` has readings that are ten times too large or too small, too.
"""

from benchmarks.loops.designs import DesignsPanel
from benchmarks.methods.designs import Plain, Robust
from benchmarks.problems.skewed import SKEWED, Skewed
from benchmarks.run import main

METHODS = {"RobustGP + replicates": Robust(replicates=True), "SingleTaskGP": Plain()}
COMPARE = [("RobustGP + replicates", "SingleTaskGP")]
PANELS = [
    DesignsPanel(name, Skewed(name), METHODS, trials=8, rounds=12 * d, compare=COMPARE)
    for name, (d, _) in SKEWED.items()
]

if __name__ == "__main__":
    main(PANELS)
