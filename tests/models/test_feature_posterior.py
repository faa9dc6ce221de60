import pytest
import torch
from gpytorch.kernels import RBFKernel

from bo_robust.models import FourierMap, NystromMap
from bo_robust.models.feature_posterior import joint_posterior, marginal_posterior
from bo_robust.models.feature_regression import gaussian_weights, precision_matrix

MAPS = {"fourier": FourierMap(nodes=24), "nystrom": NystromMap([[0.1], [0.5], [0.8]])}


def after_30_rewards(name):
    """Features, kernel, dictionary and weights."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(30, 1, generator=generator, dtype=torch.float64)
    y = torch.randn(30, generator=generator, dtype=torch.float64)
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    kernel.requires_grad_(False)
    features = MAPS[name].build(kernel, X, half=True)
    dictionary, noise_var = features.prepare(kernel, False), torch.tensor(0.2).double()
    Phi = features(X, kernel, dictionary)
    return features, kernel, dictionary, gaussian_weights(precision_matrix(Phi, noise_var), Phi.mT @ y, noise_var)


@pytest.fixture(params=list(MAPS))
def parts(request):
    return after_30_rewards(request.param)


def test_marginals_are_those_of_the_joint_law(parts):
    X = torch.linspace(0.0, 1.0, 7, dtype=torch.float64).view(1, 7, 1)
    joint = joint_posterior(X, *parts)
    mean, variance = marginal_posterior(X.view(7, 1, 1), *parts, block=None)
    torch.testing.assert_close(mean.view(1, 7), joint.mean)
    torch.testing.assert_close(variance.view(1, 7), joint.variance)


def test_blocks_change_nothing(parts):
    X = torch.rand(3, 5, 1, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for whole, pieces in zip(
        marginal_posterior(X, *parts, block=None), marginal_posterior(X, *parts, block=4), strict=True
    ):
        assert pieces.shape == (3, 5, 1)
        torch.testing.assert_close(pieces, whole)


def test_the_variance_is_the_prior_far_from_a_dictionary():
    parts = after_30_rewards("nystrom")
    mean, variance = marginal_posterior(torch.full((1, 1, 1), 50.0).double(), *parts, block=None)
    assert float(mean) == pytest.approx(0.0, abs=1e-12)
    assert float(variance) == pytest.approx(1.0)
