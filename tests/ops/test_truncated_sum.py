"""The truncated sums: the definition, the chunks, and the Triton op (interpreted where there is no GPU)."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.ops import naive_ops
from bo_robust.ops.truncated_sum import naive, truncated_count, truncated_sum
from bo_robust.ops.truncated_sum.naive import truncated_sum_direct


def integers(*shape: int, seed: int = 0, dtype=torch.float64, device="cpu") -> torch.Tensor:
    """Whole numbers from -2 to 2: all products and sums are exact, whatever their order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(device, dtype)


def count_direct(root, features, rewards, level):
    products = root @ features.mT * rewards.unsqueeze(-2)
    return (products.abs() > torch.as_tensor(level, device=root.device)[..., None, None]).sum((-2, -1))


# R Phi^T = [[1, 3, 5], [-1, 2, 0]], times y: [[2, -3, 20], [-2, -2, 0]].
ROOT = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
PHI = torch.tensor([[1.0, 0.0], [0.5, 2.5], [2.5, 2.5]], dtype=torch.float64)
Y = torch.tensor([2.0, -1.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("level", "sums", "count"),
    [
        (math.inf, [19.0, -4.0], 0),
        (20.0, [19.0, -4.0], 0),  # |u y| == b is kept
        (19.9, [-1.0, -4.0], 1),
        (2.5, [2.0, -4.0], 2),
        (2.0, [2.0, -4.0], 2),
        (1.9, [0.0, 0.0], 5),
        (0.0, [0.0, 0.0], 5),
    ],
)
def test_by_hand(level, sums, count, device):
    assert (ROOT @ PHI.mT).tolist() == [[1.0, 3.0, 5.0], [-1.0, 2.0, 0.0]]
    data = [x.to(device) for x in (ROOT, PHI, Y)]
    for function in (truncated_sum, truncated_sum_direct):
        assert function(*data, level).tolist() == sums
        assert function(*data, torch.tensor(level, dtype=torch.float64, device=device)).tolist() == sums
    assert truncated_count(*data, level).tolist() == count
    assert truncated_count(*data, level).dtype == torch.int64


def test_level_inf_is_a_matrix_product(device):
    root, features, rewards = integers(2, 5, 5), integers(2, 40, 5, seed=1), integers(2, 40, seed=2)
    expected = (root @ (features.mT @ rewards.unsqueeze(-1))).squeeze(-1)
    sums = truncated_sum(root.to(device), features.to(device), rewards.to(device), math.inf)
    assert torch.equal(sums.cpu(), expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch", [(4,), (2, 3)])
def test_a_batch_is_its_members_each_with_its_level(batch, shared, device):
    root = integers(*batch, 6, 6, device=device)
    features = integers(*(() if shared else batch), 50, 6, seed=1, device=device)
    rewards = integers(*batch, 50, seed=2, device=device)
    level = torch.arange(math.prod(batch), dtype=torch.float64, device=device).reshape(batch)
    sums, counts = truncated_sum(root, features, rewards, level), truncated_count(root, features, rewards, level)
    assert sums.shape == (*batch, 6)
    assert counts.shape == batch
    for index in np.ndindex(batch):
        member = (root[index], features if shared else features[index], rewards[index], float(level[index]))
        assert torch.equal(sums[index], truncated_sum_direct(*member))
        assert torch.equal(sums[index], truncated_sum(*member))
        assert counts[index] == truncated_count(*member) == count_direct(*member)
    assert 0 < counts.sum() < counts.numel() * 300


@pytest.mark.parametrize("t", [0, 1, 511, 512, 513, 1100])
def test_chunks(t, device):
    root, features, rewards = integers(3, 4, 4), integers(3, t, 4, seed=1), integers(3, t, seed=2)
    data = [x.to(device) for x in (root, features, rewards)]
    assert torch.equal(truncated_sum(*data, 3.0), truncated_sum_direct(*data, 3.0))
    assert torch.equal(truncated_count(*data, 3.0), count_direct(*data, 3.0))


REWARDS = st.sampled_from([0.0, -0.0, 1e300, -1e300, 1.0, -1.0, 2.5, -7.0, 100.0])


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(0, 5),
    st.lists(REWARDS, max_size=40),
    st.sampled_from([0.0, 1.0, 2.5, 10.0, 1e3]),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_any_rewards(p, s, rewards, level, chunk, seed):
    batch, t = (s,) * (s > 0), len(rewards)
    root, features = integers(*batch, p, p, seed=seed), integers(*batch, t, p, seed=seed + 1)
    y = torch.tensor(rewards, dtype=torch.float64).expand(*batch, t)
    with patch.object(naive, "CPU_CHUNK", chunk):
        sums, count = truncated_sum(root, features, y, level), truncated_count(root, features, y, level)
    U = (root @ features.mT).numpy().reshape(max(s, 1), p, t)
    terms = [[[u * r for u, r in zip(row, rewards, strict=True)] for row in member] for member in U]
    kept = [[[x for x in row if abs(x) <= level] for row in member] for member in terms]
    expected = torch.tensor([[math.fsum(row) for row in member] for member in kept], dtype=torch.float64)
    assert torch.equal(sums, expected.reshape(*batch, p))
    assert torch.equal(sums, truncated_sum_direct(root, features, y, level))
    truncated = torch.tensor([p * t - sum(len(row) for row in member) for member in kept])
    assert torch.equal(count, truncated.reshape(batch))


def test_a_product_that_overflows_is_truncated(device):
    root = 1e10 * torch.eye(2, dtype=torch.float64, device=device)
    features = torch.ones(3, 2, dtype=torch.float64, device=device)
    rewards = torch.tensor([1e300, -1e300, 1e-10], dtype=torch.float64, device=device)
    assert truncated_sum(root, features, rewards, 5.0).tolist() == [1.0, 1.0]
    assert truncated_count(root, features, rewards, 5.0) == 4


def test_no_gradient(device):
    root = ROOT.to(device).requires_grad_()
    assert not truncated_sum(root, PHI.to(device), Y.to(device), 2.0).requires_grad


def test_every_device_can_take_the_plain_path(device):
    data = [x.to(device) for x in (ROOT, PHI, Y)]
    with naive_ops():
        assert truncated_sum(*data, 2.0).tolist() == [2.0, -4.0]
        assert truncated_count(*data, 2.0) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root": ROOT[:1]}, "root must be"),
        ({"root": ROOT.to(torch.float16)}, "float32 or float64"),
        ({"features": PHI[:2]}, r"features must be \(3, 2\)"),
        ({"features": PHI.float()}, "features are torch.float32"),
        ({"rewards": Y.expand(2, 3)}, "rewards must be"),
        ({"level": torch.ones(3)}, "level must be"),
    ],
)
def test_mistakes(change, message):
    arguments = {"root": ROOT, "features": PHI, "rewards": Y, "level": 1.0} | change
    for function in (truncated_sum, truncated_count):
        with pytest.raises(ValueError, match=message):
            function(**arguments)


@pytest.fixture(scope="module")
def fused(fused_module):
    return fused_module("truncated_sum")


FUSED_CASES = [  # p, t, batch, shared features
    (3, 1, (), False),
    (3, 2100, (2,), False),  # more than one part of the observations
    (16, 31, (2, 2), False),
    (16, 257, (3,), True),
    (64, 1, (2,), False),
    (64, 1000, (), False),
    (100, 31, (), False),
    (100, 257, (2,), False),
    (128, 1, (2,), True),
    (128, 257, (), False),
    (130, 31, (2,), True),
    (130, 257, (), False),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("p", "t", "batch", "shared"), FUSED_CASES)
def test_fused_exactly(fused, p, t, batch, shared, dtype, device):
    root = integers(*batch, p, p, dtype=dtype, device=device)
    features = integers(*(() if shared else batch), t, p, seed=1, dtype=dtype, device=device)
    rewards = integers(*batch, t, seed=2, dtype=dtype, device=device)
    level = 2.0 * math.sqrt(p) + torch.arange(math.prod(batch), dtype=dtype, device=device).reshape(batch)
    level = level.round()  # whole numbers: some products equal the level
    data = (root, features, rewards, level)
    assert torch.equal(fused.truncated_sum(*data), truncated_sum_direct(*data))
    assert torch.equal(fused.truncated_count(*data), count_direct(*data))
    assert fused.truncated_count(*data).dtype == torch.int64
    if t > 1:
        assert (count_direct(*data) > 0).all()
        assert torch.equal(fused.truncated_sum(*data[:3], math.inf), truncated_sum_direct(*data[:3], math.inf))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fused_on_real_numbers(fused, dtype, device):
    """To rounding of the dtype; in tf32 products would cross the level, and the error be some 3e-2."""
    generator = torch.Generator().manual_seed(0)
    root, features, rewards = (
        torch.randn(shape, generator=generator, dtype=dtype).to(device) for shape in ((70, 70), (300, 70), (300,))
    )
    sizes = (root @ features.mT * rewards).abs().flatten().double().sort().values
    middle = sizes[int(0.4 * len(sizes)) : int(0.6 * len(sizes))]
    gap = (middle[1:] / middle[:-1]).argmax()  # a level that rounding cannot cross
    level = float((middle[gap] + middle[gap + 1]) / 2)
    expected = truncated_sum_direct(root.double(), features.double(), rewards.double(), level)
    error = fused.truncated_sum(root, features, rewards, level).double() - expected
    assert error.norm() / expected.norm() < (1e-13 if dtype == torch.float64 else 5e-6)


def test_fused_reads_strided_views_and_nothing_beside_them(fused, device):
    p, t = 20, 90
    nan = torch.full((2, t + 50, p + 30), torch.nan, dtype=torch.float64, device=device)
    root, features, rewards = nan.clone(), nan.clone(), nan.clone()
    root, features, rewards = root[:, :p, :p], features[:, 7 : t + 7, 1 : p + 1], rewards[:, :t, 3]
    root.copy_(integers(2, p, p))
    features.copy_(integers(2, t, p, seed=1))
    rewards.copy_(integers(2, t, seed=2))
    expected = truncated_sum_direct(root, features, rewards, 7.0)
    assert torch.equal(fused.truncated_sum(root, features, rewards, 7.0), expected)
    turned = features.mT.contiguous().mT
    assert torch.equal(fused.truncated_sum(root, turned, rewards, 7.0), expected)
    assert torch.equal(fused.truncated_count(root, turned, rewards, 7.0), count_direct(root, features, rewards, 7.0))


def test_fused_extremes(fused, device):
    root = torch.eye(3, dtype=torch.float64, device=device).mul_(torch.tensor([1.0, 1e10, 0.0], device=device))
    features = torch.ones(4, 3, dtype=torch.float64, device=device)
    rewards = torch.tensor([1e300, -1e300, 2.0, 0.0], dtype=torch.float64, device=device)
    assert fused.truncated_sum(root, features, rewards, 5.0).tolist() == [2.0, 0.0, 0.0]
    assert fused.truncated_count(root, features, rewards, 5.0) == 5
    assert fused.truncated_sum(root, features[:0], rewards[:0], 5.0).tolist() == [0.0, 0.0, 0.0]
    assert fused.truncated_count(root, features[:0], rewards[:0], 5.0) == 0


def test_fused_beyond_32_bit_addresses(fused, device):
    if device.type != "cuda" or torch.cuda.mem_get_info(device)[0] < 20 * 2**30:
        pytest.skip("needs a GPU with 20 GiB free")
    p, t = 128, 2**31 // 128 + 1000
    features = torch.zeros(t, p, dtype=torch.float32, device=device)
    rewards = torch.ones(t, dtype=torch.float32, device=device)
    features[-1000:] = integers(1000, p, dtype=torch.float32, device=device)
    root = integers(p, p, seed=1, dtype=torch.float32, device=device)
    expected = truncated_sum_direct(root, features[-1000:], rewards[-1000:], 20.0)
    assert torch.equal(fused.truncated_sum(root, features, rewards, 20.0), expected)
