"""The constants of docs/pages/residual_truncation.md, step by step, and its intervals under heavy tails."""

import math

import numpy as np
import pytest
import torch

from bo_robust.algorithms import BKB, GPUCB, TGPUCB
from bo_robust.confidence import TGPWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.truncation import TGPTruncation

ALPHAS = (0.2, 0.5, 1.0)
DELTA = 0.1


def norms(K, vectors, lam):
    """N_t(e) of the first 1 .. T entries of every row of ``vectors`` (``s x T``), and L_t."""
    T = len(K)
    N, L = np.empty(vectors.shape), np.empty(T)
    for t in range(1, T + 1):
        values, Q = np.linalg.eigh(K[:t, :t])
        values = values.clip(0.0)
        N[:, t - 1] = np.sqrt(((vectors[:, :t] @ Q) ** 2 * (values / (values + lam))).sum(1))
        L[t - 1] = np.log1p(values / lam).sum()
    return N, L


def points(T, lengthscale, seed=0):
    x = np.random.default_rng(seed).random(T)
    return np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)


# The constant v ---------------------------------------------------------------------------------------------


def moment_bounds(u, C, alpha):
    """The page's two bounds of E|c + eta|^(1 + alpha) for |c| <= C and a centred eta of that moment ``u``."""
    return 2**alpha * (u + C ** (1 + alpha)), C ** (1 + alpha) + 2 ** (1 - alpha) * u


@pytest.mark.parametrize("alpha", ALPHAS)
def test_moments_of_residuals(alpha):
    """Over centred noise of two values; the second bound is an equality at alpha = 1; one of them is nearly met."""
    low = np.geomspace(1e-3, 1e3, 61)[:, None, None]  # -low with probability 1 - p, low (1 - p) / p with p
    p = np.geomspace(1e-4, 0.9999, 61)[:, None]
    c = np.array([-2.0, -0.3, 0.0, 1e-2, 0.7, 3.0])
    high = low * (1 - p) / p
    u = p * high ** (1 + alpha) + (1 - p) * low ** (1 + alpha)
    moment = p * np.abs(c + high) ** (1 + alpha) + (1 - p) * np.abs(c - low) ** (1 + alpha)
    convex, smooth = (moment / bound for bound in moment_bounds(u, np.abs(c), alpha))
    assert convex.max() <= 1 + 1e-12
    assert smooth.max() <= 1 + 1e-12
    assert max(convex.max(), smooth.max()) > 0.95
    if alpha == 1.0:
        np.testing.assert_allclose(smooth, 1.0, rtol=1e-9)


# The steps of the proof -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_bias_of_one_reward(alpha):
    """Step 2: at most v / b^alpha for Pareto residuals, by their integral; all of it for a spike just beyond b."""
    index, v = 1.3 + alpha, 2.0
    scale = (v * (index - 1 - alpha) / index) ** (1 / (1 + alpha))
    for t in (1, 10, 1000):
        b = TGPTruncation(v, alpha)(t)
        reach = max(b, scale)
        pareto = index / (index - 1) * scale**index * reach ** (1 - index)  # E r 1{r > b}
        assert 0 < pareto <= v / b**alpha
        spike = b * (1 + 1e-9)
        assert v / spike ** (1 + alpha) * spike == pytest.approx(v / b**alpha, rel=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_sum_of_biases(alpha):
    """Step 6, at its worst: every bias v / b^alpha, at one point again and again."""
    v, lam, T = 3.0, 0.5, 2000
    b = TGPTruncation(v, alpha)(torch.arange(1, T + 1)).numpy()
    c = v / b**alpha
    total = np.sqrt((c**2).cumsum())
    assert (total <= math.sqrt(1 + alpha) * b).all()
    assert total[-1] > 0.97 * math.sqrt(1 + alpha) * b[-1]  # the constant is the limit
    for K in (np.ones((60, 60)), np.eye(60), points(60, 0.2)):
        N, L = norms(K, c[None, :60], lam)
        for delta in (0.05, 0.85):
            assert (N[0] <= b[:60] * np.sqrt(L + 2 * math.log(1 / delta))).all()
    assert alpha - math.log(1 + alpha) < 2 * math.log(1 / 0.85)


def test_the_self_normalised_inequality():
    """Step 4 with signs as noise, over 4,000 runs: it fails in at most delta of them, and half of it fails in more."""
    T, lam = 40, 0.05
    Z = np.random.default_rng(1).choice([-1.0, 1.0], (4000, T))
    N, L = norms(points(T, 0.3), Z, lam)
    rho = np.sqrt(L + 2 * math.log(1 / DELTA))
    assert (rho < N).any(1).mean() <= DELTA
    assert (0.5 * rho < N).any(1).mean() > 2 * DELTA


@pytest.mark.parametrize("alpha", ALPHAS)
def test_levels_that_grow(alpha):
    """Step 5: where the inequality of step 4 held so far, N_t(xi) <= 2 b_t rho_t; in no run of 2,000 otherwise."""
    T, lam = 40, 0.05
    Z = np.random.default_rng(2).choice([-1.0, 1.0], (2000, T))
    b = TGPTruncation(1.0, alpha)(torch.arange(1, T + 1)).numpy()
    K = points(T, 0.3)
    (N, L), (weighted, _) = norms(K, Z, lam), norms(K, b * Z, lam)
    rho = np.maximum.accumulate(N / np.sqrt(L), 1) * np.sqrt(L)  # the least that holds in every round so far
    assert (weighted <= 2 * b * rho * (1 + 1e-9)).all()


# The intervals ----------------------------------------------------------------------------------------------

N_ARMS, TRIALS, T = 20, 400, 100
B, U = 1.0, 1.0  # norm of f, moment of the noise
LAMBDA = 1.0


def pareto(g, alpha, level):
    """Symmetric Pareto noise of index 1.1 + alpha, scaled to the moment U: infinite variance for alpha < .9."""
    index = 1.1 + alpha
    sizes = torch.rand(TRIALS, generator=g, dtype=torch.float64) ** (-1 / index)
    signs = 2 * torch.randint(0, 2, (TRIALS,), generator=g) - 1
    return signs * sizes * (U * 0.1 / index) ** (1 / (1 + alpha))


def spikes(g, alpha, level):
    """One-sided spikes just large enough to be truncated wherever the reference is: all bias of one sign."""
    size = level + 3 * B
    p = U / (size ** (1 + alpha) + 2 * U)
    hit = torch.rand(TRIALS, generator=g, dtype=torch.float64) < p
    return torch.where(hit, size, -size * p / (1 - p)).double()


def used(algorithm, width, level, alpha, noise):
    """Largest (|mean - f| / sigma - B) / (w - B) of every trial, ``s``, over arms and rounds, and rewards truncated.

    Above 1 the noise and the bias of truncation took more than their part of the interval.
    """
    g = torch.Generator().manual_seed(3)
    X = torch.linspace(0, 1, N_ARMS, dtype=torch.float64).unsqueeze(1)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), X)
    a = torch.randn(TRIALS, N_ARMS, generator=g, dtype=torch.float64)
    f = B * (a @ kernel.matrix) / ((a @ kernel.matrix) * a).sum(1, keepdim=True).sqrt()
    state = algorithm.init(kernel, LAMBDA, TRIALS)
    worst, lost = torch.zeros(TRIALS, dtype=torch.float64), 0
    for t in range(1, T + 1):
        uniform = torch.rand(TRIALS, generator=g, dtype=torch.float64)
        arms = algorithm.select(state, uniform).arms
        y = f.gather(1, arms.unsqueeze(1)).squeeze(1) + noise(g, alpha, level(t))
        info, posterior = algorithm.observe(state, arms, y, uniform), state.posterior
        lost += 0 if info.truncated is None else int(info.truncated.sum())
        w = width(t + 1, posterior.information_gain).unsqueeze(1)
        bias = width.scale * width.norm_bound
        worst = torch.maximum(
            worst, (((posterior.mean - f).abs() / posterior.variance.sqrt() - bias) / (w - bias)).amax(1)
        )
    return worst, lost


def proved(alpha, bound, v_times=1.0, norm_bound=B, scale=1.0):
    """Width and level for a reference within [-bound, bound]."""
    v = v_times * min(moment_bounds(U, B + bound, alpha))
    return TGPWidth(norm_bound, v, alpha, LAMBDA, DELTA, scale=scale), TGPTruncation(v, alpha)


@pytest.mark.parametrize("rule", ["residual", "clip"])
@pytest.mark.parametrize("noise", [pareto, spikes])
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_intervals_cover_f(alpha, noise, rule):
    """With the reference clipped to [-B, B], and by clipping around 0."""
    bound = B if rule == "residual" else None
    width, level = proved(alpha, bound or 0.0)
    worst, lost = used(TGPUCB(width, level, rule, bound), width, level, alpha, noise)
    assert lost > 0
    assert (worst > 1).double().mean() <= DELTA
    assert worst.max() < 0.2


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_intervals_fail_outside_the_theorem(alpha):
    """With a v far too small; and with the reward as its own reference, which truncates nothing for any v > 0."""
    width, level = proved(alpha, B, v_times=1e-3)
    assert (used(TGPUCB(width, level, "residual", B), width, level, alpha, pareto)[0] > 1).double().mean() > 2 * DELTA
    width, level = proved(alpha, B, v_times=1e-6)
    assert (used(GPUCB(width), width, level, alpha, pareto)[0] > 1).double().mean() > 2 * DELTA


# BKB --------------------------------------------------------------------------------------------------------


def test_no_dictionary_adds_to_the_noise():
    """e' Q (Q + lambda I)^-1 e <= e' K (K + lambda I)^-1 e for the Nystrom matrix Q of any dictionary."""
    rng, K, lam = np.random.default_rng(4), points(30, 0.2), 0.1
    whole = K @ np.linalg.inv(K + lam * np.eye(30))
    for size in (1, 3, 10, 29):
        D = rng.permutation(30)[:size]
        Q = K[:, D] @ np.linalg.pinv(K[np.ix_(D, D)], rcond=1e-12, hermitian=True) @ K[D]
        gap = whole - Q @ np.linalg.inv(Q + lam * np.eye(30))
        assert np.linalg.eigvalsh((gap + gap.T) / 2)[0] > -1e-6


@pytest.mark.parametrize("oversampling", [1.0, 3.0])
def test_the_parts_of_bkbs_error(oversampling):
    """Noise and bias of truncation move the mean by sigma N_t(e) / sqrt(lambda) at most; the rest is the dictionary."""
    trials, rounds, lam, g = 50, 40, 0.1, torch.Generator().manual_seed(5)
    X = torch.linspace(0, 1, N_ARMS, dtype=torch.float64).unsqueeze(1)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.1), X)
    K = kernel.matrix.numpy()
    f = torch.from_numpy(K[7] - 0.5 * K[15])
    norm = math.sqrt(K[7, 7] - K[7, 15] + 0.25 * K[15, 15])
    width, level = TGPWidth(B, 1.0, 0.5, lam, DELTA), TGPTruncation(1.0, 0.5)
    noisy = BKB(width, oversampling, truncation=level, rule="residual", reference_bound=B)
    states = noisy.init(kernel, lam, trials), noisy.init(kernel, lam, trials)  # of truncated rewards, of f itself
    errors, arms = [], torch.randint(0, N_ARMS, (rounds,), generator=g)
    for arm in arms:
        uniform, here = torch.rand(trials, generator=g, dtype=torch.float64), arm.expand(trials)
        sizes = torch.rand(trials, generator=g, dtype=torch.float64) ** (-1 / 1.6)
        y = f[here] + sizes * (2 * torch.randint(0, 2, (trials,), generator=g) - 1)
        errors.append(noisy.transform_rewards(states[0], here, y) - f[here])
        noisy.observe(states[0], here, y, uniform)
        BKB(width, oversampling).observe(states[1], here, f[here], uniform)
    N = norms(K[np.ix_(arms, arms)], torch.stack(errors, 1).numpy(), lam)[0][:, -1:]
    posterior, clean = (state.posterior for state in states)
    assert torch.equal(posterior.dictionary, clean.dictionary)
    assert len(posterior.dictionary.unique(dim=0)) > 1
    sigma = posterior.variance.sqrt().numpy()
    share = (posterior.mean - clean.mean).abs().numpy() / (sigma * N / math.sqrt(lam))
    assert 0.5 < share.max() <= 1 + 1e-6
    gaps = []
    for i in range(trials):
        D = posterior.dictionary[i].numpy()
        rest = K - K[:, D] @ np.linalg.pinv(K[np.ix_(D, D)], rcond=1e-12, hermitian=True) @ K[D]
        gaps.append(np.linalg.eigvalsh(rest[np.ix_(arms, arms)])[-1].clip(0.0))  # ||K_t - Q_t||
        error = (clean.mean[i] - f).abs().numpy()
        assert (error <= norm * (1 + math.sqrt(gaps[-1] / lam)) * sigma[i] + 1e-6).all()
    assert max(gaps) > 0.1 * lam
