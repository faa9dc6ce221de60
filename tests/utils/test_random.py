import numpy as np
import pytest
import torch
from scipy import stats

from bo_robust.utils.random import spread, spread_at, stream


def test_same_key_same_numbers_and_different_keys_differ():
    first = stream(1, "reward", 7, 2).random(5)
    assert np.array_equal(first, stream(1, "reward", 7, 2).random(5))
    for other in ((2, "reward", 7, 2), (1, "problem", 7, 2), (1, "reward", 8, 2), (1, "reward", 7, 3)):
        assert not np.array_equal(first, stream(*other).random(5))


def test_streams_are_uncorrelated():
    draws = np.stack([stream(0, "reward", trial).standard_normal(4000) for trial in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 5.0 / np.sqrt(4000)


def splitmix(u: float, i: int, bits: int) -> float:
    """The i-th number (from 1) of the row of ``u``, in Python integers."""
    mask = 2**64 - 1
    z = (int(u * 2**53) * 0xD1342543DE82EF95 + i * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return ((z ^ (z >> 31)) >> (64 - bits)) * 2.0**-bits


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float64, 53), (torch.float32, 24)])
def test_spread_by_python_integers(dtype, bits, device):
    uniform = torch.tensor([0.0, 0.5, 0.1, 1.0 - 2.0**-24], dtype=dtype, device=device)
    got = spread(uniform, 40)
    assert got.dtype == dtype
    assert got.shape == (4, 40)
    assert got.cpu().tolist() == [[splitmix(u, i, bits) for i in range(1, 41)] for u in uniform.tolist()]
    assert torch.equal(got[:, :7], spread(uniform, 7))  # a row does not depend on how many are asked for
    assert torch.equal(got[2:3], spread(uniform[2:3], 40))  # nor on the other trials
    for u, row in zip(uniform.tolist(), got.cpu().numpy(), strict=True):
        some = spread_at(u, np.array([5, 0, 39]), row.dtype)
        assert np.array_equal(some, row[[5, 0, 39]])
        assert some.dtype == row.dtype


def test_spread_by_published_numbers(device):
    # SplitMix64 seeded with 0: 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f (Vigna's splitmix64.c)
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    got = spread(torch.zeros(1, dtype=torch.float64, device=device), 3)
    assert got.tolist() == [[(w >> 11) * 2.0**-53 for w in words]]


def neighbors(dtype, step, s=400):
    """Rows of uniforms one spacing of the type apart, the hardest case."""
    start = torch.tensor(0.3, dtype=dtype)
    return start + step * torch.arange(s, dtype=dtype)


@pytest.mark.parametrize(("dtype", "step"), [(torch.float64, 2.0**-53), (torch.float32, 2.0**-24)])
def test_spread_is_uniform_and_neighbors_are_unrelated(dtype, step, device):
    uniform = neighbors(dtype, step).to(device)
    # in [0.25, 0.5) float32 is 2^-25 fine and float64 2^-54: every second number is a multiple of the step
    assert len({float(u) for u in uniform}) == 400
    x = spread(uniform, 250).double().cpu().numpy()
    assert x.min() >= 0.0
    assert x.max() < 1.0
    assert stats.kstest(x.ravel(), "uniform").pvalue > 1e-3
    for one in (x[:, 0], x[:, -1], x[0], x[-1]):
        assert stats.kstest(one, "uniform").pvalue > 1e-3
    # pairs: within a row, and of rows beside each other, on a grid of 16 x 16 cells
    for a, b in ((x[:, :-1], x[:, 1:]), (x[:-1], x[1:]), (x[:-1, :-1], x[1:, 1:]), (x[:-2], x[2:])):
        cells = np.histogram2d(a.ravel(), b.ravel(), bins=16, range=((0, 1), (0, 1)))[0]
        assert stats.chisquare(cells.ravel()).pvalue > 1e-3
    correlation = np.corrcoef(x) - np.eye(400)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(250)  # 80,000 pairs of rows: 5.5 standard errors


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_spread_of_a_stream_of_rounds_is_unrelated_to_the_stream(dtype, device):
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=dtype).to(device)
    x = spread(uniform, 3).double().cpu().numpy()
    u = uniform.double().cpu().numpy()
    for column in x.T:
        assert abs(np.corrcoef(u, column)[0, 1]) < 4.5 / np.sqrt(20_000)
        cells = np.histogram2d(u, column, bins=10, range=((0, 1), (0, 1)))[0]
        assert stats.chisquare(cells.ravel()).pvalue > 1e-3


def test_spread_is_below_one_in_float32(device):
    # 2^24 numbers can be 1 - 2^-24, none can be 1: two million draws, and the largest there is
    x = spread(torch.rand(2000, generator=torch.Generator().manual_seed(1)).to(device), 1000)
    assert x.dtype == torch.float32
    assert 1.0 - 2.0**-18 < float(x.max()) < 1.0
