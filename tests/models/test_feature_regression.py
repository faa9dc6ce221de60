import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from bo_robust.models.feature_regression import gain_of_precision, gaussian_weights, log_evidence, precision_matrix


def data(tkwargs, n, p, *batch, seed=0):
    g = torch.Generator().manual_seed(seed)
    Phi, y = (torch.randn(*batch, *shape, generator=g, dtype=torch.float64).to(**tkwargs) for shape in ((n, p), (n,)))
    return Phi, y, torch.tensor(0.3, **tkwargs)


@pytest.mark.parametrize(("n", "p"), [(7, 3), (3, 7), (1, 1)])
def test_evidence_and_gain_against_dense_matrices(tkwargs, n, p):
    Phi, y, noise_var = data(tkwargs, n, p)
    eye = torch.eye(n, **tkwargs)
    dense = MultivariateNormal(torch.zeros(n, **tkwargs), Phi @ Phi.mT + noise_var * eye).log_prob(y)
    torch.testing.assert_close(log_evidence(Phi, y, noise_var), dense, atol=1e-10, rtol=0)
    gain = 0.5 * torch.logdet(eye + Phi @ Phi.mT / noise_var)
    torch.testing.assert_close(gain_of_precision(precision_matrix(Phi, noise_var), noise_var), gain, atol=1e-10, rtol=0)


def test_evidence_by_hand(tkwargs):
    # One feature of 2 and one reward of 3: y ~ N(0, 4 + 0.5).
    value = log_evidence(*(torch.tensor(x, **tkwargs) for x in ([[2.0]], [3.0], 0.5)))
    assert float(value) == pytest.approx(-0.5 * (9.0 / 4.5 + math.log(4.5) + math.log(2.0 * math.pi)), abs=1e-14)


def test_observing_in_parts_equals_observing_at_once(tkwargs):
    Phi, y, noise_var = data(tkwargs, 12, 4)

    def weights(rows):
        return gaussian_weights(precision_matrix(Phi[rows], noise_var), Phi[rows].mT @ y[rows], noise_var)

    whole, parts = weights(slice(None)), weights(slice(5)).observe(Phi[5:9], y[5:9]).observe(Phi[9:], y[9:])
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    V = Phi.mT @ Phi + noise_var * torch.eye(4, **tkwargs)
    torch.testing.assert_close(whole.mean, torch.linalg.solve(V, Phi.mT @ y), atol=1e-12, rtol=0)
    torch.testing.assert_close(whole.root.mT @ whole.root, torch.linalg.inv(V), atol=1e-12, rtol=0)
    mean, spread = whole.predict(Phi)
    torch.testing.assert_close(mean, Phi @ whole.mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(spread @ spread.mT, noise_var * Phi @ torch.linalg.solve(V, Phi.mT), atol=1e-12, rtol=0)


def test_float32_features_keep_the_noise_variance(device):
    """20,000 copies of one of two rows: noise_var = 1e-4 is below the rounding of 20,000 in float32."""
    Phi = torch.tensor([[0.8, 0.6]], device=device).repeat(20_000, 1)
    y, noise_var = torch.ones(20_000, device=device), torch.tensor(1e-4, device=device)
    weights = gaussian_weights(precision_matrix(Phi, noise_var), Phi.double().mT @ y.double(), noise_var)
    other = torch.tensor([[-0.6, 0.8]], device=device)  # orthogonal: nothing is known
    spread = weights.observe(Phi[:1], y[:1]).predict(other)[1]
    assert spread.dtype == weights.mean.dtype == torch.float32
    assert float(spread.square().sum()) == pytest.approx(1.0, abs=1e-4)
    exact = log_evidence(Phi.double(), y.double(), noise_var.double())
    assert float(log_evidence(Phi, y, noise_var)) == pytest.approx(float(exact), rel=1e-6)
    assert gain_of_precision(precision_matrix(Phi, noise_var), noise_var).dtype == torch.float32


def test_many_outcomes_of_a_batch_of_points_share_their_root(tkwargs):
    Phi, y, noise_var = data(tkwargs, 6, 4)
    base = gaussian_weights(precision_matrix(Phi, noise_var), Phi.mT @ y, noise_var)
    Phi_new, y_new, _ = data(tkwargs, 2, 4, 5, 3, seed=1)
    Phi_new = Phi_new[0]
    many = base.observe(Phi_new, y_new)
    assert many.root.shape == (3, 4, 4)
    assert many.mean.shape == (5, 3, 4)
    mean, spread = many.predict(Phi)
    assert mean.shape == (5, 3, 6)
    for i in range(5):
        for j in range(3):
            one = base.observe(Phi_new[j], y_new[i, j])
            torch.testing.assert_close(many.mean[i, j], one.mean, atol=1e-12, rtol=0)
            torch.testing.assert_close(spread[j], one.predict(Phi)[1], atol=1e-12, rtol=0)
