"""The median of means in feature space against its definition, one group against ridge regression, and outliers."""

import math

import pytest
import torch

from bo_robust.features import FourierFeatures
from bo_robust.posteriors import median_of_means, whitening
from bo_robust.posteriors.median_of_means import init, observe
from bo_robust.posteriors.whitening import FeatureTable

BRANCHES = pytest.mark.parametrize("reads", [True, False], ids=["reading", "branch-free"])
ROOTS = pytest.mark.parametrize("root", whitening.ROOTS)
N = 12


@pytest.fixture(autouse=True)
def _path(request, monkeypatch):
    """Which path is taken, whatever the device."""
    if "reads" in request.fixturenames:
        reads = request.getfixturevalue("reads")
        monkeypatch.setattr(whitening, "reads_data", lambda state: reads)


def tolerance(root, reads):
    return 1e-6 if root == "symmetric" and reads else 1e-10


def feature_table(root, device, dtype=torch.float64):
    X = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(1)
    Phi = FourierFeatures(0.3, 10, ((0.0, 1.0),))(X).to(device, dtype)
    return FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)


def pull(posterior, arms, rewards):
    like = posterior.information_gain
    return observe(
        posterior, torch.tensor(arms, device=like.device), torch.tensor(rewards, dtype=torch.float64).to(like)
    )


def direct(Phi, history, noise_var, groups, root):
    """Mean of one trial from ``history``: the rewards of every arm in order. All by hand but the root."""
    counts = torch.tensor([float(len(h)) for h in history], dtype=torch.float64)
    V = Phi.T @ (counts.unsqueeze(1) * Phi) + noise_var * torch.eye(Phi.shape[1], dtype=torch.float64)
    if root == "cholesky":
        R = torch.linalg.inv(torch.linalg.cholesky(V))
    else:
        d, E = torch.linalg.eigh(V)
        R = (E * d.rsqrt()) @ E.T
    U = R @ Phi.T
    estimates = torch.zeros(Phi.shape[1], groups, dtype=torch.float64)
    for j in range(groups):
        for a, h in enumerate(history):
            if h:
                mine = h[j::groups] or h
                estimates[:, j] += U[:, a] * len(h) * (math.fsum(mine) / len(mine))
    r = estimates.sort(1).values[:, groups // 2]
    return U.T @ r, noise_var * U.square().sum(0)


@pytest.mark.parametrize("groups", [1, 3, 5])
@ROOTS
@BRANCHES
def test_every_round_is_the_definition(reads, root, groups, device):
    table, g = feature_table(root, device), torch.Generator().manual_seed(1)
    noise = torch.tensor([0.01, 1.0], dtype=torch.float64, device=device)
    posterior = init(table, noise, groups, root)
    history = [[[] for _ in range(N)] for _ in range(2)]
    Phi, tol = table.features.cpu(), tolerance(root, reads)
    for t in range(40):
        arms = torch.randint(0, 5, (2,), generator=g).tolist()
        rewards = (torch.randn(2, generator=g) / torch.rand(2, generator=g)).double().tolist()
        if t % 7 == 3:
            rewards[t % 2] = math.nan
        ok = pull(posterior, arms, rewards)
        for i in range(2):
            assert bool(ok[i]) == math.isfinite(rewards[i])
            if ok[i]:
                history[i][arms[i]].append(rewards[i])
            mean, variance = direct(Phi, history[i], float(noise[i]), groups, root)
            error = (posterior.mean[i].cpu() - mean).abs().max() / mean.abs().max().clamp(min=1e-300)
            assert float(error) < tol
            torch.testing.assert_close(posterior.variance[i].cpu(), variance, rtol=tol, atol=0)
    V = Phi.T @ (posterior.counts.cpu().unsqueeze(2) * Phi) / noise.cpu()[:, None, None] + torch.eye(Phi.shape[1])
    torch.testing.assert_close(posterior.information_gain.cpu(), 0.5 * torch.logdet(V), rtol=tol, atol=0)


def test_by_hand(device):
    # One arm of feature 1, lambda = 1, g = 3, rewards 3, 100, 5, 7: groups (3, 7), (100), (5), means 5, 100, 5.
    # u = 1 / sqrt 5, c = 4: r = u 4 median = 20 u, mean u r = 4.
    posterior = init(FeatureTable(torch.ones(1, 1).double().to(device)), torch.ones(1).double().to(device), 3)
    for y in (3.0, 100.0, 5.0, 7.0):
        pull(posterior, [0], [y])
    assert posterior.sums.tolist() == [[[10.0, 100.0, 5.0]]]
    assert posterior.pulls.tolist() == [[[2.0, 1.0, 1.0]]]
    assert float(posterior.mean) == pytest.approx(4.0, rel=1e-6)
    assert float(posterior.variance) == pytest.approx(1 / 5, rel=1e-6)
    # a group without a reward takes the arm's mean of all: after 3 and 9 the means are 3, 9, 6; c = 2, u^2 = 1/3
    posterior = init(FeatureTable(torch.ones(1, 1).double().to(device)), torch.ones(1).double().to(device), 3)
    for y in (3.0, 9.0):
        pull(posterior, [0], [y])
    assert float(posterior.mean) == pytest.approx(6.0 * 2 / 3, rel=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e300, 1e308, -1e308])
@ROOTS
@BRANCHES
def test_fewer_than_half_of_the_groups_may_be_bad(reads, root, size, device):
    """g = 5: two bad rewards at an arm of many pulls move the mean no more than the groups differ anyway."""
    rounds = [(t % N, math.sin(3 * (t % N) / N)) for t in range(5 * N)]
    bad = {7: size, 7 + N: size}  # arm 7, groups 0 and 1
    clean, hurt = (init(feature_table(root, device), torch.full((1,), 0.5).double().to(device), 5, root) for _ in "ab")
    for t, (a, y) in enumerate(rounds):
        pull(clean, [a], [y])
        pull(hurt, [a], [bad.get(t, y)])
    # without noise the groups agree, so that the median is what it was
    torch.testing.assert_close(hurt.mean, clean.mean, rtol=0, atol=1e-6)
    pull(hurt, [7], [0.3])
    hurt.sums[0, 7, 2] = size  # a third bad group is too much
    pull(hurt, [0], [0.0])
    assert not float((hurt.mean - clean.mean).abs().max()) < 10


@ROOTS
def test_bad_rewards_at_several_arms_add_up(root, device):
    """The limit of the method: g = 3, one bad reward at each of two arms, in different groups, spoils two of three."""
    rounds = [(t % N, 1.0) for t in range(3 * N)]
    same_group, two_groups = {4: 1e6, 5: 1e6}, {4: 1e6, 5 + N: 1e6}
    means = []
    for bad in ({}, same_group, two_groups):
        posterior = init(feature_table(root, device), torch.full((1,), 0.5).double().to(device), 3, root)
        for t, (a, y) in enumerate(rounds):
            pull(posterior, [a], [bad.get(t, y)])
        means.append(posterior.mean)
    torch.testing.assert_close(means[1], means[0], rtol=0, atol=1e-5)
    assert float((means[2] - means[0]).abs().max()) > 10


def test_static_mistakes(device):
    table, noise = feature_table("symmetric", device), torch.ones(1, dtype=torch.float64, device=device)
    for groups in (0, 2, 8):
        with pytest.raises(ValueError, match="groups must be"):
            median_of_means.init(table, noise, groups)
    with pytest.raises(ValueError, match="root must be"):
        median_of_means.init(table, noise, 3, "lu")
    with pytest.raises(ValueError, match="features of the arms"):
        median_of_means.init(FeatureTable(torch.full((3, 2), math.inf)), torch.ones(1), 3)
