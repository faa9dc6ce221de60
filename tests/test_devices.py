"""What a device changes: every path of CUDA run on a CPU (`pytest --device simulated` runs whole suites so)."""

import ast
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

import bo_robust
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, MiniGPUCB
from bo_robust.bandits.posteriors import arm_kernel, dtc
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import ConstantWidth
from bo_robust.confidence.truncation import NoTruncation
from bo_robust.models import BKBModel, CandidateEnsemble, RobustGP
from bo_robust.ops import naive_ops
from bo_robust.utils import linalg
from bo_robust.utils.covariance import Matern, SquaredExponential

N = 40
CANDIDATES = [{"lengthscale": 0.4, "noise_var": 0.1}]
# The only files that may ask: the helper, and the loop of BoTorch
# CUDA graphs and pinned memory are not simulated.
ASKS = {"utils/host.py", "utils/linalg.py", "ops/cuda_graphs.py", "utils/round_numbers.py"}


@pytest.fixture
def places():
    return torch.rand(N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def kernel(places):
    return ArmKernel.from_covariance(SquaredExponential(0.4), places)


def test_one_helper_asks_for_the_device():
    root = Path(bo_robust.__file__).parent
    asking = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            of_device = isinstance(node, ast.Attribute) and node.attr == "type" and "device" in ast.unparse(node.value)
            if of_device or (isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "is_cpu")):
                asking.add(path.relative_to(root).as_posix())
    assert asking == ASKS


def run(algorithm, kernel, rounds=25, trials=2):
    """Arms ``T x s`` of some rounds with heavy noise, and the last state."""
    draws = torch.Generator().manual_seed(1)
    state, arms = algorithm.init(kernel, 0.1, trials), []
    for _ in range(rounds):
        uniform = torch.rand(trials, generator=draws, dtype=torch.float64)
        choice = algorithm.select(state, uniform).arms
        algorithm.observe(state, choice, torch.sin(choice.double()) + uniform, uniform)
        arms.append(choice)
    return torch.stack(arms), state


@pytest.mark.parametrize("covariance", [SquaredExponential(0.4), Matern(0.5, 0.4), Matern(2.5, (0.4, 0.6, 0.5))])
@pytest.mark.parametrize(
    "algorithm",
    [
        GPUCB(ConstantWidth(2.0)),
        BKB(ConstantWidth(2.0), 5.0),
        BBKB(ConstantWidth(2.0), 5.0, 1.0),
        ATAGPUCB(ConstantWidth(2.0), NoTruncation(), NystromDictionary(5.0)),
        MiniGPUCB(ConstantWidth(2.0), 1.4),
    ],
    ids=lambda a: type(a).__name__,
)
def test_more_arms_than_a_matrix_has(algorithm, covariance, places, monkeypatch):
    """As above 4,096 arms: the covariance is evaluated where it is needed, and CUDA runs what a CPU runs."""
    monkeypatch.setattr(arm_kernel, "MATRIX_MAX_ARMS", 10)
    on_cpu, _ = run(algorithm, ArmKernel.from_covariance(covariance, places))
    monkeypatch.setattr(linalg, "simulated", True)
    with naive_ops():
        kernel = ArmKernel.from_covariance(covariance, places)
        assert kernel.matrix is None
        assert kernel.arms.T.is_contiguous()
        arms, _ = run(algorithm, kernel)
    assert torch.equal(arms, on_cpu)


def test_another_arm_than_the_repeated_one(kernel, monkeypatch):
    """Raises on a CPU. On CUDA its reward is a failed pull: it was booked to the arm being repeated."""
    algorithm = MiniGPUCB(ConstantWidth(2.0), 3.0)
    ones = torch.ones(2, dtype=torch.float64)
    for cuda in (False, True):
        monkeypatch.setattr(linalg, "simulated", cuda)
        state = algorithm.init(kernel, 1.0, 2)
        algorithm.observe(state, torch.tensor([1, 2]), ones)
        assert state.left.tolist() == [7, 7]  # 8 pulls: (3^2 - 1) lambda / k
        if not cuda:
            with pytest.raises(ValueError, match="those that select returned"):
                algorithm.observe(state, torch.tensor([1, 3]), ones)
            continue
        with naive_ops():
            assert algorithm.observe(state, torch.tensor([1, 3]), 9.0 * ones).ok.tolist() == [True, False]
        assert state.average.tolist() == [5.0, 1.0]


def test_an_initial_design_is_not_repeated(kernel):
    """Its arms are not this rule's: the second raised, or was booked to the first."""
    algorithm = MiniGPUCB(ConstantWidth(2.0), 3.0)
    state, exact = (of.init(kernel, 1.0, 2) for of in (algorithm, GPUCB(ConstantWidth(2.0))))
    for arms, y in (([1, 2], 1.0), ([3, 0], -1.0)):
        rewards = torch.full((2,), y, dtype=torch.float64)
        assert algorithm.observe_initial(state, torch.tensor(arms), rewards).ok.all()
        arm_states.observe(exact.posterior, torch.tensor(arms), rewards)
    assert state.round == 2
    assert torch.equal(state.posterior.mean, exact.posterior.mean)
    assert state.posterior.counts.sum(1).tolist() == [2.0, 2.0]


def test_layouts_and_changes_on_cuda(kernel, simulated, monkeypatch):
    """Dense by bytes, and every dictionary rebuilt, because changes wait for the device once a point."""
    zero = torch.zeros(1, 5000)
    assert arm_states.is_dense(zero, 1)
    assert not arm_states.is_dense(zero, 64)
    monkeypatch.setattr(linalg, "simulated", False)
    assert not arm_states.is_dense(zero, 1)
    monkeypatch.setattr(linalg, "simulated", True)
    monkeypatch.setattr(dtc.dtc_changes, "learn", lambda *given: pytest.fail("changed"))
    _, state = run(BKB(ConstantWidth(2.0), 5.0), kernel)
    assert state.posterior.changes.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "bytes_", "words"),
    [
        ({}, 71_040, "3 x 40 trials and arms take 6.62e-05 GiB, .* at once, float32, dense=False"),
        ({"dense": False, "rounds": 9}, 110_400, "at once, float32, fewer rounds or fewer arms"),
    ],
)
def test_what_does_not_fit_is_said_before_it_is_allocated(options, bytes_, words, kernel, simulated, monkeypatch):
    """Dense 3 (40^2 + 34 x 40) numbers; low rank 3 (40 (40 + 40) + 40 + 34 x 40), slots included."""
    monkeypatch.setattr(arm_states, "free_bytes", lambda mean: bytes_)
    arm_states.init(kernel, 0.1, 3, **options)
    monkeypatch.setattr(arm_states, "free_bytes", lambda mean: bytes_ - 1)
    with pytest.raises(torch.OutOfMemoryError, match=words):
        arm_states.init(kernel, 0.1, 3, **options)


def test_rows_that_will_not_fit_are_warned_of(places, simulated, monkeypatch):
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), places.repeat(10, 1).float())
    monkeypatch.setattr(arm_states, "free_bytes", lambda mean: 700_000)
    monkeypatch.setattr(arm_states, "RESERVE_BYTES", 10**5)
    with pytest.warns(UserWarning, match="may take .* GiB by round 300, and cpu has .* at once, fewer rounds"):
        arm_states.init(kernel, 0.1, rounds=300, dense=False)
    with warnings.catch_warnings(action="error"):
        arm_states.init(kernel, 0.1, rounds=30, dense=False)


def test_a_dense_prior_is_evaluated_in_blocks(places, simulated, monkeypatch):
    monkeypatch.setattr(arm_kernel, "MATRIX_MAX_ARMS", 10)
    kernel = ArmKernel.from_covariance(Matern(2.5, 0.4), places)
    K = kernel.rows(torch.arange(N))
    monkeypatch.setattr(arm_states, "KERNEL_ENTRIES", 7 * N)
    assert torch.equal(arm_states.init(kernel, 0.1, 2, dense=True).rows, K.expand(2, N, N))


@pytest.mark.parametrize("precision", ["high", "medium", "tf32"])
def test_float32_needs_full_products_on_cuda(precision, places, monkeypatch):
    """By both of torch's settings: with the newer one torch.get_float32_matmul_precision itself would raise."""
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), places.float())
    matmul = torch.backends.cuda.matmul
    given = matmul.fp32_precision
    monkeypatch.setattr(linalg, "simulated", False)
    try:
        if precision == "tf32":
            matmul.fp32_precision = precision
        else:
            torch.set_float32_matmul_precision(precision)
        arm_states.init(kernel, 0.1)
        monkeypatch.setattr(linalg, "simulated", True)
        with pytest.raises(ValueError, match='set it to "ieee"'):
            arm_states.init(kernel, 0.1)
        arm_states.init(ArmKernel.from_covariance(SquaredExponential(0.4), places), 0.1)
        for model in (RobustGP, BKBModel, partial(CandidateEnsemble, candidates=CANDIDATES)):
            with pytest.raises(ValueError, match='set it to "ieee"'):
                model(places.float(), places[:, :1].float())
    finally:
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = given
