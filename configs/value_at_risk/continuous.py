"""V-UCB against BoTorch's routes to the value at risk, Z continuous (Nguyen et al. 2021, Figure 4).

Z ~ N(0.5, 0.125^2) cut at two standard deviations. As in the paper, V-UCB has LNSO, and its minibatches as well as
rhoKG^apx take 10 samples of Z. "exact" is the quantile over 256 fixed quasi-random conditions. LNSO has 4 starts and
fits for 60 steps a round, less than a second an acquisition. Settings of the others: see methods.py.
"""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.conditions import LNSO, VUCB, GPUCBMean, MCVaR, Random, RhoKG
from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne
from benchmarks.run import main
from configs.value_at_risk.methods import SEED

METHODS = {
    "V-UCB-LNSO": VUCB(optimizer=LNSO(num_starts=4, fit_steps=60, num_z=10)),
    "V-UCB, exact": VUCB(),
    "RHO-KG-APX": RhoKG(scenarios=10),
    "MC-VAR": MCVaR(),
    "GP-UCB-MEAN": GPUCBMean(),
    "RANDOM": Random(),
}
COMPARE = [("V-UCB-LNSO", "RHO-KG-APX"), ("V-UCB-LNSO", "V-UCB, exact"), ("V-UCB, exact", "RHO-KG-APX")]
PROBLEMS = {
    "Branin-Hoo (1,1), continuous": Branin(z="continuous"),
    "Goldstein-Price (1,1), continuous": GoldsteinPrice(z="continuous"),
    "Hartmann-3 (1,2), continuous": Hartmann3OneTwo(z="continuous"),
    "Hartmann-3 (2,1), continuous": Hartmann3TwoOne(z="continuous"),
}
PANELS = [
    ConditionsPanel(name, problem, METHODS, trials=10, rounds=60, compare=COMPARE, seed=SEED)
    for name, problem in PROBLEMS.items()
]

if __name__ == "__main__":
    main(PANELS)
