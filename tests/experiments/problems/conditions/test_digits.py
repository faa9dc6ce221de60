"""The digits: where they come from, and how they are turned."""

import sys

import pytest
import torch

from bo_robust.experiments.problems import make_conditions_problem as make
from bo_robust.experiments.problems.conditions.digits import rotated


def test_missing_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        make("fine_tuning")


def test_rotation_by_hand(device):
    picture = torch.zeros(8, 8, dtype=torch.float64, device=device)
    picture[0, 2] = 1.0
    angles = torch.tensor([0.0, 90.0, 180.0, -90.0], dtype=torch.float64, device=device)
    turned = rotated(picture.reshape(1, 64), angles).reshape(4, 8, 8)
    torch.testing.assert_close(turned[0], picture)
    torch.testing.assert_close(turned[2], picture.flip(0, 1))
    torch.testing.assert_close(turned[1], turned[3].flip(0, 1))
    torch.testing.assert_close(turned[1], torch.rot90(picture, 1))
