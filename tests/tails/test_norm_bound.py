"""||mu_t||_k, what noise does to it, and guess and double."""

import dataclasses
import math

import pytest
import torch

from bo_robust.confidence import SelfNormalisedWidth, TGPWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.tails import guess_and_double, norm_lower_bound
from bo_robust.truncation import TGPTruncation, truncate

T, NOISE_VAR = 60, 0.1


def problem(device):
    """K of T points in [0, 1], f at them and ||f||_k, f a combination of three kernel functions."""
    x = torch.linspace(0, 1, T, dtype=torch.float64, device=device).unsqueeze(-1)
    centres = x[[5, 20, 50]]
    weights = torch.tensor([1.0, -1.5, 2.0], dtype=torch.float64, device=device)
    k = SquaredExponential(0.2)
    return k(x, x), k(x, centres) @ weights, float((weights @ k(centres, centres) @ weights).sqrt())


def draws(n, device):
    return torch.randn(n, T, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)


def test_by_hand(device):
    K = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64, device=device)
    y = torch.tensor([1.0, 1.0], dtype=torch.float64, device=device)
    # (1, 1) is an eigenvector of eigenvalue 1.5: a = y / 2, a^T K a = 1.5 * 2 / 4
    assert float(norm_lower_bound(K, y, 0.5)) == pytest.approx(math.sqrt(0.75))
    assert float(norm_lower_bound(K, y, 0.5, slack=0.5)) == pytest.approx(math.sqrt(0.75) - 0.5)
    assert float(norm_lower_bound(K, y, 0.5, slack=5.0)) == 0.0


def test_trials_and_dtype(device):
    K, f, _ = problem(device)
    y = (f + draws(3, device)).float()
    batch = norm_lower_bound(K.float().expand(3, T, T), y, 0.5)
    assert batch.shape == (3,)
    assert batch.dtype == torch.float32
    assert batch.device.type == device.type
    torch.testing.assert_close(batch, torch.stack([norm_lower_bound(K.float(), row, 0.5) for row in y]))


def test_without_noise_it_is_a_lower_bound(device):
    K, f, norm = problem(device)
    bounds = [float(norm_lower_bound(K, f, noise_var)) for noise_var in (1.0, 0.1, 0.01, 1e-6)]
    assert bounds == sorted(bounds)
    assert 0.99 * norm < bounds[-1] <= norm


def test_noise_inflates_it_as_documented(device):
    K, f, norm = problem(device)
    R = 1.0
    rewards = f + R * draws(2000, device)
    squares = norm_lower_bound(K.expand(2000, T, T), rewards, NOISE_VAR) ** 2
    e = torch.linalg.eigvalsh(K).clamp_min(0.0)
    inflation = float((R**2 * e / (e + NOISE_VAR) ** 2).sum())
    expected = float(norm_lower_bound(K, f, NOISE_VAR)) ** 2 + inflation
    assert float(squares.mean()) == pytest.approx(expected, rel=0.03)
    assert inflation <= R**2 * T / (4 * NOISE_VAR)
    assert float((squares.sqrt() > norm).double().mean()) > 0.9  # so it is no lower bound under noise


def test_with_slack_it_is_a_lower_bound_under_noise(device):
    K, f, norm = problem(device)
    R, delta = 0.3, 0.1
    gain = 0.5 * float(torch.linalg.slogdet(torch.eye(T, device=device) + K / NOISE_VAR)[1])
    width = SelfNormalisedWidth(1.0, R / NOISE_VAR**0.5, delta)
    slack = float(width(T + 1, gain)) - width.norm_bound
    bounds = norm_lower_bound(K.expand(2000, T, T), f + R * draws(2000, device), NOISE_VAR, slack)
    assert float((bounds <= norm).double().mean()) >= 1.0 - delta


def test_tgp_slack_covers_truncated_heavy_noise(device):
    K, f, norm = problem(device)
    y = f + draws(1000, device) / draws(2000, device)[1000:].abs().sqrt()  # infinite variance, tail index 2
    v, alpha, delta = 60.0, 0.8, 0.1
    assert float((y.abs() ** 1.8).mean(0).max()) < v
    seen = truncate(y, TGPTruncation(v, alpha)(torch.arange(1, T + 1, device=device)))
    gain = 0.5 * float(torch.linalg.slogdet(torch.eye(T, device=device) + K / NOISE_VAR)[1])
    slack = float(TGPWidth(1.0, v, alpha, NOISE_VAR, delta)(T + 1, gain)) - 1.0
    bounds = norm_lower_bound(K.expand(1000, T, T), seen, NOISE_VAR, slack)
    assert float((bounds <= norm).double().mean()) >= 1.0 - delta


def test_a_loop_doubles_a_guess_that_is_too_small(device):
    K, f, norm = problem(device)
    f, norm, R = 20.0 * f, 20.0 * norm, 0.1
    y = f + R * draws(1, device)[0]
    width = SelfNormalisedWidth(0.5, R / NOISE_VAR**0.5, 0.1)
    guesses = []
    for t in range(1, T + 1):
        seen = K[: t - 1, : t - 1]
        gain = 0.5 * float(torch.linalg.slogdet(torch.eye(t - 1, device=device) + seen / NOISE_VAR)[1])
        w = float(width(t, gain))
        lower = float(norm_lower_bound(seen, y[: t - 1], NOISE_VAR, slack=w - width.norm_bound))
        width = dataclasses.replace(width, norm_bound=guess_and_double(width.norm_bound, lower))
        guesses.append(width.norm_bound)
    assert guesses[0] == 0.5
    assert guesses == sorted(guesses)
    assert 0.5 * norm < guesses[-1] < 2.0 * norm


@pytest.mark.parametrize(
    ("B", "lower", "expected"),
    [(1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.01, 2.0), (0.5, 3.9, 4.0), (3.0, 100.0, 192.0), (2.0, -5.0, 2.0)],
)
def test_guess_and_double(B, lower, expected):
    assert guess_and_double(B, lower) == expected


def test_refusals(device):
    K, y = torch.eye(3, dtype=torch.float64, device=device), torch.ones(3, dtype=torch.float64, device=device)
    with pytest.raises(ValueError, match=r"got \(3, 3\) and \(2,\)"):
        norm_lower_bound(K, y[:2], 1.0)
    with pytest.raises(ValueError, match="K must be t x t"):
        norm_lower_bound(K[:2], y[:2], 1.0)
    with pytest.raises(ValueError, match="noise_var"):
        norm_lower_bound(K, y, 0.0)
    with pytest.raises(ValueError, match="y has 3 NaN"):
        norm_lower_bound(K, y * math.nan, 1.0)
    with pytest.raises(ValueError, match="not positive definite"):
        norm_lower_bound(-2.0 * K, y, 1.0)
    with pytest.raises(ValueError, match="B must be"):
        guess_and_double(0.0, 1.0)
    for lower in (math.nan, math.inf):
        with pytest.raises(ValueError, match="lower must be"):
            guess_and_double(1.0, lower)
