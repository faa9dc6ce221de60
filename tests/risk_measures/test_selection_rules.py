import pytest
import torch

from bo_robust.risk_measures.selection_rules import select_by_rule


def test_picks_by_hand(tkwargs):
    mask = torch.tensor([[True, False, True, True], [False, True, False, False]], device=tkwargs["device"])
    gap = torch.tensor([[1.0, 9.0, 2.0, 3.0], [1.0, 1.0, 9.0, 1.0]], **tkwargs)
    p = torch.tensor([0.3, 0.4, 0.3, 0.0], **tkwargs)
    assert select_by_rule(mask, gap, p, "probable").tolist() == [2, 1]  # 0.3 twice: the wider interval
    assert select_by_rule(mask, gap, None, "probable").tolist() == [3, 1]
    assert select_by_rule(mask, gap, p, "widest").tolist() == [3, 1]
    for u, expected in [(0.0, 0), (0.34, 2), (0.66, 2), (0.67, 3), (0.999999999999, 3)]:
        assert select_by_rule(mask, gap, p, "uniform", torch.full((2,), u, **tkwargs)).tolist() == [expected, 1]
    for u, expected in [(0.0, 0), (0.29, 0), (0.31, 1), (0.69, 1), (0.71, 2), (1 - 1e-16, 2)]:
        assert select_by_rule(mask, gap, p, "drawn", torch.full((2,), u, **tkwargs)).tolist() == [expected] * 2
    assert select_by_rule(mask, gap, None, "drawn", torch.full((2,), 0.99, **tkwargs)).tolist() == [3, 3]
    with pytest.raises(ValueError, match="needs uniform"):
        select_by_rule(mask, gap, p, "uniform")


def test_probable_ties_up_to_rounding(device):
    density = torch.tensor([0.3, 0.4, 0.3 + 0.1, 0.0], dtype=torch.float64, device=device)
    density[1] *= 1.0 + 1e-14
    gap = torch.tensor([1.0, 1.0, 2.0, 9.0], dtype=torch.float64, device=device)
    assert int(select_by_rule(torch.ones(4, dtype=torch.bool, device=device), gap, density, "probable")) == 2


def test_a_point_of_probability_zero_is_never_drawn(device):
    density = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64, device=device)
    for uniform, index in ((0.0, 1), (0.25, 1), (0.5, 3), (1.0 - 1e-16, 3)):
        u = torch.tensor(uniform, dtype=torch.float64, device=device)
        assert int(select_by_rule(density > 0, torch.ones_like(density), density, "drawn", u)) == index
