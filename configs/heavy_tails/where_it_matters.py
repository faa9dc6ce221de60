"""Noise heavy enough for truncation to fire: symmetric Pareto noise of infinite variance, rare spikes of +-100."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import ata, fourier, practical, tgp_level
from benchmarks.problems.rewards import RareSpikes, SymmetricPareto
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.run import main
from bo_robust.bandits import TGPUCB, RandomArm
from configs.heavy_tails.methods import (
    NYSTROM_PRACTICAL,
    NYSTROM_THEOREM,
    PRACTICAL,
    THEOREMS,
    gp_ucb_of_ata,
    qff,
    qff_theorem,
)

METHODS = {
    **PRACTICAL,
    **qff(32),
    "ATA-QFF, Cholesky": lambda p: ata(p, practical(p), fourier(p, 32), root="cholesky"),
    **NYSTROM_PRACTICAL,
    "TGP-UCB, clip": lambda p: TGPUCB(practical(p), tgp_level(p), rule="clip"),
    "ATA-QFF, clip": lambda p: ata(p, practical(p), fourier(p, 32), rule="clip"),
    **THEOREMS,
    **qff_theorem(32, 32),
    **gp_ucb_of_ata(32),
    **NYSTROM_THEOREM,
    "random": RandomArm(),
}
COMPARE = [
    ("TGP-UCB", "GP-UCB"),
    ("ATA-QFF", "TGP-UCB"),
    ("ATA-QFF", "GP-UCB"),
    ("ATA-QFF, Cholesky", "ATA-QFF"),
    ("ATA-Nystrom", "TGP-UCB"),
    ("ATA-Nystrom", "GP-UCB"),
    ("TGP-UCB, clip", "TGP-UCB"),
    ("ATA-QFF, clip", "ATA-QFF"),
    ("TGP-UCB, TGP width", "GP-UCB, TGP width"),
    ("ATA-QFF, theorem", "TGP-UCB, TGP width"),
    ("ATA-QFF, theorem", "GP-UCB, ATA width"),
    ("ATA-Nystrom, theorem", "TGP-UCB, TGP width"),
]
SPIKES = RareSpikes(magnitude=100.0, probability=0.002, noise_var=1.0)
PROBLEMS = {
    "symmetric Pareto 1.6, alpha 0.5": RKHSFunction(noise=SymmetricPareto(index=1.6), alpha=0.5),
    "symmetric Pareto 1.5": RKHSFunction(noise=SymmetricPareto(index=1.5)),
    "symmetric Pareto 1.4, alpha 0.3": RKHSFunction(noise=SymmetricPareto(index=1.4), alpha=0.3),
    "symmetric Pareto 1.2": RKHSFunction(noise=SymmetricPareto(index=1.2)),
    "spikes of 100 at 1/500": RKHSFunction(noise=SPIKES),
}
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=40, rounds=3000, compare=COMPARE) for name, problem in PROBLEMS.items()
]

if __name__ == "__main__":
    main(PANELS)
