"""The functions of functions.py with 10 % of the readings wrong by 10 standard deviations, on either side."""

from dataclasses import replace

from benchmarks.loops.outliers import Shift
from benchmarks.run import main
from configs.robustness import functions

PANELS = [replace(panel, outliers=Shift(share=0.1, size=10.0)) for panel in functions.PANELS]

if __name__ == "__main__":
    main(PANELS)
