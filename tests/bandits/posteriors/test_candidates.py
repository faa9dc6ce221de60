import math
import warnings

import pytest
import torch

from bo_robust.bandits.posteriors import arms as arm_posteriors
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel, init, observe
from bo_robust.utils.covariance import Matern, SquaredExponential


def grid(n, device, d=1):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, generator=g, dtype=torch.float64) if d > 1 else torch.linspace(0, 1, n).double().unsqueeze(1)
    return x.to(device)


def mixed(n, device):
    """Candidates that differ in kind: two lengthscales, a period, an additive decomposition, a Matérn."""
    x = grid(n, device, 2)
    sine = torch.sin(math.pi * (x[:, :1] - x[:, 0]) / 0.3)
    k = SquaredExponential(0.3)
    additive = 0.5 * (k(x[:, :1], x[:, :1]) + k(x[:, 1:], x[:, 1:]))
    return candidate_kernel(
        [SquaredExponential(0.2), SquaredExponential(0.6), torch.exp(-2.0 * sine.square()), additive, Matern(2.5, 0.4)],
        x,
    )


def pulled(n, device):
    """Kernel, noise, prior means and pulls, 110 rounds of three trials; the sixth reward of the second failed."""
    s, h, rounds = 3, 5, 110
    kernel, g = mixed(n, device), torch.Generator().manual_seed(1)
    prior = torch.randn(h, n, generator=g, dtype=torch.float64).to(device)
    noise = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.1], dtype=torch.float64, device=device)
    pulls = torch.randint(0, min(n, 40), (rounds, s), generator=g).to(device)  # some arms again and again
    rewards = torch.randn(rounds, s, generator=g, dtype=torch.float64).to(device)
    rewards[5, 1] = math.nan
    return kernel, noise, prior, pulls, rewards


@pytest.mark.parametrize("n", [30, 300], ids=["dense", "low rank"])
def test_each_candidate_is_its_own_posterior(n, device):
    s, h = 3, 5
    kernel, noise, prior, pulls, rewards = pulled(n, device)
    together = init(kernel, noise, s, prior_mean=prior)
    alone = [
        arm_posteriors.init(ArmKernel.from_matrix(kernel.matrix[u]), noise[u], s, prior_mean=prior[u]) for u in range(h)
    ]
    for a, y in zip(pulls, rewards, strict=True):
        means, variances = together.means.clone(), together.variances.clone()
        ok, error, mean, variance = observe(together, a, y)
        torch.testing.assert_close(error, y.unsqueeze(1) - mean, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ok, y.isfinite())
        for i in range(s):
            assert torch.equal(mean[i], means[i, :, a[i]])
            assert torch.equal(variance[i], variances[i, :, a[i]])
        for posterior in alone:
            arm_posteriors.observe(posterior, a, y)
    for u, posterior in enumerate(alone):
        torch.testing.assert_close(together.means[:, u], posterior.mean, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(together.variances[:, u], posterior.variance, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(together.gains[:, u], posterior.information_gain, rtol=1e-9, atol=1e-11)
    assert torch.equal(together.counts, alone[0].counts)


@pytest.mark.parametrize("n", [30, 300], ids=["dense", "low rank"])
def test_the_evidence_is_that_of_the_normal_and_decides(n, device):
    kernel, noise, prior, pulls, rewards = pulled(n, device)
    together = init(kernel, noise, 3, prior_mean=prior)
    for a, y in zip(pulls, rewards, strict=True):
        observe(together, a, y)
    every = list(range(len(pulls)))
    for u in range(5):
        for i, kept in ((0, every), (1, [t for t in every if t != 5])):
            a, y = pulls[kept, i], rewards[kept, i]
            S = kernel.matrix[u][a][:, a] + noise[u] * torch.eye(len(a), dtype=torch.float64, device=device)
            want = torch.distributions.MultivariateNormal(prior[u, a], S).log_prob(y)
            torch.testing.assert_close(together.evidence[i, u], want, rtol=1e-9, atol=1e-9)
    first = together.evidence.argmax(1)
    assert torch.equal(together.map_candidate, first)
    for i, u in enumerate(first.tolist()):
        assert torch.equal(together.mean[i], together.means[i, u])
        assert torch.equal(together.variance[i], together.variances[i, u])
        assert float(together.noise_var[i]) == float(noise[u])
    together.active[0, first[0]] = False
    assert int(together.map_candidate[0]) == int(together.evidence[0].argsort(descending=True)[1])


@pytest.mark.cpu_only("on CUDA the layout of 300 arms is dense")
def test_large_kernels_are_shared_not_copied(device):
    n, s = 300, 4
    kernel = mixed(n, device)
    shared = init(kernel, 0.1, s).flat.kernel
    assert shared.matrix is kernel.matrix
    copied = ArmKernel.from_matrix(kernel.matrix.repeat(s, 1, 1))
    g = torch.Generator().manual_seed(2)
    arms = torch.randint(0, n, (20, 3), generator=g).to(device)
    some = torch.tensor([7, 2, 19], device=device)
    assert torch.equal(shared.rows(arms[:, 0]), copied.rows(arms[:, 0]))
    assert torch.equal(shared.rows(arms[some, 0], some), copied.rows(arms[some, 0], some))


def test_one_kernel_serves_several_noises_and_prior_means(device):
    one = ArmKernel.from_matrix(SquaredExponential(0.2)(*[grid(10, device)] * 2))
    three = torch.zeros(3, 10, dtype=torch.float64, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert init(one, torch.tensor([0.1, 0.2, 0.3]), 2, prior_mean=three).active.shape == (2, 3)
        assert init(one, 0.1, 2).active.shape == (2, 1)


def test_duplicates_are_named(device):
    x = grid(10, device)
    candidates = [SquaredExponential(0.2), SquaredExponential(0.3), SquaredExponential(0.2)]
    kernel = candidate_kernel(candidates, x)
    with pytest.warns(UserWarning, match=r"candidates \[0, 2\] are the same"):
        init(kernel, 0.1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        init(kernel, torch.tensor([0.1, 0.1, 0.2]), 2)
        init(kernel, 0.1, 2, prior_mean=torch.arange(3.0, device=device).double().unsqueeze(1).expand(3, 10))
