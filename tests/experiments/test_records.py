"""What runs keep of dictionaries: size and estimated effective dimension by round, through interruptions."""

import pandas as pd
import pytest
import torch

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
    runs.start(config(), tmp_path)
    for j, there in enumerate((True, True, False)):
        shard = load_shard(tmp_path, ShardKey(0, j, 0, 3), config().digest)
        assert ({*DICTIONARY_COLUMNS} <= {*shard.frame}) == there
    traces = pd.read_parquet(tmp_path / "traces.parquet")
    of = traces.groupby("method", observed=True)["dictionary_size"].count()
    assert of.to_dict() == {"BKB": 90, "BBKB": 90, "GP": 0}
