"""Widths of candidates: one for all or one each, and what a norm bound assumes of k(x, x)."""

import math

import pytest
import torch

from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomisedWidth, SelfNormalisedWidth
from bo_robust.confidence.candidate_widths import widths_at


def test_one_width_or_one_each(device):
    gains = torch.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=torch.float64, device=device)
    norm = SelfNormalisedWidth(1.0, 0.5, 0.1)
    assert widths_at(ConstantWidth(2.0), 3, lambda _: gains) == 2.0
    by_hand = [[1.0 + 0.5 * math.sqrt(2.0 * (g + 1.0 + math.log(10.0))) for g in row] for row in gains.tolist()]
    torch.testing.assert_close(widths_at(norm, 3, lambda _: gains), gains.new_tensor(by_hand))
    each = widths_at((FiniteWidth(10, 0.1), norm), 3, lambda _: gains)
    assert each[:, 0].tolist() == pytest.approx([FiniteWidth(10, 0.1)(3)] * 2)
    assert each[:, 1].tolist() == pytest.approx([row[1] for row in by_hand])
    uniform = gains.new_tensor([0.1, 0.9])
    random = widths_at(RandomisedWidth(10), 3, lambda _: gains, uniform)
    torch.testing.assert_close(random.expand(2, 2)[:, 1], RandomisedWidth(10)(3, 0.0, uniform))
