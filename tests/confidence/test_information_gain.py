import math
from itertools import combinations_with_replacement, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.confidence import information_gain as ig
from tests.bandits.naive import exact

SHARE = 1.0 - math.exp(-1.0)


def kernel_matrix(n, seed, device, rank=None):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(n, rank or n, generator=g, dtype=torch.float64)
    K = A @ A.mT
    return (K / K.diagonal().max()).to(device)


def se_matrix(X, lengthscale):
    return torch.exp(-0.5 * torch.cdist(X, X).square() / lengthscale**2)


def dense_gain(K, chosen, noise_var):
    """1/2 logdet by slogdet, with no code of the module."""
    index = torch.as_tensor(chosen, device=K.device)
    return float(0.5 * torch.linalg.slogdet(torch.eye(len(chosen)).to(K) + K[index][:, index] / noise_var).logabsdet)


def dense_variances(K, chosen, noise_var):
    """Posterior variance of every point after the chosen."""
    index = torch.as_tensor(chosen, dtype=torch.long, device=K.device)
    return exact(K, noise_var, index, torch.zeros(len(chosen)).to(K))[1]


@pytest.fixture
def golden_matrix(golden, device):
    X = torch.tensor(golden["data"]["X"], dtype=torch.float64, device=device)
    assert golden["data"]["kernel"] == "exp(-r^2/(2*0.4^2))"
    return se_matrix(X, 0.4), golden["data"]["noise_var"]


def test_golden(golden, golden_matrix):
    K, noise_var = golden_matrix
    expected = golden["information_gain"]
    T = expected["greedy_T"]
    assert float(ig.exact(K, noise_var)) == pytest.approx(expected["of_all_12"], rel=1e-11)
    assert float(ig.greedy(K, noise_var, T)[0][-1]) == pytest.approx(expected["greedy"], rel=1e-11)


def test_exact_of_a_batch_equals_singles(device):
    K = torch.stack([kernel_matrix(5, seed, device) for seed in range(6)]).reshape(2, 3, 5, 5)
    gain = ig.exact(K, 0.3)
    assert gain.shape == (2, 3)
    for i, j in product(range(2), range(3)):
        assert float(gain[i, j]) == pytest.approx(dense_gain(K[i, j], range(5), 0.3), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 10.0), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_increments_sum_to_the_determinant(seed, noise_var, chosen):
    K = kernel_matrix(6, seed, "cpu", rank=3)  # singular, and the chosen repeat
    variances = torch.stack([dense_variances(K, chosen[:t], noise_var)[p] for t, p in enumerate(chosen)])
    total = float(ig.increments(variances, noise_var).sum())
    index = torch.as_tensor(chosen)
    assert total == pytest.approx(float(ig.exact(K[index][:, index], noise_var)), rel=1e-8)


@pytest.mark.parametrize("T", [1, 4, 5, 6, 23])  # n = 5: without, at and after several folds of the cache
def test_greedy_is_the_dense_greedy(T, device):
    noise_var = 0.07
    K = kernel_matrix(5, 3, device)
    gains, chosen = ig.greedy(K, noise_var, T)
    assert gains.shape == chosen.shape == (T,)
    chosen = chosen.tolist()
    for t in range(T):
        assert chosen[t] == int(dense_variances(K, chosen[:t], noise_var).argmax())
        assert float(gains[t]) == pytest.approx(dense_gain(K, chosen[: t + 1], noise_var), rel=1e-11)


def test_greedy_prefers_the_first_of_equals_and_repeats_a_lone_point(device):
    assert ig.greedy(torch.eye(3, dtype=torch.float64, device=device), 1.0, 6)[1].tolist() == [0, 1, 2] * 2
    # one point with k = 1, noise_var 1: 1/2 log(1 + t)
    gains, chosen = ig.greedy(torch.ones(1, 1, dtype=torch.float64, device=device), 1.0, 4)
    assert chosen.tolist() == [0] * 4
    assert gains.tolist() == pytest.approx([0.5 * math.log(1 + t) for t in range(1, 5)])


def test_greedy_stays_exact_over_a_long_run_on_a_near_singular_kernel(device):
    X = torch.linspace(0, 1, 30, dtype=torch.float64, device=device)[:, None]
    K = se_matrix(X, 0.3)
    gains, chosen = ig.greedy(K, 1e-3, 1000)
    counts = torch.bincount(chosen, minlength=30).double()
    root = counts.sqrt()
    want = dense_gain(root[:, None] * K * root, range(30), 1e-3)
    assert float(gains[-1]) == pytest.approx(want, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.01, 0.3, 5.0]))
def test_bounds_hold_for_the_true_maximum_over_multisets(seed, n, rank, noise_var):
    T = 4
    K = kernel_matrix(n, seed, "cpu", rank=rank)
    reached = ig.greedy(K, noise_var, T)[0]
    upper = ig.greedy_bound(K, noise_var, T)
    for t in range(1, T + 1):
        best = max(dense_gain(K, chosen, noise_var) for chosen in combinations_with_replacement(range(n), t))
        slack = 1e-9 * (1.0 + best)
        assert SHARE * best - slack <= float(reached[t - 1]) <= best + slack
        assert best <= float(upper[t - 1]) + slack


def test_greedy_bound_is_the_greedy_gain_over_its_share(golden_matrix):
    K, noise_var = golden_matrix
    # 1 / (1 - 1/e) = 1.5819767068693265
    torch.testing.assert_close(ig.greedy_bound(K, noise_var, 5), ig.greedy(K, noise_var, 5)[0] * 1.5819767068693265)
