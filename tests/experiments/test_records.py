"""What runs keep of dictionaries: size and effective dimension by round, the exact one, through interruptions."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from bo_robust.algorithms import State
from bo_robust.covariance import SquaredExponential
from bo_robust.experiments import play, records
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm, build_problem, start_state
from bo_robust.experiments.config import parse
from bo_robust.experiments.records import dictionary_record, effective_dimension
from bo_robust.experiments.shards import ShardKey, load_shard
from bo_robust.experiments.traces import DICTIONARY_COLUMNS, Traces, play_round
from bo_robust.posteriors import dtc
from bo_robust.posteriors.arms import ArmKernel

ALGORITHMS = [
    {"name": "bkb", "label": "BKB", "oversampling": 2.0},
    {"name": "bbkb", "label": "BBKB", "oversampling": 2.0, "batch_constant": 0.5},
    {"name": "gp-ucb", "label": "GP"},
]


def config(**panel):
    problem = {"kind": "rkhs_function", "num_arms": 40, "noise": {"kind": "student_t", "df": 3}}
    settings = {"trials": 3, "horizon": 30, "algorithms": ALGORITHMS, **panel}
    return parse({"name": "test", "panels": [{"name": "p", "problem": problem, **settings}]})


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


def test_by_hand(device):
    """Independent arms: d_eff is the sum of c / (c + lambda); of two equal ones, both count as one."""
    kernel = ArmKernel.from_matrix(torch.eye(4, dtype=torch.float64, device=device))
    arms = torch.tensor([0, 2, 2, 2, 3], device=device)
    assert effective_dimension(kernel, arms, 0.5) == pytest.approx(2 / 1.5 + 3 / 3.5, rel=1e-14)
    matrix = torch.eye(4, dtype=torch.float64, device=device)
    matrix[2, 3] = matrix[3, 2] = 1.0
    both = torch.stack([torch.eye(4, dtype=torch.float64, device=device), matrix])
    kernel = ArmKernel.from_matrix(both)
    assert effective_dimension(kernel, arms, 0.5, trial=0) == pytest.approx(2 / 1.5 + 3 / 3.5, rel=1e-14)
    assert effective_dimension(kernel, arms, 0.5, trial=1) == pytest.approx(1 / 1.5 + 4 / 4.5, rel=1e-14)
    assert effective_dimension(kernel, arms[:0], 0.5) == 0.0


def test_it_is_the_sum_of_posterior_variances(device):
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    covariance = SquaredExponential(0.4)
    arms = torch.tensor([3, 7, 7, 11, 29, 3, 3], device=device)
    K = covariance(X, X)[arms][:, arms]
    variance = (K - K @ torch.linalg.solve(K + 0.1 * torch.eye(7, dtype=K.dtype, device=device), K)).diagonal()
    found = effective_dimension(ArmKernel.from_covariance(covariance, X), arms, 0.1)
    assert found == pytest.approx(float(variance.sum()) / 0.1, rel=1e-10)
    posterior = dtc.init(ArmKernel.from_covariance(covariance, X), 0.1)
    for arm in arms:  # with every arm in the dictionary the algorithm's own estimate is exact
        dtc.count(posterior, arm.unsqueeze(0), torch.ones(1, dtype=K.dtype, device=device))
    dtc.rebuild(posterior, posterior.counts > 0)
    assert float(posterior.effective_dimension) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("index", [0, 1])
def test_traces_record_what_the_state_holds(device, index):
    panel = config().panels[0]
    problem = build_problem(panel, range(3), None, device)
    algorithm = build_algorithm(panel.algorithms[index], panel, problem)
    assert "dictionary" in algorithm.records
    seen = {"size": [], "estimate": []}
    traces = Traces(30, 3, device, torch.float64, dictionary=True)
    state = start_state(algorithm, problem, 1.0, 3, 30)
    design = torch.empty(0, 3, dtype=torch.long, device=device)
    draws, uniforms = play.draw_chunk(problem, range(3), 0, 0)
    for t in range(30):
        play_round(algorithm, problem, state, draws[t], uniforms[t], traces, design)
        p = state.posterior
        seen["size"].append(p.dictionary.sum(1))
        seen["estimate"].append((p.learnt_counts * p.variance / p.noise_var.unsqueeze(1)).sum(1))
    assert torch.equal(traces.dictionary_size, torch.stack(seen["size"]).int())
    torch.testing.assert_close(traces.effective_dimension, torch.stack(seen["estimate"]))
    assert int(traces.dictionary_size[-1].min()) > 2
    record = dictionary_record(state, traces)
    assert (record["rounds"][0], record["rounds"][-1], len(record["rounds"])) == (1, 30, 10)
    K = problem.kernel(problem.arms, problem.arms)
    arms = traces.arms[:, 2].long()
    K = K[arms][:, arms]
    exact = torch.linalg.solve(K + torch.eye(30, dtype=K.dtype, device=device), K).trace()
    assert record["effective_dimension"][-1][2] == pytest.approx(float(exact), rel=1e-5)


def test_failed_pulls_do_not_count_and_large_runs_have_no_exact_one(device, monkeypatch):
    state = State(dtc.init(ArmKernel.from_matrix(torch.eye(3, dtype=torch.float64, device=device)), 1.0))
    traces = Traces(3, 1, device, torch.float64, dictionary=True)
    traces.arms[:, 0], traces.ok[:, 0] = torch.arange(3), torch.tensor([True, False, True])
    traces.rounds = 3
    assert dictionary_record(state, traces) == {"rounds": [1, 2, 3], "effective_dimension": [[0.5], [0.5], [1.0]]}
    monkeypatch.setattr(records, "EXACT_ARMS", 1)
    assert dictionary_record(state, traces)["rounds"] == [1, 2]
    assert dictionary_record(state, Traces(3, 1, device, torch.float64)) is None


def test_only_shards_with_a_dictionary_have_the_columns(tmp_path):
    runs.start(config(), tmp_path, console=quiet())
    for j, there in enumerate((True, True, False)):
        shard = load_shard(tmp_path, ShardKey(0, j, 0, 3), config().digest)
        assert ({*DICTIONARY_COLUMNS} <= {*shard.frame}) == there
        assert (shard.metadata["dictionary"] is not None) == there
    traces = pd.read_parquet(tmp_path / "traces.parquet")
    of = traces.groupby("algorithm", observed=True)["dictionary_size"].count()
    assert of.to_dict() == {"BKB": 90, "BBKB": 90, "GP": 0}


def test_resumed_runs_have_the_same_columns(tmp_path, monkeypatch):
    wide = config(trials=2, horizon=300, algorithms=ALGORITHMS[:1])
    runs.start(wide, tmp_path / "whole", console=quiet())
    real, left = play.draw_chunk, [1]

    def dying(*args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(play, "draw_chunk", dying)
        with pytest.raises(KeyboardInterrupt):
            runs.start(wide, tmp_path / "cut", checkpoint_seconds=0.0, console=quiet())
    assert len(list((tmp_path / "cut" / "checkpoints").iterdir())) == 1
    runs.resume(tmp_path / "cut", console=quiet())
    a, b = (pd.read_parquet(tmp_path / name / "traces.parquet") for name in ("whole", "cut"))
    pd.testing.assert_frame_equal(a, b)
    assert np.isfinite(a["effective_dimension"]).all()
