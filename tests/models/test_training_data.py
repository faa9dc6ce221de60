import warnings

import pytest
import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms.outcome import Standardize
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

from bo_robust.models.training_data import (
    check_added,
    check_data,
    check_no_outcome_transform,
    check_noise_var,
    one_noise_likelihood,
    recommendable,
    rewards_as_they_are,
)

X, Y = torch.zeros(3, 2).double(), torch.zeros(3, 1).double()


def test_data_that_fit_pass():
    check_data("Model", X, Y, batched=False)
    check_data("Model", X.expand(4, 3, 2), Y.expand(4, 3, 1), batched=True)
    check_added(X.expand(4, 3, 2), Y)
    check_noise_var(1e-6, torch.float64)
    check_no_outcome_transform("Model", None)


@pytest.mark.parametrize(
    ("x", "y", "batched", "message"),
    [
        (X.expand(4, 3, 2), Y.expand(4, 3, 1), False, "Model needs train_X n x d and train_Y n x 1"),
        (X, Y[:2], True, "train_X batch_shape x n x d"),
        (X[:0], Y[:0], False, "n >= 1"),
        (X, Y.long(), False, r"train_Y must be floating point, float32 or float64, got torch.int64"),
        (X, Y + torch.nan, False, "train_Y has 3 NaN"),
    ],
)
def test_data_that_do_not_fit_are_refused(x, y, batched, message):
    with pytest.raises(ValueError, match=message):
        check_data("Model", x, y, batched)


def test_other_mistakes_are_refused():
    with pytest.raises(ValueError, match=r"Y must be \.\.\. x n' x 1"):
        check_added(X, Y[:2])
    with pytest.raises(ValueError, match="at least 1e-06"):
        check_noise_var(1e-7, torch.float64)
    with pytest.raises(ValueError, match="Model takes no outcome_transform"):
        check_no_outcome_transform("Model", Standardize(m=1))


def test_one_noise():
    likelihood = GaussianLikelihood()
    assert one_noise_likelihood("Model", None, likelihood, torch.float64) is likelihood
    assert float(one_noise_likelihood("Model", 0.25, None, torch.float64).noise) == 0.25
    assert one_noise_likelihood("Model", None, None, torch.float64).noise_covar.noise_prior is not None
    with pytest.raises(ValueError, match="one of noise_var and likelihood"):
        one_noise_likelihood("Model", 0.25, likelihood, torch.float64)
    for several in (GaussianLikelihood(batch_shape=torch.Size([2])), FixedNoiseGaussianLikelihood(torch.ones(3))):
        with pytest.raises(ValueError, match="one noise variance for all observations"):
            one_noise_likelihood("Model", None, several, torch.float64)


def test_only_the_advice_to_standardise_is_silenced():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rewards_as_they_are():
            warnings.warn("Data (outcome observations) is not standardized (std = 9).", InputDataWarning, stacklevel=1)
            warnings.warn("Data (input features) is not contained to the unit cube.", InputDataWarning, stacklevel=1)
    assert [str(w.message)[:12] for w in caught] == ["Data (input "]


def test_points_read_too_badly_to_be_believed_are_not_recommended():
    """Median of the believed: 2. Rows 2 and 5 are bad and alone; row 3 is bad, but its twin, row 4, is believed."""
    points = torch.tensor([[0.0], [1.0], [2.0], [3.0], [3.0], [4.0], [5.0]])
    rewards = torch.tensor([1.0, 2.0, -9.0, -9.0, 3.0, 1.5, 9.0])
    lost = torch.tensor([False, False, True, True, False, True, True])
    assert recommendable(points, rewards, lost).tolist() == [True, True, False, True, True, False, True]
    assert recommendable(points, rewards, None).all()
    assert recommendable(points, rewards, torch.ones(7, dtype=torch.bool)).all()
