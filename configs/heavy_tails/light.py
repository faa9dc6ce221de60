"""Ray Chowdhury & Gopalan 2019, Fig. 1 (e): 41 light sensors, the paper's data. It needs the data folder.

QFF: l^2 = 0.1 on the locations, m = 16^2 frequencies.
"""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.tables import CMULight
from benchmarks.run import main
from bo_robust.bandits import RandomArm
from configs.heavy_tails.methods import COMPARE, figure

METHODS = {**figure(16, 16**2, lengthscale=0.3162277660), "random": RandomArm()}
PANELS = [
    ArmsPanel("(e) light sensors", CMULight(), METHODS, trials=10, rounds=10000, compare=COMPARE),
    ArmsPanel(
        "light sensors, centred", CMULight(scaling="centered"), METHODS, trials=10, rounds=10000, compare=COMPARE
    ),
]

if __name__ == "__main__":
    main(PANELS)
