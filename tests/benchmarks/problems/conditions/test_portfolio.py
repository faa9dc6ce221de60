import json

import pytest
import torch

from benchmarks.problems.conditions.base import optimum, value_at_risk
from benchmarks.problems.conditions.portfolio import Portfolio, saved_gp
from benchmarks.problems.data import load_npz, verified


@pytest.fixture(scope="module")
def problem(request):
    request.getfixturevalue("data_dir")
    return Portfolio().make(request.getfixturevalue("device"))


@pytest.fixture(scope="module")
def data(data_dir, device):
    arrays = load_npz("borisk_portfolio")
    return tuple(torch.from_numpy(arrays[key]).double().to(device) for key in ("X", "Y"))


def test_posterior_mean_predicts_the_return(problem, data, data_dir):
    X, loss = data
    saved = json.loads(verified("borisk_portfolio_surrogate").read_bytes())
    covariance, noise_var, constant = saved_gp(saved)
    assert float((problem.f(X) + loss).square().mean().sqrt()) < 0.35
    # Leave-one-out error 0.93 % a year (README): residual i without i is [K^-1 (y - c)]_i / [K^-1]_ii.
    K = covariance(X, X)
    K.diagonal().add_(noise_var)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(K))
    standard = (loss - loss.mean()) / loss.std() - constant
    left_out = inverse @ standard / inverse.diagonal() * loss.std()
    assert float(left_out.square().mean().sqrt()) == pytest.approx(0.93, abs=0.005)
    # f by a dense solve at the first rows: mean + k (K + noise)^-1 residual, negated.
    at = X[:5] * 0.9
    dense = loss.mean() + loss.std() * (constant + covariance(at, X) @ (inverse @ standard))
    torch.testing.assert_close(problem.f(at), -dense, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_optimum(problem):
    best = optimum(problem)
    # A run of the grid of 12^3 and refinement gave 17.7655 at (0, 1, 0.589).
    assert best.value == pytest.approx(17.7655, abs=1e-3)
    assert best.x.tolist() == pytest.approx([0.0, 1.0, 0.589], abs=0.01)
    X = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(best.x)
    assert float(value_at_risk(problem, X).max()) < best.value
