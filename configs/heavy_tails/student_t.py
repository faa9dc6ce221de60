"""Ray Chowdhury & Gopalan 2019, Fig. 1 (a): SE kernel, Student-t noise of 3 degrees of freedom; m = 32 frequencies."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import Method, ata, fourier, practical
from benchmarks.problems.rewards import StudentT
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.run import main
from bo_robust.bandits import RandomArm
from configs.heavy_tails.methods import COMPARE, figure

CHOLESKY: dict[str, Method] = {
    "ATA-QFF, Cholesky": lambda p: ata(p, practical(p), fourier(p, 32), root="cholesky"),
}
METHODS = {**figure(32, 32, more=CHOLESKY), "random": RandomArm()}
PANELS = [
    ArmsPanel(
        "(a) SE, t(3)",
        RKHSFunction(noise=StudentT(df=3.0)),
        METHODS,
        trials=20,
        rounds=20000,
        compare=[*COMPARE[:3], ("ATA-QFF, Cholesky", "ATA-QFF"), *COMPARE[3:]],
    )
]

if __name__ == "__main__":
    main(PANELS)
