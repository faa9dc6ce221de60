"""Return of a trading strategy under uncertain costs, in % a year (Cakmak et al. 2020; Nguyen et al. 2021, Figure 5).

Portfolio optimisation (3,2), Z uniform on 100 points, so that the worst case is worth comparing. It needs the data
folder.
"""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.problems.conditions.portfolio import Portfolio
from benchmarks.run import main
from configs.value_at_risk.methods import COMPARE, OTHERS, SEED, STABLE, V_UCB

METHODS = {**V_UCB, **STABLE, **OTHERS}
PANELS = [ConditionsPanel("portfolio", Portfolio(), METHODS, trials=10, rounds=60, compare=COMPARE, seed=SEED)]

if __name__ == "__main__":
    main(PANELS)
