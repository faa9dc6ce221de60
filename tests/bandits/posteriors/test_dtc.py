"""The sparse posterior against its definition (symmetric roots, copies of points), its limits, and long chains."""

import math

import pytest
import torch

from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.utils.covariance import Matern, SquaredExponential

MATERN = Matern(1.5, 0.4)


def points(n, d, seed=0, device="cpu"):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


def matern_kernel(n, device, per_trial=0):
    """One kernel of n random arms in the square, or one matrix per trial."""
    X = points(n, 2, device=device)
    if not per_trial:
        return ArmKernel.from_covariance(MATERN, X)
    return ArmKernel.from_matrix(torch.stack([Matern(1.5, 0.2 + 0.2 * i)(X, X) * (1.0 + i) for i in range(per_trial)]))


def masks(sizes, n, device, seed=0):
    """One random dictionary per size, ``s x n`` bool."""
    g = torch.Generator().manual_seed(seed)
    keep = torch.zeros(len(sizes), n, dtype=torch.bool)
    for row, size in enumerate(sizes):
        keep[row, torch.randperm(n, generator=g)[:size]] = True
    return keep.to(device)


def rounds_of(T, s, n, device, seed=0, failed=0.0):
    """Arms ``T x s`` and rewards, some of them failed pulls."""
    g = torch.Generator().manual_seed(seed)
    arms, rewards = torch.randint(n, (T, s), generator=g), torch.randn(T, s, generator=g, dtype=torch.float64)
    fail = torch.rand(T, s, generator=g) < failed
    rewards[fail] = torch.tensor([math.nan, math.inf, -math.inf], dtype=rewards.dtype).repeat(T * s)[: int(fail.sum())]
    return arms.to(device), rewards.to(device)


def told(posterior, arms, rewards):
    """The posterior after counting ``T x s`` rewards."""
    for a, y in zip(arms, rewards, strict=True):
        dtc.count(posterior, a, y)
    return posterior


def definition(K, dictionary, arms, rewards, noise_var):
    """Mean and variance of all arms as the paper writes them, times lambda: z = (K_D^(1/2))^+ k_D, one row a reward."""
    values, vectors = torch.linalg.eigh(K[dictionary][:, dictionary])
    keep = values > 1e-13 * values[-1]
    z = K[:, dictionary] @ (vectors[:, keep] * values[keep].rsqrt()) @ vectors[:, keep].T
    Z = z[arms]
    V = Z.T @ Z + noise_var * torch.eye(Z.shape[1]).to(K)
    mean = z @ torch.linalg.solve(V, Z.T @ rewards)
    return mean, K.diagonal() - (z * torch.linalg.solve(V, Z.T @ Z @ z.T).T).sum(1)


def check(posterior, keep, arms, rewards, tol=1e-9):
    """Every trial of the posterior is the definition, and its mean what its weights say."""
    kernel = posterior.kernel
    trials, everywhere = (
        torch.arange(keep.shape[0], device=keep.device),
        torch.arange(keep.shape[1], device=keep.device),
    )
    k = kernel.between(everywhere.expand(keep.shape), posterior.points, trials)
    by_weights = (k @ posterior.weights.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(by_weights, posterior.mean, rtol=0.0, atol=tol * float(posterior.mean.abs().max()))
    for i in range(keep.shape[0]):
        K = kernel.covariance(kernel.arms, kernel.arms) if kernel.matrix is None else kernel.matrix
        K, noise_var = (K if K.ndim == 2 else K[i]), float(posterior.noise_var[i])
        ok = rewards[:, i].isfinite()
        want = definition(K, keep[i].nonzero().squeeze(1), arms[ok, i], rewards[ok, i], noise_var)
        for got, value in zip((posterior.mean[i], posterior.variance[i]), want, strict=True):
            torch.testing.assert_close(got, value, rtol=0.0, atol=tol * float(value.abs().max()))


# Rebuild ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_trial", [0, 3])
def test_rebuild_is_the_definition(per_trial, device):
    kernel, n = matern_kernel(30, device, per_trial), 30
    noise = torch.tensor([0.01, 0.3, 2.0], dtype=torch.float64, device=device)
    arms, rewards = rounds_of(40, 3, n, device, failed=0.1)
    posterior = told(dtc.init(kernel, noise, 3), arms, rewards)
    for sizes in ((1, 5, 12), (7, 2, 30), (4, 4, 4)):
        keep = masks(sizes, n, device, seed=sum(sizes))
        dtc.rebuild(posterior, keep)
        check(posterior, keep, arms, rewards)
        assert posterior.size.tolist() == list(sizes)


def test_by_hand(device):
    # K = [[1, .5], [.5, 2]], lambda = .25, arm 0 pays 3 and 1; dictionary {1}: z = K[:, 1] / sqrt 2, z_0^2 = 1/8.
    # V = 2/8 + 1/4 = 1/2, z_0 z_1 = 1/2: mean = z z_0 (3 + 1) / V = (1, 4),
    # variance = k - z^2 + lambda z^2 / V = (1 - 1/8 + 1/16, 2 - 2 + 1) = (.9375, 1)
    K = torch.tensor([[1.0, 0.5], [0.5, 2.0]], dtype=torch.float64, device=device)
    posterior = dtc.init(ArmKernel.from_matrix(K), 0.25)
    assert posterior.variance.tolist() == [[1.0, 2.0]]
    zero = torch.tensor([0], device=device)
    for y in (3.0, 1.0):
        assert dtc.count(posterior, zero, torch.tensor([y], dtype=K.dtype, device=device)).tolist() == [True]
    assert posterior.mean.tolist() == [[0.0, 0.0]]  # counted, not yet learnt from
    dtc.rebuild(posterior, torch.tensor([[False, True]], device=device))
    torch.testing.assert_close(posterior.mean.cpu(), torch.tensor([[1.0, 4.0]], dtype=K.dtype))
    torch.testing.assert_close(posterior.variance.cpu(), torch.tensor([[0.9375, 1.0]], dtype=K.dtype))
    assert float(posterior.effective_dimension) == pytest.approx(2 * 0.9375 / 0.25)
    assert float(posterior.information_gain) == pytest.approx(math.log(5.0))  # twice at the prior variance


def test_golden_bkb(golden, device):
    data, section = golden["data"], golden["bkb"]
    assert data["kernel"] == "exp(-r^2/(2*0.4^2))"
    X = torch.tensor(data["X"] + data["X_test"], dtype=torch.float64, device=device)
    y, T = torch.tensor(data["y"], dtype=torch.float64, device=device), len(data["y"])
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), X)
    posterior = told(dtc.init(kernel, data["noise_var"]), torch.arange(T, device=device).unsqueeze(1), y.unsqueeze(1))
    keep = torch.zeros(1, len(X), dtype=torch.bool, device=device)
    keep[0, section["dictionary"]] = True
    dtc.rebuild(posterior, keep)
    for got, name in (
        (posterior.mean, "mean"),
        (posterior.variance / data["noise_var"], "variance_scaled_by_1_over_lambda"),
    ):
        want = torch.tensor(section[name], dtype=torch.float64, device=device)
        torch.testing.assert_close(got[0, T:], want, rtol=1e-9, atol=0.0)


def test_counts_are_copies(device):
    """Three arms at one place, pulled once each, are one arm pulled three times."""
    X = points(6, 1, device=device)
    once, copies = (ArmKernel.from_covariance(MATERN, x) for x in (X, torch.cat([X, X[2:3], X[2:3]])))
    a, b = dtc.init(once, 0.1), dtc.init(copies, 0.1)
    y = torch.tensor([[0.3], [1.0], [-0.4], [0.8]], dtype=torch.float64, device=device)
    told(a, torch.tensor([[0], [2], [2], [2]], device=device), y)
    told(b, torch.tensor([[0], [2], [6], [7]], device=device), y)
    dtc.rebuild(a, torch.tensor([[1, 0, 1, 0, 0, 0]], device=device).bool())
    dtc.rebuild(b, torch.tensor([[1, 0, 1, 0, 0, 0, 1, 1]], device=device).bool())
    torch.testing.assert_close(a.mean, b.mean[:, :6], rtol=0.0, atol=1e-12)
    torch.testing.assert_close(a.variance, b.variance[:, :6], rtol=0.0, atol=1e-12)
    assert (a.size.tolist(), b.size.tolist()) == ([2], [4])


def test_variance_does_not_starve_far_from_the_dictionary(device):
    X = torch.linspace(0.0, 10.0, 21, dtype=torch.float64, device=device).unsqueeze(1)
    posterior = dtc.init(ArmKernel.from_covariance(SquaredExponential(0.3), X), 0.01)
    arms = torch.arange(4, device=device).repeat(50).unsqueeze(1)
    told(posterior, arms, torch.ones(200, 1, dtype=torch.float64, device=device))
    dtc.rebuild(posterior, posterior.counts > 0)
    assert bool((posterior.variance <= 1.0).all())
    assert float(posterior.variance[0, :4].max()) < 1e-3
    torch.testing.assert_close(posterior.variance[0, 12:], torch.ones_like(X[12:, 0]), rtol=0.0, atol=1e-12)


def test_sub_batches_of_trials(device):
    """Rebuilding some trials, with longer and with shorter dictionaries, leaves the others as they are."""
    n, s = 25, 4
    for per_trial in (0, s):
        kernel = matern_kernel(n, device, per_trial)
        noise = torch.tensor([0.02, 0.1, 0.5, 1.0], dtype=torch.float64, device=device)
        arms, rewards = rounds_of(30, s, n, device)
        posterior = told(dtc.init(kernel, noise, s), arms, rewards)
        keep = masks((3, 6, 2, 5), n, device)
        dtc.rebuild(posterior, keep)
        for trials, sizes in (([1, 3], (11, 8)), ([2], (1,)), ([3, 1, 0], (2, 4, 3))):
            chosen = torch.tensor(trials, device=device)
            rest = [i for i in range(s) if i not in trials]
            before = posterior.mean[rest].clone(), posterior.variance[rest].clone()
            keep[chosen] = masks(sizes, n, device, seed=len(trials))
            dtc.rebuild(posterior, keep[chosen], chosen)
            assert torch.equal(posterior.mean[rest], before[0])
            assert torch.equal(posterior.variance[rest], before[1])
            check(posterior, keep, arms, rewards)
            assert posterior.size.tolist() == keep.sum(1).tolist()
            # what is stored per trial serves the next observation too
            more = rounds_of(1, s, n, device, seed=len(trials))
            dtc.observe(posterior, more[0][0], more[1][0])
            arms, rewards = torch.cat([arms, more[0]]), torch.cat([rewards, more[1]])
            check(posterior, keep, arms, rewards)


# Observations under one dictionary -------------------------------------------------------------------------


@pytest.mark.parametrize("per_trial", [0, 3])
def test_observe_is_a_rebuild(per_trial, device):
    kernel, n, s = matern_kernel(30, device, per_trial), 30, 3
    noise = torch.tensor([0.01, 0.3, 2.0], dtype=torch.float64, device=device)
    arms, rewards = rounds_of(25, s, n, device, failed=0.15)
    keep = masks((1, 6, 14), n, device)
    posterior = dtc.init(kernel, noise, s)
    dtc.rebuild(posterior, keep)  # of no data: the prior
    torch.testing.assert_close(posterior.mean, torch.zeros_like(posterior.mean), rtol=0.0, atol=0.0)
    torch.testing.assert_close(posterior.variance, kernel.diagonal.expand(s, n), rtol=0.0, atol=1e-12)
    gain = torch.zeros_like(noise)
    for t in range(25):
        sd2 = posterior.variance.gather(1, arms[t].unsqueeze(1)).squeeze(1)
        ok = dtc.observe(posterior, arms[t], rewards[t])
        assert torch.equal(ok, rewards[t].isfinite())
        gain += 0.5 * torch.log1p(sd2 / noise) * ok
        check(posterior, keep, arms[: t + 1], rewards[: t + 1])
    assert int((~rewards.isfinite()).sum()) > 5
    torch.testing.assert_close(posterior.information_gain, gain)


def test_downdate_moves_the_factor_and_nothing_per_arm(device):
    kernel, n, s = matern_kernel(20, device), 20, 2
    arms, rewards = rounds_of(10, s, n, device)
    posterior = told(dtc.init(kernel, 0.2, s), arms, rewards)
    keep = masks((5, 8), n, device)
    dtc.rebuild(posterior, keep)
    mean, variance = posterior.mean.clone(), posterior.variance.clone()
    everywhere = torch.arange(n, device=device).expand(s, n)
    trials = torch.arange(s, device=device)
    torch.testing.assert_close(dtc.variance_of(posterior, everywhere, trials), variance, rtol=0.0, atol=1e-12)
    more, values = rounds_of(6, s, n, device, seed=3, failed=0.3)
    assert not bool(values.isfinite().all())
    for a, y in zip(more, values, strict=True):
        ok = dtc.count(posterior, a, y)
        dtc.downdate(posterior, a, ok)
    assert torch.equal(posterior.mean, mean)
    assert torch.equal(posterior.variance, variance)
    got = dtc.variance_of(posterior, everywhere, trials)
    assert bool((got <= variance + 1e-12).all())
    last = dtc.variance_of(posterior, everywhere[1:, 4:7], trials[1:])
    dtc.rebuild(posterior, keep)
    torch.testing.assert_close(got, posterior.variance, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(last, posterior.variance[1:, 4:7], rtol=0.0, atol=1e-10)


def test_variance_of_with_a_kernel_per_trial(device):
    n, s = 15, 3
    posterior = dtc.init(matern_kernel(n, device, s), 0.2, s)
    told(posterior, *rounds_of(12, s, n, device))
    dtc.rebuild(posterior, masks((2, 4, 6), n, device))
    trials = torch.tensor([2, 0], device=device)
    arms = torch.tensor([[0, 7, 7], [3, 14, 1]], device=device)
    torch.testing.assert_close(
        dtc.variance_of(posterior, arms, trials), posterior.variance[trials].gather(1, arms), rtol=0.0, atol=1e-12
    )


@pytest.mark.parametrize("lengthscale", [0.05, 0.3])
def test_long_chain_stays_with_a_rebuild(lengthscale, device):
    """2,000 rank-one observations against everything from scratch; smooth kernels have near-singular dictionaries."""
    X = points(120, 1, device=device)
    kernel = ArmKernel.from_covariance(SquaredExponential(lengthscale), X)
    arms, rewards = rounds_of(2000, 1, 120, device, seed=1)
    keep = masks((25,), 120, device)
    posterior = dtc.init(kernel, 0.01)
    dtc.rebuild(posterior, keep)
    for a, y in zip(arms, rewards, strict=True):
        dtc.observe(posterior, a, y)
    fresh = told(dtc.init(kernel, 0.01), arms, rewards)
    dtc.rebuild(fresh, keep)
    torch.testing.assert_close(posterior.variance / 0.01, fresh.variance / 0.01, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(posterior.mean, fresh.mean, rtol=0.0, atol=1e-8)
    assert bool((posterior.variance >= 0.0).all())


# Kernels without a matrix, blocks, dtypes, mistakes --------------------------------------------------------------


def test_covariance_function_of_many_arms(monkeypatch, device):
    n, s = 5000, 2
    X = points(n, 3, device=device)
    kernel = ArmKernel.from_covariance(MATERN, X)
    assert kernel.matrix is None
    arms, rewards = rounds_of(30, s, n, device)
    keep = masks((6, 10), n, device)
    posterior = told(dtc.init(kernel, 0.1, s), arms, rewards)
    dtc.rebuild(posterior, keep)
    some = torch.cat([keep.any(0).nonzero().squeeze(1), arms.unique(), torch.arange(0, n, 97, device=device)]).unique()
    places = torch.full((n,), -1, device=device)
    places[some] = torch.arange(len(some), device=device)
    small = told(dtc.init(ArmKernel.from_covariance(MATERN, X[some]), 0.1, s), places[arms], rewards)
    dtc.rebuild(small, keep[:, some])

    def same(tol=1e-11):
        torch.testing.assert_close(posterior.mean[:, some], small.mean, rtol=0.0, atol=tol)
        torch.testing.assert_close(posterior.variance[:, some], small.variance, rtol=0.0, atol=tol)

    same()
    monkeypatch.setattr(dtc, "BLOCK_ENTRIES", (7 * 1000, 7 * 1000))  # several blocks, the last one shorter
    dtc.rebuild(posterior, keep)
    same()
    for t in range(5):
        dtc.observe(posterior, arms[t], rewards[t])
        dtc.observe(small, places[arms[t]], rewards[t])
    same()
    trials = torch.arange(s, device=device)
    chosen = some.expand(s, -1)
    torch.testing.assert_close(dtc.variance_of(posterior, chosen, trials), small.variance, rtol=0.0, atol=1e-11)


def test_dictionary_of_points_without_variance():
    """Nothing is learnt of a function that is zero where it is looked at."""
    one = dtc.init(ArmKernel.from_matrix(torch.diag(torch.tensor([0.0, 1.0], dtype=torch.float64))), 0.1)
    dtc.count(one, torch.tensor([0]), torch.ones(1, dtype=torch.float64))
    dtc.rebuild(one, torch.tensor([[True, False]]))
    assert one.mean.tolist() == [[0.0, 0.0]]
    assert one.variance.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="are empty; put at least one point"):
        dtc.rebuild(one, torch.zeros(1, 2, dtype=torch.bool))
