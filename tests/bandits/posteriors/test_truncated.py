import math

import pytest
import torch

from bo_robust.bandits.posteriors import truncated, whitening
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.bandits.posteriors.whitening import FeatureTable
from bo_robust.confidence.truncation import RULES, ATAFourierTruncation
from bo_robust.features import FourierFeatures
from bo_robust.utils.covariance import SquaredExponential
from tests.bandits import naive
from tests.bandits.problems import check_golden

ROOTS = pytest.mark.parametrize("root", whitening.ROOTS)


def tolerance(root, reads=True):
    return 1e-6 if root == "symmetric" and reads else 1e-10


def points(n, d):
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    return X.sort(0).values if d == 1 else X


def nystrom_kernel():
    return ArmKernel.from_covariance(SquaredExponential(0.25), points(20, 2))


def feature_table(kind, root, s=3):
    """Features ``n x p`` (Fourier) or one dictionary per trial."""
    if kind == "nystrom":
        kernel = nystrom_kernel()
        counts = (torch.rand(s, 20, generator=torch.Generator().manual_seed(0)) < 0.4).double()
        uniform = torch.linspace(0.1, 0.9, s, dtype=torch.float64)
        return NystromDictionary(0.8).draw(kernel, torch.ones(s, 20, dtype=torch.float64), counts, uniform)
    d, nodes, n = {"fourier 1d": (1, 14, 25), "fourier 2d": (2, 4, 25)}[kind]
    Phi = FourierFeatures(0.3, nodes, ((0.0, 1.0),) * d)(points(n, d))
    return FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)


def to(table, device):
    move = [None if x is None else x.to(device) for x in (table.coordinates, table.axes, table.residual)]
    return FeatureTable(*move)


def direct(table, record, noise_var, level, root, rule="zero"):
    """Of all rounds' arms and rewards (pairs of ``s``): mean and variance of every arm from the definition, ``s x n``.

    Also how near a product came to the level, ``s``, and the share of them beyond it.
    """
    arms, y = map(torch.stack, zip(*record, strict=True))
    means, variances, products = [], [], []
    for i, phi in enumerate(table.features.expand(arms.shape[1], *table.features.shape[-2:])):
        ok = y[:, i].isfinite()
        mean, variance, product = naive.truncated(phi, arms[ok, i], y[ok, i], noise_var[i], level, root, rule)
        means.append(mean)
        variances.append(variance if table.residual is None else variance + table.residual[i])
        products.append(product)
    gaps = [(p - 1.0).abs().min() if p.numel() else p.new_ones(()) for p in products]
    share = torch.cat([p.flatten() > 1.0 for p in products]).double().mean()
    return torch.stack(means), torch.stack(variances), torch.stack(gaps), share


def close(got, want, tol):
    """Largest difference relative to the largest entry, per trial."""
    scale = want.abs().amax(1, keepdim=True).clamp(min=1e-300)
    error = (got.double() - want).abs() / scale
    assert bool((error <= tol).all()), f"relative error {float(error.max()):.2g}"


def rewards_of(g, s):
    """Student t with 1.2 degrees of freedom, a failed pull now and then."""
    normal, chi = torch.randn(s, generator=g, dtype=torch.float64), torch.rand(s, generator=g, dtype=torch.float64)
    y = 0.6 * (1.0 + normal * chi.pow(-1 / 1.2))
    fail = torch.rand(s, generator=g) < 0.05
    return torch.where(fail, torch.tensor([math.nan, math.inf, -math.inf] * s)[:s], y)


@pytest.mark.parametrize("kind", ["fourier 1d", "fourier 2d", "nystrom"])
@pytest.mark.parametrize("rule", RULES)
@ROOTS
def test_every_round_is_the_definition(reads, root, rule, kind, device):
    s, T = 3, 36
    table = to(feature_table(kind, root), device)
    noise = torch.tensor([0.01, 0.4, 2.0], dtype=torch.float64, device=device)
    posterior = truncated.init(table, noise, root, rule)
    n, tol = posterior.mean.shape[1], tolerance(root, reads)
    record, g, compared, shares = [], torch.Generator().manual_seed(11), 0, []
    for t in range(1, T + 1):
        level = 0.35 * t**0.1
        arms = torch.randint(0, n // 2, (s,), generator=g).to(device)  # every arm a few times
        rewards = rewards_of(g, s).to(device)
        ok, _ = truncated.observe(posterior, arms, rewards, level)
        assert torch.equal(ok, rewards.isfinite())
        record.append((arms, rewards))
        mean, variance, gap, share = direct(table, record, noise, level, root, rule)
        close(posterior.variance, variance, tol)
        far = gap > 10 * tol  # a product this near to the level may be truncated or not
        close(posterior.mean[far], mean[far], tol)
        compared += int(far.sum())
        shares.append(float(share))
    assert compared > 0.95 * s * T
    assert sum(shares) / T > 0.01  # many products are truncated in this test
    if len(table.coordinates.shape) == 2:  # 1/2 log det(I + Phi Phi^T / lambda)
        Phi = table.features
        V = Phi.mT @ (posterior.counts.unsqueeze(2) * Phi) / noise[:, None, None] + torch.eye(Phi.shape[1]).to(Phi)
        torch.testing.assert_close(posterior.information_gain, 0.5 * torch.logdet(V), rtol=tol, atol=0)


def settled_stay_below(posterior, record, level):
    """Whether no reward that left the list of its arm is truncated, by brute force over all of them."""
    u = posterior.whitening.directions(posterior.whitening.white).abs().amax(1)
    for i in range(u.shape[0]):
        for a in range(u.shape[1]):
            y = torch.stack([y[i] for arms, y in record if arms[i] == a] or [u[0, 0] * 0.0]).abs()
            settled = y.sort(descending=True).values[int(posterior.lists.size[i, a]) :]
            if bool((settled * u[i, a] > level).any()):
                return False
    return True


@pytest.mark.parametrize(
    ("root", "rule", "reads", "T"),
    [
        pytest.param("symmetric", "zero", True, 2000, marks=pytest.mark.slow),
        ("symmetric", "zero", False, 400),
        ("symmetric", "clip", True, 400),
        pytest.param("cholesky", "zero", True, 2000, marks=pytest.mark.slow),
        ("cholesky", "clip", False, 400),
    ],
    indirect=["reads"],
)
def test_long_runs_at_the_level_of_the_theorem(root, rule, reads, T, device):
    """No drift; settled rewards are never truncated (brute force over all of them); the lists stay short."""
    s, m, delta = 2, 14, 0.1
    table = to(feature_table("fourier 1d", root), device)
    # symmetric Pareto rewards of tail index 1.6: E|y|^1.5 = 16
    truncation = ATAFourierTruncation(16.0, 0.5, delta, T, m)
    noise = torch.tensor([0.1, 1.0], dtype=torch.float64, device=device)
    posterior = truncated.init(table, noise, root, rule)
    record, g, tol = [], torch.Generator().manual_seed(1), tolerance(root, reads)
    longest, compared, listed = 0, 0, []
    pareto = torch.rand(T, s, generator=g, dtype=torch.float64).pow(-1 / 1.6)
    pareto *= torch.where(torch.rand(T, s, generator=g) < 0.5, -1.0, 1.0)
    pulls = torch.randint(0, 25, (T, s), generator=g)
    pulls = torch.where(pulls < 12, pulls % 3, pulls)  # three arms take half of the pulls
    for t in range(1, T + 1):
        arms, rewards = pulls[t - 1].to(device), pareto[t - 1].to(device)
        truncated.observe(posterior, arms, rewards, truncation(t))
        record.append((arms, rewards))
        if t % 100 and t <= T - 3:
            continue
        longest = max(longest, int(posterior.lists.size.max()))
        listed.append(float(posterior.lists.size.double().mean()))
        mean, variance, gap, _ = direct(table, record, noise, truncation(t), root, rule)
        close(posterior.variance, variance, tol)
        # products within the error of u of the level may go either way: several in 10^5
        far = gap > (1e-8 if tol == 1e-6 else 1e-11)
        close(posterior.mean[far], mean[far], tol)
        compared += int(far.sum())
        assert settled_stay_below(posterior, record, truncation(t))
    assert compared > 0.95 * s * (T / 100 + 2)
    assert sum(listed) / len(listed) < math.log(2 * m * T / delta)
    assert max(listed) < math.log(2 * m * T / delta)
    assert longest < 60  # of up to 330 rewards an arm


@ROOTS
def test_a_level_far_too_small_is_still_right(reads, root, device):
    table = to(feature_table("fourier 1d", root), device)
    noise = torch.tensor([0.5], dtype=torch.float64, device=device)
    posterior = truncated.init(table, noise, root)
    record, g = [], torch.Generator().manual_seed(2)
    level = 1e-4
    for t in range(1, 151):
        arms = torch.randint(0, 3, (1,), generator=g).to(device)
        rewards = torch.randn(1, generator=g, dtype=torch.float64).to(device)
        _, lost = truncated.observe(posterior, arms, rewards, level)
        record.append((arms, rewards))
        if t % 30 == 0:
            mean, variance, gap, _ = direct(table, record, noise, level, root)
            assert float(gap) > 1e-5
            # the mean is a sum of what little is kept of directions with tiny u: relative to the level
            torch.testing.assert_close(posterior.mean, mean, rtol=1e-6, atol=1e-6 * level)
            close(posterior.variance, variance, tolerance(root, reads))
            assert bool(lost)
    assert posterior.lists.values.shape[2] == 128
    assert float(posterior.lists.size.sum()) > 145


@pytest.mark.parametrize("section", ["ata_qff_m6", "ata_qff_m10"])
@ROOTS
def test_golden_fourier(reads, root, section, golden, device):
    data, expected = golden["data"], golden[f"{section}_{root}"]
    X = torch.tensor(data["X"] + data["X_test"], dtype=torch.float64, device=device)
    Phi = FourierFeatures(0.4, expected["nodes_per_dim"], ((0.0, 1.0),) * 2)(X)
    table = FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)
    check_run(table, root, data, expected, 1e-6 if root == "symmetric" and reads else 1e-9, device)


def check_run(table, root, data, expected, tol, device):
    noise = torch.tensor([data["noise_var"]], dtype=torch.float64, device=device)
    posterior = truncated.init(table, noise, root)
    for i, y in enumerate(data["y"]):
        reward = torch.tensor([y], dtype=torch.float64, device=device)
        truncated.observe(posterior, torch.tensor([i], device=device), reward, expected["level"])
    check_golden(posterior, expected, tol)


@pytest.mark.parametrize("size", [1e300, 1e308])
@pytest.mark.parametrize("rule", RULES)
@ROOTS
def test_huge_rewards_do_no_more_than_a_truncated_one(reads, root, rule, size, device):
    # where u is 1e-12 and less even the large one is kept, and so are its 0.5 at most, but such u weigh nothing
    table = to(feature_table("fourier 1d", root), device)
    noise = torch.tensor([0.5], dtype=torch.float64, device=device)
    huge, large = truncated.init(table, noise, root, rule), truncated.init(table, noise, root, rule)
    g = torch.Generator().manual_seed(5)
    for t in range(60):
        arms = torch.randint(0, 5, (1,), generator=g).to(device)
        y = float(torch.randn(1, generator=g))
        for posterior, value in ((huge, size), (large, 1e12)):
            reward = math.copysign(value, y) if t % 4 == 0 else y
            reward = torch.tensor([reward], dtype=torch.float64, device=device)
            truncated.observe(posterior, arms, reward, 0.5)
    assert bool(huge.mean.isfinite().all())
    close(huge.mean, large.mean, 1e-6)


@pytest.mark.parametrize(("most", "said"), [(0.45, False), (0.49, False), (0.51, True), (0.55, True)])
def test_truncated_means_more_than_half_of_the_weight(device, most, said):
    """One arm whose directions hold given shares of its weight; only the largest is beyond the level."""
    rest = 1.0 - most
    shares = torch.tensor([most, 0.4 * rest, 0.35 * rest, 0.25 * rest], dtype=torch.float64, device=device)
    noise_var = torch.ones(1, dtype=torch.float64, device=device)
    # After one reward V = I + phi phi^T, so that u is phi / sqrt(2) where ||phi|| = 1.
    state = truncated.init(whitening.FeatureTable(shares.sqrt().unsqueeze(0)), noise_var)
    u = (shares / 2.0).sqrt()
    level, arm = float(u[0] + u[1]) / 2.0, torch.zeros(1, dtype=torch.long, device=device)
    ok, lost = truncated.observe(state, arm, noise_var, level)
    assert (bool(ok), bool(lost)) == (True, said)
