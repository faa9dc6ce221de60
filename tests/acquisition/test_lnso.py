from functools import partial

import pytest
import torch
from botorch.models import SingleTaskGP

from bo_robust.acquisition import lnso
from bo_robust.acquisition.lnso import climb, optimize_lnso
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.ops.cuda_graphs import Repeated, cuda_graph
from bo_robust.risk_measures.environments import ContinuousEnvironment
from bo_robust.utils import linalg
from tests.graphs import Graphs
from tests.problems import rand, unit_box

ALPHA = 0.1


def uniform(tkwargs):
    low, high = box = unit_box(tkwargs, 1)
    return ContinuousEnvironment(box, torch.distributions.Uniform(low, high, validate_args=False))


def bound(tkwargs):
    """Of a GP over x and z."""
    X = rand(tkwargs, 12, 2)
    model = SingleTaskGP(X, torch.sin(5 * X[:, :1]) * torch.cos(3 * X[:, 1:]), torch.full_like(X[:, :1], 0.01)).eval()
    return ValueAtRiskUCB(model, uniform(tkwargs), ALPHA, 2.0)


def hill(points):
    """-(x - 0.6)^2 + z / 10: with Z uniform its VaR is -(x - 0.6)^2 + alpha / 10."""
    return -(points[:, :-1] - 0.6).square().sum(-1) + points[:, -1] / 10


@pytest.mark.parametrize("d", [1, 2])
def test_climbs_to_the_top_over_many_balls(tkwargs, d):
    """From 0.05, five and a half radii away, in a box of another size."""
    low, high = torch.tensor([[-3.0], [7.0]], **tkwargs).expand(2, d)
    bounds = torch.stack([low, high])
    starts = low + (high - low) * torch.tensor([[0.05], [0.5], [1.0]], **tkwargs).expand(3, d)
    environment = uniform(tkwargs)

    def u(points):
        unit = (points[:, :-1] - low) / (high - low)
        return 1e3 * hill(torch.cat([unit, points[:, -1:]], -1))

    ends = climb(u, environment, bounds, starts, ALPHA, rounds=10, fit_steps=100, ascent_steps=30)
    unit = (ends - low) / (high - low)
    assert float((unit - 0.6).abs().max()) < 0.06


def test_moves_about_a_radius_a_round_and_stays_in_the_box(tkwargs):
    starts = torch.tensor([[0.1], [0.95]], **tkwargs)
    settings = {"fit_steps": 40, "ascent_steps": 40, "num_x": 20}

    def slope(points):
        return 5 * points[:, 0] + points[:, 1]

    for rounds in (1, 3):
        ends = climb(slope, uniform(tkwargs), unit_box(tkwargs, 1), starts, ALPHA, rounds=rounds, **settings)
        # Adam's step is at most about a tenth of the radius, so a ball is left by no more than that.
        assert 0.099 * rounds <= float(ends[0] - starts[0]) <= 0.12 * rounds
        assert float(ends[1]) == 1.0


def test_optimizes_a_value_at_risk_ucb(tkwargs):
    acqf = bound(tkwargs)
    grid = torch.linspace(0, 1, 201, **tkwargs).view(-1, 1, 1)
    with torch.no_grad():
        values = acqf(grid)
    settings = {"rounds": 4, "fit_steps": 60, "num_x": 20}
    x, value = optimize_lnso(acqf, unit_box(tkwargs, 1), num_starts=4, **settings)
    assert x.shape == (1, 1)
    assert value.shape == ()
    spread = float(values.max() - values.min())
    exact = float(acqf(x).detach())
    assert float(values.max()) - exact < 0.02 * spread
    assert float(value) == pytest.approx(exact, abs=0.02 * spread)
    again, _ = optimize_lnso(acqf, unit_box(tkwargs, 1), num_starts=4, **settings)
    torch.testing.assert_close(again, x)


def test_never_worse_than_the_starts(tkwargs):
    acqf = bound(tkwargs)
    settings = {"rounds": 2, "fit_steps": 5, "ascent_steps": 5, "num_x": 7, "num_z": 3}
    settings |= {"fit_rate": 1e-12, "ascent_rate": 1.0}  # networks that know nothing
    _, value = optimize_lnso(acqf, unit_box(tkwargs, 1), 16, **settings)
    starts = torch.quasirandom.SobolEngine(1, scramble=True, seed=0).draw(16, dtype=torch.float64).to(**tkwargs)
    with torch.no_grad():
        assert float(value) >= float(acqf(starts.unsqueeze(1)).max()) - 0.01  # by draws of Z, and by points


STEPS = {"rounds": 4, "fit_steps": 12, "ascent_steps": 6, "num_x": 7, "num_z": 5}


def ends(capture, monkeypatch, tkwargs):
    monkeypatch.setattr(lnso, "Repeated", partial(Repeated, capture=capture))
    starts = torch.tensor([[0.1], [0.5], [0.95]], **tkwargs)
    return climb(hill, uniform(tkwargs), unit_box(tkwargs, 1), starts, ALPHA, **STEPS)


def test_replayed_steps_are_the_eager_ones_to_the_bit(monkeypatch):
    """The first step of each kind is eager, the second is recorded; without a graph they are those of a CPU."""
    tkwargs, graphs = {"dtype": torch.float64, "device": torch.device("cpu")}, Graphs()
    eager = ends(None, monkeypatch, tkwargs)
    monkeypatch.setattr(linalg, "simulated", True)
    assert torch.equal(ends(graphs, monkeypatch, tkwargs), eager)
    assert (len(graphs.graphs), graphs.replays) == (2, 4 * 12 - 1 + 4 * 6 - 1)


def test_a_graph_of_cuda_replays_the_eager_steps(tkwargs, monkeypatch):
    if tkwargs["device"].type != "cuda":
        pytest.skip("needs CUDA: --device cuda")
    eager = ends(lambda device, work: work, monkeypatch, tkwargs)
    assert torch.equal(ends(cuda_graph, monkeypatch, tkwargs), eager)
