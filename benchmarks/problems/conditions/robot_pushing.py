"""A robot hand pushes a disc toward a goal (Wang & Jegelka 2017; Nguyen et al. 2021, sec. 4.2), on Box2D.

The simulation is our own, from the published constants. It is seen from above, without gravity. Friction joints with
the ground brake disc and hand. A controller drives the hand at a steady velocity from its start toward the disc.
"""

import importlib
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.problems.conditions.base import ConditionsProblem, OverConditions, bell, grid

GOAL = (3.0, 2.0)
# Sizes in length units, times in seconds of the simulation.
DISC = {"radius": 1.0, "density": 0.05, "friction": 0.01, "max_force": 5.0, "max_torque": 2.0}
HAND = {"half_sides": (0.3, 1.0), "density": 0.1, "friction": 0.1, "max_force": 2.0, "max_torque": 2.0}
SPEED, GAIN = 5.0, 30.0
STEP, STEPS_PER_UNIT, FREE_STEPS = 0.01, 10, 100
ITERATIONS = 10  # of Box2D's solvers of velocities and of positions


@dataclass(frozen=True)
class RobotPushing(OverConditions):
    """How far from its goal a robot hand pushes a disc: three decisions, a start shifted at random.

    f is minus the distance. The decisions x = (r_x, r_y, t) in [-5, 5]^2 x [1, 30] are where the hand starts and how
    long it pushes. z shifts the start: f(x, z) = f0(r_x + z_1, r_y + z_2, t). Z is an 8 x 8 grid of [-1, 1]^2 with P(z)
    proportional to exp(-||z||^2 / 0.4^2). f runs on the CPU, about 1.5 ms a point.
    """

    def make(self, device: torch.device | str) -> ConditionsProblem:
        box2d = _box2d()
        points = grid(-1.0, 1.0, 8, 2, device)

        def f(X: Tensor) -> Tensor:
            ends = [push(r_x + z_x, r_y + z_y, t, box2d) for r_x, r_y, t, z_x, z_y in X.reshape(-1, 5).tolist()]
            return X.new_tensor([-math.dist(end, GOAL) for end in ends]).reshape(X.shape[:-1])

        notes = (
            f"Nguyen et al. 2021, sec. 4.2, on our own simulation. Ours: the goal {GOAL}, which the paper does not "
            "give, and no noise on the pushing velocity (Wang & Jegelka draw N(0, 0.1^2) per axis once a push, on "
            "top of the paper's noise on f), so that f is a function. The optimum is found on 216 x and refined "
            "to 0.01 of the box."
        )
        x_bounds = torch.tensor([[-5.0, -5.0, 1.0], [5.0, 5.0, 30.0]], device=device, dtype=torch.float64)
        z_bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], device=device, dtype=torch.float64)
        constants: dict[str, Any] = {
            "noise_var": 0.01,
            "alpha": 0.1,
            "initial": 30,
            "search_points": 256,
            "search_tol": 0.01,
        }
        return ConditionsProblem(
            "robot_pushing", f, bell(points, 0.0, 0.4), x_bounds, z_bounds, **constants, notes=notes
        )


def push(r_x: float, r_y: float, t: float, box2d: ModuleType | None = None) -> tuple[float, float]:
    """Push a disc that lies at the origin; return its final position.

    The hand starts at (r_x, r_y) and pushes for ``t`` tenths of a second. A second without pushing follows. A hand that
    starts exactly on the disc's center has no direction and does not push. ``box2d`` is the module, imported if not
    given; ``ImportError`` is raised if it is not installed.
    """
    b2 = box2d or _box2d()
    world = b2.b2World(gravity=(0.0, 0.0), doSleep=True)
    ground = world.CreateStaticBody(position=(0.0, 0.0))
    disc = world.CreateDynamicBody(position=(0.0, 0.0))
    # The hand's short side faces along its way: a rectangle looks the same from both ends, so atan2 is arctan(y / x).
    hand = world.CreateDynamicBody(position=(r_x, r_y), angle=math.atan2(r_y, r_x))
    circle, rectangle = b2.b2CircleShape(radius=DISC["radius"]), b2.b2PolygonShape(box=HAND["half_sides"])
    for body, shape, category in ((disc, circle, DISC), (hand, rectangle, HAND)):
        body.CreateFixture(shape=shape, density=category["density"], friction=category["friction"])
        world.CreateFrictionJoint(
            bodyA=ground, bodyB=body, maxForce=category["max_force"], maxTorque=category["max_torque"]
        )
    distance = math.hypot(r_x, r_y)
    speed = SPEED / distance if distance > 0.0 else 0.0
    target_x, target_y = -r_x * speed, -r_y * speed
    pushing = int(STEPS_PER_UNIT * t) if distance > 0.0 else 0
    for step in range(pushing + FREE_STEPS):
        if step < pushing:
            velocity, gain = hand.linearVelocity, GAIN * hand.mass
            force = (gain * (target_x - velocity[0]), gain * (target_y - velocity[1]))
            hand.ApplyTorque(-gain * hand.angularVelocity, wake=True)
            hand.ApplyForce(force, hand.position, wake=True)
        world.Step(STEP, ITERATIONS, ITERATIONS)
    return float(disc.position[0]), float(disc.position[1])


def _box2d() -> ModuleType:
    try:
        return importlib.import_module("Box2D")
    except ImportError as error:
        raise ImportError(
            "problem 'robot_pushing' simulates with Box2D, which is not installed: run "
            'pip install -e ".[robot]", or pip install Box2D.'
        ) from error
