import math

import mpmath
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bo_robust.features.nystrom import dictionary_root, nystrom_weights, root_of_one, symmetric_axes
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits.naive import inverse_root

SE = SquaredExponential(0.2)


def points(device, *shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)


def tensor(values, device):
    return torch.tensor(values, dtype=torch.float64, device=device)


def grid(device, low, high, n):
    return torch.linspace(low, high, n, dtype=torch.float64, device=device).unsqueeze(-1)


def gram(F):
    return F @ F.mT


def ragged(device, sizes, M, seed=0, d=2, covariance=SE):
    """Dictionaries of given sizes among M arms each: K with NaN as padding, mask, list of the true matrices."""
    X = points(device, len(sizes), M, d, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    mask = torch.zeros(len(sizes), M, dtype=torch.bool)
    for row, size in zip(mask, sizes, strict=True):
        row[torch.randperm(M, generator=generator)[:size]] = True
    mask = mask.to(device)
    K = torch.stack([covariance(x, x) for x in X])
    broken = torch.where(mask.unsqueeze(-1) & mask.unsqueeze(-2), K, torch.nan)
    return K, broken, mask


@pytest.mark.parametrize("covariance", [SE, SquaredExponential(0.01, 3.0), Matern(0.5, 0.3), Matern(2.5, 0.2)])
@pytest.mark.parametrize("seed", range(3))
def test_all_points_reproduce_the_matrix(covariance, seed, device):
    X = torch.cat([grid(device, 0.01, 1.0, 100), points(device, 20, 1, seed=seed)])
    K = covariance(X, X)
    F = dictionary_root(K).features(K)
    assert (gram(F) - K).abs().max() < 1e-10 * K.max()


def test_numerical_rank_of_even_points(device):
    """The 21st pivot is above the rounding error everywhere, the 22nd on some processors."""
    X = grid(device, 0.01, 1.0, 100)
    root = dictionary_root(SE(X, X))
    assert root.rank.item() == root.inverse.shape[-1]
    assert root.rank.item() in (21, 22)
    assert dictionary_root(SE(X, X), tol=4e-11).rank.item() == 17
    twice = dictionary_root(SE(X.repeat_interleave(2, 0), X.repeat_interleave(2, 0)))
    assert twice.rank.item() in (21, 22)


def test_duplicates_count_once(device):
    X = points(device, 5, 2)
    repeated = X[[0, 1, 0, 2, 3, 3, 4, 0]]
    root, once = (dictionary_root(SE(x, x)) for x in (repeated, X))
    assert root.rank.item() == 5
    test = points(device, 30, 2, seed=1)
    got, want = (gram(r.features(SE(test, x))) for r, x in ((root, repeated), (once, X)))
    torch.testing.assert_close(got, want, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("gap", "rank"), [(1e-2, 4), (1e-4, 4), (1e-6, 4), (1e-9, 2)])
def test_near_duplicates(gap, rank, device):
    """Points a distance gap * lengthscale apart leave each other gap^2 of their variance: kept above 4 eps."""
    x = tensor([0.2, 0.2 + 0.2 * gap, 0.6, 0.6 + 0.2 * gap], device).unsqueeze(-1)
    K = SE(x, x)
    root = dictionary_root(K)
    assert root.rank.item() == rank
    assert (gram(root.features(K)) - K).abs().max() < 1e-10
    test = grid(device, -0.3, 1.3, 201)
    F = root.features(SE(test, x))
    overestimate = 1e-10 if rank == 2 else 1e-10 + 1e-15 / gap**2  # eps / pivot, see dictionary_root
    assert torch.linalg.eigvalsh(SE(test, test) - gram(F)).min() > -100 * overestimate  # of 201 points
    assert (1.0 - F.square().sum(-1)).min() > -overestimate


def test_points_of_zero_variance_are_dropped(device):
    """k(x, x') = x x' vanishes at 0; a dictionary of such points alone has features that are zero."""
    X = tensor([[[0.0], [2.0]], [[0.0], [0.0]]], device)
    root = dictionary_root(X @ X.mT)
    assert root.rank.tolist() == [1, 0]
    want = tensor([[[0.0], [2.0]], [[0.0], [0.0]]], device)
    torch.testing.assert_close(root.features(X @ X.mT), want)


def test_no_information_beside_padding(device):
    """The only point of a dictionary has zero variance and the padding is NaN: its features are zero, not NaN."""
    K = tensor([[math.nan, math.nan], [math.nan, 0.0]], device)
    root = dictionary_root(K, torch.tensor([False, True], device=device))
    assert root.rank.item() == 0
    assert root.features(K[1:]).tolist() == [[0.0]]


@pytest.mark.parametrize("lengthscale", [0.02, 0.2, 2.0])
def test_batch_of_different_sizes_equals_single_members(lengthscale, device):
    """Padding is NaN; at 0.02 all members factorize as they stand, at 2 most need pivots."""
    sizes, M = [1, 2, 7, 24, 12, 3], 24
    K, broken, mask = ragged(device, sizes, M, covariance=SquaredExponential(lengthscale))
    root = dictionary_root(broken, mask)
    K_XD = torch.where(mask.unsqueeze(-2), K, torch.nan)  # features of all arms of the member
    F = root.features(K_XD)
    assert F.shape == (6, M, int(root.rank.max()))
    if lengthscale == 0.02:
        assert root.rank.tolist() == sizes
    for i, chosen in enumerate(mask):
        single = dictionary_root(K[i][chosen][:, chosen])
        assert single.rank == root.rank[i]
        r = int(single.rank)
        assert bool((F[i, :, r:] == 0).all())
        assert bool(chosen[root.order[i]].all())
        want = single.features(K[i][:, chosen])
        torch.testing.assert_close(gram(F[i]), gram(want), rtol=0.0, atol=1e-9)
        torch.testing.assert_close(gram(F[i][chosen]), K[i][chosen][:, chosen], rtol=0.0, atol=1e-10)
        order, inverse = map(torch.from_numpy, root_of_one(K[i][chosen][:, chosen].cpu().numpy()))
        one = K[i].cpu()[:, chosen.cpu()][:, order] @ inverse.mT
        torch.testing.assert_close(gram(one), gram(want).cpu(), rtol=0.0, atol=1e-9)


def test_leading_batch_axes_and_shared_points(device):
    X = points(device, 2, 3, 5, 2)
    K = torch.exp(-torch.cdist(X, X).square())
    root = dictionary_root(K)
    assert root.order.shape == (2, 3, 5)
    assert root.rank.shape == (2, 3)
    F = root.features(K)
    torch.testing.assert_close(gram(F), K, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(root.features(K[0, 0])[0, 0], F[0, 0])  # n x M broadcasts
    assert root.features(K[0, 0]).shape == F.shape
    single = dictionary_root(K[0, 0])
    torch.testing.assert_close(single.features(K[0]), torch.stack([single.features(k) for k in K[0]]))


@pytest.mark.parametrize("lengthscale", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("M", [3, 30, 100])
def test_never_overestimates(M, lengthscale, device):
    """phi phi^T <= K in the PSD sense, on points inside and outside the dictionary's range."""
    covariance = SquaredExponential(lengthscale)
    D = points(device, M, 1, seed=M)
    X = torch.cat([D, grid(device, -0.3, 1.3, 101)])
    F = dictionary_root(covariance(D, D)).features(covariance(X, D))
    assert torch.linalg.eigvalsh(covariance(X, X) - gram(F)).min() > -1e-10
    assert (1.0 - F.square().sum(-1)).min() > -1e-10


def test_float32(device):
    X = grid(device, 0.01, 1.0, 100).float()
    test = grid(device, -0.3, 1.3, 101).float()
    root = dictionary_root(SE(X, X))
    F = root.features(SE(X, X))
    assert F.dtype == torch.float32
    assert (gram(F) - SE(X, X)).abs().max() < 5e-5
    assert (1.0 - root.features(SE(test, X)).square().sum(-1)).min() > -1e-4
    Q = symmetric_axes(F)
    assert Q.dtype == torch.float32
    torch.testing.assert_close(Q.T @ Q, torch.eye(Q.shape[-1], device=device), rtol=0.0, atol=1e-5)


@settings(max_examples=40, deadline=None)
@example(s=3, M=4, d=2, seed=2, log_lengthscale=-0.625)  # a point twice, kept with a pivot of rounding size
@given(
    s=st.integers(1, 4),
    M=st.integers(1, 9),
    d=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    log_lengthscale=st.floats(-2.0, 1.0),
)
def test_any_shape(s, M, d, seed, log_lengthscale, device):
    """Grids with ties, so that duplicates occur: K on the dictionary, PSD, symmetric axes orthonormal."""
    X = (points(device, s, M, d, seed=seed) * 4).round() / 4
    mask = points(device, s, M, seed=seed + 1) < 0.6
    mask[:, 0] = True
    K = torch.stack([SquaredExponential(10.0**log_lengthscale)(x, x) for x in X])
    root = dictionary_root(torch.where(mask.unsqueeze(-1) & mask.unsqueeze(-2), K, torch.inf), mask)
    F = root.features(K)
    both = mask.unsqueeze(-1) & mask.unsqueeze(-2)
    assert (gram(F) - K)[both].abs().max() < 1e-10
    assert torch.linalg.eigvalsh(K - gram(F)).min() > -1e-4  # eps / tol at worst, see dictionary_root
    Q = symmetric_axes(F, mask)
    kept = torch.diag_embed((torch.arange(F.shape[-1], device=device) < root.rank.unsqueeze(-1)).double())
    torch.testing.assert_close(Q.mT @ Q, kept, rtol=0.0, atol=1e-12)


def test_symmetric_axes_against_dense_root(device):
    sizes, M = [2, 5, 8, 1], 8
    K, broken, mask = ragged(device, sizes, M, covariance=Matern(0.5, 0.5))
    root = dictionary_root(broken, mask)
    F = root.features(K)
    Q = symmetric_axes(torch.where(mask.unsqueeze(-1), F, torch.nan), mask)
    phi = F @ Q.mT
    for i, chosen in enumerate(mask):
        want = K[i][:, chosen] @ inverse_root(K[i][chosen][:, chosen], "symmetric")
        torch.testing.assert_close(phi[i][:, chosen], want, rtol=0.0, atol=1e-12)
        assert bool((Q[i][~chosen] == 0).all())
        assert bool((Q[i][:, int(root.rank[i]) :] == 0).all())


def test_symmetric_axes_of_two_near_pairs(device):
    """F^T F alone leaves Q^T Q = I wrong by 5e-7 here: its smallest eigenvalues are 1e-10 and 3e-10 of 2.3."""
    D = tensor([0.2, 0.200004, 0.6, 0.600004], device).unsqueeze(-1)
    root = dictionary_root(SE(D, D))
    assert root.rank.item() == 4
    Q = symmetric_axes(root.features(SE(D, D)))
    torch.testing.assert_close(Q.T @ Q, torch.eye(4, dtype=Q.dtype, device=device), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_symmetric_axes_ill_conditioned(spread, device):
    """Near-duplicates, and variances up to four decades apart: inner products survive, K^(1/2) is symmetric."""
    D = points(device, 30, 1)
    D = torch.cat([D, D + 2e-6 * points(device, 30, 1, seed=1)])
    sd = 10 ** (-spread * points(device, 60, 1, seed=2))
    K = SE(D, D) * sd * sd.T
    F = dictionary_root(K).features(K)
    Q = symmetric_axes(F)
    torch.testing.assert_close(Q.T @ Q, torch.eye(Q.shape[1], dtype=Q.dtype, device=device), rtol=0.0, atol=1e-12)
    phi = F @ Q.T  # K_D^(1/2)
    torch.testing.assert_close(phi, phi.T, rtol=0.0, atol=1e-9)
    torch.testing.assert_close(phi @ phi, K, rtol=0.0, atol=1e-10)


def features_at(X, covariance, dictionary):
    return covariance(X, dictionary.points) @ dictionary.weights.mT


def dtc_variance_in_60_digits(X, D, lengthscale, noise_var):
    """k - k_D^T K_D^-1 k_D + lambda k_D^T (lambda K_D + K_DX K_XD)^-1 k_D with one reward at every x."""
    with mpmath.workdps(60):
        x, c = [mpmath.mpf(v) for v in X.flatten().tolist()], 2 * mpmath.mpf(lengthscale) ** 2
        K = mpmath.matrix([[mpmath.exp(-((a - b) ** 2) / c) for b in x] for a in x])
        K_D, K_XD = K[:D, :D], K[:, :D]
        prior, posterior = K_D**-1, (noise_var * K_D + K_XD.T * K_XD) ** -1
        rows = [K_XD[i, :] for i in range(len(x))]
        exact = [float(1 - (k * prior * k.T)[0] + noise_var * (k * posterior * k.T)[0]) for k in rows]
    return torch.tensor(exact, dtype=X.dtype, device=X.device)


def variance_of_regression(X, D, lengthscale, noise_var, tol=None):
    """The same by Bayesian linear regression in features."""
    covariance = SquaredExponential(lengthscale)
    phi = features_at(X, covariance, nystrom_weights(covariance, X[:D], tol=tol))
    V = gram(phi.mT) + noise_var * torch.eye(phi.shape[1]).to(phi)
    missed = (1.0 - phi.square().sum(-1)).clamp_min(0.0)
    return missed + noise_var * (phi * torch.linalg.solve(V, phi.mT).mT).sum(-1)


@pytest.mark.parametrize(("lengthscale", "size"), [(0.24, 16), (0.24, 24), (0.6, 12)])
def test_directions_that_matter_elsewhere_are_kept(lengthscale, size, device):
    """The left of 40 points with rewards is the dictionary; without pivots below 4e-11 it explains less elsewhere."""
    X = grid(device, 0.025, 1.0, 40)
    exact = dtc_variance_in_60_digits(X, size, lengthscale, 0.01)
    ours, fewer = (variance_of_regression(X, size, lengthscale, 0.01, tol) / exact for tol in (None, 4e-11))
    assert ours.min() > 0.95
    assert ours.max() < 0.5 * fewer.max()  # of points that tie, rounding chooses one, and the ratio is .3 or .42
    assert ours.log().mean() < 0.7 * fewer.log().mean()


@pytest.mark.parametrize("seed", [41, 61])
def test_the_last_pivots_claim_nothing(seed, device):
    """Pairs of points 3e-9 to 1e-3 apart, little noise: without the jitter the variance is 5 times too small."""
    left, apart, rest = (points(device, n, 1, seed=seed + k) % 1 for n, k in ((6, 0), (6, 1000), (18, 2000)))
    X = torch.cat([left, left + 10 ** (5.5 * apart - 8.5), rest])
    assert (variance_of_regression(X, 12, 0.24, 1e-6) / dtc_variance_in_60_digits(X, 12, 0.24, 1e-6)).min() > 0.7
