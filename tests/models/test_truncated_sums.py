"""Sums truncated in every direction: by hand, in chunks, batches, against the definition."""

import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.models import truncated_sums
from bo_robust.models.truncated_sums import truncated_count, truncated_sum

# U = R Phi^T is [[1, 3, 5], [-1, 2, 0]], so U y is [[2, -3, 20], [-2, -2, 0]].
ROOT = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
PHI = torch.tensor([[1.0, 0.0], [0.5, 2.5], [2.5, 2.5]], dtype=torch.float64)
Y = torch.tensor([2.0, -1.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("level", "sums", "clipped", "count"),
    [
        (math.inf, [19.0, -4.0], [19.0, -4.0], 0),
        (20.0, [19.0, -4.0], [19.0, -4.0], 0),  # |u y| == b is kept
        (19.9, [-1.0, -4.0], [18.9, -4.0], 1),
        (2.5, [2.0, -4.0], [2.0, -4.0], 2),
        (2.0, [2.0, -4.0], [2.0, -4.0], 2),
        (1.5, [0.0, 0.0], [1.5, -3.0], 5),
        (0.0, [0.0, 0.0], [0.0, 0.0], 5),
    ],
)
def test_by_hand(level, sums, clipped, count, device):
    data = [x.to(device) for x in (ROOT, PHI, Y)]
    assert truncated_sum(*data, level).tolist() == sums
    assert truncated_sum(*data, level, "clip").tolist() == pytest.approx(clipped)
    assert truncated_count(*data, level).tolist() == count


def by_definition(root, features, rewards, level):
    """All products in memory: sums of those kept, sums of all clipped, and the number beyond the level."""
    products = root @ features.mT * rewards.unsqueeze(-2)
    beyond = products.abs() > level
    clipped = products.clamp(-level, level).sum(-1)
    return torch.where(beyond, 0.0, products).sum(-1), clipped, beyond.sum((-2, -1))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6),
    st.sampled_from([(), (1,), (3,), (2, 3)]),
    st.lists(st.sampled_from([0.0, 1e300, -1e300, 1.0, -1.0, 2.5, -7.0, 100.0]), max_size=40),
    st.sampled_from([0.0, 1.0, 2.5, 10.0, 1e3]),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_any_rewards_in_batches_and_chunks(p, batch, rewards, level, chunk, seed):
    """Whole features make every sum exact, whatever its order."""
    generator = torch.Generator().manual_seed(seed)
    t = len(rewards)
    root, features = (torch.randint(-2, 3, (*batch, rows, p), generator=generator).double() for rows in (p, t))
    y = torch.tensor(rewards, dtype=torch.float64).expand(*batch, t)
    with patch.object(truncated_sums, "CHUNK", chunk):
        zeroed = truncated_sum(root, features, y, level)
        clipped = truncated_sum(root, features, y, level, "clip")
        count = truncated_count(root, features, y, level)
    for found, expected in zip((zeroed, clipped, count), by_definition(root, features, y, level), strict=True):
        assert torch.equal(found, expected)


def test_a_product_that_overflows_is_truncated(device):
    root = 1e10 * torch.eye(2, dtype=torch.float64, device=device)
    features = torch.ones(3, 2, dtype=torch.float64, device=device)
    rewards = torch.tensor([1e300, -1e300, 1e-10], dtype=torch.float64, device=device)
    assert truncated_sum(root, features, rewards, 5.0).tolist() == [1.0, 1.0]
    assert truncated_count(root, features, rewards, 5.0) == 4
