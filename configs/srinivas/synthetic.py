"""Srinivas et al. 2010, Fig. 5 (a): f ~ GP(0, SE l = 0.2) on 1000 points of [0, 1], lambda = 0.025, delta = 0.1."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.synthetic import GPDraw
from benchmarks.run import main
from configs.srinivas.methods import COMPARE, METHODS

PANELS = [ArmsPanel("(a) synthetic SE", GPDraw(), METHODS, trials=30, rounds=1000, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
