"""The opponent of BKB and BBKB makes their picks; summaries read rows and take one statistic."""

import json

import pytest

from benchmarks.all import rows_of
from benchmarks.bkb import linear_world, np_linear, play, report_large, rewards_of
from benchmarks.plain_bkb import plain_bbkb
from bo_robust.algorithms.bbkb import BBKB
from bo_robust.algorithms.bkb import BKB
from bo_robust.confidence import ConstantWidth
from bo_robust.random import spread


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["BKB", "BBKB"])
def test_plain_numpy_makes_the_same_picks(share):
    """Two implementations that share no code, with dictionaries of dependent points."""
    n, rounds, width = 60, 80, ConstantWidth(2.0)
    kernel, f, noise_var = linear_world(n, 3, 0)
    ours = BBKB(width, 1.0, share * noise_var) if share else BKB(width, 1.0)
    noise, uniforms = rewards_of(0, rounds, noise_var)
    _, regret, picks = play(ours, kernel, f, rounds, 0, noise_var)
    tables = kernel.arms.numpy(), np_linear, kernel.diagonal.numpy(), f.numpy(), noise.numpy()
    first, draws = int(uniforms[0] * n), spread(uniforms, n).numpy()
    theirs = plain_bbkb(*tables, first, draws, lambda t: 2.0, 1.0, noise_var, share * noise_var)
    assert picks == theirs
    assert regret == pytest.approx(sum(float(f.max() - f[arm]) for arm in picks))


def test_speed_and_regret_are_medians_of_paired_ratios(capsys):
    seconds = {"exact": [10.0, 20.0, 40.0], "fast": [1.0, 1.0, 1.0], "slow": [5.0, 10.0, 20.0]}
    regret = {"exact": [1.0, 2.0, 3.0], "fast": [2.0, 2.0, 3.0], "slow": [1.4, 2.8, 3.0]}
    report_large(seconds, regret)  # the ratio of the median regrets of `slow` is 1.4, and so is the paired one
    (row,) = rows_of(capsys.readouterr().out)
    assert (row["value"], row["met"]) == (20.0, True)
    assert row["detail"]["regrets"] == {"fast": 1.0, "slow": pytest.approx(1.4)}
    regret["fast"] = [1.4, 2.8, 3.0]
    report_large(seconds, regret)
    (row,) = rows_of(capsys.readouterr().out)
    assert (row["value"], row["met"]) == (20.0, False)


def test_rows_among_other_lines():
    row = {"name": "x", "value": 1.0, "unit": "s", "target": None, "met": None, "detail": {}}
    lines = [
        "no row",
        json.dumps({"environment": {}}),
        json.dumps(row),
        "3",
        json.dumps({**row, "name": "environment"}),
    ]
    assert rows_of("\n".join(lines)) == [row]
