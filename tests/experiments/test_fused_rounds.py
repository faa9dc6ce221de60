"""Many rounds in one call: the traces and the posterior of single rounds, from any round, and refused."""

import math

import pytest
import torch

from bo_robust.bandits import GPUCB, IRGPUCB, TGPUCB, ExpectedImprovement, Selection
from bo_robust.confidence import FiniteWidth, RandomisedWidth, SelfNormalisedWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.experiments import loop_arms
from bo_robust.experiments.build import start_state
from bo_robust.experiments.fused_rounds import can_fuse, run_fused
from bo_robust.experiments.loop_arms import run_rounds
from bo_robust.experiments.problems import make_problem
from bo_robust.experiments.traces import COLUMNS, Traces

HORIZON, TRIALS = 70, range(3)
ALGORITHMS = {
    "gp-ucb": GPUCB(FiniteWidth(40, 0.1)),
    "irgp-ucb": IRGPUCB(RandomisedWidth(40)),
    "tgp-ucb": TGPUCB(RandomisedWidth(40, scale=0.447), TGPTruncation(moment_bound=2.0, alpha=1.0)),
}


def problem(device, **changes):
    made = make_problem("rkhs_function", TRIALS, 3, **({"num_arms": 40, "noise_var": 0.5} | changes))
    return made.to(device, torch.float64)


def run(algorithm, made, fuse, monkeypatch, horizon=HORIZON, state=None, traces=None):
    monkeypatch.setattr(loop_arms, "CHUNK_ROUNDS", 32)
    monkeypatch.setattr(loop_arms, "on_cuda", lambda tensor: fuse)
    traces, state = traces or Traces(horizon, made), state or start_state(algorithm, made, horizon)
    run_rounds(algorithm, made, TRIALS, 5, traces, state)
    return state, traces


def same(a, b):
    for name in COLUMNS:
        torch.testing.assert_close(a[1][name], b[1][name], rtol=1e-9, atol=1e-10, equal_nan=True)
    for name in ("mean", "variance", "counts", "information_gain"):
        ours, theirs = getattr(a[0].posterior, name), getattr(b[0].posterior, name)
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert a[0].round == b[0].round == HORIZON


class Greedy(GPUCB):
    def select(self, state, uniform):
        return Selection(state.posterior.mean.argmax(1))


def test_a_subclass_is_not_run_as_its_parent(device):
    made, algorithm = problem(device), Greedy(FiniteWidth(40, 0.1))
    assert not can_fuse(algorithm, made, start_state(algorithm, made, HORIZON))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_many_rounds_are_single_rounds(name, device, monkeypatch):
    made = problem(device)
    assert can_fuse(ALGORITHMS[name], made, start_state(ALGORITHMS[name], made, HORIZON))
    ours = run(ALGORITHMS[name], made, True, monkeypatch)
    theirs = run(ALGORITHMS[name], made, False, monkeypatch)
    same(ours, theirs)
    assert bool(ours[1]["truncated"].any()) == (name == "tgp-ucb")


def test_goes_on_from_a_state_of_single_rounds(device, monkeypatch):
    """40 rounds one by one (a block is pending), the rest in calls."""
    made, algorithm = problem(device), ALGORITHMS["tgp-ucb"]
    state, first = run(algorithm, made, False, monkeypatch, horizon=40)
    assert state.posterior.num_pending > 0
    traces = Traces(HORIZON, made)
    traces.write(40, **{name: first[name] for name in COLUMNS})
    ours = run(algorithm, made, True, monkeypatch, state=state, traces=traces)
    same(ours, run(algorithm, made, False, monkeypatch))


def test_what_cannot_be_run_from_tables(device):
    made = problem(device)
    level = TGPTruncation(moment_bound=2.0, alpha=1.0)
    for algorithm in (
        ExpectedImprovement(),
        TGPUCB(FiniteWidth(40, 0.1), level, rule="clip"),
        GPUCB(SelfNormalisedWidth(1.0, 0.1, 0.1)),
    ):
        state = start_state(algorithm, made, HORIZON)
        assert not can_fuse(algorithm, made, state)
    plain = ALGORITHMS["gp-ucb"]
    for other in (problem(device, num_arms=150), make_problem("hard_instance", TRIALS, 0).to(device, torch.float64)):
        state = start_state(plain, other, HORIZON)
        assert not can_fuse(plain, other, state)


def test_a_reward_that_is_not_finite_asks_for_an_eager_round(device):
    made, algorithm = problem(device), ALGORITHMS["gp-ucb"]
    state = start_state(algorithm, made, HORIZON)
    draws, uniforms = (torch.zeros(*shape, device=device).double() for shape in ((4, 3, 1), (4, 3)))
    draws[2, 1] = math.inf
    traces = Traces(HORIZON, made)
    assert run_fused(algorithm, made, state, draws[2:], uniforms[2:], traces) == 0
    assert (traces.rounds, state.round) == (0, 0)
    assert run_fused(algorithm, made, state, draws, uniforms, traces) == 2
    assert (traces.rounds, state.round) == (2, 2)
