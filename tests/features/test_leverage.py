import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.features.leverage import (
    draw_dictionary,
    entry_oversampling,
    keep_probability,
    padded,
    redrawn,
    theory_oversampling,
)
from bo_robust.utils.random import spread


def tensor(values, device, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, device=device)


def test_theory_oversampling():
    """epsilon = 1/2: rho = 3, 6 * 3 / (1/4) = 72; log(4 * 25 / delta) = 5 at delta = 100 / e^5."""
    assert theory_oversampling(25, 100 / math.e**5, 0.5) == pytest.approx(360.0, rel=1e-13)
    assert theory_oversampling(1000, 0.1, 0.1) > 5000  # keeps everything, as algorithms.md says


def test_keep_probability_hand_computed(device):
    """q = 2: p = 0.2, 1 (capped) and 0; with counts 1 - 0.8^3 = 0.488; a count of 0 is exactly 0."""
    variance = tensor([0.1, 0.7, 0.0, 0.1, 0.7], device)
    once = keep_probability(variance, 2.0, torch.ones_like(variance))
    torch.testing.assert_close(once, tensor([0.2, 1.0, 0.0, 0.2, 1.0], device))
    counts = torch.tensor([3, 5, 4, 0, 0], device=device)
    got = keep_probability(variance, 2.0, counts)
    torch.testing.assert_close(got, tensor([0.488, 1.0, 0.0, 0.0, 0.0], device), rtol=1e-14, atol=0.0)
    assert got[2:].tolist() == [0.0, 0.0, 0.0]


def test_keep_probability_tiny_p_and_large_counts(device):
    """p = 1e-18, below the spacing of numbers near 1: c p to first order, 1 - exp(-c p) for large c."""
    variance = tensor([1e-18] * 4, device)
    counts = torch.tensor([1, 7, 10**12, 10**18], device=device)
    want = tensor([1e-18, 7e-18, 1e-6 - 0.5e-12, 1 - math.exp(-1)], device)
    torch.testing.assert_close(keep_probability(variance, 1.0, counts), want, rtol=1e-12, atol=0.0)


def test_keep_probability_broadcasts_and_bad_values(device):
    variance = tensor([[0.5, -1e-17], [math.nan, 0.25]], device, torch.float32)
    got = keep_probability(variance, 1.0, torch.tensor([2.0, 1.0], device=device))
    assert got.dtype == torch.float32
    want = tensor([[0.75, 0.0], [math.nan, 0.25]], device, torch.float32)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0.0, equal_nan=True)


def test_a_point_enters_once_q_exceeds_its_entry(device):
    g = torch.Generator().manual_seed(3)
    variance, uniform = (torch.rand(5000, generator=g, dtype=torch.float64).to(device) for _ in range(2))
    counts = torch.randint(1, 9, (5000,), generator=g).double().to(device)
    entry = entry_oversampling(variance, uniform, counts)
    for q in (0.1, 1.0, 5.0):
        assert torch.equal(entry < q, uniform < keep_probability(variance, q, counts))
    # u = 1 - (1 - q / 4)^2 with q = 2: 3/4
    assert float(entry_oversampling(torch.tensor(0.25), torch.tensor(0.75), torch.tensor(2.0))) == 2.0


def test_draws_by_hand(device):
    """Where uniforms are below. Else row 1 keeps its likeliest arm; row 2 has none, row 4 a failed (NaN) arm."""
    nan = math.nan
    for probability, uniform, kept in (
        ([0.5, 0.5, 1.0, 0.0], [0.4, 0.5, 0.999, 0.0], [True, False, True, False]),
        ([0.1, 0.3, 0.2, 0.0], [0.9, 0.9, 0.9, 0.9], [False, True, False, False]),
        ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [False, False, False, False]),
        ([0.1, 0.3, 0.2, 0.0], [0.05, 0.9, 0.9, 0.9], [True, False, False, False]),
        ([nan, 0.1, 0.2, 0.0], [0.9, 0.9, 0.9, 0.9], [False, False, True, False]),
    ):
        assert draw_dictionary(tensor([probability], device), tensor([uniform], device)).tolist() == [kept]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_past_arms_are_drawn_as_all_arms(dtype, device):
    """Also in trials that would keep nothing, have no reward, or only arms of no variance."""
    g = torch.Generator().manual_seed(4)
    variance, uniforms = (torch.rand(50, 30, generator=g, dtype=dtype).to(device) for _ in range(2))
    counts = torch.randint(5, (50, 30), generator=g).clamp(min=2).sub(2).to(variance)
    variance[1] *= 1e-9
    variance[2], variance[3], counts[4] = 0.0, math.nan, 0.0
    for rows in (slice(5, 50), slice(50), slice(1, 2), slice(2, 3), slice(3, 4), slice(4, 5)):
        for uniform in (uniforms[rows], uniforms[rows, 0].contiguous()):
            each = uniform if uniform.ndim == 2 else spread(uniform, 30)
            want = draw_dictionary(keep_probability(variance[rows], 0.5, counts[rows]), each)
            want[:, 0] |= ~want.any(1)
            assert torch.equal(redrawn(variance[rows], 0.5, counts[rows], uniform), want)


@settings(max_examples=50, deadline=None)
@given(s=st.integers(1, 6), n=st.integers(1, 12), p=st.floats(0.0, 1.0), seed=st.integers(0, 10_000))
def test_padded_any_shape(s, n, p, seed, device):
    keep = (torch.rand(s, n, generator=torch.Generator().manual_seed(seed)) < p).to(device)
    indices, mask = padded(keep)
    assert indices.shape == mask.shape == (s, max(1, int(keep.sum(1).max())))
    for row in range(s):
        assert indices[row][mask[row]].tolist() == keep[row].nonzero().flatten().tolist()
        assert bool((indices[row][~mask[row]] == 0).all())
