"""Every method once, without data: a few rounds on two problems."""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.conditions import LNSO, VUCB, GPUCBMean, MCVaR, Random, RhoKG, StableOptMethod
from benchmarks.problems.conditions.synthetic import Branin, Hartmann3TwoOne
from benchmarks.run import main

METHODS = {
    "V-UCB-PROB": VUCB(restarts=2, raw_samples=16),
    "V-UCB-UNIF": VUCB(selection_rule="uniform", restarts=2, raw_samples=16),
    "STABLE-OPT": StableOptMethod(restarts=2, raw_samples=16),
    "GP-UCB-MEAN": GPUCBMean(restarts=2, raw_samples=16),
    "MC-VAR": MCVaR(restarts=2, raw_samples=16, samples=16, scenarios=8),
    "RHO-KG-APX": RhoKG(restarts=2, raw_samples=4, maxiter=2, fantasies=2, samples=4, scenarios=4),
    "RANDOM": Random(),
}
BY_LNSO = {"V-UCB": VUCB(optimizer=LNSO(num_starts=2, rounds=2)), "RANDOM": Random()}
PANELS = [
    ConditionsPanel("Branin-Hoo (1,1)", Branin(z="discrete"), METHODS, trials=1, rounds=2),
    ConditionsPanel("Hartmann-3 (2,1), continuous", Hartmann3TwoOne(z="continuous"), BY_LNSO, trials=1, rounds=2),
]

if __name__ == "__main__":
    main(PANELS)
