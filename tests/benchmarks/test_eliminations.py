"""What a run over candidates reports of its eliminations, and how all methods start."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import run as runs
from benchmarks.loops.arms import ArmsPanel, run_rounds, start_state
from benchmarks.loops.traces import Traces
from benchmarks.methods.arms import self_normalized
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale, UnknownPeriod
from benchmarks.report import findings
from bo_robust.bandits import GPUCB, HEGPUCB, CandidateAlgorithm, ExpectedImprovement, ExpectedUCB, RandomArm
from bo_robust.bandits.elimination_algorithm import eliminations
from bo_robust.confidence import ConstantWidth

ALL = {
    "HE": lambda p: HEGPUCB(self_normalized(p, 2.0), p.noise_scale, 0.1),
    "MLE": lambda p: CandidateAlgorithm(self_normalized(p, 2.0)),
    "Expected": lambda p: ExpectedUCB(self_normalized(p, 2.0)),
    "oracle": lambda p: GPUCB(self_normalized(p, 2.0)),
}
PANEL = ArmsPanel("p", UnknownPeriod(), ALL, trials=4, rounds=40, initial=5)
TOO_SURE = {"HE": HEGPUCB(ConstantWidth(0.1), 0.001, 0.1)}


def run(folder, **changes):
    return runs.run([dataclasses.replace(PANEL, **changes)], folder)["panels"][0]


def test_a_run_reports_who_was_eliminated(tmp_path):
    panel, cpu = dataclasses.replace(PANEL, trials=6), torch.device("cpu")
    summary = runs.run([panel], tmp_path / "out")["panels"][0]
    methods = summary["methods"]
    assert [label for label, entry in methods.items() if entry["eliminations"]] == ["HE"]
    found = methods["HE"]["eliminations"]
    # the same rounds by hand
    made, problem = panel.made(cpu), panel.built(range(6), cpu)
    traces, state = Traces(40, problem), start_state(made.methods["HE"], problem, 40)
    run_rounds(made.methods["HE"], problem, range(6), 0, traces, state, initial=5)
    record, active = eliminations(state), state.posterior.active
    assert len(record) > 0
    assert min(row["round"] for row in record) > 5  # nobody is tested in the initial design
    assert found["survived"] == dict(zip(problem.candidates.names, active.sum(0).tolist(), strict=True))
    assert found["true_survived"] == int(active[:, 0].sum())
    assert found["mean_eliminated"] == pytest.approx(len(record) / 6)
    assert (found["candidates"], found["trials"], found["all_failed"]) == (4, 6, 0)
    line = next(line for line in findings(panel, summary) if line.startswith("  HE: the true"))
    assert line.startswith(
        f"  HE: the true candidate survived in {found['true_survived']} of 6 trials; on average {len(record) / 6:.3g} "
        f"of 4 were eliminated; left at the end (of 6 trials): period 1 in {found['true_survived']}, period 0.25 in"
    )


def test_violated_assumptions_are_said_once(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        panel = run(tmp_path, problem=UnknownLengthscale(num_arms=30), methods=TOO_SURE)
    found = panel["methods"]["HE"]["eliminations"]
    assert (found["all_failed"], found["true_survived"], found["mean_eliminated"]) == (4, None, 4.0)
    (line,) = panel["warnings"]
    assert line.startswith("HE: in 4 of 4 trials every candidate failed its test")


def test_losing_the_true_candidate_too_often_warns(tmp_path):
    panel = run(tmp_path, methods=TOO_SURE)
    lost = 4 - panel["methods"]["HE"]["eliminations"]["true_survived"]
    assert lost > 0
    line = f"HE: the true candidate was eliminated in {lost} of 4 trials, more than delta = 0.1"
    assert any(warning.startswith(line) for warning in panel["warnings"])


def test_initial_designs_are_uniform_and_the_same_for_all(tmp_path):
    methods = {**ALL, "RANDOM": RandomArm(), "EI": ExpectedImprovement()}
    run(tmp_path, methods=methods, trials=60)
    traces = pd.read_parquet(tmp_path / "traces.parquet")
    design = traces[traces["round"] <= 5]
    assert design["width"].isna().all()
    first, *others = (rows["arm"].to_numpy() for _, rows in design.groupby("method", observed=True))
    assert len(others) == 5
    for arms in others:
        np.testing.assert_array_equal(arms, first)
    # 300 draws from 0..200: mean 100 within 4 sd of 58 / sqrt(300)
    assert abs(first.mean() - 100) < 4 * 58 / np.sqrt(300)
    assert traces[(traces["round"] > 5) & (traces["method"] == "HE")]["width"].notna().all()
