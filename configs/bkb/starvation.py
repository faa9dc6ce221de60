"""Calandriello et al. 2019, Fig. 2: 6, 63 or 215 evaluations in [0, 1/2] of a draw from a GP, then the band of 3 sigma.

The column end is the share of [0, 1] where the band holds f. BKB keeps its band where no data is. A regression on few
Fourier features does not: its degrees of freedom are used up, and its variance starves. The paper has a Gaussian kernel
"with bandwidth sigma^2 = 100"; we take l = 0.1. Noise 0.1, q = 5 and 50 draws are ours.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import fourier
from benchmarks.problems.synthetic import GPDraw
from benchmarks.run import main
from bo_robust.bandits import ATAGPUCB, BKB, GPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.confidence.truncation import NoTruncation

THREE = ConstantWidth(3.0)
METHODS = {
    "exact GP": GPUCB(THREE),
    "BKB": BKB(THREE, oversampling=5.0),
    "16 Fourier features": lambda p: ATAGPUCB(THREE, NoTruncation(), fourier(p, nodes=8)),
}
DRAW = GPDraw(lengthscale=0.1, noise_var=0.01, design_share=0.5)
PANELS = [ArmsPanel(f"t = {t}", DRAW, METHODS, trials=50, rounds=t + 1, initial=t) for t in (6, 63, 215)]

if __name__ == "__main__":
    main(PANELS)
