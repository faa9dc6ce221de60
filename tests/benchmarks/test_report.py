"""The statistics of a panel, its table and its warnings."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

from benchmarks import run as runs
from benchmarks.loops.arms import ArmsPanel
from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.methods.arms import ata, fourier, practical
from benchmarks.methods.conditions import Random
from benchmarks.pictures import file_name, looks_of
from benchmarks.problems.conditions.synthetic import Branin
from benchmarks.problems.rewards import StudentT
from benchmarks.problems.synthetic import GPDraw, RKHSFunction
from benchmarks.report import print_report, summarize
from benchmarks.statistics import difference, log_regret, mean_and_error, mean_interval
from bo_robust.bandits import BKB, TGPUCB, ExpectedImprovement, RandomArm
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence.truncation import ATAFourierTruncation, ATANystromTruncation, TGPTruncation


def test_verdicts_use_the_t_distribution():
    # 3 trials, differences 1, 2, 3: mean 2, error 0.577, t = 3.46 < 4.30: not significant, though above 2 errors
    found = difference(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert found["mean"] == pytest.approx(2.0)
    assert found["error"] == pytest.approx(1 / np.sqrt(3))
    assert found["significant"] is False
    assert difference(np.arange(20.0) + 5, np.arange(20.0) * 1.01)["significant"] is True


def test_one_trial_has_no_standard_error():
    assert mean_and_error(np.array([2.0])) == (2.0, None)
    # 1, 3: mean 2, sd sqrt 2, error 1
    assert mean_and_error(np.array([1.0, 3.0])) == pytest.approx((2.0, 1.0))


def test_intervals_of_log_regret():
    assert log_regret([1.0, 0.01, 1e-4, -1e-7]).tolist() == [0.0, -2.0, -4.0, -4.0]
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0]), 0.7)
    assert (mean, low + high) == (2.0, 4.0)
    # Student's t with 2 degrees of freedom: 0.85-quantile 1.38621, standard error 1 / sqrt(3).
    assert high - mean == pytest.approx(1.38621 / math.sqrt(3.0), abs=1e-4)
    assert mean_interval(np.array([4.0]), 0.7) == (4.0, 4.0, 4.0)


def test_mean_log_regret_of_value_at_risk_by_hand(capsys):
    panel = ConditionsPanel("p", Branin(), {"RANDOM": Random()}, trials=2, rounds=1)
    nothing = {"regret_bound": math.nan, "seconds": 0.1}
    regrets = [(0, 7.0), (0, 10**-3.2), (1, 5.0), (1, 0.01)]  # the last of each trial counts: -3.2 and -2
    rows = pd.DataFrame([{"trial": i, "regret": r, "fit_ok": True, **nothing} for i, r in regrets])
    found = summarize(panel, {"RANDOM": rows}, {"RANDOM": {"optimum": {"x": [0.2], "value": 0.7}, "notes": ""}})
    entry = found["methods"]["RANDOM"]
    assert entry["log10_regret"] == pytest.approx(-2.6)
    assert entry["final"] == pytest.approx([-3.2, -2.0])
    # Student's t with 1 degree of freedom: 0.85-quantile 1.9626, standard error 0.6
    assert entry["interval"] == pytest.approx([-2.6 - 0.6 * 1.9626, -2.6 + 0.6 * 1.9626], abs=1e-4)
    print_report([panel], {"panels": [found]})
    assert "-2.60 [-3.78, -1.42]" in capsys.readouterr().out


def test_best_queried_dictionaries_and_where_the_design_lies(tmp_path):
    methods = {"BKB": lambda p: BKB(practical(p), oversampling=5.0), "RANDOM": RandomArm()}
    panel = ArmsPanel("p", GPDraw(num_arms=20, design_share=0.25), methods, trials=3, rounds=12, initial=8)
    entries = runs.run([panel], tmp_path / "out")["panels"][0]["methods"]
    traces = pd.read_parquet(tmp_path / "out/traces.parquet")
    assert traces.loc[traces["round"] <= 8, "arm"].max() <= 4 < traces["arm"].max()
    bkb = traces[traces["method"] == "BKB"]
    best = bkb.groupby("trial")["regret"].min()
    assert entries["BKB"]["best_queried"][0] == pytest.approx(best.mean())
    last = bkb.loc[bkb["round"] == 12, "dictionary_size"].mean()
    ratio = (bkb["dictionary_size"] / bkb["effective_dimension"]).mean()
    assert entries["BKB"]["dictionary"] == pytest.approx([last, ratio])
    assert entries["RANDOM"]["dictionary"] is None


LEVEL = (1e-8, 1.0, 0.1, 60)
LOST = [
    (4, 200, lambda p: TGPUCB(practical(p), TGPTruncation(1e-4, 1.0)), "most of arm"),
    (1, 9, lambda p: TGPUCB(practical(p), TGPTruncation(1e-4, 1.0)), "100 % of all rewards"),
    (2, 60, lambda p: ata(p, practical(p), fourier(p, 16), ATAFourierTruncation(*LEVEL, 16)), "100 % of all rewards"),
    (
        2,
        60,
        lambda p: ata(p, practical(p), NystromDictionary(2.0), ATANystromTruncation(*LEVEL, None)),
        "100 % of all rewards",
    ),
]


@pytest.mark.parametrize(("trials", "rounds", "method", "said"), LOST)
def test_losing_most_rewards_to_truncation_warns(trials, rounds, method, said):
    panel, cpu = ArmsPanel("t3", RKHSFunction(noise=StudentT(3.0)), {"A": method}, trials, rounds), torch.device("cpu")
    rows, metadata = panel.made(cpu).run("A", range(trials), cpu)
    found = summarize(panel, {"A": rows}, {"A": metadata})
    (line,) = [line for line in found["warnings"] if line.startswith("A: ")]
    assert said in line
    assert "moment_bound" in line
    assert found["methods"]["A"]["truncated"] > 0.9


@pytest.mark.parametrize(("trials", "rounds"), [(1, 1), (4, 5)])
def test_odd_names_and_small_sizes_are_shown(tmp_path, capsys, trials, rounds):
    methods = {"_h [red]": RandomArm(), "$\\foo{$": ExpectedImprovement()}
    runs.run([ArmsPanel("a[/red]b $x_$", RKHSFunction(), methods, trials, rounds)], tmp_path / "out")
    assert imread(tmp_path / "out" / "00-a-red-b-x.png").shape[:2] > (200, 600)
    table = capsys.readouterr().out.split("average regret:")[0].split(f"a[/red]b $x_$: {trials} trials")[1]
    assert "_h [red]" in table


def test_names_and_looks():
    assert file_name(2, "Branin-Hoo (1, 1)") == "02-branin-hoo-1-1.png"
    assert file_name(0, "λ") == "00-panel.png"
    looks = looks_of([str(i) for i in range(40)])
    assert len({tuple(look.values()) for look in looks.values()}) == 40
