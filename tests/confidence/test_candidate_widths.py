"""Widths of candidates: one for all or one each, and what a norm bound assumes of k(x, x)."""

import math

import pytest
import torch

from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomisedWidth, RKHSWidth, SelfNormalisedWidth
from bo_robust.confidence.candidate_widths import check_number, check_unit_scale, widths_at


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


def test_numbers_and_scales_are_checked(device):
    check_number(ConstantWidth(1.0), 7)
    with pytest.raises(ValueError, match="2 widths for 3 candidates"):
        check_number((ConstantWidth(1.0),) * 2, 3)
    diagonals = torch.tensor([[1.0, 1.0], [1.0, 4.0]], device=device)
    asked = []

    def diagonal(u):
        asked.append(u)
        return diagonals[u]

    check_unit_scale((RKHSWidth(1.0, 0.1), ConstantWidth(1.0)), ["a", "b"], diagonal)
    assert asked == [0]  # only where it matters
    for width in (RKHSWidth(1.0, 0.1), (ConstantWidth(1.0), SelfNormalisedWidth(1.0, 0.1, 0.1))):
        with pytest.raises(ValueError, match=r"b: k\(x, x\) goes up to c = 4, .*Divide the kernels"):
            check_unit_scale(width, ["a", "b"], diagonal)
