import itertools
import json
import math

import pytest
import torch
from gpytorch.kernels import PeriodicKernel

from bo_robust.models.candidate_priors import candidate, candidate_grid
from bo_robust.utils.covariance import Matern, SquaredExponential


def test_one_range_is_a_log_grid_in_steps_of_at_most_two():
    U = candidate_grid((0.1, 0.8), 0.01)
    assert [u["lengthscale"] for u in U] == pytest.approx([0.1, 0.2, 0.4, 0.8], rel=1e-12)
    assert all(
        u | {"lengthscale": 0} == {"kernel": "rbf", "lengthscale": 0, "noise_var": 0.01, "outputscale": 1.0} for u in U
    )
    finer = [u["lengthscale"] for u in candidate_grid((0.1, 0.9), 0.01)]
    steps = [b / a for a, b in itertools.pairwise(finer)]
    assert len(finer) == 5
    assert max(steps) <= 2.0
    assert min(steps) == pytest.approx(max(steps))
    assert [u["noise_var"] for u in candidate_grid(0.3, (1e-4, 1e-2), num=3)] == pytest.approx([1e-4, 1e-3, 1e-2])
    assert [u["lengthscale"] for u in candidate_grid((0.1, 0.4), 0.01, num=1)] == pytest.approx([0.2])


def test_several_ranges_are_quasi_random_in_logarithms():
    U = candidate_grid((0.01, 1.0), (1e-4, 1.0), (0.5, 2.0), seed=3)
    assert len(U) == 16
    for name, (low, high) in {"lengthscale": (0.01, 1.0), "noise_var": (1e-4, 1.0), "outputscale": (0.5, 2.0)}.items():
        at = sorted(math.log(u[name] / low) / math.log(high / low) for u in U)
        # a Sobol sequence of 16 has one point in each sixteenth
        assert [math.floor(16 * a) for a in at] == list(range(16)), name
    assert candidate_grid((0.01, 1.0), (1e-4, 1.0), (0.5, 2.0), seed=3) == U
    assert candidate_grid((0.01, 1.0), (1e-4, 1.0), (0.5, 2.0), seed=4) != U


def test_families_are_settings_of_candidates():
    families = ["rbf", "matern12", {"kernel": "periodic", "period": 7.0}, {"kernel": "rbf", "groups": [[0], [1]]}]
    U = candidate_grid((0.2, 0.4), 0.01, kernels=families)
    assert json.loads(json.dumps(U)) == U
    made = [candidate(**u) for u in U]
    assert len({c.name for c in made}) == len(made) == 8
    X = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for c in made:
        torch.testing.assert_close(c.covar_module(X, diag=True).detach(), torch.ones(5, dtype=torch.float64))
    assert len(candidate_grid(0.2, 0.01, kernels=families)) == 4


def test_candidates_by_settings(device):
    X = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    for settings, ours in (
        ({"kernel": "rbf", "lengthscale": 0.3}, SquaredExponential(0.3)),
        ({"kernel": "matern", "lengthscale": [0.3, 0.6], "nu": 0.5, "outputscale": 2.0}, Matern(0.5, (0.3, 0.6), 2.0)),
    ):
        made = candidate(**settings, noise_var=0.1)
        torch.testing.assert_close(made.covar_module.to(X)(X).to_dense(), ours(X, X), atol=1e-7, rtol=1e-7)
    periodic = candidate("periodic", 0.5, 0.1, period=0.25).covar_module.to(X).requires_grad_(False)
    assert isinstance(periodic, PeriodicKernel)
    assert float(periodic(X[:1], X[:1] + 0.5).to_dense()) == pytest.approx(1.0)
    additive = candidate("rbf", 0.3, 0.1, groups=[[0], [1]], outputscale=3.0)
    halves = sum(SquaredExponential(0.3)(x, x) for x in (X[:, :1], X[:, 1:]))
    torch.testing.assert_close(additive.covar_module.to(X)(X).to_dense(), 1.5 * halves)
    assert additive.name == "rbf(lengthscale=0.3, groups=[[0], [1]], outputscale=3.0)"


def test_families_of_a_grid_are_kernels_by_name():
    named, given = candidate("matern32", 0.3, 0.1), candidate("matern", 0.3, 0.1, nu=1.5)
    assert named.name == given.name == "matern(lengthscale=0.3, nu=1.5)"
    assert named.covar_module.nu == 1.5
    assert candidate("matern52", 0.3, 0.1).covar_module.nu == candidate("matern", 0.3, 0.1).covar_module.nu == 2.5
