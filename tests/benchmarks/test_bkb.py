"""The baseline of BKB and BBKB chooses the same arms."""

import pytest

from benchmarks.bkb import linear_problem, np_linear, run
from benchmarks.loop import noise_and_uniforms
from benchmarks.numpy_bkb import numpy_bbkb
from bo_robust.bandits.bbkb import BBKB
from bo_robust.bandits.bkb import BKB
from bo_robust.confidence import ConstantWidth
from bo_robust.utils.random import spread


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["BKB", "BBKB"])
def test_the_numpy_baseline_makes_the_same_picks(share):
    """Two implementations that share no code, with dictionaries of dependent points."""
    n, rounds, width = 60, 80, ConstantWidth(2.0)
    kernel, f, noise_var = linear_problem(n, 3, 0)
    ours = BBKB(width, 1.0, share * noise_var) if share else BKB(width, 1.0)
    noise, uniforms = (table.squeeze(1) for table in noise_and_uniforms(0, rounds, noise_var))
    _, regret, chosen = run(ours, kernel, f, rounds, 0, noise_var)
    tables = kernel.arms.numpy(), np_linear, kernel.diagonal.numpy(), f.numpy(), noise.numpy()
    first, draws = int(uniforms[0] * n), spread(uniforms, n).numpy()
    theirs = numpy_bbkb(*tables, first, draws, lambda t: 2.0, 1.0, noise_var, share * noise_var)
    assert chosen == theirs
    assert regret == pytest.approx(sum(float(f.max() - f[arm]) for arm in chosen))
