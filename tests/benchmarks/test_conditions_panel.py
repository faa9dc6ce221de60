import dataclasses
import math

import numpy as np
import pytest
import torch

from benchmarks.loops.conditions import ConditionsPanel, initial_pairs
from benchmarks.methods.conditions import VUCB, GPUCBMean, Random
from benchmarks.methods.shared_gp import SharedGP
from benchmarks.problems.conditions.base import regret
from benchmarks.problems.conditions.synthetic import Branin, Hartmann3OneTwo

# One for all tests, whose optimum is searched once.
BRANIN = Branin().make("cpu")
SEARCH = {"restarts": 1, "raw_samples": 8, "maxiter": 5}
PANEL = ConditionsPanel("B", Branin(), {"RANDOM": Random()}, trials=1, rounds=3)


def run(method, trial=0, problem=None, **over):
    return dataclasses.replace(PANEL, **over).run_trial(problem or BRANIN, method, trial)


def test_a_fit_that_leaves_no_cholesky_factor_ends_no_trial(monkeypatch):
    mean, signal_var, noise_var = torch.tensor([0.0, 1e13, 1e-4]).double()
    monkeypatch.setattr(SharedGP, "fit", lambda gp, X, Y: gp._set(mean, signal_var, noise_var, 1e4) is None)
    assert len(run(Random(), rounds=2)["regret"]) == 3


def test_rows(device):
    problem = Branin().make(device)
    rows = run(VUCB(**SEARCH), problem=problem)
    assert rows["round"] == [0, 1, 2, 3]
    assert rows["fit_ok"] == [True] * 4
    assert all(c >= i - 1e-9 for c, i in zip(rows["regret_bound"], rows["interval"], strict=True))
    assert rows["point"][-1] is None
    X = initial_pairs(problem, problem.initial, 0, 0)
    assert rows["regret"][0] in regret(problem, X[:, :1]).tolist()
    assert rows["regret"] == pytest.approx(regret(problem, torch.tensor(rows["recommended"]).to(X)).tolist())
    point = torch.tensor(rows["point"][0], dtype=torch.float64, device=device)
    assert abs(rows["y"][0] - float(problem.f(point))) < 0.5  # noise of standard deviation 0.1


def test_trials_are_fixed_by_their_seeds():
    """Whatever was drawn from the global generator, which they leave alone."""
    first = run(Random(), trial=1)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    again = run(Random(), trial=1)
    assert torch.equal(torch.get_rng_state(), state)
    for column in ("regret", "point", "y"):
        np.testing.assert_equal(first[column], again[column])
    assert run(Random(), trial=2)["point"] != first["point"]
    assert run(Random(), trial=1, seed=1)["point"] != first["point"]


def test_methods_start_alike():
    a, b = run(Random()), run(GPUCBMean(**SEARCH))
    assert (a["regret"][0], a["interval"][0]) == (b["regret"][0], b["interval"][0])
    assert a["point"][0] != b["point"][0]
    assert all(math.isnan(c) for c in b["regret_bound"])


def test_the_regret_bound_counts_known_designs(monkeypatch):
    """However bad the search, max VaR(u) is at least what the recommendation itself has."""
    monkeypatch.setattr(VUCB, "propose", lambda self, now: now.problem.x_bounds.new_tensor([0.0, 0.0]))
    rows = run(VUCB(**SEARCH))
    assert all(c >= i - 1e-9 for c, i in zip(rows["regret_bound"], rows["interval"], strict=True))


def test_the_initial_design(device):
    problem = Hartmann3OneTwo().make(device)
    X = initial_pairs(problem, 200, 0, 0)
    assert X.shape == (200, 3)
    assert X.device.type == device.type
    assert bool((X[:, 1:].unsqueeze(1) == problem.points).all(-1).any(1).all())
    assert len(X[:, 1:].unique(dim=0)) > 50  # 64 points, uniformly; 25 hold the mass
    assert torch.equal(X[:5], initial_pairs(problem, 5, 0, 0))
