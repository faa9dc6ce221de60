import pandas as pd
import pytest
import torch
from bo_robust.experiments import run as runs
from bo_robust.experiments.build import build_algorithm
from bo_robust.experiments.config import parse
from bo_robust.experiments.errors import RunError

from benchmarks.problems import make_problem
from bo_robust.bandits import VUCB
from bo_robust.risk_measures.functionals import ValueAtRisk


def test_a_ball_by_hand():
    line = {"kind": "unknown_lengthscale", "num_arms": 6}  # steps of .2
    problem = make_problem("ball", range(2), 0, of=line, epsilon=0.2)
    inner = make_problem("unknown_lengthscale", [0], 0, num_arms=6)
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
    problem = make_problem("conditions", range(2), 0, of={"kind": "branin"}, designs=5)
    assert problem.num_arms == 5 * 100
    p = torch.tensor(problem.probabilities, dtype=problem.f.dtype)
    torch.testing.assert_close(problem.value[0, ::100], ValueAtRisk(0.1)(problem.f[0].view(5, 100), p))
    assert problem.value[0, 100:200].unique().numel() == 1


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"kind": "ball", "of": {"kind": "many_arms", "num_arms": 20}}, "even points of the line"),
        ({"kind": "ball", "of": {"kind": "branin"}}, "unknown `of` of problem 'ball'"),
        ({"kind": "conditions", "of": {"kind": "branin", "z": "continuous"}}, "Z finite"),
        ({"kind": "gp_draw"}, "needs designs with conditions"),
    ],
)
def test_problems_without_pairs_are_refused(problem, message, tmp_path):
    panel = {"name": "p", "problem": problem, "methods": [{"name": "stable-opt", "width": {"kind": "log"}}]}
    with pytest.raises(RunError, match=message):
        runs.start(parse({"trials": 1, "horizon": 4, "panels": [panel]}), tmp_path / "out")


def test_pair_algorithms_get_what_the_problem_knows():
    of = {"of": {"kind": "branin"}}
    panel = parse({"panels": [{"name": "p", "problem": {"kind": "conditions"} | of, "methods": ["v-ucb"]}]}).panels[0]
    problem = make_problem("conditions", [0], 0, **of)
    made = build_algorithm(panel.methods[0], panel, problem)
    assert isinstance(made, VUCB)
    assert (made.num_conditions, made.probabilities, made.functional) == (100, problem.probabilities, ValueAtRisk(0.1))


@pytest.mark.parametrize("name", ["v-ucb", "stable-opt", "he-stable-opt"])
def test_recommended_is_the_design_that_the_algorithm_recommends(name, tmp_path):
    of = {"kind": "unknown_lengthscale", "num_arms": 41}
    panel = {"name": "p", "problem": {"kind": "ball", "epsilon": 0.1, "of": of}}
    method = {"name": name, "width": {"kind": "constant", "value": 2.0}}
    runs.start(parse({"trials": 3, "horizon": 40, "panels": [panel | {"methods": [method]}]}), tmp_path / "out")
    traces = pd.read_parquet(tmp_path / "out/traces.parquet")
    last = traces[traces["round"] == 40]
    problem = make_problem("ball", range(3), 0, of=of, epsilon=0.1)
    assert (last["recommended"] % problem.num_conditions == 0).all()
    assert (last["simple_regret"] < 0.1).all()  # the bump, best without the ball, has 0.19
    for _, row in last.iterrows():
        value = float(problem.value[int(row["trial"]), int(row["recommended"])])
        assert row["simple_regret"] == pytest.approx(float(problem.optimum[0]) - value, abs=1e-12)
