"""What runs keep of dictionaries: size and estimated effective dimension by round, through interruptions."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from bo_robust.experiments import arm_loop
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm, build_problem, start_state
from bo_robust.experiments.config import parse
from bo_robust.experiments.store import ShardKey, load_shard
from bo_robust.experiments.traces import DICTIONARY_COLUMNS, Traces, play_round

ALGORITHMS = [
    {"name": "bkb", "label": "BKB", "oversampling": 2.0},
    {"name": "bbkb", "label": "BBKB", "oversampling": 2.0, "batch_constant": 0.5},
    {"name": "gp-ucb", "label": "GP"},
]


def config(**panel):
    problem = {"kind": "rkhs_function", "num_arms": 40, "noise": {"kind": "student_t", "df": 3}}
    settings = {"trials": 3, "horizon": 30, "methods": ALGORITHMS, **panel}
    return parse({"name": "test", "panels": [{"name": "p", "problem": problem, **settings}]})


def quiet():
    return Console(file=open(os.devnull, "w"), width=200)


@pytest.mark.parametrize("index", [0, 1])
def test_traces_record_what_the_state_holds(device, index):
    panel = config().panels[0]
    problem = build_problem(panel, range(3), None, device)
    algorithm = build_algorithm(panel.methods[index], panel, problem)
    assert "dictionary" in algorithm.records
    seen = {"size": [], "estimate": []}
    traces = Traces(30, 3, device, torch.float64, dictionary=True)
    state = start_state(algorithm, problem, 1.0, 3, 30)
    design = torch.empty(0, 3, dtype=torch.long, device=device)
    draws, uniforms = arm_loop.draw_chunk(problem, range(3), 0, 0)
    for t in range(30):
        play_round(algorithm, problem, state, draws[t], uniforms[t], traces, design)
        p = state.posterior
        seen["size"].append(p.dictionary.sum(1))
        seen["estimate"].append((p.learnt_counts * p.variance / p.noise_var.unsqueeze(1)).sum(1))
    assert torch.equal(traces.dictionary_size, torch.stack(seen["size"]).int())
    torch.testing.assert_close(traces.effective_dimension, torch.stack(seen["estimate"]))
    assert int(traces.dictionary_size[-1].min()) > 2


def test_only_shards_with_a_dictionary_have_the_columns(tmp_path):
    runs.start(config(), tmp_path, console=quiet())
    for j, there in enumerate((True, True, False)):
        shard = load_shard(tmp_path, ShardKey(0, j, 0, 3), config().digest)
        assert ({*DICTIONARY_COLUMNS} <= {*shard.frame}) == there
    traces = pd.read_parquet(tmp_path / "traces.parquet")
    of = traces.groupby("method", observed=True)["dictionary_size"].count()
    assert of.to_dict() == {"BKB": 90, "BBKB": 90, "GP": 0}


def test_resumed_runs_have_the_same_columns(tmp_path, monkeypatch):
    wide = config(trials=2, horizon=300, methods=ALGORITHMS[:1])
    runs.start(wide, tmp_path / "whole", console=quiet())
    real, left = arm_loop.draw_chunk, [1]

    def dying(*args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(arm_loop, "draw_chunk", dying)
        with pytest.raises(KeyboardInterrupt):
            runs.start(wide, tmp_path / "cut", checkpoint_seconds=0.0, console=quiet())
    assert len(list((tmp_path / "cut" / "checkpoints").iterdir())) == 1
    runs.resume(tmp_path / "cut", console=quiet())
    a, b = (pd.read_parquet(tmp_path / name / "traces.parquet") for name in ("whole", "cut"))
    pd.testing.assert_frame_equal(a, b)
    assert np.isfinite(a["effective_dimension"]).all()
