"""The panel that reads the data folder (BO_ROBUST_DATA), tiny."""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.conditions import VUCB, Random
from benchmarks.problems.conditions.portfolio import Portfolio
from benchmarks.run import main

METHODS = {"V-UCB-PROB": VUCB(restarts=2, raw_samples=16), "RANDOM": Random()}
PANELS = [ConditionsPanel("portfolio", Portfolio(), METHODS, trials=1, rounds=2)]

if __name__ == "__main__":
    main(PANELS)
