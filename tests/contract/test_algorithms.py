"""The contract of every algorithm over arms. A new one is one row of every_algorithm and passes the whole suite."""

import copy
import dataclasses
import pickle

import pytest
import torch

from bo_robust.bandits import (
    AGPUCB,
    ALGORITHMS,
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
    HEStableOpt,
    MiniGPUCB,
    ProbabilityOfImprovement,
    PureMean,
    PureVariance,
    RandomArm,
    StableOpt,
)
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import (
    FiniteWidth,
    RandomizedWidth,
    SelfNormalizedWidth,
    TGPWidth,
)
from bo_robust.confidence.truncation import NoTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.ops import naive_ops
from bo_robust.ops.arm_update import naive
from bo_robust.risk_measures.functionals import CVaR, Mean, MeanVariance, WorstCase
from bo_robust.utils import linalg
from bo_robust.utils.linalg import on_cuda
from tests.bandits.problems import LENGTHSCALES, N, NothingIsRead, begin, go_on, kernel, run_rounds, table

W = 5  # conditions per design, of algorithms over pairs
FOURIER = FourierFeatures(0.2, 16, ((0.0, 1.0),))


def every_algorithm():
    return {
        "gp-ucb": GPUCB(FiniteWidth(N, 0.1)),
        "irgp-ucb": IRGPUCB(RandomizedWidth(N)),
        "tgp-ucb": TGPUCB(TGPWidth(1.0, 4.0, 1.0, 0.1, 0.1), TGPTruncation(4.0, 1.0)),
        "ata-gp-ucb": ATAGPUCB(FiniteWidth(N, 0.1), TGPTruncation(0.3, 1.0), FOURIER),
        "bkb": BKB(FiniteWidth(N, 0.1), 5.0),
        "bbkb": BBKB(FiniteWidth(N, 0.1), 5.0, 0.5),
        "mini-gp-ucb": MiniGPUCB(FiniteWidth(N, 0.1), 1.2),
        "he-gp-ucb": HEGPUCB(FiniteWidth(N, 0.1, scale=0.3), 0.1, 0.1),
        "mle-gp-ucb": CandidateAlgorithm(FiniteWidth(N, 0.1)),
        "expected-ucb": ExpectedUCB(FiniteWidth(N, 0.1)),
        "a-gp-ucb": AGPUCB(FiniteWidth(N, 0.1), LENGTHSCALES),
        "v-ucb": VUCB(FiniteWidth(N, 0.1), 0.3, num_conditions=W),
        "stable-opt": StableOpt(FiniteWidth(N, 0.1), W),
        "he-stable-opt": HEStableOpt(FiniteWidth(N, 0.1, scale=0.3), 0.1, 0.1, W),
        "ei": ExpectedImprovement(),
        "pi": ProbabilityOfImprovement(),
        "mean": PureMean(),
        "variance": PureVariance(),
        "random": RandomArm(),
    }


def variants():
    """Settings that learn in another way than those of every_algorithm."""
    level = TGPTruncation(0.3, 1.0)
    return {
        "tgp-ucb, clip": TGPUCB(FiniteWidth(N, 0.1), level, "clip"),
        "bkb, clip": BKB(FiniteWidth(N, 0.1), 5.0, "fresh", level, "clip"),
        "bkb, persistent": BKB(FiniteWidth(N, 0.1), 1.5, "persistent"),
        "ata-gp-ucb, nystrom": ATAGPUCB(FiniteWidth(N, 0.1), level, NystromDictionary(2.0, 1.5), "cholesky", "clip"),
        "he-gp-ucb, likelihood": HEGPUCB(FiniteWidth(N, 0.1, scale=0.3), 0.1, 0.1, elimination="likelihood"),
    }


ROWS = every_algorithm() | variants()


def limits(width):
    """Settings under which an algorithm is GP-UCB, and how far mean and variance may be off; 0: bit for bit."""
    level, nodes = NoTruncation(), FourierFeatures(0.2, 60, ((0.0, 1.0),))
    return {
        "tgp-ucb": (TGPUCB(width, level), 0.0),
        "ata-gp-ucb": (ATAGPUCB(width, level, nodes), 1e-5),
        "ata-gp-ucb, cholesky": (ATAGPUCB(width, level, nodes, "cholesky"), 1e-5),
        "ata-gp-ucb, nystrom": (ATAGPUCB(width, level, NystromDictionary(1e15)), 1e-5),
        "ata-gp-ucb, nystrom, cholesky": (ATAGPUCB(width, level, NystromDictionary(1e15), "cholesky"), 1e-5),
        "bkb": (BKB(width, 1e15), 1e-7),
        "bkb, persistent": (BKB(width, 1e15, "persistent"), 1e-7),
        "bbkb": (BBKB(width, 1e15, 0.0), 1e-7),
        "mini-gp-ucb": (MiniGPUCB(width, 1.0), 0.0),
        "he-gp-ucb": (HEGPUCB(width, 0.3, 0.1), 0.0),
        "mle-gp-ucb": (CandidateAlgorithm(width), 0.0),
        "expected-ucb": (ExpectedUCB(width), 0.0),
        "a-gp-ucb": (AGPUCB(width, (0.2,)), 0.0),
        "v-ucb": (VUCB(width, 0.1, 1), 0.0),
        "v-ucb, CVaR": (VUCB(width, CVaR(0.4), 1, selection_rule="uniform"), 0.0),
        "v-ucb, worst case": (VUCB(width, WorstCase(), 1, selection_rule="drawn"), 0.0),
        "v-ucb, mean": (VUCB(width, Mean(), 1, selection_rule="uniform"), 0.0),
        "v-ucb, mean and variance": (VUCB(width, MeanVariance(1.0), 1), 0.0),
        "stable-opt": (StableOpt(width, 1), 0.0),
        "he-stable-opt": (HEStableOpt(width, 0.3, 0.1, 1), 0.0),
    }


WIDTHS_OF = {"t": FiniteWidth(N, 0.1), "gain": SelfNormalizedWidth(1.0, 0.3, 0.05), "random": RandomizedWidth(N)}


def test_the_registry_is_complete():
    assert {name: type(a) for name, a in every_algorithm().items()} == ALGORITHMS


def tensors_of(state):
    """The tensors of a state by name; kernels have none that change."""
    found = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, torch.Tensor):
            found[field.name] = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, ArmKernel):
            found |= {f"{field.name}.{name}": tensor for name, tensor in tensors_of(value).items()}
    return found


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_batch_is_its_trials(name, device):
    algorithm = ROWS[name]
    f, noise, uniforms = table(9, 60, device)
    together, _ = run_rounds(algorithm, kernel(device), f, noise, uniforms)
    assert together.dtype == torch.long
    assert int(together.min()) >= 0
    assert int(together.max()) < N
    alone, _ = run_rounds(algorithm, kernel(device), f[7:8], noise[:, 7:8], uniforms[:, 7:8])
    assert torch.equal(alone[:, 0], together[:, 7])


@pytest.mark.parametrize(("depends_on", "n"), [("t", N), ("gain", N), ("random", N), ("gain", 300)])  # 300: low rank
@pytest.mark.parametrize("name", limits(WIDTHS_OF["t"]))
def test_the_limit_is_gp_ucb(name, depends_on, n, device):
    width = WIDTHS_OF[depends_on]
    (algorithm, tolerance), plain = limits(width)[name], GPUCB(width)
    f, noise, uniforms = table(3, 60, device, n=n)
    ours, theirs = algorithm.init(kernel(device, n), 0.1, 3), plain.init(kernel(device, n), 0.1, 3)
    for t, (eta, u) in enumerate(zip(noise, uniforms, strict=True)):
        one, other = algorithm.select(ours, u), plain.select(theirs, u)
        if tolerance == 0.0:
            assert torch.equal(one.arms, other.arms)
        if t:  # BKB knows no width before it has a dictionary
            torch.testing.assert_close(torch.as_tensor(one.width), torch.as_tensor(other.width), rtol=1e-6, atol=0)
        y = f.gather(1, other.arms.unsqueeze(1)).squeeze(1) + eta
        algorithm.observe(ours, other.arms, y, u)
        plain.observe(theirs, other.arms, y, u)
        for part in ("mean", "variance"):
            of = (getattr(state.posterior, part) for state in (ours, theirs))
            torch.testing.assert_close(*of, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_select_is_pure_and_settings_are_frozen(name, device):
    algorithm = ROWS[name]
    f, noise, uniforms = table(3, 10, device)
    _, state = run_rounds(algorithm, kernel(device), f, noise, uniforms)
    first = algorithm.select(state, uniforms[0])  # BBKB brings variances up to date on the way, once
    before = {k: v.clone() for k, v in tensors_of(state).items()}
    second = algorithm.select(state, uniforms[0])
    assert torch.equal(first.arms, second.arms)
    after = tensors_of(state)
    # Room for later rounds holds whatever was in memory, NaN too.
    torch.testing.assert_close(after, before, rtol=0.0, atol=0.0, equal_nan=True)
    assert state.round == 10
    for f_ in dataclasses.fields(algorithm):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(algorithm, f_.name, None)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_trial_of_failed_pulls_learns_nothing(name, device):
    """From the first round on; the others, whose first pulls fail too, learn from what they get."""
    algorithm = ROWS[name]
    f, noise, uniforms = table(3, 20, device)
    noise[:, 1], noise[[0, 1, 7, 8], 0], noise[:10, 2] = float("nan"), float("inf"), -float("inf")

    def check(state, arms, rewards, info):
        assert torch.equal(info.ok, rewards.isfinite())
        assert info.truncated is None or not info.truncated[~info.ok].any()

    _, state = run_rounds(algorithm, kernel(device), f, noise, uniforms, after=check)
    fresh, posterior = begin(algorithm, kernel(device), 0.1, 3).posterior, state.posterior
    assert bool((posterior.mean.isfinite() & posterior.variance.isfinite()).all())
    assert bool((posterior.mean[0] != 0).any())
    torch.testing.assert_close(posterior.mean[1], fresh.mean[1], rtol=0, atol=0)
    torch.testing.assert_close(posterior.variance[1], fresh.variance[1], rtol=1e-6, atol=0)
    assert float(posterior.information_gain[1]) == 0.0
    if name != "mini-gp-ucb":  # which learns at the end of a repetition
        assert posterior.counts.sum(1).tolist() == [16.0, 0.0, 10.0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_posterior_that_is_no_number_is_never_ok(name, device):
    """Finite rewards near the largest number overflow some posteriors; the trial beside them stays well."""
    algorithm = ROWS[name]
    state = begin(algorithm, kernel(device), 0.1, 2)
    arms, half = torch.tensor([0, 1], device=device), torch.full((2,), 0.5, dtype=torch.float64, device=device)
    for sign in (1.0, -1.0, 1.0):
        said = algorithm.observe(state, arms, half.new_tensor([sign * 1.7e308, 0.5]), half).ok
        well = (state.posterior.mean.isfinite() & state.posterior.variance.isfinite()).all(1)
        assert not (said & ~well).any()
        assert bool(said[1])


@pytest.mark.parametrize("name", sorted(ROWS))
def test_noise_below_the_rounding_of_the_kernel_is_refused(name, device):
    algorithm = ROWS[name]
    for noise_var in (1e-9, 1e-7):
        with pytest.raises(ValueError, match=r"noise_var must be at least 6e-05 in torch.float32.*; raise it, or use"):
            begin(algorithm, kernel(device, dtype=torch.float32), noise_var, 2)
    begin(algorithm, kernel(device), 1e-9, 2)


def started(name, device):
    """An algorithm and its state of two trials; arms, rewards and draws of a round."""
    rewards = torch.tensor([0.1, 0.2], dtype=torch.float64, device=device)
    state = begin(ROWS[name], kernel(device), 0.1, 2)
    return ROWS[name], state, torch.tensor([1, 2], device=device), rewards, rewards.clone()


TRUNCATES_FIRST = {"bkb, clip", "tgp-ucb", "tgp-ucb, clip"}


@pytest.mark.parametrize("name", sorted(ROWS.keys() - TRUNCATES_FIRST))
def test_wrong_arms_and_rewards_change_nothing(name, device):
    algorithm, state, arms, rewards, uniform = started(name, device)
    bad = [
        ((arms.tolist(), rewards), TypeError, "arms must be a torch tensor, got list"),
        ((arms, rewards.tolist()), TypeError, "rewards must be a torch tensor, got list"),
        ((1, rewards), TypeError, "arms must be a torch tensor, got int"),
        ((algorithm.select(state, uniform), rewards), TypeError, "arms must be a torch tensor, got .*Selection"),
        ((arms.double(), rewards), ValueError, "arms must be of dtype long, got torch.float64"),
        ((arms[:1], rewards), ValueError, r"one entry per trial \(2\)"),
        ((arms.repeat(2), rewards.repeat(2)), ValueError, r"one entry per trial \(2\)"),
        ((arms[:0], rewards[:0]), ValueError, r"one entry per trial \(2\)"),
        ((arms, rewards.unsqueeze(1)), ValueError, r"one entry per trial \(2\)"),
        ((arms, rewards.float()), ValueError, "rewards is torch.float32"),
    ]
    if not on_cuda(arms):
        bad += [((arms + shift, rewards), ValueError, f"arms must be between 0 and {N - 1}") for shift in (-3, N)]
    for observe in (algorithm.observe, algorithm.observe_initial):
        for given, kind, message in bad:
            with pytest.raises(kind, match=message):
                observe(state, *given, uniform)
    assert (state.round, getattr(state, "initial", 0)) == (0, 0)
    assert state.posterior.mean.abs().max() == 0.0


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_observe_returns_and_states_of_others_are_no_state(name, device):
    algorithm, state, arms, rewards, uniform = started(name, device)
    info = algorithm.observe(state, arms, rewards, uniform)
    other = begin(ROWS["gp-ucb" if isinstance(algorithm, BKB) else "bkb"], kernel(device), 0.1, 2)
    for wrong in (info, None, state.posterior, other):
        for call in (
            lambda wrong=wrong: algorithm.select(wrong, uniform),
            lambda wrong=wrong: algorithm.observe(wrong, arms, rewards, uniform),
            lambda wrong=wrong: algorithm.observe_initial(wrong, arms, rewards, uniform),
        ):
            with pytest.raises(TypeError, match=f"that init of this algorithm made .*, got {type(wrong).__name__}"):
                call()
    if isinstance(algorithm, CandidateAlgorithm):
        with pytest.raises(TypeError, match="uniform must be a torch tensor, got list"):
            algorithm.select(state, [0.1, 0.2])


@pytest.mark.parametrize("arm", [-1, N])
@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("ata")])
def test_an_arm_out_of_range_is_a_failed_pull_on_cuda(name, arm, device, simulated):
    """Where reading the arms back would wait for the device: the trial beside it learns alone."""
    algorithm, state, arms, rewards, uniform = started(name, device)
    for t in range(3):  # BKB's first round is random, and mini-GP-UCB learns at the end of a repetition
        arms = algorithm.select(state, uniform).arms
        info = algorithm.observe(state, arms if t < 2 else arms.new_tensor([arms[0], arm]), rewards, uniform)
        if t == 1:
            mean, counts = state.posterior.mean.clone(), state.posterior.counts.clone()
    assert info.ok.tolist() == [True, False]
    half = len(counts) // 2  # those over candidates have a row per candidate
    assert torch.equal(state.posterior.counts[half:], counts[half:])
    assert torch.equal(state.posterior.mean[half:], mean[half:])
    if name != "mini-gp-ucb":
        assert float(state.posterior.counts[:half].sum()) == float(counts[:half].sum()) + half


@pytest.mark.parametrize("path", ["cpu", "cuda"])
@pytest.mark.parametrize("lost", ["mean", "variance", "noise_var"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_posterior_of_nan_gives_no_arm_out_of_range(name, lost, path, device, monkeypatch):
    """All of one trial, and one arm of another; a choice by comparisons alone may end beyond the last arm."""
    if lost == "noise_var" and path == "cpu" and name.startswith("ata"):
        pytest.skip("LAPACK raises in its root of the precision")
    monkeypatch.setattr(linalg, "simulated", path == "cuda")
    algorithm, (f, noise, uniforms) = ROWS[name], table(3, 9, device)
    with naive_ops():
        state = begin(algorithm, kernel(device), 0.1, 3)
        go_on(algorithm, state, f, noise[:3], uniforms[:3])
        for key, x in tensors_of(state).items():
            if key.rpartition(".")[2] == lost:
                x[: len(x) // 3], x.view(-1)[-1] = torch.nan, torch.nan
        for eta, u in zip(noise[3:], uniforms[3:], strict=True):
            arms = algorithm.select(state, u).arms
            assert ((arms >= 0) & (arms < N)).all()
            algorithm.observe(state, arms, f.gather(1, arms.unsqueeze(1)).squeeze(1) + eta, u)


EXACT = ["gp-ucb", "irgp-ucb", "tgp-ucb", "ei", "pi", "mean", "variance", "random"]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("name", [*EXACT, "gp-ucb, gain"])
def test_no_round_waits_for_the_device(name, dense, monkeypatch):
    """The branch-free round reads nothing back to the host: what CUDA runs, watched on the CPU."""
    monkeypatch.setattr(arm_states.arm_update, "update_", naive.update_)
    algorithm = GPUCB(WIDTHS_OF["gain"]) if name == "gp-ucb, gain" else ROWS[name]
    f, noise, uniforms = table(4, 60, "cpu", n=90)
    state = algorithm.init(kernel("cpu", 90), 0.1, 4)
    state.posterior = arm_states.init(kernel("cpu", 90), 0.1, 4, dense=dense)
    with NothingIsRead():  # 60 rounds: more than a block, less than the rows allocated at first
        go_on(algorithm, state, f, noise, uniforms)
    assert state.round == 60


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_initial_design_is_learnt(name, device):
    """Arms nobody chose go in before the first selection; the counts are those of the design, and the run goes on."""
    algorithm = ROWS[name]
    f, noise, uniforms = table(3, 12, device)
    state = begin(algorithm, kernel(device), 0.1, 3)
    design = torch.tensor([[0, 20, 39], [0, 5, 39], [7, 5, 1]], device=device)
    for arms, eta, u in zip(design, noise, uniforms, strict=False):
        info = algorithm.observe_initial(state, arms, f.gather(1, arms.unsqueeze(1)).squeeze(1) + eta, u)
        assert bool(info.ok.all())
    assert state.round == 3
    counts = torch.zeros(3, N, dtype=torch.float64, device=device)
    assert torch.equal(state.posterior.counts, counts.scatter_add_(1, design.T, torch.ones_like(counts)))
    go_on(algorithm, state, f, noise[3:], uniforms[3:])
    assert float(state.posterior.counts.sum()) == 36.0


@pytest.mark.parametrize("n", [N, 300], ids=["dense", "low rank"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_copies_go_on_alike(name, n, device):
    """A deep copy and a pickled one run the same arms as the state, to the same posterior up to rounding.

    What a state derives from its buffers is not copied, and is derived anew.
    """
    algorithm = ROWS[name]
    f, noise, uniforms = table(3, 14, device, n=n)
    _, state = run_rounds(algorithm, kernel(device, n), f, noise[:8], uniforms[:8])
    copies, kept = [copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state], state.posterior.mean.clone()
    run = []
    for one in copies:
        assert torch.equal(state.posterior.mean, kept)
        run.append(go_on(algorithm, one, f, noise[8:], uniforms[8:]))
    assert torch.equal(copies[0].posterior.mean, copies[1].posterior.mean)
    torch.testing.assert_close(copies[0].posterior.mean, state.posterior.mean, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(arms, run[-1]) for arms in run)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_float32_stays_float32(name, device):
    algorithm = ROWS[name]
    f, noise, uniforms = (x.float() for x in table(3, 10, device))
    _, state = run_rounds(algorithm, kernel(device, dtype=torch.float32), f, noise, uniforms)
    assert state.posterior.mean.dtype == state.posterior.variance.dtype == torch.float32
    assert bool(state.posterior.mean.isfinite().all())
    assert bool((state.posterior.variance >= 0).all())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_what_an_experiment_reads_of_it(name):
    """Its class attributes are of the right kind, and what it says it records is there."""
    cls = type(ROWS[name])
    assert cls.records <= {"dictionary", "eliminations"}
    assert all(isinstance(getattr(cls, flag), bool) for flag in ("over_candidates", "is_baseline"))
    algorithm = ROWS[name]
    state = begin(algorithm, kernel(torch.device("cpu")), 0.1, 2)
    assert ("dictionary" in cls.records) == hasattr(state.posterior, "effective_dimension")
    assert ("eliminations" in cls.records) == hasattr(state, "failures")
