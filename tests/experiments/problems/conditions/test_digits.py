"""Tuning on digits: determinism, what corruption does, the cache, devices and dtypes."""

import importlib
import sys

import pytest
import torch

from bo_robust.experiments.problems import make_conditions_problem as make
from bo_robust.experiments.problems.conditions import value_at_risk
from bo_robust.experiments.problems.conditions.digits import rotated

pytest.importorskip("sklearn")

GOOD = (-2.0, -1.0, 5.0)


@pytest.fixture(scope="module")
def problem(request):
    return make("digits", device=request.getfixturevalue("device"))


def inputs(problem, x, z):
    return torch.tensor([[*x, *row] for row in z], dtype=torch.float64, device=problem.x_bounds.device)


def test_missing_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        make("digits")


def test_constants(problem):
    assert (problem.dim_x, problem.dim_z, problem.alpha) == (3, 2, 0.1)
    assert problem.points.shape == (64, 2)
    # P(level 0, angle a) / P(level .5, angle a) = exp((.5 / .25)^2).
    ratio = problem.probabilities[3] / problem.probabilities[7 * 8 + 3]
    assert float(ratio.log()) == pytest.approx(4.0)


def test_accuracy_falls_with_corruption(problem):
    clean, noisy, turned = problem.f(inputs(problem, GOOD, [(0.0, 0.0), (0.5, 0.0), (0.0, 40.0)])).tolist()
    assert clean > 0.93
    assert noisy < clean - 0.1
    assert turned < clean - 0.1


def test_bad_hyperparameters_are_bad(problem):
    good, slow = problem.f(
        torch.cat([inputs(problem, GOOD, [(0.0, 0.0)]), inputs(problem, (-4.0, -1.0, 1.0), [(0.0, 0.0)])])
    ).tolist()
    assert slow < good - 0.2


def test_same_seed_same_values_and_one_training_per_decision(problem, device, monkeypatch):
    x = (-2.5, 0.0, 4.0)
    z = [(0.1, 5.0), (0.3, -20.0)]
    first = problem.f(inputs(problem, x, z))
    module = importlib.import_module("bo_robust.experiments.problems.conditions.digits")

    def refuse(*_):
        raise AssertionError("trained twice")

    with monkeypatch.context() as patch:
        patch.setattr(module, "trained", refuse)
        assert torch.equal(problem.f(inputs(problem, x, z)), first)
        one_by_one = torch.cat([problem.f(inputs(problem, x, [row])) for row in z])
        torch.testing.assert_close(one_by_one, first, atol=1.5 / 706, rtol=0.0)
        mixed = torch.cat([inputs(problem, x, z[:1]), inputs(problem, GOOD, z[:1]), inputs(problem, x, z[1:])])
    torch.testing.assert_close(problem.f(mixed)[[0, 2]], first, atol=1.5 / 706, rtol=0.0)
    again = make("digits", device=device)
    torch.testing.assert_close(again.f(inputs(again, x, z)), first, atol=1.5 / 706, rtol=0.0)
    other = make("digits", device=device, seed=1, pretrained=False)
    assert not torch.equal(other.f(inputs(other, x, z)), first)


def test_a_full_evaluation_is_an_accuracy(problem):
    assert 0.0 < float(value_at_risk(problem, problem.x_bounds.mean(0, keepdim=True))) < 1.0


def test_single_precision(device):
    problem = make("digits", device=device, dtype=torch.float32, pretrained=False)
    y = problem.f(torch.tensor([[*GOOD, 0.0, 0.0]], device=device))
    assert (y.dtype, y.shape) == (torch.float32, (1,))
    assert float(y) > 0.9


def test_rotation_by_hand(device):
    picture = torch.zeros(8, 8, dtype=torch.float64, device=device)
    picture[0, 2] = 1.0
    angles = torch.tensor([0.0, 90.0, 180.0, -90.0], dtype=torch.float64, device=device)
    turned = rotated(picture.reshape(1, 64), angles).reshape(4, 8, 8)
    torch.testing.assert_close(turned[0], picture)
    torch.testing.assert_close(turned[2], picture.flip(0, 1))
    torch.testing.assert_close(turned[1], turned[3].flip(0, 1))
    torch.testing.assert_close(turned[1], torch.rot90(picture, 1))
