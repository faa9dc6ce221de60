"""The baseline of BKB and BBKB chooses the same arms, and speed counts only where regret is no larger."""

import json

import pytest

from benchmarks.bkb import linear_problem, np_linear, report_large, run
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


def test_speed_counts_where_the_regret_is_not_larger(capsys):
    """Both are medians of pairs; the ratio of the mean regrets of BBKB is below 1.3, that of the pairs is not."""
    regret = {"exact": [1.0, 1.0, 1.0, 10.0, 10.0], "mini-GP-UCB": [1.2, 1.2, 1.2, 12.0, 20.0]}
    regret["BBKB"] = [1.4, 1.4, 1.4, 10.0, 10.0]
    seconds = {"exact": [10.0, 20.0, 40.0, 10.0, 10.0], "mini-GP-UCB": [1.0] * 5, "BBKB": [0.5] * 5}
    report_large(5000, seconds, regret)
    mini, bbkb = map(json.loads, capsys.readouterr().out.splitlines())
    assert (mini["value"], mini["met"], mini["detail"]["regret_ratio"]) == (10.0, True, pytest.approx(1.2))
    assert (bbkb["value"], bbkb["met"], bbkb["detail"]["regret_ratio"]) == (20.0, False, pytest.approx(1.4))
