import torch

from bo_robust.models.training_data import recommendable


def test_points_observed_to_be_bad_are_not_recommended():
    """Median of the inliers: 2. Rows 2 and 5 are bad and alone; row 3 is bad, but its replicate 4 is an inlier."""
    X = torch.tensor([[0.0], [1.0], [2.0], [3.0], [3.0], [4.0], [5.0]])
    Y = torch.tensor([1.0, 2.0, -9.0, -9.0, 3.0, 1.5, 9.0])
    outliers = torch.tensor([False, False, True, True, False, True, True])
    assert recommendable(X, Y, outliers).tolist() == [True, True, False, True, True, False, True]
    assert recommendable(X, Y, None).all()
    assert recommendable(X, Y, torch.ones(7, dtype=torch.bool)).all()
