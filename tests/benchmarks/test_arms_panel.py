"""The loop over arms: its traces, from first principles and by blocks of rounds."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from benchmarks.loops import arms as loop
from benchmarks.loops.arms import ArmsPanel, run_round, run_rounds, start_state
from benchmarks.loops.traces import COLUMNS, DICTIONARY_COLUMNS, Traces
from benchmarks.methods.arms import practical
from benchmarks.methods.published import LogWidth
from benchmarks.problems.base import Trials
from benchmarks.problems.rewards import StudentT, TableRewards
from benchmarks.problems.synthetic import GPDraw, RKHSFunction
from bo_robust.bandits import BBKB, BKB, GPUCB, HEGPUCB, TGPUCB
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.utils.random import stream
from tests.bandits.test_captured import Graphs

T3 = StudentT(3.0)
METHODS = {
    "BKB": lambda p: BKB(practical(p), oversampling=2.0),
    "BBKB": lambda p: BBKB(practical(p), oversampling=2.0, batch_constant=0.5),
    "GP": lambda p: GPUCB(FiniteWidth(p.num_arms, 0.1, scale=5.0**-0.5)),
}
PANEL = ArmsPanel("p", RKHSFunction(num_arms=40, noise=T3, noise_var=0.5), METHODS, trials=3, rounds=30)


def test_traces_are_reproduced_from_first_principles():
    """Regret, rewards and coverage of the traces, recomputed with dense solves for one trial."""
    cpu = torch.device("cpu")
    made = dataclasses.replace(PANEL, problem=RKHSFunction(noise=T3), rounds=25).made(cpu)
    frame, _ = made.run("GP", range(2), cpu)
    rows = frame.query("trial == 1")
    problem = RKHSFunction(noise=T3).make(Trials([1], 0))
    f = problem.f[0].numpy()
    K = problem.kernel if isinstance(problem.kernel, torch.Tensor) else problem.kernel(problem.arms, problem.arms)
    K = K.numpy()
    draws = problem.rewards.draw(stream(0, "reward", 1, 0), 256)
    width = FiniteWidth(len(f), 0.1, scale=5**-0.5)
    arms, rewards = [], []
    for t in range(25):
        mean, variance = np.zeros(len(f)), K.diagonal()
        if arms:
            A = np.linalg.solve(K[np.ix_(arms, arms)] + problem.noise_var * np.eye(t), K[arms])
            mean, variance = np.array(rewards) @ A, K.diagonal() - (K[arms] * A).sum(0)
        sigma = np.sqrt(np.maximum(variance, 0))
        arm = int(np.argmax(mean + width(t + 1) * sigma))
        row = rows.iloc[t]
        assert row["arm"] == arm
        assert row["coverage"] == pytest.approx((np.abs(f - mean) <= width(t + 1) * sigma + 1e-9).mean(), abs=1e-6)
        reward = problem.rewards(problem.f, torch.tensor([arm]), torch.from_numpy(draws[t : t + 1])).item()
        assert row["reward"] == pytest.approx(reward, rel=1e-12)
        assert row["regret"] == pytest.approx(f.max() - f[arm], abs=1e-12)
        arms.append(arm)
        rewards.append(reward)


@pytest.mark.parametrize("label", ["BKB", "BBKB"])
def test_traces_record_what_the_state_holds(device, label):
    made = PANEL.made(device)
    problem, algorithm = made.built(range(3), device), made.methods[label]
    assert "dictionary" in algorithm.records
    seen = {"size": [], "estimate": []}
    traces = Traces(30, problem, dictionary=True)
    state = start_state(algorithm, problem, 30)
    draws, uniforms = loop.draw_chunk(problem, range(3), 0, 0)
    for t in range(30):
        traces.write(**run_round(algorithm, problem, state, draws[t], uniforms[t]))
        p = state.posterior
        seen["size"].append(p.dictionary.sum(1))
        seen["estimate"].append((p.learnt[1] * p.variance / p.noise_var.unsqueeze(1)).sum(1))
    assert torch.equal(traces["dictionary_size"], torch.stack(seen["size"]).int())
    torch.testing.assert_close(traces["effective_dimension"], torch.stack(seen["estimate"]))
    assert int(traces["dictionary_size"][-1].min()) > 2


@pytest.mark.parametrize("initial", [0, 5])
def test_blocks_of_rounds_leave_the_traces_of_single_rounds(initial, simulated, monkeypatch):
    """A graph is its work here, which a capture does not run; a chunk ends within a block."""
    monkeypatch.setattr(loop, "CHUNK_ROUNDS", 150)
    made = RKHSFunction(num_arms=40).make(Trials(range(3), 0)).to(torch.device("cpu"), torch.float64)
    algorithm, found, replays = TGPUCB(LogWidth(), TGPTruncation(1.0, 1.0)), [], []

    def capture(device, work):
        graphs = Graphs()
        replay = graphs(device, work)
        return lambda: replays.append(replay())

    for how in (capture, None):
        traces, state = Traces(300, made), start_state(algorithm, made, 300)
        run_rounds(algorithm, made, range(3), 0, traces, state, initial, how)
        found.append(traces)
    assert len(replays) >= 5
    for name in COLUMNS:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=0.0, atol=0.0, equal_nan=True)


class OwnRewards(TableRewards):
    def __call__(self, f, arms, draws):
        return super().__call__(f, arms, draws)


def test_rewards_that_may_read_the_host_are_not_captured(simulated):
    made = GPDraw(num_arms=20).make(Trials(range(2), 0))
    for rewards, captures in ((made.rewards, 1), (TableRewards(made.f), 1), (OwnRewards(made.f), 0)):
        problem, algorithm, seen = dataclasses.replace(made, rewards=rewards), GPUCB(LogWidth()), []
        state = start_state(algorithm, problem, 70)
        capture = partial(lambda seen, _, work: seen.append(1) or work, seen)
        run_rounds(algorithm, problem, range(2), 0, Traces(70, problem), state, 0, capture)
        assert len(seen) == captures


def test_only_methods_with_a_dictionary_have_its_columns(device):
    made = PANEL.made(device)
    frames = [made.run(label, range(3), device)[0] for label in METHODS]
    assert [{*DICTIONARY_COLUMNS} <= {*frame} for frame in frames] == [True, True, False]
    assert [len(frame) for frame in frames] == [90, 90, 90]


def test_a_column_that_is_missing_or_unknown_raises(device):
    traces = Traces(30, PANEL.built(range(3), device))
    row = {"arm": 0, "reward": 1.0, "recommended": 0, "width": 2.0, "coverage": 0.5, "truncated": False, "ok": True}
    traces.write(**row)
    assert (traces.rounds, traces["width"][0].tolist()) == (1, [2.0] * 3)
    for wrong in ({key: value for key, value in row.items() if key != "ok"}, row | {"dictionary_size": 3}):
        with pytest.raises(ValueError, match="look at"):
            traces.write(**wrong)


def test_algorithms_over_candidates_need_some(device):
    methods = {"HE": HEGPUCB(ConstantWidth(1.0), 0.1, 0.1)}
    panel = dataclasses.replace(PANEL, problem=GPDraw(num_arms=20), methods=methods)
    with pytest.raises(ValueError, match=r"'HE' of panel 'p': .*candidate priors, and problem 'gp_draw' has none"):
        panel.made(device)
