"""Value-at-risk runs end to end: what they leave, resuming, the summary's numbers, the command line."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bo_robust.executors import InProcess
from bo_robust.experiments import comparisons
from bo_robust.experiments import run as runs
from bo_robust.experiments import summary as summaries
from bo_robust.experiments.cli import app
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.store import ShardKey

ROOT = Path(__file__).resolve().parents[3]
CONFIG = {
    "loop": "conditions",
    "name": "test",
    "trials": 2,
    "horizon": 2,
    "methods": [{"name": "v-ucb", "label": "V", "restarts": 1, "raw_samples": 8, "maxiter": 5}, "random"],
    "compare": [["V", "RANDOM"]],
    "panels": [{"name": "Branin (1,1)", "problem": {"kind": "branin"}}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("robust") / "out"
    runs.start(parse(CONFIG), out)
    return out


def test_a_run_leaves_what_it_promises(folder):
    names = {p.name for p in folder.iterdir()}
    assert names == {"SHA256SUMS", "run.json", "summary.json", "traces.parquet", "00-branin-1-1.png", "shards"}
    info = json.loads((folder / "run.json").read_text())
    assert info["used"]["Branin (1,1)"]["methods"]["V"]["restarts"] == 1
    assert {"fingerprint", "git", "seeds", "config_digest"} <= set(info)


def test_an_executor_plays_the_same_trials(folder, tmp_path):
    out = tmp_path / "out"
    runs.start(parse(CONFIG), out, executor=InProcess())
    assert {p.name for p in out.iterdir()} == {p.name for p in folder.iterdir()}
    ours, theirs = (
        pd.read_parquet(one / "traces.parquet").drop(columns=["seconds", "fit_seconds"]) for one in (out, folder)
    )
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_the_summary_says_what_the_traces_say(folder):
    summary = json.loads((folder / "summary.json").read_text())
    panel = summary["panels"][0]
    assert panel["optimum"]["value"] == pytest.approx(0.7324785, abs=1e-6)
    traces = pd.read_parquet(folder / "traces.parquet")
    assert len(traces) == 2 * 2 * 3
    last = traces[(traces["method"] == "V") & (traces["round"] == 2)]
    entry = panel["methods"]["V"]
    assert entry["log10_regret"] == pytest.approx(np.log10(last["regret"]).mean())
    assert entry["certificate"] == pytest.approx(last["certificate"].median())
    of = traces[traces["method"] == "V"]
    assert entry["certificate_held"] == (of["certificate"] >= of["regret"]).mean()
    chosen = of[of["round"] < 2]
    assert entry["bound_held"] == (chosen["bound"] >= chosen["chosen_regret"]).mean()
    assert panel["methods"]["RANDOM"]["certificate"] is None
    gap = panel["comparisons"][0]["log10_regret"]["mean"]
    assert gap == pytest.approx(entry["log10_regret"] - panel["methods"]["RANDOM"]["log10_regret"])


def test_resuming_plays_what_is_missing_and_only_that(folder, tmp_path):
    before = pd.read_parquet(folder / "traces.parquet")
    part = ShardKey(0, 0, 1, 2).path(folder)
    kept = ShardKey(0, 1, 0, 1).path(folder)
    part.unlink()
    stamp = kept.stat().st_mtime_ns
    with pytest.raises(RunError, match=r": V, 1 of 2 trials\)"):
        runs.finish(folder)
    runs.resume(folder)
    assert kept.stat().st_mtime_ns == stamp
    after = pd.read_parquet(folder / "traces.parquet")
    columns = ["panel", "method", "trial", "round", "regret", "certificate", "bound", "y"]
    pd.testing.assert_frame_equal(before[columns], after[columns])


def test_numbers_of_the_summary_by_hand():
    assert summaries.log_regret([1.0, 0.01, 1e-4, -1e-7]).tolist() == [0.0, -2.0, -3.0, -3.0]
    mean, low, high = comparisons.mean_interval(np.array([1.0, 2.0, 3.0]), 0.7)
    assert (mean, low + high) == (2.0, 4.0)
    # Student's t with 2 degrees of freedom: 0.85-quantile 1.38621, standard error 1 / sqrt(3).
    assert high - mean == pytest.approx(1.38621 / math.sqrt(3.0), abs=1e-4)
    assert comparisons.mean_interval(np.array([4.0]), 0.7) == (4.0, 4.0, 4.0)


def test_the_command_line_runs_and_draws(tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(
        "loop: conditions\nname: tiny\ntrials: 3\nhorizon: 9\nmethods: [random]\n"
        "panels: [{name: B, problem: {kind: branin}}]\n"
    )
    out = tmp_path / "out"
    found = CliRunner().invoke(app, ["run", str(config), "--out", str(out), "--trials", "1", "--horizon", "1"])
    assert found.exit_code == 0, found.output
    assert "log10 regret" in found.output
    assert len(pd.read_parquet(out / "traces.parquet")) == 2
    (out / "00-b.png").unlink()
    for command in ("plot", "resume"):
        assert CliRunner().invoke(app, [command, str(out)]).exit_code == 0
    assert (out / "00-b.png").exists()
