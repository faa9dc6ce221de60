import math
import sys

import pytest
import torch

from benchmarks.problems.conditions.base import value_at_risk
from benchmarks.problems.conditions.robot_pushing import GOAL, RobotPushing, push


def test_missing_box2d_names_the_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ImportError, match=r"Box2D, which is not installed.*pip install Box2D"):
        RobotPushing().make("cpu")


def test_a_push_moves_the_disc(device):
    pytest.importorskip("Box2D")
    # From the left the disc goes right, further for longer pushes; the mirrored push mirrors the path.
    short, long = push(-3.0, 0.0, 8.0), push(-3.0, 0.0, 20.0)
    assert 0.0 < short[0] < long[0]
    assert abs(long[1]) < 0.1
    mirrored = push(3.0, 0.0, 20.0)
    assert mirrored[0] == pytest.approx(-long[0], abs=0.05)
    # A push too short to reach the disc leaves it alone.
    assert push(-5.0, -5.0, 1.0) == pytest.approx((0.0, 0.0), abs=1e-6)
    problem = RobotPushing().make(device)
    assert (problem.dim_x, problem.dim_z, problem.initial, len(problem.points)) == (3, 2, 30, 64)
    X = torch.tensor([[-3.0, 0.5, 20.0, 0.0, -0.5]], dtype=torch.float64, device=device)
    assert float(problem.f(X)) == pytest.approx(-math.dist(long, GOAL), abs=1e-5)
    assert torch.equal(problem.f(X), problem.f(X))
    x = torch.tensor([[-3.0, -2.0, 15.0]], dtype=torch.float64, device=device)
    assert -20.0 < float(value_at_risk(problem, x)) < 0.0
