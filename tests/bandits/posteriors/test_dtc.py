import math

import pytest
import torch

from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.utils import linalg
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits import naive
from tests.bandits.problems import places

MATERN = Matern(1.5, 0.4)


def matern_kernel(n, device, per_trial=0):
    """One kernel of n random arms in the square, or one matrix per trial."""
    X = places(n, 2, device=device)
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


def observed(posterior, arms, rewards):
    """The posterior after counting ``T x s`` rewards."""
    for a, y in zip(arms, rewards, strict=True):
        dtc.count(posterior, a, y)
    return posterior


def check(posterior, keep, arms, rewards, tol=1e-9):
    """Every trial of the posterior is the definition, and its mean what its weights say."""
    kernel = posterior.kernel
    trials, everywhere = (torch.arange(size, device=keep.device) for size in keep.shape)
    k = kernel.between(everywhere.expand(keep.shape), posterior.points, trials)
    by_weights = (k @ posterior.weights.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(by_weights, posterior.mean, rtol=0.0, atol=tol * float(posterior.mean.abs().max()))
    for i in range(keep.shape[0]):
        K = kernel.covariance(kernel.arms, kernel.arms) if kernel.matrix is None else kernel.matrix
        K, noise_var = (K if K.ndim == 2 else K[i]), float(posterior.noise_var[i])
        ok = rewards[:, i].isfinite()
        want = naive.dtc(K, keep[i].nonzero().squeeze(1), arms[ok, i], rewards[ok, i], noise_var)
        for got, value in zip((posterior.mean[i], posterior.variance[i]), want, strict=True):
            torch.testing.assert_close(got, value, rtol=0.0, atol=tol * float(value.abs().max()))


@pytest.mark.parametrize("per_trial", [0, 3])
def test_rebuild_is_the_definition(per_trial, device):
    kernel, n = matern_kernel(30, device, per_trial), 30
    noise = torch.tensor([0.01, 0.3, 2.0], dtype=torch.float64, device=device)
    arms, rewards = rounds_of(40, 3, n, device, failed=0.1)
    posterior = observed(dtc.init(kernel, noise, 3), arms, rewards)
    for sizes in ((1, 5, 12), (7, 2, 30), (4, 4, 4)):
        keep = masks(sizes, n, device, seed=sum(sizes))
        dtc.rebuild(posterior, keep)
        check(posterior, keep, arms, rewards)
        assert posterior.size.tolist() == list(sizes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("s", [1, 3])
def test_few_trials_are_a_batch(s, dtype, device, monkeypatch):
    """With points that depend on others, one of no variance, failed pulls, trials that stay, empty dictionaries."""
    X, tol = places(20, 2, device=device).to(dtype), 1e-9 if dtype == torch.float64 else 2e-3
    x = torch.cat([X, X[:4], X[:1] * 0.0], 0)
    kernel = ArmKernel.from_matrix(torch.stack([(x @ x.T + 0.1 * i * (x @ x.T) ** 2) for i in range(s)]), x)
    arms, rewards = rounds_of(40, s, 25, device, failed=0.1)
    states = []
    for few in (8, 0):
        monkeypatch.setattr(linalg, "FEW_TRIALS", few)
        state = observed(dtc.init(kernel, 0.1, s), arms, rewards.to(dtype))
        dtc.rebuild(state, masks([9, 4, 2][:s], 25, device))
        dtc.rebuild(state, masks([15, 24][: s - 1 or 1], 25, device, seed=1), None if s == 1 else torch.tensor([2, 0]))
        states.append(state)
        dtc.rebuild(observed(dtc.init(kernel, 0.1, s), arms[:3], rewards[:3].to(dtype)), masks([0] * s, 25, device))
    for name in ("mean", "variance", "totals", "pulled", "learnt", "dictionary", "changes"):
        torch.testing.assert_close(*(getattr(state, name) for state in states), rtol=tol, atol=tol)
    assert states[0].mean.dtype == states[0].factor.dtype == dtype


def test_golden_bkb(golden, device):
    data, section = golden["data"], golden["bkb"]
    assert data["kernel"] == "exp(-r^2/(2*0.4^2))"
    X = torch.tensor(data["X"] + data["X_test"], dtype=torch.float64, device=device)
    y, T = torch.tensor(data["y"], dtype=torch.float64, device=device), len(data["y"])
    kernel = ArmKernel.from_covariance(SquaredExponential(0.4), X)
    posterior = observed(
        dtc.init(kernel, data["noise_var"]), torch.arange(T, device=device).unsqueeze(1), y.unsqueeze(1)
    )
    keep = torch.zeros(1, len(X), dtype=torch.bool, device=device)
    keep[0, section["dictionary"]] = True
    dtc.rebuild(posterior, keep)
    for got, name in (
        (posterior.mean, "mean"),
        (posterior.variance / data["noise_var"], "variance_scaled_by_1_over_lambda"),
    ):
        want = torch.tensor(section[name], dtype=torch.float64, device=device)
        torch.testing.assert_close(got[0, T:], want, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("per_trial", [0, 3])
def test_a_redraw_of_the_same_dictionary_is_a_rebuild(per_trial, device):
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
        ok = dtc.count(posterior, arms[t], rewards[t])
        dtc.redraw(posterior, posterior.dictionary)
        assert torch.equal(ok, rewards[t].isfinite())
        gain += 0.5 * torch.log1p(sd2 / noise) * ok
        check(posterior, keep, arms[: t + 1], rewards[: t + 1])
    assert int((~rewards.isfinite()).sum()) > 5
    torch.testing.assert_close(posterior.information_gain, gain)
