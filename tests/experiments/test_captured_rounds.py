"""Rounds captured once and replayed: same bits as round by round, and a clean way back where it cannot be.

Without CUDA a graph is a function that runs the captured work again: what is baked in at capture (round numbers, widths
as numbers, lengths of slices) is baked in for it too.
"""

import logging
import subprocess
from functools import partial
from subprocess import CompletedProcess, TimeoutExpired

import pytest
import torch

from bo_robust.algorithms import (
    ATAGPUCB,
    BKB,
    GPUCB,
    HEGPUCB,
    IRGPUCB,
    TGPUCB,
    ExpectedImprovement,
    PureMean,
    PureVariance,
    RandomArm,
)
from bo_robust.algorithms import ProbabilityOfImprovement as PI
from bo_robust.confidence import ConstantWidth, FiniteWidth, LogWidth, RandomisedWidth, SelfNormalisedWidth, TGPWidth
from bo_robust.experiments import play as plays
from bo_robust.experiments.build import start_state
from bo_robust.experiments.capture_trial import try_rounds
from bo_robust.experiments.captured_rounds import capture_fails, captured_rounds, cuda_graph, why_not
from bo_robust.experiments.problems import make_problem
from bo_robust.experiments.traces import Traces, play_round
from bo_robust.features import FourierFeatures
from bo_robust.ops.arm_update import SHORT_BLOCK, naive
from bo_robust.truncation import ATAFourierTruncation, TGPTruncation

TRIALS, SEED, NOISE_VAR = 3, 0, 1.0
STATIC = [
    GPUCB(FiniteWidth(100, 0.1, scale=0.4)),
    GPUCB(ConstantWidth(1.5)),
    GPUCB(RandomisedWidth(100)),
    GPUCB(SelfNormalisedWidth(1.0, 1.0, 0.1)),
    IRGPUCB(RandomisedWidth(100)),
    TGPUCB(LogWidth(), TGPTruncation(1.0, 1.0)),
    TGPUCB(LogWidth(), TGPTruncation(1.0, 1.0), rule="clip"),
    TGPUCB(LogWidth(), TGPTruncation(1.0, 1.0), rule="residual"),
    *(ExpectedImprovement(), PI(), PureMean(), PureVariance(), RandomArm()),
]


def problem(device, dtype=torch.float64):
    return make_problem("rkhs_function", range(TRIALS), SEED, noise={"kind": "student_t", "df": 3}).to(device, dtype)


@pytest.fixture
def plain_rounds(monkeypatch):
    """Rounds on a CPU by the path of CUDA tensors, which reads nothing back."""
    from bo_robust.posteriors import arms

    def update_(buffers, pulled, rewards, kernel_rows, scratch, counts=None):
        return naive.update_(buffers, pulled, rewards, kernel_rows, counts)

    monkeypatch.setattr(arms.arm_update, "update_", update_)


class Recorded:
    """A graph that runs its work again, after the run that warms up and the one that captures."""

    def __init__(self):
        self.captures = self.replays = 0

    def __call__(self, work):
        self.captures += 1
        work()
        if self.captures > 1:
            raise AssertionError("captured twice")

        def replay():
            self.replays += 1
            work()

        return replay


def eager(*arguments):
    """In place of a captured block: none."""
    return None


def play(algorithm, world, horizon, capture=eager, initial=0):
    """Traces and state of a run whose blocks are captured by ``capture``."""
    traces = Traces(horizon, TRIALS, world.f.device, world.f.dtype)
    state = start_state(algorithm, world, NOISE_VAR, TRIALS, horizon)
    plays.play(algorithm, world, range(TRIALS), SEED, NOISE_VAR, traces, state, initial=initial, fast=capture)
    return traces, state


def same(a, b):
    return all(
        torch.equal(x.nan_to_num(-7.0), y.nan_to_num(-7.0))
        for x, y in zip(a.tensors().values(), b.tensors().values(), strict=True)
    )


@pytest.mark.parametrize("algorithm", STATIC, ids=lambda a: f"{type(a).__name__}-{getattr(a, 'rule', '')}")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_replayed_blocks_are_the_eager_rounds_bit_for_bit(algorithm, dtype, plain_rounds):
    world, horizon = problem("cpu", dtype), 8 * SHORT_BLOCK + 75  # over a block of draws, and a rest of 11 rounds
    graph = Recorded()
    captured, state = play(algorithm, world, horizon, partial(captured_rounds, graph=graph))
    assert same(play(algorithm, world, horizon)[0], captured)
    # All but the first 32 rounds of the run and the last 11 are replayed: 7 blocks, then 64 rounds of the next draws.
    assert (graph.captures, graph.replays) == (1, 9)
    assert state.round == captured.rounds == horizon
    assert state.posterior.buffers.num_pending == 11


def test_an_initial_design_is_played_first(plain_rounds):
    world, graph = problem("cpu"), Recorded()
    algorithm, horizon, initial = GPUCB(LogWidth()), 4 * SHORT_BLOCK, SHORT_BLOCK + 5
    captured, _ = play(algorithm, world, horizon, partial(captured_rounds, graph=graph), initial)
    assert same(play(algorithm, world, horizon, eager, initial)[0], captured)
    assert graph.replays == 2  # the second block is cut by the design and goes on by single rounds


def test_a_failed_pull_inside_a_replay_changes_nothing_of_its_trial(plain_rounds, monkeypatch):
    world, draw = problem("cpu"), plays.draw_chunk

    def broken(*arguments):
        draws, uniforms = draw(*arguments)
        draws[SHORT_BLOCK + 7, 1] = torch.nan
        return draws, uniforms

    monkeypatch.setattr(plays, "draw_chunk", broken)
    algorithm, horizon = TGPUCB(LogWidth(), TGPTruncation(4.0, 1.0)), 3 * SHORT_BLOCK
    captured, state = play(algorithm, world, horizon, partial(captured_rounds, graph=Recorded()))
    assert same(play(algorithm, world, horizon)[0], captured)
    assert state.posterior.counts.sum(1).tolist() == [96, 95, 96]
    assert (~captured.ok).nonzero().tolist() == [[SHORT_BLOCK + 7, 1]]


def test_capture_leaves_the_state_as_it_was_when_it_fails(plain_rounds, caplog):
    def refuse(work):
        work()
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    world, algorithm, horizon = problem("cpu"), GPUCB(LogWidth()), 3 * SHORT_BLOCK
    with caplog.at_level(logging.WARNING):
        captured, _ = play(algorithm, world, horizon, partial(captured_rounds, graph=refuse))
    assert same(play(algorithm, world, horizon)[0], captured)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "Rounds of GPUCB are not captured, but played one by one: operation not permitted when stream is capturing."
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            CompletedProcess([], 1, stderr="a warning\nRuntimeError: operation not permitted\n"),
            "operation not permitted",
        ),
        (CompletedProcess([], -11, stderr=""), "exit status -11"),
        (TimeoutExpired("python", 300.0), "timed out after 300.0 seconds"),
        (OSError("no more processes"), "no more processes"),
    ],
)
def test_a_capture_that_fails_in_a_child_process_is_not_tried_here(outcome, words, plain_rounds, monkeypatch, caplog):
    trials = []

    def run(command, **options):
        trials.append(command[-1])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    capture_fails.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    graph, horizon = partial(cuda_graph, torch.device("cuda", 0)), 3 * SHORT_BLOCK
    for algorithm in (GPUCB(LogWidth()), PureMean()):
        world = problem("cpu")
        with caplog.at_level(logging.WARNING):
            captured, _ = play(algorithm, world, horizon, partial(captured_rounds, graph=graph))
        assert same(play(algorithm, world, horizon)[0], captured)
    capture_fails.cache_clear()
    assert trials == ["cuda:0"]  # once for both
    for record in caplog.records:
        assert words in record.getMessage()
        assert "please report this line with the output of `bo-robust doctor`" in record.getMessage()
    assert len(caplog.records) == 2


def test_the_trial_of_a_capture(plain_rounds):
    """Right replays pass; wrong ones and a failed capture end the child process with a sentence."""

    def right(work):
        return Recorded()(work)

    def wrong(work):
        work()
        return lambda: None

    def refused(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    try_rounds(torch.device("cpu"), right)
    with pytest.raises(SystemExit, match="of GPUCB differs between replayed and eager rounds"):
        try_rounds(torch.device("cpu"), wrong)
    with pytest.raises(SystemExit, match="RuntimeError: operation not permitted when stream is capturing"):
        try_rounds(torch.device("cpu"), refused)


def test_the_child_process_plays_this_package(device):
    """Without CUDA it fails, and says so; with CUDA it must not."""
    capture_fails.cache_clear()
    found = capture_fails(torch.device("cuda", 0))
    capture_fails.cache_clear()
    if device.type == "cuda":
        assert found is None
    elif not torch.cuda.is_available():
        assert found.startswith("a trial of it on cuda:0 failed (")
        assert "CUDA" in found.split("please report")[0] or "NVIDIA" in found


def test_what_cannot_be_captured_says_why(caplog):
    world = problem("cpu")
    level = ATAFourierTruncation(4.0, 1.0, 0.1, 100, 8)
    ata = ATAGPUCB(LogWidth(), level, FourierFeatures(0.2, 8, ((0.0, 1.0),)))
    for algorithm, words in (
        (ata, "depend on the data"),
        (BKB(LogWidth(), 2.0), "depend on the data"),
        (GPUCB(TGPWidth(1.0, 1.0, 1.0, 1.0, 0.1)), "TGPWidth depends on the round and on the rewards"),
    ):
        state = start_state(algorithm, world, NOISE_VAR, TRIALS)
        assert words in why_not(algorithm, state)
        with caplog.at_level(logging.WARNING):
            assert captured_rounds(algorithm, world, state, 100, Recorded()) is None
        assert len(caplog.records) == 1
        assert type(algorithm).__name__ in caplog.text
        caplog.clear()
    wide = make_problem("rkhs_function", range(2), 0, num_arms=300)
    state = start_state(GPUCB(LogWidth()), wide, NOISE_VAR, 2)
    assert why_not(GPUCB(LogWidth()), state).startswith("300 arms are kept in the low-rank layout")
    candidates = make_problem("unknown_lengthscale", range(1), 0)
    he = HEGPUCB(FiniteWidth(candidates.num_arms, 0.1), 0.1, 0.1)
    assert "depend on the data" in why_not(he, start_state(he, candidates, NOISE_VAR, 1))


def test_a_run_on_a_cpu_captures_nothing(caplog):
    world, algorithm = problem("cpu"), GPUCB(LogWidth())
    assert captured_rounds(algorithm, world, start_state(algorithm, world, NOISE_VAR, TRIALS), 9) is None
    assert not caplog.records


@pytest.fixture
def cuda(device):
    if device.type != "cuda":
        pytest.skip("needs CUDA: --device cuda")
    return device


@pytest.mark.parametrize("algorithm", STATIC, ids=lambda a: f"{type(a).__name__}-{getattr(a, 'rule', '')}")
def test_on_cuda_a_run_with_graphs_makes_the_picks_of_one_without(algorithm, cuda):
    world = problem(cuda)
    runs = [play(algorithm, world, 300, capture)[0] for capture in (captured_rounds, eager)]
    for name, a in runs[0].tensors().items():
        b = getattr(runs[1], name)
        close = torch.allclose(a, b, rtol=0, atol=1e-9, equal_nan=True) if a.is_floating_point() else torch.equal(a, b)
        assert close, name


def test_on_cuda_rounds_do_not_wait_for_the_device(cuda):
    """20 eager rounds, and replays of a captured block."""
    world = problem(cuda)
    for algorithm in STATIC:
        horizon = 6 * SHORT_BLOCK
        traces = Traces(horizon, TRIALS, cuda, torch.float64)
        state = start_state(algorithm, world, NOISE_VAR, TRIALS, horizon)
        captured = captured_rounds(algorithm, world, state, horizon)
        draws, uniforms = plays.draw_chunk(world, range(TRIALS), SEED, 0)
        design = plays.initial_design(world, range(TRIALS), SEED, 0)
        with torch.no_grad():
            play_round(algorithm, world, state, draws[0], uniforms[0], traces, design)
            torch.cuda.set_sync_debug_mode("error")
            try:
                for i in range(1, 21):
                    play_round(algorithm, world, state, draws[i], uniforms[i], traces, design)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            for i in range(21, SHORT_BLOCK):
                play_round(algorithm, world, state, draws[i], uniforms[i], traces, design)
            assert captured.play(draws[SHORT_BLOCK:], uniforms[SHORT_BLOCK:], traces) == SHORT_BLOCK  # captures
            torch.cuda.set_sync_debug_mode("error")
            try:
                for k in (2, 3):
                    rest = slice(k * SHORT_BLOCK, None)
                    assert captured.play(draws[rest], uniforms[rest], traces) == SHORT_BLOCK
            finally:
                torch.cuda.set_sync_debug_mode("default")
        assert state.round == traces.rounds == 4 * SHORT_BLOCK


def test_on_cuda_work_that_waits_for_the_device_falls_back(cuda, monkeypatch):
    world, seen = problem(cuda), []

    def waiting_round(*arguments):
        seen.append(float(arguments[2].posterior.mean.sum()))  # not permitted while capturing
        play_round(*arguments)

    monkeypatch.setattr("bo_robust.experiments.captured_rounds.play_round", waiting_round)
    algorithm, horizon = GPUCB(LogWidth()), 2 * SHORT_BLOCK
    traces = Traces(horizon, TRIALS, cuda, torch.float64)
    state = start_state(algorithm, world, NOISE_VAR, TRIALS, horizon)
    captured = captured_rounds(algorithm, world, state, horizon)
    draws, uniforms = plays.draw_chunk(world, range(TRIALS), SEED, 0)
    design = plays.initial_design(world, range(TRIALS), SEED, 0)
    with torch.no_grad():
        for i in range(SHORT_BLOCK):
            play_round(algorithm, world, state, draws[i], uniforms[i], traces, design)
        mean, stream = state.posterior.mean.clone(), torch.cuda.current_stream()
        assert captured.play(draws[SHORT_BLOCK:], uniforms[SHORT_BLOCK:], traces) == 0
        assert torch.equal(state.posterior.mean, mean)
        assert torch.cuda.current_stream() == stream
        for i in range(SHORT_BLOCK, horizon):
            play_round(algorithm, world, state, draws[i], uniforms[i], traces, design)
    assert traces.rounds == horizon
