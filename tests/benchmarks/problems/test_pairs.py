import pytest
import torch

from benchmarks.loops.arms import ArmsPanel
from benchmarks.problems.base import Trials
from benchmarks.problems.conditions.synthetic import Branin
from benchmarks.problems.pairs import Ball, Conditions
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale
from bo_robust.bandits import VUCB, HEStableOpt, StableOpt
from bo_robust.confidence import ConstantWidth
from bo_robust.risk_measures.functionals import ValueAtRisk

TWO = ConstantWidth(2.0)


def test_a_ball_by_hand():
    line = UnknownLengthscale(num_arms=6)  # steps of .2
    problem, inner = (kind.make(Trials(range(2), 0)) for kind in (Ball(line, epsilon=0.2), line))
    assert problem.num_conditions == 3
    assert problem.arms.flatten().tolist() == pytest.approx(
        [0, 0, 0.2, 0, 0.2, 0.4, 0.2, 0.4, 0.6, 0.4, 0.6, 0.8, 0.6, 0.8, 1, 0.8, 1, 1]
    )
    f = inner.f[0].tolist()
    worst = [min(f[max(i - 1, 0) : i + 2]) for i in range(6)]
    assert problem.value[1, ::3].tolist() == pytest.approx(worst)
    assert problem.optimum.tolist() == pytest.approx([max(worst)] * 2)
    assert problem.candidates.kernels[2, 1, 2] == pytest.approx(float(inner.candidates.kernels[2, 0, 1]))


def test_conditions_are_the_grid_of_the_inner_problem():
    problem = Conditions(Branin(), designs=5).make(Trials(range(2), 0))
    assert problem.num_arms == 5 * 100
    p = torch.tensor(problem.probabilities, dtype=problem.f.dtype)
    torch.testing.assert_close(problem.value[0, ::100], ValueAtRisk(0.1)(problem.f[0].view(5, 100), p))
    assert problem.value[0, 100:200].unique().numel() == 1


@pytest.mark.parametrize(
    "method",
    [
        lambda p: VUCB(TWO, p.functional, p.num_conditions),
        lambda p: StableOpt(TWO, p.num_conditions),
        lambda p: HEStableOpt(TWO, p.noise_scale, 0.1, p.num_conditions),
    ],
)
def test_recommended_is_the_design_that_the_algorithm_recommends(method):
    kind, cpu = Ball(UnknownLengthscale(num_arms=41), epsilon=0.1), torch.device("cpu")
    traces, _ = ArmsPanel("p", kind, {"A": method}, 3, 40).made(cpu).run("A", range(3), cpu)
    last, problem = traces[traces["round"] == 40], kind.make(Trials(range(3), 0))
    assert (last["recommended"] % problem.num_conditions == 0).all()
    assert (last["simple_regret"] < 0.1).all()  # the bump, best without the ball, has 0.19
    for _, row in last.iterrows():
        value = float(problem.value[int(row["trial"]), int(row["recommended"])])
        assert row["simple_regret"] == pytest.approx(float(problem.optimum[0]) - value, abs=1e-12)
