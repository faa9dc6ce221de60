import torch

from bo_robust.models.verdict import Verdict


def test_a_point_needs_a_reliable_observation_to_be_recommended():
    """Rows 2, 5 and 6 are alone; row 3 is an outlier, but its replicate 4 is an inlier."""
    X = torch.tensor([[0.0], [1.0], [2.0], [3.0], [3.0], [4.0], [5.0]])
    flagged = torch.tensor([False, False, True, True, False, True, True])
    assert Verdict.of(X, flagged).recommendable.tolist() == [True, True, False, True, True, False, False]
    assert Verdict.of(X, torch.ones(7, dtype=torch.bool)).recommendable.all()
