"""What the arm engine is compared with runs the same game."""

import torch

from benchmarks import arm_engine
from benchmarks.loop import run_rounds
from bo_robust.bandits import GPUCB
from bo_robust.confidence import ConstantWidth, FiniteWidth


def test_the_numpy_baseline_makes_the_same_picks():
    width = ConstantWidth(2.0)
    kernel, _, f, noise = arm_engine.gp_problem(300, 2, 0.3, 2, 60, 0.01)
    ours = run_rounds(GPUCB(width), kernel, 0.01, f, noise)
    for i in range(2):
        theirs = arm_engine.numpy_loop(kernel.matrix.numpy(), f[i].numpy(), noise[:, i].numpy(), 0.01, width)
        assert torch.equal(ours[:, i], torch.from_numpy(theirs))


def test_the_botorch_baseline_makes_the_same_picks():
    width = FiniteWidth(60, 0.1, scale=0.5)
    kernel, X, f, noise = arm_engine.gp_problem(60, 1, 0.2, 1, 25, 0.025, grid=True)
    ours = run_rounds(GPUCB(width), kernel, 0.025, f, noise)[:, 0]
    assert torch.equal(ours, arm_engine.botorch_loop(X, f[0], noise, 0.2, 0.025, width))
