import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from bo_robust.experiments import loop_arms
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm, build_problem, resolved, start_state
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.report import closing_lines

from benchmarks.loops.traces import Traces
from bo_robust.bandits.elimination_algorithm import eliminations

B2 = {"kind": "self_normalized", "norm_bound": 2.0}
NAMES = {"he-gp-ucb": "HE", "mle-gp-ucb": "MLE", "expected-ucb": "Expected", "gp-ucb": "oracle"}
ALL = [{"name": name, "label": label, "width": B2} for name, label in NAMES.items()]


def config(problem="unknown_period", methods=ALL, **panel):
    problem = {"kind": problem} if isinstance(problem, str) else problem
    settings = {"trials": 4, "horizon": 40, "initial": 5, **panel}
    return parse({"name": "test", "methods": methods, "panels": [{"name": "p", "problem": problem, **settings}]})


def built(device, **changes):
    panel = config(**changes).panels[0]
    problem = build_problem(panel, range(panel.trials), None, device)
    return panel, problem, [build_algorithm(a, panel, problem) for a in panel.methods]


def test_a_run_reports_who_was_eliminated(tmp_path, device):
    out = tmp_path / "out"
    summary = runs.start(config(trials=6, compare=[["HE", "MLE"]]), out, device=str(device))
    methods = summary["panels"][0]["methods"]
    assert [label for label, entry in methods.items() if entry["eliminations"]] == ["HE"]
    found = methods["HE"]["eliminations"]
    # the same rounds by hand
    panel_config, problem, algorithms = built(device, trials=6)
    traces = Traces(40, problem)
    state = start_state(algorithms[0], problem, 40)
    loop_arms.run_rounds(algorithms[0], problem, range(6), 0, traces, state, initial=5)
    record = eliminations(state)
    assert len(record) > 0
    names = problem.candidates.names
    assert found["eliminations"] == [{"name": names[row["candidate"]], **row} for row in record]
    assert min(row["round"] for row in record) > panel_config.initial  # nobody is tested in the initial design
    active = state.posterior.active.cpu()
    assert found["survivors"] == [[n for n, a in zip(names, row, strict=True) if a] for row in active.tolist()]
    assert found["survived"] == dict(zip(names, active.sum(0).tolist(), strict=True))
    assert found["true_survived"] == int(active[:, 0].sum())
    assert found["mean_eliminated"] == pytest.approx(len(record) / 6)
    assert (found["candidates"], found["trials"], found["all_failed"]) == (4, 6, 0)
    line = next(line for line in closing_lines(summary) if line.startswith("  HE: the true"))
    assert line.startswith(
        f"  HE: the true candidate survived in {found['true_survived']} of 6 trials; on average {len(record) / 6:.3g} "
        f"of 4 were eliminated; left at the end (of 6 trials): period 1 in {found['true_survived']}, period 0.25 in"
    )
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(summary))
    settings = summary["settings"]["p"]["methods"]["HE"]
    assert (settings["noise_scale"], settings["delta"], settings["width"]["delta"]) == (0.1, 0.1, 0.05)


TOO_SURE = [{**ALL[0], "noise_scale": 0.001, "width": {"kind": "constant", "value": 0.1}}]


def test_violated_assumptions_are_said_once(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        summary = runs.start(config({"kind": "unknown_lengthscale", "num_arms": 30}, TOO_SURE), tmp_path / "out")
    panel = summary["panels"][0]
    found = panel["methods"]["HE"]["eliminations"]
    assert (found["all_failed"], found["true_survived"], found["mean_eliminated"]) == (4, None, 4.0)
    (line,) = panel["warnings"]
    assert line.startswith("HE: in 4 of 4 trials every candidate failed its test")
    assert [row["trial"] for row in found["eliminations"] if not row["eliminated"]] == [0, 1, 2, 3]


def test_losing_the_true_candidate_too_often_warns(tmp_path):
    panel = runs.start(config(methods=TOO_SURE), tmp_path / "out")["panels"][0]
    lost = 4 - panel["methods"]["HE"]["eliminations"]["true_survived"]
    assert lost > 0
    line = f"HE: the true candidate was eliminated in {lost} of 4 trials, more than delta = 0.1"
    assert any(warning.startswith(line) for warning in panel["warnings"])


def test_initial_designs_are_uniform_and_the_same_for_all(tmp_path, device):
    algorithms = [*ALL, {"name": "random"}, {"name": "ei"}]
    out = tmp_path / "out"
    runs.start(config(methods=algorithms, trials=60), out, device=str(device))
    traces = pd.read_parquet(out / "traces.parquet")
    design = traces[traces["round"] <= 5]
    assert design["width"].isna().all()
    per_algorithm = [rows["arm"].to_numpy() for _, rows in design.groupby("method", observed=True)]
    assert len(per_algorithm) == 6
    for arms in per_algorithm[1:]:
        np.testing.assert_array_equal(arms, per_algorithm[0])
    # 300 draws from 0..200: mean 100 within 4 sd of 58 / sqrt(300)
    assert abs(per_algorithm[0].mean() - 100) < 4 * 58 / np.sqrt(300)
    assert traces[(traces["round"] > 5) & (traces["method"] == "HE")]["width"].notna().all()
    # Trial 7 alone has the design of trial 7 among others. Later arms a period apart are tied up to rounding.
    panel, _, algorithms = built(device, trials=1)
    problem = build_problem(panel, [7], None, device)
    alone = Traces(40, problem)
    loop_arms.run_rounds(algorithms[0], problem, [7], 0, alone, start_state(algorithms[0], problem, 40), initial=5)
    he = traces[(traces["method"] == "HE") & (traces["trial"] == 7)]
    assert alone["arm"][:5, 0].tolist() == he["arm"].tolist()[:5]


def test_other_algorithms_start_from_the_true_prior_mean(device):
    width = {"kind": "bayesian_finite"}
    algorithms = [{"name": "he-gp-ucb"}, {"name": "gp-ucb", "width": width}, {"name": "bkb", "oversampling": 5.0}]
    _, problem, (ours, plain, bkb) = built(device, problem="unknown_mean", methods=algorithms)
    he, gp = (start_state(a, problem, 40) for a in (ours, plain))
    assert torch.equal(he.posterior.means[2], problem.candidates.prior_means)
    assert torch.equal(gp.posterior.mean, problem.prior_mean)
    true = torch.tensor(problem.candidates.true).to(device)
    assert torch.equal(he.posterior.under(true, he.posterior.means), gp.posterior.mean)
    assert ours.width == plain.width  # by default the Bayesian one, whose formula has delta / 2 in it
    with pytest.raises(RunError, match=r"BKB cannot start on problem 'unknown_mean'.*prior mean"):
        start_state(bkb, problem)


def test_constants_reach_test_and_width(device):
    algorithms = [
        {"name": "he-gp-ucb", "label": "own R", "noise_scale": 0.3, "width": {"kind": "self_normalized"}},
        {"name": "he-gp-ucb", "label": "own delta", "width": {"kind": "finite", "delta": 0.2}},
        {"name": "a-gp-ucb"},
        {"name": "mle-gp-ucb", "width": {"kind": "finite"}},
    ]
    _, _, (first, second, third, fourth) = built(device, problem="unknown_lengthscale", methods=algorithms, delta=0.04)
    assert (first.noise_scale, first.delta) == (0.3, 0.04)
    assert (first.width.noise_scale, first.width.norm_bound, first.width.delta) == (0.3, 8.0, 0.02)
    assert (second.noise_scale, second.width.delta) == (0.1, 0.2)
    assert third.lengthscales == (0.3, 0.4, 0.5, 0.7, 1.0)
    assert (third.width.num_arms, third.width.delta) == (201, 0.04)
    assert fourth.width.delta == 0.04
    assert resolved(first)["class"] == "HEGPUCB"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "gp_draw"}, "chooses among candidate priors and problem 'gp_draw' has none; .*unknown_m"),
        ({"methods": [{"name": "a-gp-ucb"}]}, "method 'a-gp-ucb' needs 'lengthscales', which must be given"),
        ({"initial": 40}, "initial must be below the horizon"),
    ],
)
def test_mistakes_are_named(device, changes, message):
    with pytest.raises(RunError, match=message):
        built(device, **changes)


def test_too_large_kernels_are_refused_before_the_run(tmp_path, data_dir):
    wide = config("unknown_kernel_temperature", [{"name": "he-gp-ucb", "width": B2}])
    with pytest.raises(RunError, match=r"HEGPUCB cannot start .*assumes k\(x, x\) <= 1"):
        runs.start(wide, tmp_path / "out", data_dir=data_dir)
    assert not (tmp_path / "out").exists()
