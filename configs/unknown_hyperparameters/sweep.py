"""How the outcome of (a) moves with R and B, which the paper does not state.

HE-GP-UCB is given other R than the noise has (0.1), in its test and its width, and other B; the last but one is the
width that is proved for lambda = R^2.
"""

from typing import Any

from benchmarks.loops.arms import ArmsPanel
from benchmarks.methods.arms import DELTA, self_normalized
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale
from benchmarks.run import main
from bo_robust.bandits import HEGPUCB, RandomArm


def noise(R: float) -> Any:
    """B = 2, and another R in test and width."""
    return lambda p: HEGPUCB(self_normalized(p, 2.0, R), R, DELTA)


def norm(B: float, R: float | None = None) -> Any:
    """R of the noise in the test, and another B."""
    return lambda p: HEGPUCB(self_normalized(p, B, R), p.noise_scale, DELTA)


METHODS = {
    "R = 0.01": noise(0.01),
    "R = 0.03": noise(0.03),
    "R = 0.1, B = 2": norm(2.0),
    "R = 0.3": noise(0.3),
    "B = 0.5": norm(0.5),
    "B = 1": norm(1.0),
    "B = 4": norm(4.0),
    "B = 8": norm(8.0),
    "B = 8, proved": norm(8.0, 1.0),
    "RANDOM": RandomArm(),
}
PANELS = [
    ArmsPanel(name, problem, METHODS, trials=50, rounds=53, initial=3)
    for name, problem in (("SE", UnknownLengthscale()), ("Matern 5/2", UnknownLengthscale(kernel="matern52")))
]

if __name__ == "__main__":
    main(PANELS)
