import math

import pytest
import torch

from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel, init, observe
from bo_robust.ops.arm_update import naive
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits.naive import exact
from tests.bandits.problems import check_golden
from tests.bandits.problems import kernel as kernel_of


def run_rounds(posterior, pulls, rewards):
    for a, y in zip(pulls.unbind(0), rewards.unbind(0), strict=True):
        observe(posterior, a, y)
    return posterior


def check(posterior, pulls, rewards, prior_mean=(0.0, 0.0, 0.0)):
    """Every trial is the definition."""
    for i, noise_var in enumerate(posterior.noise_var):
        K = posterior.kernel.matrix if posterior.kernel.matrix.ndim == 2 else posterior.kernel.matrix[i]
        ok = rewards[:, i].isfinite()
        mean, variance = exact(K, noise_var, pulls[ok, i], rewards[ok, i], prior_mean[i])
        torch.testing.assert_close(posterior.mean[i], mean, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(posterior.variance[i], variance, rtol=1e-9, atol=1e-11)


def random_rounds(n, s, rounds, device, dtype=torch.float64, seed=0, distinct=None):
    g = torch.Generator().manual_seed(seed)
    pulls = torch.randint(0, distinct or n, (rounds, s), generator=g)
    rewards = torch.randn(rounds, s, generator=g, dtype=dtype)
    return pulls.to(device), rewards.to(device)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize(("n", "rounds"), [(1, 5), (3, 20), (40, 1), (100, 33), (100, 200)])
def test_matches_dense_solve(n, rounds, trials, dense, device):
    """Failed pulls change nothing."""
    pulls, rewards = random_rounds(n, trials, rounds, device)
    rewards[1::5, 0], rewards[2::7, -1] = math.nan, math.inf
    posterior = run_rounds(init(kernel_of(device, n, 0.2), 0.3, trials, dense=dense), pulls, rewards)
    check(posterior, pulls, rewards)
    assert torch.equal(posterior.counts.sum(1), rewards.isfinite().double().sum(0))


def test_golden_exact(golden, device):
    data = golden["data"]
    X = torch.tensor(data["X"] + data["X_test"], dtype=torch.float64, device=device)
    y = torch.tensor(data["y"], dtype=torch.float64, device=device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), X)
    for dense in (True, False):
        posterior = init(kernel, data["noise_var"], dense=dense, block=5)
        run_rounds(posterior, torch.arange(12, device=device).unsqueeze(1), y.unsqueeze(1))
        check_golden(posterior, golden["exact"])
        assert float(posterior.information_gain) == pytest.approx(golden["information_gain"]["of_all_12"], rel=1e-9)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("trials", [1, 5])
def test_naive_op_equals_cpu_op(trials, dense, monkeypatch):
    """The branch-free path CUDA takes, run on the CPU, row growth included."""
    kernel = kernel_of("cpu", 300, 0.02)
    pulls, rewards = random_rounds(300, trials, 250, "cpu")
    rewards[17, 0] = float("nan")
    fast = run_rounds(init(kernel, 0.1, trials, dense=dense), pulls, rewards)
    monkeypatch.setattr(arm_states.arm_update, "update_", naive.update_)
    slow = init(kernel, 0.1, trials, dense=dense)
    for name in ("rows", "pending"):  # what is read before it is written would spread NaN
        if not (dense and name == "rows"):
            getattr(slow, name)[:, 1:].fill_(float("inf") if name == "pending" else 0.0)
    run_rounds(slow, pulls, rewards)
    torch.testing.assert_close(fast.mean, slow.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast.variance, slow.variance, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast.information_gain, slow.information_gain)
    assert torch.equal(fast.counts, slow.counts)


def test_trials_may_have_their_own_kernel_noise_and_prior_mean(device):
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    K = torch.stack([SquaredExponential(0.3)(X, X), Matern(2.5, 0.5)(X, X)])
    K = 0.5 * (K + K.mT)
    noise = torch.tensor([0.1, 0.4], dtype=K.dtype, device=device)
    prior = torch.tensor([1.0, -2.0], dtype=K.dtype, device=device).unsqueeze(1).expand(2, 30)
    pulls, rewards = random_rounds(30, 2, 50, device)
    for dense in (True, False):
        posterior = run_rounds(init(ArmKernel.from_matrix(K), noise, 2, prior_mean=prior, dense=dense), pulls, rewards)
        check(posterior, pulls, rewards, prior[:, 0])


@pytest.mark.parametrize("path", ["cpu", "naive"])
@pytest.mark.parametrize(
    ("dtype", "noise_var", "mean_tol", "variance_tol"),
    [(torch.float64, 1e-6, 1e-7, 1e-5), (torch.float64, 1e-4, 1e-8, 1e-7), (torch.float32, 0.025, 1e-3, 2e-2)],
)
def test_low_rank_stays_accurate_where_the_noise_is_small(dtype, noise_var, mean_tol, variance_tol, path, monkeypatch):
    """Near-singular SE kernel on 1000 points, 333 of them pulled at random, 800 rounds."""
    if path == "naive":
        monkeypatch.setattr(arm_states.arm_update, "update_", naive.update_)
    kernel = kernel_of("cpu", 1000, 0.2, dtype=dtype)
    pulls, rewards = random_rounds(333, 1, 800, "cpu", dtype=dtype)
    pulls = pulls * 3
    rewards = torch.sin(pulls / 150.0).to(dtype) + math.sqrt(noise_var) * rewards
    posterior = run_rounds(init(kernel, noise_var, 1, dense=False), pulls, rewards)
    # the reference: the dense layout in double, itself within 1e-9 of an 80-bit solve at noise_var 1e-6
    exact = run_rounds(init(kernel_of("cpu", 1000, 0.2), noise_var, 1, dense=True), pulls, rewards.double())
    error = (posterior.mean.double() - exact.mean).abs().max() / exact.mean.abs().max()
    assert float(error) < mean_tol
    relative = (posterior.variance.double() - exact.variance).abs() / exact.variance.clamp(min=1e-3 * noise_var)
    assert float(relative.max()) < variance_tol


@pytest.mark.parametrize("trials", [1, 3])
def test_a_block_that_ends_early(trials):
    """As before rounds that one call runs: what was known of its pending rows is forgotten."""
    kernel = kernel_of("cpu", 20, 0.2)
    pulls, rewards = random_rounds(20, trials, 12, "cpu", distinct=3)
    posterior = run_rounds(init(kernel, 0.1, trials), pulls[:6], rewards[:6])
    naive.end_block_(posterior)
    run_rounds(posterior, pulls[6:], rewards[6:])
    check(posterior, pulls, rewards)


def test_room_for_rows_grows_with_the_arms_pulled_not_with_all_arms():
    pulls, rewards = random_rounds(400, 2, 500, "cpu", distinct=90)
    buffers = run_rounds(init(kernel_of("cpu", 400, 0.05), 0.1, 2, dense=False), pulls, rewards)
    assert int(buffers.filled.max()) == 90
    assert buffers.rows.shape[1] <= 2 * 90
