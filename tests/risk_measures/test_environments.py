import math

import pytest
import torch
from torch.distributions import Normal, Uniform

from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment, PerturbationEnvironment
from bo_robust.risk_measures.functionals import ValueAtRisk
from tests.problems import unit_box


def box(tkwargs, *pairs):
    return torch.tensor(pairs, **tkwargs).T.contiguous()


def test_finite_points_follow_the_designs(tkwargs):
    z = torch.tensor([[0.1], [0.2], [0.3]], **tkwargs)
    p = torch.tensor([0.5, 0.25, 0.25], **tkwargs)
    environment = FiniteEnvironment(z, p)
    X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], **tkwargs).requires_grad_()
    points = environment.points(X)
    assert points.shape == (2, 3, 3)
    assert points[1].tolist() == [[3.0, 4.0, 0.1], [3.0, 4.0, 0.2], [3.0, 4.0, 0.3]]
    assert torch.autograd.grad(points.sum(), X)[0].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert torch.equal(environment.probabilities, p)
    assert torch.equal(environment.density, p)
    assert (environment.dim, environment.appended) == (1, 1)
    assert environment.points(X[0]).shape == (3, 3)
    equal = FiniteEnvironment(z, torch.full((3,), 1 / 3, **tkwargs))
    assert equal.probabilities is None
    z[0] = 9.0  # a copy is kept
    assert float(environment.z[0]) == 0.1


def test_tensors_move_with_to(tkwargs):
    environment = FiniteEnvironment(torch.zeros(2, 1, **tkwargs), torch.tensor([0.3, 0.7], **tkwargs)).to(torch.float32)
    assert environment.z.dtype == environment.probabilities.dtype == torch.float32


def test_a_distribution_is_truncated_to_the_box(tkwargs):
    """The paper's N(0.5, 0.125^2) cut at two standard deviations: quantiles of z by hand."""
    environment = ContinuousEnvironment(box(tkwargs, (0.25, 0.75)), Normal(0.5, 0.125), num_points=400)
    z = environment.z
    assert z.shape == (400, 1)
    assert float(z.min()) > 0.25
    assert float(z.max()) < 0.75
    cut = 0.5 * math.erfc(2 / math.sqrt(2))
    level = cut + 0.1 * (1 - 2 * cut)
    expected = 0.5 + 0.125 * float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64)))
    assert float(ValueAtRisk(0.1)(z[:, 0])) == pytest.approx(expected, abs=1e-3)
    assert float(z.mean()) == pytest.approx(0.5, abs=1e-9)
    inside = float(environment.log_prob(torch.tensor([0.5], **tkwargs)))
    assert inside == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(0.125) - math.log(1 - 2 * cut), abs=1e-7)
    assert float(environment.log_prob(torch.tensor([0.76], **tkwargs))) == -math.inf
    assert environment.density.argmax() in (199, 200)
    draws = environment.sample(5000, torch.Generator(tkwargs["device"]).manual_seed(0))
    assert float(draws.std()) == pytest.approx(float(z.std()), rel=0.03)


def test_two_dimensions_are_quasi_random(tkwargs):
    bounds = box(tkwargs, (0.0, 1.0), (-1.0, 3.0))
    law = Normal(torch.tensor([0.5, 1.0], **tkwargs), torch.tensor([0.2, 5.0], **tkwargs))
    environment = ContinuousEnvironment(bounds, law, num_points=256, seed=1)
    again = ContinuousEnvironment(bounds, law, num_points=256, seed=1)
    assert torch.equal(environment.z, again.z)
    assert not torch.equal(environment.z, ContinuousEnvironment(bounds, law, num_points=256, seed=2).z)
    assert (environment.z.mean(0) - torch.tensor([0.5, 1.0], **tkwargs)).abs().max() < 0.01
    assert environment.points(torch.zeros(3, 4, **tkwargs)).shape == (3, 256, 6)
    flat = ContinuousEnvironment(bounds, Uniform(bounds[0], bounds[1]))
    assert torch.allclose(flat.density, torch.ones_like(flat.density))


def test_samplers(tkwargs):
    def uniform(n):
        return torch.rand(n, 2, **tkwargs)

    bounds = unit_box(tkwargs)
    environment = ContinuousEnvironment(bounds, sampler=uniform, num_points=20)
    assert environment.z.shape == (20, 2)
    assert environment.density is None
    assert environment.log_prob(environment.z) is None
    ranked = ContinuousEnvironment(bounds, sampler=uniform, log_prob=lambda z: -z.sum(-1), num_points=20)
    assert int(ranked.density.argmax()) == int(ranked.z.sum(-1).argmin())
    assert float(ranked.density.max()) == 1.0


def test_perturbations(tkwargs):
    xi = torch.tensor([[0.0, 0.0], [0.2, -0.1]], **tkwargs)
    X = torch.tensor([[0.9, 0.5], [0.1, 0.05]], **tkwargs)
    points = PerturbationEnvironment(xi, torch.tensor([0.9, 0.1], **tkwargs)).points(X)
    expected = torch.tensor([[[0.9, 0.5], [1.1, 0.4]], [[0.1, 0.05], [0.3, -0.05]]], **tkwargs)
    assert torch.allclose(points, expected)
    inside = PerturbationEnvironment(xi, bounds=unit_box(tkwargs)).points(X)
    assert torch.allclose(inside, expected.clamp(0.0, 1.0))


def test_perturbations_that_depend_on_x(tkwargs):
    def relative(X):
        return torch.stack([0.0 * X, 0.1 * X, -0.1 * X], dim=-2)

    environment = PerturbationEnvironment(relative)
    X = torch.tensor([[1.0, 2.0]], **tkwargs, requires_grad=True)
    points = environment.points(X)
    assert torch.allclose(points, torch.tensor([[[1.0, 2.0], [1.1, 2.2], [0.9, 1.8]]], **tkwargs))
    assert torch.allclose(torch.autograd.grad(points.sum(), X)[0], torch.full((1, 2), 3.0, **tkwargs))
    assert (environment.dim, environment.appended) == (None, 0)
    p = torch.tensor([0.5, 0.25, 0.25], **tkwargs)
    assert PerturbationEnvironment(relative, p).points(X).shape == (1, 3, 2)


def test_the_ball(tkwargs):
    bounds = unit_box(tkwargs, 3)
    environment = PerturbationEnvironment.ball(0.2, bounds, num_points=64)
    xi = environment.perturbations
    length = xi.norm(dim=-1)
    assert float(length[0]) == 0.0
    assert float(length.max()) <= 0.2 + 1e-12
    assert int((length > 0.2 - 1e-9).sum()) == 32
    assert xi.mean(0).abs().max() < 0.03
    corner = environment.points(torch.zeros(1, 3, **tkwargs))
    assert float(corner.min()) == 0.0
    line = PerturbationEnvironment.ball(0.5, box(tkwargs, (-2.0, 2.0)), num_points=3)
    assert line.perturbations[:, 0].tolist() == [-0.5, 0.0, 0.5]
