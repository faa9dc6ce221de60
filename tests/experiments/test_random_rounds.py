"""Chunks of a baseline leave the traces of single rounds."""

import pytest
import torch

from bo_robust.experiments import loop_arms
from bo_robust.experiments.build import build_algorithm, build_problem, start_state
from bo_robust.experiments.config import parse
from bo_robust.experiments.loop_arms import Traces, run_rounds


def traces_of(panel, problem, trials):
    traces = Traces(panel.horizon, problem)
    algorithm = build_algorithm(panel.methods[0], panel, problem)
    state = start_state(algorithm, problem, panel.horizon)
    run_rounds(algorithm, problem, trials, panel.seed, traces, state, panel.initial or 0)
    return traces.tensors()


@pytest.mark.parametrize("initial", [0, 30])
def test_chunks_leave_the_traces_of_single_rounds(initial, monkeypatch):
    """Of 300 arms and 600 rounds in chunks of 256, so that arms repeat; every tenth reward fails, and the first."""
    monkeypatch.setattr(loop_arms, "on_cuda", lambda tensor: False)
    data = {"methods": ["random"], "trials": 2, "horizon": 600, "initial": initial}
    panels = [{"name": "p", "problem": {"kind": "many_arms", "num_arms": 300}}]
    panel = parse(data | {"panels": panels}).panels[0]
    problem = build_problem(panel, range(2), None, torch.device("cpu"))
    rewards = type(problem.rewards)
    real = rewards.__call__

    def failing(self, f, arms, draws):
        return real(self, f, arms, draws).where(arms % 10 != 0, float("nan"))

    monkeypatch.setattr(rewards, "__call__", failing)
    chunks = traces_of(panel, problem, range(2))
    monkeypatch.setattr(loop_arms, "ignores_rewards", lambda algorithm, state: False)
    single = traces_of(panel, problem, range(2))
    assert 0.8 < chunks["ok"].double().mean() < 1.0
    for name, column in single.items():
        assert torch.equal(chunks[name].nan_to_num(), column.nan_to_num()), name
