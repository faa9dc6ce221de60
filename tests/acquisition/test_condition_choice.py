import torch

from bo_robust.acquisition.condition_choice import choose_condition, value_at
from bo_robust.environments import FiniteEnvironment, PerturbationEnvironment
from bo_robust.functionals import ValueAtRisk


def test_choices_by_hand(tkwargs):
    z = torch.tensor([[0.1], [0.2], [0.3]], **tkwargs)
    lower = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 2.0]], **tkwargs)
    upper = torch.tensor([[1.5, 4.0, 3.0], [5.0, 6.0, 7.0]], **tkwargs)
    x = torch.tensor([[7.0], [8.0]], **tkwargs)
    # Equal weights, alpha = 1/2: VaR is the second smallest. Row 0: l <= 1 and u >= 3: point 1. Row 1: l <= 0 and
    # u >= 6: point 1.
    choice = choose_condition(x, FiniteEnvironment(z), ValueAtRisk(0.5), lower, upper)
    assert choice.index.tolist() == [1, 1]
    assert choice.z.tolist() == [[0.2], [0.2]]
    assert choice.point.tolist() == [[7.0, 0.2], [8.0, 0.2]]
    assert choice.regret_bound.tolist() == [3.0, 6.0]
    # alpha = 0.3: row 1 offers points 0 and 1, of which 0 is more probable.
    p = torch.tensor([0.4, 0.3, 0.3], **tkwargs)
    choice = choose_condition(x, FiniteEnvironment(z, p), ValueAtRisk(0.3), lower, upper)
    assert choice.index.tolist() == [0, 0]
    draws = torch.tensor([0.0, 0.9], **tkwargs)
    choice = choose_condition(x, FiniteEnvironment(z, p), ValueAtRisk(0.3), lower, upper, "uniform", draws)
    assert choice.index.tolist() == [0, 1]
    choice = choose_condition(x, FiniteEnvironment(z, p), ValueAtRisk(0.3), lower, upper, "drawn", draws)
    assert choice.index.tolist() == [0, 2]
    choice = choose_condition(x, PerturbationEnvironment(z), ValueAtRisk(0.5), lower, upper)
    assert choice.point.tolist() == [[7.2], [8.2]]


def test_value_at(tkwargs):
    values = torch.arange(12, **tkwargs).view(2, 3, 2)
    assert value_at(values, torch.tensor([2, 0], device=values.device)).tolist() == [[4.0, 5.0], [6.0, 7.0]]
