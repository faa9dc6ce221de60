import math

import pytest
import torch

from bo_robust.bandits.ranks import best_of_ranks, no_offer

LIKE = torch.zeros(1)


def test_the_first_of_equals_with_the_largest_threshold(monkeypatch):
    rows = torch.tensor([[2.0, 0.1, 9.0], [2.0, 0.2, 4.0], [1.0, 0.9, 1.0]], dtype=torch.float64)
    monkeypatch.setattr("bo_robust.bandits.ranks.gathered", lambda *args: rows)
    assert best_of_ranks(lambda: rows[0], 0, LIKE, None).tolist() == [2.0, 0.9, 4.0]


def test_no_arm_on_any_rank_is_an_error():
    assert no_offer(2, LIKE).tolist() == [-math.inf, -math.inf, 0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="no arms to choose from"):
        best_of_ranks(lambda: no_offer(2, LIKE), 2, LIKE, None)
