import math

import numpy as np
import pandas as pd
import pytest
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.loops import LOOPS
from bo_robust.experiments.report import print_report
from bo_robust.experiments.summary import summarize
from rich.console import Console

from benchmarks.statistics import difference, log_regret, mean_and_error, mean_interval


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
    panel = {"name": "p", "problem": {"kind": "branin"}, "methods": ["random"]}
    config = parse({"loop": "conditions", "trials": 2, "horizon": 1, "panels": [panel]})
    nothing = {"regret_bound": math.nan, "seconds": 0.1}
    regrets = [(0, 7.0), (0, 10**-3.2), (1, 5.0), (1, 0.01)]  # the last of each trial counts: -3.2 and -2
    rows = [{"panel": "p", "method": "RANDOM", "trial": i, "regret": r, "fit_ok": True, **nothing} for i, r in regrets]
    known = {"optimum": {"x": [0.2], "value": 0.7}, "notes": ""}
    summary = summarize(config, pd.DataFrame(rows), {"p": {"RANDOM": known}})
    entry = summary["panels"][0]["methods"]["RANDOM"]
    assert entry["log10_regret"] == pytest.approx(-2.6)
    assert entry["final"] == pytest.approx([-3.2, -2.0])
    # Student's t with 1 degree of freedom: 0.85-quantile 1.9626, standard error 0.6
    assert entry["interval"] == pytest.approx([-2.6 - 0.6 * 1.9626, -2.6 + 0.6 * 1.9626], abs=1e-4)
    print_report(summary, Console())
    assert "-2.60 [-3.78, -1.42]" in capsys.readouterr().out


def test_best_queried_dictionaries_and_where_the_design_lies(tmp_path):
    methods = [{"name": "bkb", "oversampling": 5}, "random"]
    problem = {"kind": "gp_draw", "num_arms": 20, "design_share": 0.25}
    data = {"trials": 3, "horizon": 12, "initial": 8, "methods": methods, "panels": [{"name": "p", "problem": problem}]}
    entries = runs.start(parse(data), tmp_path / "out")["panels"][0]["methods"]
    traces = pd.read_parquet(tmp_path / "out/traces.parquet")
    assert traces.loc[traces["round"] <= 8, "arm"].max() <= 4 < traces["arm"].max()
    bkb = traces[traces["method"] == "BKB"]
    best = bkb.groupby("trial")["regret"].min()
    assert entries["BKB"]["best_queried"][0] == pytest.approx(best.mean())
    last = bkb.loc[bkb["round"] == 12, "dictionary_size"].mean()
    ratio = (bkb["dictionary_size"] / bkb["effective_dimension"]).mean()
    assert entries["BKB"]["dictionary"] == pytest.approx([last, ratio])
    assert entries["RANDOM"]["dictionary"] is None


def test_metadata_of_jobs_are_joined():
    def job(seconds, survivors, trial):
        record = {"candidates": ["a", "b"], "true": ["a"] * len(survivors), "survivors": survivors}
        record["eliminations"] = [{"name": "b", "trial": trial, "round": 3}]
        return {"seconds": seconds, "notes": "n", "eliminations": record}

    joined = LOOPS["arms"].join([job(1.0, [["a", "b"], ["a"]], 1), job(2.0, [["a"]], 2)])
    assert joined["seconds"] == 3.0
    assert joined["eliminations"]["survivors"] == [["a", "b"], ["a"], ["a"]]
    assert joined["eliminations"]["true"] == ["a", "a", "a"]
    assert [row["trial"] for row in joined["eliminations"]["eliminations"]] == [1, 2]


FOURIER, NYSTROM = {"kind": "fourier", "nodes": 16}, {"kind": "nystrom", "oversampling": 2.0}


@pytest.mark.parametrize(
    ("trials", "horizon", "name", "options", "said"),
    [
        (4, 200, "tgp-ucb", {}, "b_t = 0.0376"),  # b_T = v^(1/2) T^(1/4)
        (1, 9, "tgp-ucb", {}, "b_t = 0.0173"),
        (2, 60, "ata-gp-ucb", {"features": FOURIER, "root": "cholesky"}, "100 % of all rewards lost"),
        (2, 60, "ata-gp-ucb", {"features": NYSTROM, "root": "symmetric"}, "100 % of all rewards lost"),
    ],
)
def test_losing_most_rewards_to_truncation_warns(tmp_path, trials, horizon, name, options, said):
    kind = f"ata_{options['features']['kind']}" if options else "tgp"
    level = {"kind": kind, "moment_bound": 1e-8 if options else 1e-4, "alpha": 1.0}
    method = {"name": name, "label": "A", "truncation": level, **options}
    panel = {"name": "t3", "problem": {"kind": "rkhs_function", "noise": {"kind": "student_t", "df": 3}}}
    data = {"trials": trials, "horizon": horizon, "methods": [method], "panels": [panel]}
    summary = runs.start(parse(data), tmp_path / "out")
    (line,) = [line for line in summary["panels"][0]["warnings"] if line.startswith("A: ")]
    where = "the most in number is arm" if name == "tgp-ucb" else "median |reward|"
    for words in (said, "moment_bound", "b_t = ", where):
        assert words in line
    assert summary["panels"][0]["methods"]["A"]["truncated"] > 0.9


def test_odd_names_and_narrow_terminals_do_not_break_a_table(tmp_path, capsys):
    methods = [{"name": "random", "label": "_h [red]"}, {"name": "ei", "label": "$\\foo{$"}]
    panel = {"name": "a[/red]b $x_$", "problem": {"kind": "rkhs_function"}, "methods": methods}
    data = {"trials": 4, "horizon": 5, "panels": [panel]}
    runs.start(parse(data), tmp_path / "out", console=Console(width=40))
    assert (tmp_path / "out" / "00-a-red-b-x.png").stat().st_size > 1000
    table = capsys.readouterr().out.split("average regret:")[0].split("a[/red]b $x_$: 4 trials")[1]
    assert "_h [red]" in table
    assert "…" not in table
