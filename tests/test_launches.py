"""Kernel launches of the CUDA paths, counted on a CPU: what keeps them fast where no GPU is at hand.

A launch is an operation of torch that is neither a view nor an allocation. Triton's kernels run as their references.
"""

import dataclasses
from importlib import import_module

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from benchmarks import launches
from benchmarks.launches import KERNELS, Launches
from benchmarks.methods.published import LogWidth
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB
from bo_robust.bandits.captured import captured_rounds
from bo_robust.bandits.posteriors import arm_kernel, arms
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import ConstantWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.models import CandidateEnsemble, candidate_grid, marginal_moments
from bo_robust.models.candidate_priors import candidate
from bo_robust.models.marginal_likelihood import Prior
from bo_robust.models.reward_units import Units
from bo_robust.models.robust.device_gp import DeviceGP
from bo_robust.utils import linalg
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.linalg import all_numbers
from bo_robust.utils.round_numbers import RoundNumbers

pytestmark = pytest.mark.usefixtures("simulated")


def counted(call):
    call()  # caches
    with Launches() as launched:
        call()
    return launched.names


def test_views_and_allocations_are_no_launches():
    x = torch.rand(4, 4)
    assert counted(lambda: torch.empty(3) is x[1:].mT.reshape(12)) == ["aten::clone"]
    assert counted(lambda: x.add_(1.0) * 2.0) == ["aten::add_", "aten::mul"]


def test_moments_of_many_points_are_one_block():
    """The starts of a search over designs and conditions: 4,096 x 256 points took 801 blocks of about 30 launches."""
    X = torch.rand(100, 2, dtype=torch.float64)
    model = SingleTaskGP(X, X.sum(-1, keepdim=True)).eval()
    points = torch.rand(256, 256, 1, 2, dtype=torch.float64)
    with torch.no_grad():
        assert len(counted(lambda: marginal_moments(model, points))) <= 60


def test_the_check_of_a_round_is_five_launches():
    mean, variance = torch.rand(2, 3, 50)
    assert len(counted(lambda: all_numbers(mean, variance))) <= 5


def test_a_selection_of_gp_ucb_is_four_launches():
    K = torch.eye(50, dtype=torch.float64)
    algorithm = GPUCB(ConstantWidth(2.0))
    state = algorithm.init(ArmKernel.from_matrix(K), 0.1, 3)
    uniform = torch.rand(3, dtype=torch.float64)
    assert len(counted(lambda: algorithm.select(state, uniform))) <= 4


def test_a_row_that_leaves_the_inliers_is_five_launches():
    prior = Prior(np.zeros(5), np.eye(5), np.ones(5))
    gp = DeviceGP(torch.device("cpu"), prior, np.arange(5.0), np.ones(5, dtype=bool), Units(0.0, 1.0))
    with Launches() as launched:
        gp.move(2)
    assert len(launched.names) == 4  # the fifth reads its column, which is on the CPU here


def specialized(x):
    """What Triton compiles another binary for."""
    return (x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, torch.Tensor) else (type(x), x == 1, x % 16 == 0)


@pytest.fixture
def triton_counted(monkeypatch):
    """The fused arm update in place of the plain one, its kernels counted and not run."""
    pytest.importorskip("triton")
    from bo_robust.ops.arm_update import fused, naive

    class Kernel:
        def __init__(self, kernel):
            self.names, self.binaries = kernel.arg_names, set()

        def __getitem__(self, grid):
            return self.launch

        def launch(self, *args, **kwargs):
            given = dict(zip(self.names, args, strict=False)) | kwargs
            self.binaries.add(str([specialized(x) for name, x in given.items() if name not in fused.GROWING]))
            torch.empty(1).zero_()  # one launch

    kernels = [Kernel(getattr(fused, name)) for name in KERNELS]
    for name, kernel in zip(KERNELS, kernels, strict=True):
        monkeypatch.setattr(fused, name, kernel)
    monkeypatch.setattr(naive, "update_", fused.update_)
    return kernels


@pytest.mark.parametrize(("n", "most"), [(50, 6), (40_000, 21)], ids=["dense", "low rank"])
def test_a_round_of_gp_ucb_launches_few_kernels(n, most, triton_counted):
    """With a matrix 14, and 42 with a covariance function, before."""
    X = torch.rand(n, 6, dtype=torch.float64)
    kernel = ArmKernel.from_covariance(Matern(2.5, 0.5), X)
    if n == 50:
        kernel = ArmKernel.from_matrix(kernel.rows(torch.arange(n)))
    algorithm = GPUCB(ConstantWidth(2.0))
    state = algorithm.init(kernel, 0.1, 1, rounds=60)
    uniform, rewards = torch.rand(1, dtype=torch.float64), torch.rand(1, dtype=torch.float64)

    def one_round():
        algorithm.observe(state, algorithm.select(state, uniform).arms, rewards)

    names = counted(one_round)
    assert len(names) <= most, names


@pytest.mark.parametrize("dense", [True, False])
def test_later_blocks_launch_binaries_of_the_first(dense, triton_counted, monkeypatch):
    """A capture cannot load another one. With 3 trials every second row of rewards begins at a multiple of 16 bytes."""
    algorithm, rows = GPUCB(LogWidth()), torch.rand(96, 3, dtype=torch.float64)
    kernel = ArmKernel.from_covariance(Matern(2.5, 0.5), torch.rand(50, 2, dtype=torch.float64))
    monkeypatch.setattr(arms, "is_dense", lambda like, trials: dense)
    state, blocks = algorithm.init(kernel, 0.1, 3, rounds=96), []
    state.posterior.filled.fill_(1)  # as if the first round had run
    for row in rows:
        if state.posterior.begin_block():
            blocks.append([set() for _ in triton_counted])
            for launched, binaries in zip(triton_counted, blocks[-1], strict=True):
                launched.binaries = binaries
        algorithm.observe(state, algorithm.select(state, row).arms, row)
    assert [len(binaries) for binaries in blocks[0]] == [0 if dense else 1, 0 if dense else 2, 2, 1]
    assert all(found <= first for block in blocks for found, first in zip(block, blocks[0], strict=True))


def test_a_covariance_row_is_ten_launches():
    X = torch.rand(1000, 6, dtype=torch.float64)
    kernel = ArmKernel.from_covariance(Matern(2.5, 0.5), X)
    assert len(counted(lambda: kernel.rows(torch.tensor([3])))) <= 10


@pytest.mark.parametrize("root", ["symmetric", "cholesky"])
def test_a_round_of_ata_is_80_launches(root):
    """Selection included, after 20,000 rounds: the iteration for V^{-1/2} takes the more steps the more there were."""
    X = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(1)
    algorithm = ATAGPUCB(ConstantWidth(2.0), TGPTruncation(0.1, 0.9), FourierFeatures(0.1, 32, ((0.0, 1.0),)), root)
    state = algorithm.init(ArmKernel.from_covariance(SquaredExponential(0.1), X), 1.0, 3)
    state.posterior.whitening.rounds = 20_000
    uniform = torch.rand(3, dtype=torch.float64)

    def one_round():
        arms = algorithm.select(state, uniform).arms
        algorithm.observe(state, arms, uniform)

    assert len(counted(one_round)) <= 80


@pytest.mark.parametrize(
    ("family", "most"), [("GP-UCB", 16), ("TGP-UCB", 30), ("V-UCB", 60), ("HE-GP-UCB", 108), ("BKB", 46)]
)
def test_a_captured_round_has_few_nodes(family, most, monkeypatch):
    """Reward and traces included; V-UCB had 116."""
    monkeypatch.setattr(launches, "cpu_us", lambda panel, label: 0.0)
    name, label, _ = launches.FAMILIES[family]
    panel = dataclasses.replace(import_module(f"configs.{name}").PANELS[0], trials=3)
    if family == "V-UCB":
        panel = dataclasses.replace(panel, problem=dataclasses.replace(panel.problem, designs=3))
    cost = launches.counted(panel.made(torch.device("cpu")), label)
    assert int(cost.nodes) <= most
    assert cost.between <= 1.1


@pytest.mark.parametrize(("n", "slots", "most"), [(1000, 32, 32), (4100, 32, 40), (4100, 256, 40)])
def test_a_round_of_bkb_by_slots_is_40_launches_and_no_wait(n, slots, most):
    """They were 191 to 226, and 3 to 9 waits. Up to 4096 arms have a matrix."""
    X = torch.rand(n, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    algorithm, uniform = BKB(ConstantWidth(2.0), 5.0), torch.rand(3, dtype=torch.float64)
    state = algorithm.init(ArmKernel.from_covariance(Matern(2.5, 0.5), X), 0.1, 3)

    def one_round():
        algorithm.observe(state, algorithm.select(state, uniform).arms, uniform, uniform)

    one_round()
    state.posterior.least = slots
    assert state.posterior.begin_block()[1] == slots
    with launches.on_cuda_path(), RoundNumbers(9, 1, X.device).captured(), Launches() as launched:
        one_round()
    assert len(launched.names) <= most, launched.names
    assert not WAITS & set(launched.names)


def test_rows_whose_data_are_absent_are_left_out(monkeypatch, capsys):
    monkeypatch.delenv("BO_ROBUST_DATA", raising=False)
    monkeypatch.setattr(launches, "FAMILIES", {"BKB": ("bkb.abalone", "BKB", None)})
    monkeypatch.setattr(launches, "lnso", lambda starts: launches.Cost(1.0, 1.0))
    monkeypatch.setattr("sys.argv", ["launches"])
    launches.main()
    printed = capsys.readouterr()
    assert printed.err.startswith("BKB is left out: problem 'abalone' needs the data file")
    assert len(printed.out.splitlines()) == 4


def test_a_step_of_lnso_is_53_launches():
    """And 8 at the beginning of all steps."""
    assert launches.lnso(2, 3).launches <= 53 + 8 / 3


def test_a_captured_block_is_one_replay():
    """And a launch for each input, column and entry of the state that moves: below one a round."""
    algorithm = GPUCB(LogWidth())
    state = algorithm.init(ArmKernel.from_matrix(torch.eye(50, dtype=torch.float64)), 0.1, 3)
    noise, replays = torch.rand(200, 3, dtype=torch.float64), []

    def one_round(rewards, uniform):
        arms = algorithm.select(state, uniform).arms
        algorithm.observe(state, arms, rewards)
        return {"arms": arms}

    def capture(device, work):
        work()
        return lambda: replays.append(1)

    blocks = captured_rounds(algorithm, state, one_round, capture)
    for t in range(32):
        assert blocks.run(noise[t:], noise[t:]) is None
        one_round(noise[t], noise[t])
    assert blocks.run(noise, noise)[0] == 32
    with Launches() as launched:
        assert blocks.run(noise, noise)[0] == 32
    assert len(replays) == 2
    assert len(launched.names) <= 8, launched.names


WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}


def test_making_eight_candidates_waits_five_times(monkeypatch):
    """For the checks of X, Y, the noise, the candidates and their factor; they were 40."""
    X, tolist, waits = torch.rand(20, 2, dtype=torch.float64), torch.Tensor.tolist, []
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: waits.append("tolist") or tolist(x))
    settings = candidate_grid(lengthscale=(0.1, 0.8), noise_var=0.01, num=8)
    candidates = [candidate(**each) for each in settings]
    waits.clear()
    with Launches() as launched:
        CandidateEnsemble(X, X.sum(-1, keepdim=True), candidates)
    waits.extend(name for name in launched.names if name in WAITS)
    assert len(waits) <= 5, waits


@pytest.mark.parametrize(
    "kernel", [RBFKernel(ard_num_dims=2), ScaleKernel(MaternKernel(2.5)), MaternKernel() + RBFKernel()]
)
@pytest.mark.parametrize("q", [20, 25])
def test_moments_wait_for_nothing(kernel, q, monkeypatch):
    """GPyTorch compares the points with themselves, and with the data where there are as many of both."""
    X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = SingleTaskGP(X, X.sum(-1, keepdim=True), covar_module=kernel).eval()
    points = torch.cat([X, 1.0 - X])[:q].requires_grad_()
    names = counted(lambda: marginal_moments(model, points))
    assert not [name for name in names if name in WAITS]
    found = []
    for cuda in (True, False):
        monkeypatch.setattr(linalg, "simulated", cuda)
        moments = marginal_moments(model, points)
        found.append([*moments, *torch.autograd.grad(sum(moments).sum(), points)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trials", [1, 3])
def test_a_round_of_bbkb_in_a_batch_is_21_launches_and_a_wait(trials, monkeypatch):
    """Where the covariance is evaluated, as for a million arms; they were 205 and 8."""
    monkeypatch.setattr(arm_kernel, "MATRIX_MAX_ARMS", 10)
    waits, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: waits.append("tolist") or tolist(x))  # no operation of torch
    X = torch.rand(2000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    algorithm = BBKB(ConstantWidth(2.0), 5.0, 20.0)
    state = algorithm.init(ArmKernel.from_covariance(Matern(2.5, 0.5), X), 0.1, trials)
    uniform = torch.full((trials,), 0.5, dtype=torch.float64)
    rounds = []
    for _ in range(20):
        waits.clear()
        with Launches() as launched:
            arms = algorithm.select(state, uniform).arms
            algorithm.observe(state, arms, uniform, uniform)
        waits.extend(name for name in launched.names if name in WAITS)
        rounds.append((len(launched.names), len(waits)))
    assert sum(count <= 21 and waited <= 1 for count, waited in rounds) >= 12  # the others begin or end a batch
