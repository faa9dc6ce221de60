"""The methods of Figures 3 and 5 of Nguyen et al. 2021, with the settings of their authors where not said otherwise.

rhoKG^apx has K = 10 fantasies, M = 10 samples and 16 conditions drawn anew in each round, as its authors; it searches
from 5 of 64 raw samples, and theirs from 10 per dimension of 25 or 50 each. All methods recommend the design of the
best risk of the posterior mean; its authors that of the best expected risk. MC VaR takes 32 conditions (its cost grows
with their cube), all others all 100 (64). V-UCB-FRESH is ours.
"""

from benchmarks.methods.conditions import (
    VUCB,
    ConditionsMethod,
    FreshVUCB,
    GPUCBMean,
    MCVaR,
    Random,
    RhoKG,
    StableOptMethod,
)

V_UCB: dict[str, ConditionsMethod] = {
    "V-UCB-PROB": VUCB(),
    "V-UCB-UNIF": VUCB(selection_rule="uniform"),
    "V-UCB-FRESH": FreshVUCB(),
}
STABLE: dict[str, ConditionsMethod] = {"STABLE-OPT": StableOptMethod()}
OTHERS: dict[str, ConditionsMethod] = {
    "RHO-KG-APX": RhoKG(),
    "MC-VAR": MCVaR(),
    "GP-UCB-MEAN": GPUCBMean(),
    "RANDOM": Random(),
}
# Trials of the forms of V-UCB among which V-UCB-FRESH was chosen had the seeds 0 to 3.
SEED = 10
COMPARE = [("V-UCB-PROB", "RHO-KG-APX"), ("V-UCB-PROB", "MC-VAR")]
