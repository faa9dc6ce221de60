import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from benchmarks.problems.rewards import (
    Gaussian,
    OnePointSpikes,
    ParetoRewards,
    RareSpikes,
    StudentT,
    SymmetricPareto,
    TableRewards,
    reward_fields,
)
from benchmarks.problems.synthetic import HardRewards


def test_spikes_only_at_the_trials_own_arm(device):
    model = OnePointSpikes(torch.tensor([2, 0, 1]), magnitude=10.0).to(device, torch.float64)
    f = torch.tensor([[0.1, 0.2, 0.3]] * 3, dtype=torch.float64, device=device)
    draws = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64, device=device)
    rewards = torch.stack([model(f, torch.full((3,), arm, device=device), draws) for arm in range(3)], dim=1)
    expected = [[0.1, 0.2, 10.3], [-9.9, 0.2, 0.3], [0.1, 10.2, 0.3]]
    torch.testing.assert_close(rewards.cpu(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("gap", "v", "alpha"), [(0.1, 1.0, 1.0), (0.1, 1.0, 0.5), (0.25, 3.0, 0.3)])
def test_hard_rewards_have_mean_f_and_bounded_moment(gap, v, alpha, device):
    """Exactly, from the two values and the probability found by bisecting the uniform variate."""
    model = HardRewards(gap, v, alpha)
    value = (v / (2 * gap)) ** (1 / alpha)
    for mean in (2 * gap, 0.7 * gap, -gap, 0.0):
        probability = (2 * gap / v) ** (1 / alpha) * abs(mean)
        f = torch.tensor([[mean]], dtype=torch.float64, device=device)
        arm = torch.zeros(1, dtype=torch.long, device=device)
        for u, paid in [(probability * (1 - 1e-9), True), (probability * (1 + 1e-9) + 1e-300, False)]:
            draws = torch.tensor([[u]], dtype=torch.float64, device=device)
            expected = math.copysign(value, mean) if paid and mean != 0 else 0.0
            assert float(model(f, arm, draws)) == pytest.approx(expected, rel=1e-12)
        assert probability * math.copysign(value, mean) == pytest.approx(mean, abs=1e-15)
        assert probability * value ** (1 + alpha) <= v * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_table_rewards_are_the_entries(dtype, device):
    table = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    model = TableRewards(table).to(device, dtype)
    draws = torch.tensor([[0.0], [3.0], [1.0]], dtype=dtype, device=device)
    y = model(torch.zeros(3, 3, device=device), torch.tensor([2, 0, 1], device=device), draws)
    assert y.dtype == dtype
    assert y.tolist() == [2.0, 9.0, 4.0]


CONTINUOUS = [(Gaussian(0.09), stats.norm(scale=0.3)), (ParetoRewards(), stats.pareto(2))]
CONTINUOUS += [(StudentT(df), stats.t(df)) for df in (3.0, 1.7)]
SYMMETRIC = [
    (Gaussian(0.5), stats.norm(scale=math.sqrt(0.5))),
    (StudentT(3.0), stats.t(3)),
    (SymmetricPareto(1.5, 2.0), stats.lomax(1.5, scale=2.0)),
    (SymmetricPareto(1.2), stats.lomax(1.2)),
]


def sample(model, mean, device, rounds=200_000, seed=0):
    """Rewards of one arm of mean ``mean``: every round is a trial of its own."""
    draws = torch.from_numpy(model.draw(np.random.default_rng(seed), rounds)).to(device)
    f = torch.tensor([0.3, mean], dtype=torch.float64, device=device).expand(rounds, 2)
    return model(f, torch.ones(rounds, dtype=torch.long, device=device), draws)


def abs_moment(distribution, p, shift=0.0):
    """E|eta + shift|^p of a symmetric eta; a Lomax is the law of |eta|."""
    lomax = distribution.dist.name == "lomax"

    def integrand(x):  # P(|eta| > q) = exp(-x) resolves the tail
        q = distribution.isf(math.exp(-x)) if lomax else distribution.isf(0.5 * math.exp(-x))
        return 0.5 * (abs(q + shift) ** p + abs(q - shift) ** p) * math.exp(-x)

    return integrate.quad(integrand, 0.0, 300.0, limit=500, points=[1.0, 5.0, 20.0])[0]


@pytest.mark.parametrize(("model", "distribution"), CONTINUOUS)
def test_draws_follow_the_distribution(model, distribution):
    draws = model.draw(np.random.default_rng(1), 20_000)
    assert draws.shape == (20_000, 1)
    assert draws.dtype == np.float64
    assert stats.kstest(draws[:, 0], distribution.cdf).pvalue > 0.01


def test_symmetric_pareto_has_lomax_size_and_fair_sign():
    draws = SymmetricPareto(1.5, 2.0).draw(np.random.default_rng(1), 20_000)[:, 0]
    assert stats.kstest(np.abs(draws), stats.lomax(1.5, scale=2.0).cdf).pvalue > 0.01
    assert stats.binomtest(int((draws > 0).sum()), 20_000).pvalue > 0.01


@pytest.mark.parametrize(
    ("model", "tolerance"),
    [
        (Gaussian(0.25), 0.006),  # 5 standard errors
        (StudentT(3.0), 0.02),
        (RareSpikes(), 0.05),  # sd sqrt(20) / sqrt(200000) = 0.01
        (ParetoRewards(), 0.05),
        (SymmetricPareto(1.5), 0.15),  # fluctuates like rounds^(1/1.5 - 1) = 0.017
    ],
)
def test_mean_of_rewards_is_f(model, tolerance, device):
    assert float(sample(model, 0.8, device).mean()) == pytest.approx(0.8, abs=tolerance)


@pytest.mark.parametrize(("model", "distribution"), SYMMETRIC)
def test_noise_moment_by_quadrature(model, distribution):
    p = 1.0 + model.default_alpha
    assert model.noise_moment(p) == pytest.approx(abs_moment(distribution, p), rel=1e-4)


@pytest.mark.parametrize(("model", "distribution"), SYMMETRIC)
@pytest.mark.parametrize("mean", [0.0, 0.4, -1.0])
def test_moment_bound_holds_for_every_mean(model, distribution, mean):
    """Clarkson's inequality, against quadrature of E|f + eta|^(1+alpha)."""
    alpha = model.default_alpha
    assert abs_moment(distribution, 1.0 + alpha, shift=mean) <= model.moment_bound(alpha, 1.0) * (1 + 1e-4)


def test_moment_bounds_by_hand(device):
    assert StudentT(3.0).moment_bound(1.0, 1.0) == pytest.approx(4.0)  # B^2 + 3, the paper
    assert StudentT(3.0).moment_bound(1.0, 2.0) == pytest.approx(7.0)
    assert Gaussian(0.025).moment_bound(1.0, 2.0) == pytest.approx(4.025)
    assert RareSpikes(100.0, 1 / 500, 0.5).moment_bound(1.0, 1.0) == pytest.approx(21.5)
    assert ParetoRewards().moment_bound(0.9, 1.0) == pytest.approx(5.36, abs=0.005)  # baselines.md
    # Lomax of index 1.5 has E x^p = Gamma(1+p) Gamma(1.5-p) / Gamma(1.5): p = 1 gives 1 / 0.5
    assert SymmetricPareto(1.5, 3.0).noise_moment(1.0) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HardRewards(gap=0.6, v=1.0, alpha=1.0), "smaller gap"),  # 1.2 * 1.2 > 1
        (lambda: HardRewards(gap=0.0, v=1.0, alpha=1.0), "gap must be"),
        (lambda: HardRewards(gap=0.1, v=1.0, alpha=0.0), "alpha must be"),
        (lambda: StudentT(df=1.0), "df must be > 1"),
        (lambda: SymmetricPareto(index=0.9), "index must be > 1"),
        (lambda: Gaussian(noise_var=-1.0), "noise_var must be"),
        (lambda: RareSpikes(probability=0.0), "probability of a spike"),
        (lambda: reward_fields(ParetoRewards(), torch.zeros(1, 2) - 1.0, 1.0), "f >= 0"),
        (lambda: SymmetricPareto(1.5).moment_bound(0.6, 1.0), r"no finite moment of order 1 \+ alpha = 1\.6"),
        (lambda: StudentT(2.0).moment_bound(1.0, 1.0), "no finite moment"),
        (lambda: ParetoRewards().moment_bound(1.0, 1.0), "alpha < 1"),
        (lambda: Gaussian(1.0).moment_bound(1.5, 1.0), "alpha must be in"),
    ],
)
def test_refusals_say_what_to_change(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reward_fields():
    f = torch.zeros(1, 2)
    default = reward_fields(Gaussian(0.04), f, 2.0)
    assert (default["rewards"], default["alpha"], default["noise_scale"]) == (Gaussian(0.04), 1.0, pytest.approx(0.2))
    assert default["moment_bound"] == pytest.approx(4.04)
    given = reward_fields(StudentT(3.0), f, 1.0, 0.5)
    assert (given["rewards"], given["alpha"], given["noise_scale"]) == (StudentT(3.0), 0.5, None)
    assert given["moment_bound"] == StudentT(3.0).moment_bound(0.5, 1.0)
