import math

import pytest
import torch

from bo_robust.confidence import FiniteWidth, gp_ucb_regret_bound
from bo_robust.confidence import information_gain as ig
from tests.bandits.naive import exact

NOISE_VAR_C1_8 = 1.0 / (math.e - 1.0)  # log(1 + 1/noise_var) = 1, so C1 = 8


def tensor(values, device):
    return torch.tensor(values, dtype=torch.float64, device=device)


@pytest.mark.parametrize(
    ("widths", "gamma", "expected"),
    [
        # C1 = 8, w = 2: sqrt(8 * 1 * 4 * 2) = 8, sqrt(8 * 2 * 4 * 4) = 16, sqrt(8 * 3 * 4 * 6) = 24
        ([2.0, 2.0, 2.0], [2.0, 4.0, 6.0], [8.0, 16.0, 24.0]),
        # the largest width so far counts: w = 2, 1 has 2 in its second round; w = 2, 3 has 3, sqrt(8 * 2 * 9 * 4) = 24
        ([2.0, 1.0], [2.0, 4.0], [8.0, 16.0]),
        ([2.0, 3.0], [2.0, 4.0], [8.0, 24.0]),
    ],
)
def test_by_hand(widths, gamma, expected, device):
    widths, gamma = tensor(widths, device), tensor(gamma, device)
    assert gp_ucb_regret_bound(widths, gamma, NOISE_VAR_C1_8).tolist() == pytest.approx(expected)
    compact = gp_ucb_regret_bound(widths, gamma, NOISE_VAR_C1_8, compact=True)
    assert compact.tolist() == pytest.approx([bound + 2.0 for bound in expected])


def test_batch_equals_singles(device):
    g = torch.Generator().manual_seed(0)
    widths = torch.rand(3, 7, dtype=torch.float64, generator=g).to(device)
    gamma = torch.rand(3, 7, dtype=torch.float64, generator=g).cumsum(-1).to(device)
    got = gp_ucb_regret_bound(widths, gamma, 0.3)
    for i in range(3):
        assert torch.equal(got[i], gp_ucb_regret_bound(widths[i], gamma[i], 0.3))


def test_gp_ucb_stays_below_the_bound():
    """Cumulative regret of dense GP-UCB on GP samples, against the bound with gamma replaced by the realized
    gain (sharpest) and by the greedy bound on gamma_T (a priori)."""
    n, T, noise_var, delta = 15, 25, 0.1, 0.1
    g = torch.Generator().manual_seed(1)
    X = torch.linspace(0, 1, n, dtype=torch.float64)[:, None]
    K = torch.exp(-0.5 * torch.cdist(X, X).square() / 0.2**2)
    root = torch.linalg.cholesky(K + 1e-10 * torch.eye(n, dtype=torch.float64))
    width = FiniteWidth(n, delta)
    widths = torch.tensor([width(t) for t in range(1, T + 1)], dtype=torch.float64)
    greedy = gp_ucb_regret_bound(widths, ig.greedy_bound(K, noise_var, T), noise_var)
    for _ in range(10):
        f = root @ torch.randn(n, dtype=torch.float64, generator=g)
        chosen, y, regret, variances = [], [], [], []
        for t in range(1, T + 1):
            observed = torch.tensor(chosen, dtype=torch.long), torch.tensor(y, dtype=torch.float64)
            mean, variance = exact(K, noise_var, *observed)
            choice = int((mean + width(t) * variance.clamp(min=0).sqrt()).argmax())
            chosen.append(choice)
            variances.append(float(variance[choice]))
            regret.append(float(f.max() - f[choice]))
            y.append(float(f[choice] + noise_var**0.5 * torch.randn((), dtype=torch.float64, generator=g)))
        cumulative = torch.tensor(regret, dtype=torch.float64).cumsum(0)
        realized = ig.increments(torch.tensor(variances, dtype=torch.float64), noise_var).cumsum(0)
        sharpest = gp_ucb_regret_bound(widths, realized, noise_var)
        assert (cumulative <= sharpest).all()
        assert (sharpest <= greedy).all()
