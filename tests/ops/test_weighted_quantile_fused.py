"""Order statistics in Triton (interpreted where there is no GPU) against stable sorting, to the bit."""

import pytest
import torch

from bo_robust.ops.weighted_quantile import naive


@pytest.fixture
def fused(fused_module):
    return fused_module("weighted_quantile")


def reference(values, masses):
    """The plain path, with the sort made stable."""
    order = values.argsort(dim=-1, stable=True)
    return order, masses.expand(values.shape).gather(-1, order).cumsum(-1)


def first_kth(values, k):
    """The first place that holds the k-th smallest value."""
    kth = values.sort(-1).values[..., k - 1 : k]
    return ((values == kth) | (values.isnan() & kth.isnan())).int().argmax(-1)


def data(shape, dtype, device, seed=0):
    """Values of which many are equal, some -0, infinite or NaN; masses up to 2^52, some zero."""
    g = torch.Generator().manual_seed(seed)
    values = torch.randint(-9, 10, shape, generator=g).to(dtype) / 4
    values[torch.rand(shape, generator=g) < 0.1] = -0.0
    values[torch.rand(shape, generator=g) < 0.05] = torch.inf
    values[torch.rand(shape, generator=g) < 0.1] = torch.nan
    masses = torch.randint(1 << 52, shape, generator=g) * torch.randint(3, shape, generator=g).clamp(max=1)
    return values.to(device), masses.to(device)


SHAPES = [(1,), (2, 3), (3, 2, 16), (70, 5), (1, 63), (5, 100), (2, 256)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_sorted_masses(fused, shape, dtype, device):
    values, masses = data(shape, dtype, device)
    for m in (masses, masses.reshape(-1, shape[-1])[0]):
        order, mass = fused.sorted_masses(values, m)
        expected_order, expected_mass = reference(values, m)
        assert torch.equal(order, expected_order)
        assert torch.equal(mass, expected_mass)
        assert order.dtype == mass.dtype == torch.long


# Sorting is slow in the interpreter: few calls.
@pytest.mark.parametrize(
    ("shape", "k", "dtype"),
    [
        ((1,), 1, torch.float64),
        ((2, 3), 2, torch.float32),
        ((3, 2, 16), 1, torch.float64),
        ((3, 2, 16), 16, torch.float64),
        ((270, 5), 2, torch.float64),
        ((1, 63), 40, torch.float32),
        ((5, 100), 30, torch.float64),
        ((5, 256), 77, torch.float32),
        ((5, 256), 77, torch.float64),
    ],
)
def test_kth_index(fused, shape, k, dtype, device):
    values, _ = data(shape, dtype, device, seed=1)
    found = fused.kth_index(values, k)
    assert torch.equal(found, first_kth(values, k))
    plain = values.gather(-1, naive.kth_index(values, k).unsqueeze(-1))
    torch.testing.assert_close(values.gather(-1, found.unsqueeze(-1)), plain, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kth_index_of_the_extremes(fused, dtype, device):
    """Numbers whose bits are next to those of NaN, infinity and zero, and a NaN with its sign bit set."""
    info = torch.finfo(dtype)
    row = [torch.inf, -torch.inf, info.max, -info.max, 0.0, info.tiny, -info.tiny, torch.nan, 1.0, -2.0]
    values = torch.tensor(row, dtype=dtype).neg().to(device)  # also negates NaN
    order = values.argsort().tolist()
    for k in (1, 2, 5, 6, 9, 10):
        assert int(fused.kth_index(values, k)) == order[k - 1]


def test_strided_input_and_nothing_beside_it(fused, device):
    values, masses = data((30, 20), torch.float64, device)
    around = torch.full((65, 45), -1e9, dtype=torch.float64, device=device)
    strided = around[2:62:2, 3:43:2].copy_(values)
    for v, m in ((strided, masses), (values.T.contiguous().T, masses.T.contiguous().T), (values[:1].expand(4, 20), 0)):
        m = masses[:1].expand(4, 20) if isinstance(m, int) else m
        for a, b in zip(fused.sorted_masses(v, m), reference(v, m), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(fused.kth_index(strided, 7), first_kth(strided, 7))


def test_no_rows_and_long_rows(fused, device):
    values, masses = data((0, 4), torch.float64, device)
    assert fused.kth_index(values, 2).shape == (0,)
    assert fused.sorted_masses(values, masses)[0].shape == (0, 4)
    values = torch.randn(2, fused.MAX_POINTS + 1, generator=torch.Generator().manual_seed(0)).to(device)
    masses = torch.arange(values.shape[-1], device=device)
    assert torch.equal(fused.kth_index(values, 9), naive.kth_index(values, 9))
    for a, b in zip(fused.sorted_masses(values, masses), naive.sorted_masses(values, masses), strict=True):
        assert torch.equal(a, b)
