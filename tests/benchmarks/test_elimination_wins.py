"""The benchmark's worlds are those of the committed experiments, and its figures those of a round by hand."""

import torch

from benchmarks import elimination_wins
from benchmarks.common import ROOT
from bo_robust.algorithms import HEGPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.experiments import files
from bo_robust.experiments.build import build_algorithm, build_problem
from bo_robust.experiments.play import play
from bo_robust.experiments.traces import Traces


def test_a_published_world_is_that_of_its_configuration(monkeypatch):
    monkeypatch.setattr(elimination_wins, "SEEDS", 3)
    world = next(elimination_wins.published(0, None))
    (panel,) = files.load(ROOT / "configs/unknown_hyperparameters/lengthscale.yaml").panels
    problem = build_problem(panel, range(3), None, torch.device("cpu"))
    he = build_algorithm(panel.algorithms[0], panel, problem)
    traces = Traces(panel.horizon, 3, torch.device("cpu"), torch.float64)
    play(he, problem, range(3), 0, problem.noise_var, traces, initial=panel.initial)
    regret = problem.optimum.unsqueeze(1) - problem.f.gather(1, traces.arms.long().T)
    ours = elimination_wins.average_regret(world, elimination_wins.algorithm(world, "errors"))
    torch.testing.assert_close(ours, regret[:, panel.initial :].mean(1))
    assert world.name == "(a) lengthscale, HE-GP-UCB"


def test_average_regret_by_hand():
    """Two arms of values 0 and 1, one candidate: the design pulls arm 0, the round after it arm 1, then arm 1."""
    f = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    zeros = torch.zeros(3, 1, dtype=torch.float64)
    world = elimination_wins.World(
        "by hand",
        torch.eye(2, dtype=torch.float64)[None],
        f,
        1.0 - f,
        zeros,
        zeros,
        zeros[:1].long(),
        ConstantWidth(1.0),
    )
    assert elimination_wins.average_regret(world, HEGPUCB(world.width, 0.1, 0.1)).tolist() == [0.0]
    moved = elimination_wins.replace(world, regret=f)  # as if arm 1 cost 1
    assert elimination_wins.average_regret(moved, HEGPUCB(world.width, 0.1, 0.1)).tolist() == [1.0]


def test_a_difference_is_paired_and_relative(monkeypatch):
    regrets = {"likeliest": [1.0, 3.0], "likelihood": [0.5, 2.5], "errors": [2.0, 2.0]}
    monkeypatch.setattr(elimination_wins, "algorithm", lambda world, form: form)
    monkeypatch.setattr(elimination_wins, "average_regret", lambda world, form: torch.tensor(regrets[form]).double())
    world = next(elimination_wins.published(0, None))
    found = elimination_wins.compared(elimination_wins.replace(world, conditions=2))
    assert (found["difference"], found["half"], found["likeliest"], found["seeds"]) == (-0.25, 0.0, 2.0, 2.0)
