"""Rounds as a graph, on a CPU: the operations of a block are recorded without effect, and run again for each replay."""

import gc
import sys
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from benchmarks.methods.published import LogWidth
from bo_robust.bandits import (
    ATAGPUCB,
    BBKB,
    BKB,
    GPUCB,
    HEGPUCB,
    IRGPUCB,
    TGPUCB,
    VUCB,
    CandidateAlgorithm,
    ExpectedImprovement,
    ExpectedUCB,
    ProbabilityOfImprovement,
    PureMean,
    PureVariance,
    RandomArm,
    Selection,
    StableOpt,
    captured,
)
from bo_robust.bandits.captured import captured_rounds, why_not
from bo_robust.bandits.posteriors import arm_kernel, slots
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomizedWidth, SelfNormalizedWidth, TGPWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.ops import cuda_graphs
from bo_robust.ops.arm_update.naive import rounds_of_a_block
from bo_robust.ops.cuda_graphs import cuda_graph, warn_once
from bo_robust.risk_measures.functionals import CVaR
from bo_robust.utils.covariance import GPyTorchCovariance, SquaredExponential
from tests.bandits.problems import N, begin, kernel, table
from tests.graphs import Graphs

TRIALS, ROUNDS, BLOCK = 3, 118, 32
LEVEL = TGPTruncation(1.0, 1.0)
ALGORITHMS = {
    "gp-ucb": GPUCB(FiniteWidth(N, 0.1)),
    "gp-ucb, realized gain": GPUCB(SelfNormalizedWidth(1.0, 0.3, 0.1)),
    "irgp-ucb": IRGPUCB(RandomizedWidth(N)),
    "tgp-ucb": TGPUCB(TGPWidth(1.0, 4.0, 1.0, 0.1, 0.1), LEVEL),
    "tgp-ucb, clipped": TGPUCB(LogWidth(), LEVEL, "clip"),
    "ata-gp-ucb": ATAGPUCB(LogWidth(), LEVEL, FourierFeatures(0.2, 8, ((0.0, 1.0),))),
    "ata-gp-ucb, cholesky": ATAGPUCB(LogWidth(), LEVEL, FourierFeatures(0.2, 8, ((0.0, 1.0),)), "cholesky", "clip"),
    "v-ucb": VUCB(LogWidth(), 0.3, 5, (0.1, 0.2, 0.4, 0.2, 0.1), "uniform"),
    "v-ucb, tail": VUCB(LogWidth(), CVaR(0.3), 5),
    "stable-opt": StableOpt(LogWidth(), 5),
    "he-gp-ucb": HEGPUCB(FiniteWidth(N, 0.1, scale=0.1), 0.01, 0.1),
    "he-gp-ucb, likelihood": HEGPUCB((LogWidth(), ConstantWidth(1.0), LogWidth()), 0.3, 0.1, elimination="likelihood"),
    "mle-gp-ucb": CandidateAlgorithm(LogWidth()),
    "expected-ucb": ExpectedUCB(LogWidth()),
    "ei": ExpectedImprovement(),
    "pi": ProbabilityOfImprovement(),
    "mean": PureMean(),
    "variance": PureVariance(),
    "random": RandomArm(),
}
CASES = [(name, True) for name in ALGORITHMS] + [(name, False) for name in ("gp-ucb", "tgp-ucb", "he-gp-ucb")]


@pytest.fixture(autouse=True)
def nothing_refused(monkeypatch):
    """A capture that failed in another test is tried again."""
    monkeypatch.setattr(captured, "_refused", set())


def state_tensors(state):
    return [x for _, _, x in captured._parts(state) if isinstance(x, torch.Tensor)]


def start(name, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(arm_states, "is_dense", lambda like, trials: False)
    return begin(ALGORITHMS[name], kernel("cpu"), 0.1, TRIALS)


def round_of(algorithm, state, f):
    def one_round(noise, uniform):
        arms = algorithm.select(state, uniform).arms
        rewards = f.gather(1, arms.unsqueeze(1)).squeeze(1) + noise
        return {"arms": arms, "ok": algorithm.observe(state, arms, rewards, uniform).ok}

    return one_round


def run(name, state, capture):
    """Arms of all rounds, and which rewards counted; without ``capture`` blocks are eager."""
    f, noise, uniforms = table(TRIALS, ROUNDS, "cpu")
    noise[70, 1] = torch.nan  # a failed pull
    one_round = round_of(ALGORITHMS[name], state, f)
    blocks, rows, t = captured_rounds(ALGORITHMS[name], state, one_round, capture), [], 0
    while t < ROUNDS:
        ran = blocks.run(noise[t:], uniforms[t:]) if blocks else state.posterior.begin_block() and None
        if ran:
            rows.append(torch.stack([ran[1]["arms"], ran[1]["ok"].long()], 1))
            for x in (*blocks._inputs, blocks._numbers._memory):
                x.fill_(torch.nan)
            t += ran[0]
        else:
            row = one_round(noise[t], uniforms[t])
            rows.append(torch.stack([row["arms"], row["ok"].long()]).unsqueeze(0))
            t += 1
    assert state.round == ROUNDS
    return torch.cat(rows)


def replays_of(name):
    return 3 if name.startswith("ata") else 2


def refused(device, work):
    raise RuntimeError("operation not permitted when stream is capturing\nmore lines")


@pytest.mark.parametrize(("name", "dense"), CASES)
def test_replayed_blocks_are_the_eager_rounds_to_the_bit(name, dense, simulated, monkeypatch):
    """Blocks of 32 rounds: the first is eager, the others are replayed, but for the last 22 rounds.

    Those of ATA-GP-UCB begin wherever the lists have room, from the third round on.
    """
    states, graphs = [start(name, dense, monkeypatch) for _ in range(2)], Graphs()
    found = [run(name, state, capture) for state, capture in zip(states, (graphs, None), strict=True)]
    assert (len(graphs.graphs), graphs.replays) == (1, replays_of(name))
    assert torch.equal(*found)
    assert not found[0][70, 1, 1]
    for ours, theirs in zip(*map(state_tensors, states), strict=True):
        assert torch.equal(ours, theirs)


def test_blocks_that_grow_are_captured_anew(simulated, monkeypatch):
    """Low rank, in blocks of a round: space for 20 rows, then for all."""
    states, graphs = [], Graphs()
    monkeypatch.setattr(arm_states, "FIRST_ROWS", 20)
    for _ in range(2):
        states.append(start("variance", False, monkeypatch))
        states[-1].posterior.replace(pending=states[-1].posterior.pending[:, :1].clone())
    found = [run("variance", state, capture) for state, capture in zip(states, (graphs, None), strict=True)]
    assert (len(graphs.graphs), states[0].posterior.rows.shape[1]) == (2, N)
    assert graphs.replays >= 60
    assert torch.equal(*found)
    for ours, theirs in zip(*map(state_tensors, states), strict=True):
        assert torch.equal(ours, theirs)


def test_blocks_of_many_rows_are_as_long_as_a_part_of_a_chunk(simulated):
    like = torch.zeros(1)
    assert [rounds_of_a_block(m, like) for m in (0, 16, 1000, 1024, 5000, 10**6)] == [0, 1, 32, 64, 256, 256]


@pytest.mark.parametrize("n", [N, 1000])
def test_nearly_all_rounds_in_low_rank_are_replayed(n, simulated, monkeypatch):
    """In chunks of 256 rounds, as the runner has them, of few arms or all new: were 640 and 64."""
    monkeypatch.setattr(arm_states, "is_dense", lambda like, trials: False)
    T, algorithm, replayed, captures = 1000, GPUCB(LogWidth()), 0, []
    state = algorithm.init(ArmKernel.from_matrix(torch.eye(n)), 0.1, 1, rounds=T)

    def one_round(reward, uniform):
        return {"ok": algorithm.observe(state, torch.tensor([state.round % n]), reward).ok}

    blocks = captured_rounds(algorithm, state, one_round, lambda device, work: captures.append(work) or work)
    while state.round < T:
        rest = torch.ones(min(256 - state.round % 256, T - state.round), 1)
        if ran := blocks.run(rest, rest):
            replayed += ran[0]
        else:
            one_round(rest[0], rest[0])
    assert len(captures) == 1
    assert replayed >= 900


@pytest.mark.parametrize(("name", "dense"), CASES)
def test_two_blocks_are_the_same_work_on_the_same_memory(name, dense, simulated, monkeypatch):
    state, said = start(name, dense, monkeypatch), []

    def capture(device, work):
        graph = Graphs()
        replay = graph(device, work)
        said.append(graph.graphs[0].said(state_tensors(state)))
        return replay

    f, noise, uniforms = table(TRIALS, ROUNDS, "cpu")
    one_round = round_of(ALGORITHMS[name], state, f)
    blocks = captured_rounds(ALGORITHMS[name], state, one_round, capture)
    t = 0
    while t + BLOCK < ROUNDS:
        if blocks.run(noise[t:], uniforms[t:]):
            blocks._replay, t = None, t + BLOCK
        else:
            one_round(noise[t], uniforms[t])
            t += 1
    assert len(said) == replays_of(name)
    assert all(of == said[0] for of in said)


@pytest.mark.parametrize(("name", "dense"), CASES)
def test_a_round_without_numbers_reads_none(name, dense, simulated, monkeypatch):
    """On FakeTensors, which have no entries, every read of one raises."""
    state = start(name, dense, monkeypatch)
    f, noise, uniforms = table(TRIALS, 3, "cpu")
    one_round = round_of(ALGORITHMS[name], state, f)
    one_round(noise[0], uniforms[0])  # tables that are made once
    assert_nothing_read(state, one_round, noise, uniforms)


def assert_nothing_read(state, one_round, noise, uniforms):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for owner, part, value in captured._parts(state):
            if isinstance(value, torch.Tensor):
                object.__setattr__(owner, part, mode.from_tensor(value))
        one_round(mode.from_tensor(noise[1]), mode.from_tensor(uniforms[1]))


def test_a_round_that_reads_is_found_and_not_captured(simulated):
    algorithm = BBKB(FiniteWidth(N, 0.1), 5.0, 1.0)
    state = begin(algorithm, kernel("cpu"), 0.1, TRIALS)
    f, noise, uniforms = table(TRIALS, 3, "cpu")
    with pytest.raises(DataDependentOutputException):
        assert_nothing_read(state, round_of(algorithm, state, f), noise, uniforms)
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="Rounds of BBKB are not captured, but run one by one: they read the device"):
        assert captured_rounds(algorithm, state, None, Graphs()) is None


def run_bkb(algorithm, capture=None, by_slots=True, rounds=40, device="cpu"):
    """Arms, state, and how many rounds were replayed; without ``capture`` rounds are eager, by slots or not."""
    f, noise, uniforms = table(TRIALS, rounds, device)
    noise[20, 1] = torch.nan
    state = begin(algorithm, kernel(device), 0.1, TRIALS)
    one_round, arms, replayed = round_of(algorithm, state, f), [], 0
    blocks = captured_rounds(algorithm, state, one_round, capture) if capture else None
    while len(arms) < rounds:
        t = len(arms)
        if not blocks and by_slots:
            state.posterior.begin_block()
        ran = blocks.run(noise[t:], uniforms[t:]) if blocks else None
        arms.extend(ran[1]["arms"].clone() if ran else [one_round(noise[t], uniforms[t])["arms"]])
        replayed += ran[0] if ran else 0
    return torch.stack(arms), state, replayed


def assert_same_bkb(ours, theirs, atol=0.0):
    assert torch.equal(ours[0], theirs[0])
    for name in ("mean", "variance", "totals", "learnt", "pulled", "dictionary"):
        a, b = (getattr(state.posterior, name) for state in (ours[1], theirs[1]))
        torch.testing.assert_close(a, b, rtol=0.0, atol=atol)


@pytest.mark.parametrize("redraw", ["fresh", "persistent"])
def test_bkb_by_slots_chooses_as_without(redraw, simulated, monkeypatch):
    """And to the bit as its graph, of which no operation reads the device."""
    monkeypatch.setattr(slots, "BLOCK", 8)
    algorithm = BKB(LogWidth(), 5.0, redraw, LEVEL)
    eager, graphs = run_bkb(algorithm), Graphs()
    assert_same_bkb(eager, run_bkb(algorithm, by_slots=False), 1e-6)
    captured = run_bkb(algorithm, graphs)
    assert (len(graphs.graphs), captured[2]) == (1, 32)
    assert_same_bkb(captured, eager)


def test_a_dictionary_that_outgrows_its_slots_gets_more(simulated, monkeypatch):
    """A replay that had too few is repeated, round by round, from the state before; then one more capture."""
    monkeypatch.setattr(slots, "BLOCK", 8)
    monkeypatch.setattr(slots, "SPARE", 1)
    monkeypatch.setattr(slots, "FEWEST", 2)
    algorithm, graphs = BKB(LogWidth(), 5.0), Graphs()
    found = run_bkb(algorithm, graphs)
    assert_same_bkb(found, run_bkb(algorithm, by_slots=False), 1e-6)
    assert len(graphs.graphs) > 1
    assert graphs.replays > found[2] / 8 > 0
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="Rounds of BKB are not captured"):
        assert torch.equal(run_bkb(algorithm, refused)[0], found[0])


def test_a_block_without_space_is_remembered(simulated, monkeypatch):
    """Else dictionaries around the most slots are captured and undone again and again: 15 times in 400 rounds."""
    monkeypatch.setattr(slots, "MOST", 32)
    posterior = begin(BKB(LogWidth(), 5.0), kernel("cpu"), 0.1, 1).posterior
    posterior.dictionary[:, :20] = True
    assert posterior.begin_block() == (BLOCK, 32)
    posterior.most.fill_(33)
    assert posterior.overflowed()
    assert posterior.overflowed()  # again, of the first round of the block, which is repeated: once more space
    assert posterior.begin_block() == posterior.begin_block() == ()
    monkeypatch.setattr(slots, "MOST", 64)
    assert posterior.begin_block() == (BLOCK, 64)


class Late(TGPTruncation):
    """A level that only begins after the capture."""

    def _at(self, t):
        return torch.inf if t <= 16 else 0.3 * super()._at(t)


def test_bkb_truncates_by_a_level_that_was_infinite_at_the_capture(simulated, monkeypatch):
    monkeypatch.setattr(slots, "BLOCK", 8)
    algorithm = BKB(LogWidth(), 5.0, truncation=Late(1.0, 1.0))
    assert_same_bkb(run_bkb(algorithm, Graphs()), run_bkb(algorithm))


def test_bkb_by_slots_is_as_exact_as_without(simulated):
    """At the least noise that rounding allows, where the mean was off by 5e-4."""
    algorithm, X, uniforms = BKB(LogWidth(), 5.0, "persistent"), torch.linspace(0, 1, N).double(), torch.rand(2, 150, 1)
    state = algorithm.init(kernel("cpu"), 1e4 * torch.finfo(X.dtype).eps)
    for uniform, place in zip(*uniforms.double(), strict=True):
        state.posterior.begin_block()
        arms = (place * N).long()
        algorithm.observe(state, arms, torch.sin(6.0 * X[arms]), uniform)
    assert state.posterior.slots > 0
    torch.testing.assert_close(state.posterior.mean[0], torch.sin(6.0 * X), rtol=0.0, atol=1e-6)


def test_a_capture_that_fails_leaves_the_state_as_it_was(simulated):
    states = [start("he-gp-ucb", True, None) for _ in range(2)]
    warn_once.cache_clear()

    def fails(device, work):
        Graphs()(device, work)
        return refused(device, lambda: None)

    with pytest.warns(UserWarning, match="Rounds of HEGPUCB are .* one by one: RuntimeError: operation not permitted"):
        found = run("he-gp-ucb", states[0], fails)
    assert torch.equal(found, run("he-gp-ucb", states[1], None))


class Falling(TGPTruncation):
    """A level that no list of rewards can follow."""

    def _at(self, t):
        return super()._at(t) - (t > 40)


def test_a_level_that_falls_within_a_block_is_refused(simulated, monkeypatch):
    algorithm = ATAGPUCB(LogWidth(), Falling(1.0, 1.0), FourierFeatures(0.2, 8, ((0.0, 1.0),)))
    monkeypatch.setitem(ALGORITHMS, "ata-gp-ucb", algorithm)
    graphs = Graphs()
    with pytest.raises(ValueError, match="the truncation level fell from"):
        run("ata-gp-ucb", start("ata-gp-ucb", True, monkeypatch), graphs)
    assert graphs.replays == 1


class Greedy(GPUCB):
    def select(self, state, uniform):
        return Selection(state.posterior.mean.argmax(1))


class Tail(CVaR):
    pass


class Growing(SelfNormalizedWidth):
    needs = frozenset({"information_gain"})

    def _at(self, t, gain, uniform):
        return t * gain


def test_a_subclass_is_not_taken_for_its_parent(simulated):
    for algorithm, why in (
        (Greedy(LogWidth()), "what they do depends on the round"),
        (GPUCB(Growing(1.0, 1.0, 0.1)), "Growing does not say that it can be captured"),
        (VUCB(LogWidth(), Tail(0.3), 5), "Tail does not say that it can be captured"),
    ):
        state = begin(algorithm, kernel("cpu"), 0.1, TRIALS)
        assert why in why_not(algorithm, state)


def test_a_covariance_function_that_may_read_is_not_captured(simulated, monkeypatch):
    monkeypatch.setattr(arm_kernel, "MATRIX_MAX_ARMS", 10)
    X = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(1)
    algorithm = GPUCB(LogWidth())
    for covariance, why in (
        (SquaredExponential(0.2), None),
        (GPyTorchCovariance(RBFKernel()), "GPyTorchCovariance does not say that it can be captured"),
    ):
        assert why_not(algorithm, algorithm.init(ArmKernel.from_covariance(covariance, X), 0.1, TRIALS)) == why


def test_a_cpu_captures_nothing():
    algorithm = GPUCB(LogWidth())
    assert captured_rounds(algorithm, begin(algorithm, kernel("cpu"), 0.1, TRIALS), None) is None


@pytest.mark.parametrize(("name", "dense"), CASES)
def test_a_graph_of_cuda_replays_the_eager_rounds(name, dense, device, monkeypatch):
    """Whatever the version of torch, as nothing fails here."""
    if device.type != "cuda":
        pytest.skip("needs CUDA: --device cuda")
    if not dense:
        monkeypatch.setattr(arm_states, "is_dense", lambda like, trials: False)
    (f, noise, uniforms), algorithm, picks = table(TRIALS, ROUNDS, device), ALGORITHMS[name], []
    for capture in (cuda_graph, refused):
        state = begin(algorithm, kernel(device), 0.1, TRIALS)
        blocks, t, rows = captured_rounds(algorithm, state, round_of(algorithm, state, f), capture), 0, []
        while t < ROUNDS:
            ran = blocks.run(noise[t:], uniforms[t:]) or (1, round_of(algorithm, state, f)(noise[t], uniforms[t]))
            rows.append(ran[1]["arms"].clone().view(ran[0], TRIALS))
            t += ran[0]
        assert blocks._failed == (capture is refused)
        picks.append(torch.cat(rows))
    assert torch.equal(*picks)


@pytest.mark.parametrize("redraw", ["fresh", "persistent"])
def test_a_graph_of_cuda_replays_the_eager_rounds_of_bkb(redraw, device):
    if device.type != "cuda":
        pytest.skip("needs CUDA: --device cuda")
    algorithm = BKB(LogWidth(), 5.0, redraw, LEVEL)
    captured, eager, without = (run_bkb(algorithm, *how, device=device) for how in ((cuda_graph,), (), (None, False)))
    assert captured[2] > 0
    assert_same_bkb(captured, eager)
    assert_same_bkb(eager, without, 1e-6)


def test_each_width_of_its_own_has_room(simulated, monkeypatch):
    """A round of three widths takes more numbers than one width has room for."""
    monkeypatch.setattr(captured, "NUMBERS", 3)
    graphs = Graphs()
    run("he-gp-ucb, likelihood", start("he-gp-ucb, likelihood", True, monkeypatch), graphs)
    assert len(graphs.graphs) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_capture_leaves_the_state_as_it_was(error, simulated, monkeypatch):
    def interrupted(device, work):
        Graphs()(device, work)
        raise error

    state = start("gp-ucb", True, monkeypatch)
    f, noise, uniforms = table(TRIALS, ROUNDS, "cpu")
    one_round = round_of(ALGORITHMS["gp-ucb"], state, f)
    blocks = captured_rounds(ALGORITHMS["gp-ucb"], state, one_round, interrupted)
    assert blocks.run(noise, uniforms) is None
    for t in range(BLOCK):
        one_round(noise[t], uniforms[t])
    state.posterior.begin_block()
    before = [x.clone() for x in state_tensors(state)]
    with pytest.raises(error):
        blocks.run(noise[BLOCK:], uniforms[BLOCK:])
    assert state.round == BLOCK
    assert all(map(torch.equal, state_tensors(state), before))


def test_a_capture_that_failed_is_not_tried_again(simulated, monkeypatch):
    tried = []

    def counted(device, work):
        tried.append(device)
        refused(device, lambda: None)

    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="not captured"):
        first = run("gp-ucb", start("gp-ucb", True, monkeypatch), counted)
    assert torch.equal(run("gp-ucb", start("gp-ucb", True, monkeypatch), counted), first)
    assert len(tried) == 1


def test_each_device_captures_on_a_stream_of_its_own(monkeypatch):
    """PyTorch's own stream is of the device of the first capture."""
    asked = []

    @contextmanager
    def graph(made, stream, capture_error_mode):
        asked.append((stream, gc.isenabled()))
        yield

    def nodes(raw, numNodes):
        return None, None, raw

    made = SimpleNamespace(replay=None, raw_cuda_graph=lambda: 7, instantiate=lambda: None)
    fakes = {"Stream": str, "graph": graph, "device": lambda _: nullcontext(), "current_stream": lambda: None}
    fakes |= {"CUDAGraph": lambda keep_graph: made, "set_stream": lambda _: None}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    bindings = SimpleNamespace(runtime=SimpleNamespace(cudaGraphGetNodes=nodes))
    for name, module in {"cuda": SimpleNamespace(bindings=bindings), "cuda.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)
    cuda_graphs._stream.cache_clear()
    for index in (0, 1, 0):
        cuda_graph(torch.device("cuda", index), lambda: None)
    assert asked == [("cuda:0", False), ("cuda:1", False), ("cuda:0", False)]
    made.raw_cuda_graph = lambda: 0
    with pytest.raises(AssertionError, match="a CUDA graph of cuda:1 is empty"):
        cuda_graph(torch.device("cuda", 1), lambda: None)
    cuda_graphs._stream.cache_clear()
    assert gc.isenabled()
