"""Ray Chowdhury & Gopalan 2019, Fig. 1 (b): SE kernel, rewards Pareto(shape 2, scale f / 2), f > 0, alpha = 0.9."""

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.rewards import ParetoRewards
from benchmarks.problems.synthetic import RKHSFunction
from benchmarks.run import main
from bo_robust.bandits import RandomArm
from configs.heavy_tails.methods import COMPARE, figure

METHODS = {**figure(32, 32), "random": RandomArm()}
PROBLEM = RKHSFunction(positive=True, noise=ParetoRewards(), alpha=0.9)
PANELS = [ArmsPanel("(b) SE, Pareto", PROBLEM, METHODS, trials=20, rounds=20000, compare=COMPARE)]

if __name__ == "__main__":
    main(PANELS)
