"""Distance of a pushed object to its goal under perturbed locations (Nguyen et al. 2021, Figure 5).

A hand pushes a ball towards a goal, simulated by Box2D (``pip install -e ".[robot]"``). The goal is ours, (3, 2); the
paper does not state it.
"""

from benchmarks.loops.conditions import ConditionsPanel
from benchmarks.problems.conditions.robot_pushing import RobotPushing
from benchmarks.run import main
from configs.value_at_risk.methods import COMPARE, OTHERS, SEED, STABLE, V_UCB

METHODS = {**V_UCB, **STABLE, **OTHERS}
PANELS = [ConditionsPanel("robot pushing", RobotPushing(), METHODS, trials=10, rounds=60, compare=COMPARE, seed=SEED)]

if __name__ == "__main__":
    main(PANELS)
