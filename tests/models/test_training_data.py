import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood

from bo_robust.models.training_data import one_noise_likelihood, recommendable


def test_one_noise():
    likelihood = GaussianLikelihood()
    assert one_noise_likelihood("Model", None, likelihood, torch.float64) is likelihood
    assert float(one_noise_likelihood("Model", 0.25, None, torch.float64).noise) == 0.25
    assert one_noise_likelihood("Model", None, None, torch.float64).noise_covar.noise_prior is not None
    with pytest.raises(ValueError, match="one noise variance for all observations"):
        one_noise_likelihood("Model", None, GaussianLikelihood(batch_shape=torch.Size([2])), torch.float64)


def test_points_observed_to_be_bad_are_not_recommended():
    """Median of the inliers: 2. Rows 2 and 5 are bad and alone; row 3 is bad, but its replicate 4 is an inlier."""
    X = torch.tensor([[0.0], [1.0], [2.0], [3.0], [3.0], [4.0], [5.0]])
    Y = torch.tensor([1.0, 2.0, -9.0, -9.0, 3.0, 1.5, 9.0])
    outliers = torch.tensor([False, False, True, True, False, True, True])
    assert recommendable(X, Y, outliers).tolist() == [True, True, False, True, True, False, True]
    assert recommendable(X, Y, None).all()
    assert recommendable(X, Y, torch.ones(7, dtype=torch.bool)).all()
