"""V-UCB against BoTorch's routes to the value at risk, Z discrete (Nguyen et al. 2021, Figure 3).

Synthetic functions, Z on a grid, 10 trials. As in the authors' published scripts, a trial has 60 rounds from 3 (Branin,
Goldstein-Price) or 10 (Hartmann-3) random points, and a fit every third round. A trial of all methods takes
two minutes on one core.
"""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.conditions import MCVaRLogNEI, RhoKGLowest
from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne
from benchmarks.run import main
from configs.value_at_risk.methods import COMPARE, OTHERS, SEED, V_UCB

METHODS = {**V_UCB, **OTHERS, "RHO-KG-LOWEST": RhoKGLowest(), "MC-VAR-LOGNEI": MCVaRLogNEI()}
PROBLEMS = {
    "Branin-Hoo (1,1)": Branin(z="discrete"),
    "Goldstein-Price (1,1)": GoldsteinPrice(z="discrete"),
    "Hartmann-3 (1,2)": Hartmann3OneTwo(z="discrete"),
    "Hartmann-3 (2,1)": Hartmann3TwoOne(z="discrete"),
}
PANELS = [
    ConditionsPanel(
        name, problem, METHODS, trials=10, rounds=60, compare=[*COMPARE, ("V-UCB-PROB", "V-UCB-UNIF")], seed=SEED
    )
    for name, problem in PROBLEMS.items()
]

if __name__ == "__main__":
    main(PANELS)
