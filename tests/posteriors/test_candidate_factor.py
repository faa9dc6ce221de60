"""One factor of all rows says what the sequential posteriors over arms said of each, and grows in pieces."""

import pytest
import torch

from bo_robust.covariance import Matern, SquaredExponential
from bo_robust.posteriors import candidates
from bo_robust.posteriors.candidate_factor import CandidateFactor

N, ROUNDS, NAMES = 15, 12, ("smooth", "rough")


@pytest.fixture
def rows(device):
    """Kernel over the arms, lambda, prior mean, and arms pulled with their rewards."""
    g = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(1).to(device)
    kernel = candidates.candidate_kernel([SquaredExponential(0.3), Matern(1.5, 0.1)], x)
    noise = torch.tensor([0.1, 0.3], dtype=torch.float64, device=device)
    prior = torch.randn(2, N, generator=g, dtype=torch.float64).to(device)
    pulls = torch.randint(0, N, (ROUNDS,), generator=g).to(device)
    return kernel, noise, prior, pulls, torch.randn(ROUNDS, generator=g, dtype=torch.float64).to(device)


def extended(factor, rows, new, old, rewards=True):
    kernel, _, prior, pulls, y = rows
    K = kernel.matrix[:, pulls][:, :, pulls]
    error = (y - prior[:, pulls])[:, new] if rewards else None
    return factor.extended(K[:, old, new], K[:, new, new], error, NAMES)


def test_predictions_are_those_of_the_posterior_over_arms(rows):
    kernel, noise, prior, pulls, y = rows
    empty = CandidateFactor.empty(noise.unsqueeze(1))
    factor = extended(empty, rows, slice(None), slice(0, 0))
    said = factor.predictions(y)
    posterior = candidates.init(kernel, noise, prior_mean=prior)
    for i, (arm, reward) in enumerate(zip(pulls, y, strict=True)):
        _, error, mean, variance = candidates.observe(posterior, arm.view(1), reward.view(1))
        torch.testing.assert_close(said.mean[:, i], mean[0].cpu(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(y[i].cpu() - said.mean[:, i], error[0].cpu(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(said.sd[:, i].square(), variance[0].cpu(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(said.log_density.sum(1), posterior.evidence[0].cpu(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(said.gain.sum(1), posterior.gains[0].cpu(), rtol=1e-9, atol=1e-11)
    S = factor.solved(kernel.matrix[:, pulls])
    torch.testing.assert_close(prior + factor.raised(S), posterior.means[0], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(kernel.diagonal - S.square().sum(1), posterior.variances[0], rtol=1e-9, atol=1e-10)


def test_a_factor_grows_in_pieces(rows):
    _, noise, _, _, y = rows
    whole = extended(CandidateFactor.empty(noise.unsqueeze(1)), rows, slice(None), slice(0, 0))
    half = extended(CandidateFactor.empty(noise.unsqueeze(1)), rows, slice(0, 5), slice(0, 0))
    grown = extended(half, rows, slice(5, None), slice(0, 5))
    torch.testing.assert_close(grown.L, whole.L)
    torch.testing.assert_close(grown.z, whole.z)
    late = grown.predictions(y[5:])
    torch.testing.assert_close(late.mean, whole.predictions(y).mean[:, 5:])
    assert late.gain.shape == (2, ROUNDS - 5)
    expecting = extended(half, rows, slice(5, None), slice(0, 5), rewards=False)
    assert not expecting.z[:, 5:].any()  # what every candidate expects moves no mean
    assert torch.equal(expecting.L, grown.L)
    assert torch.equal(grown.subset([1]).L[0], grown.L[1])


def test_a_kernel_that_is_none_is_named(rows):
    _, noise, *_ = rows
    good = torch.ones(2, 2, dtype=torch.float64, device=noise.device) + torch.eye(2, device=noise.device)
    within = torch.stack([good, good - 3.0 * torch.eye(2, device=noise.device)])
    with pytest.raises(ValueError, match=r"rough: its kernel is not positive semi-definite .*noise_var 0.3 is lost"):
        CandidateFactor.empty(noise.unsqueeze(1)).extended(within[:, :0], within, None, NAMES)
