import math
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks.problems.conditions.base import value_at_risk
from benchmarks.problems.conditions.robot_pushing import GOAL, RobotPushing, push


class Body(SimpleNamespace):
    """A body of unit mass without friction or contact, moved by semi-implicit Euler steps as Box2D does."""

    def __init__(self, position, angle=0.0):
        velocity = {"linearVelocity": (0.0, 0.0), "angularVelocity": 0.0}
        super().__init__(position=position, angle=angle, mass=1.0, force=(0.0, 0.0), **velocity)

    def CreateFixture(self, **fixture):
        self.fixture = fixture

    def ApplyForce(self, force, point, wake):
        self.force = force

    def ApplyTorque(self, torque, wake):
        assert torque == 0.0


problems = []


class World:
    def __init__(self, gravity, doSleep):
        assert gravity == (0.0, 0.0)
        self.bodies, self.joints, self.steps = [], [], 0
        self.CreateStaticBody = Body
        problems.append(self)

    def CreateDynamicBody(self, **where):
        self.bodies.append(Body(**where))
        return self.bodies[-1]

    def CreateFrictionJoint(self, **joint):
        self.joints.append((joint["maxForce"], joint["maxTorque"]))

    def Step(self, step, *iterations):
        assert (step, *iterations) == (0.01, 10, 10)
        self.steps += 1
        for body in self.bodies:
            body.linearVelocity = tuple(v + step * a for v, a in zip(body.linearVelocity, body.force, strict=True))
            body.position = tuple(x + step * v for x, v in zip(body.position, body.linearVelocity, strict=True))
            body.force = (0.0, 0.0)


STAND_IN = SimpleNamespace(b2World=World, b2CircleShape=dict, b2PolygonShape=dict)


def test_missing_box2d_names_the_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ImportError, match=r"Box2D, which is not installed.*pip install Box2D"):
        RobotPushing().make("cpu")


def test_control_loop():
    assert push(3.0, 4.0, 2.55, STAND_IN) == (0.0, 0.0)  # nothing touches the disc here
    world = problems[-1]
    disc, hand = world.bodies
    assert world.steps == 25 + 100
    assert hand.angle == pytest.approx(math.atan(4.0 / 3.0))
    assert world.joints == [(5.0, 2.0), (2.0, 2.0)]
    assert (disc.fixture["shape"], disc.fixture["density"], disc.fixture["friction"]) == ({"radius": 1.0}, 0.05, 0.01)
    assert (hand.fixture["shape"], hand.fixture["density"]) == ({"box": (0.3, 1.0)}, 0.1)
    # 25 pushed steps at gain 30 bring 1 - 0.7^25 of the speed 5, toward the disc: (-3, -4) / 5 of it.
    reached = 5.0 * (1.0 - 0.7**25)
    assert hand.linearVelocity == pytest.approx((-0.6 * reached, -0.8 * reached))


def test_a_hand_on_the_center_does_not_push():
    assert push(0.0, 0.0, 30.0, STAND_IN) == (0.0, 0.0)
    assert problems[-1].bodies[1].linearVelocity == (0.0, 0.0)


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
