import torch

from bo_robust.models.repeated_points import group_copies


def test_copies_by_hand():
    X = torch.tensor([[2.0], [1.0], [2.0], [2.0]]).double()
    y = torch.tensor([1.0, 5.0, 2.0, 6.0]).double()
    copies = group_copies(X, y)
    assert copies.first.tolist() == [0, 1]  # in the order seen, not sorted
    torch.testing.assert_close(copies.root.square(), torch.tensor([3.0, 1.0]).double())
    torch.testing.assert_close(copies.targets / copies.root, torch.tensor([3.0, 5.0]).double())
    assert float(copies.scatter) == 4.0 + 1.0 + 9.0


def test_normal_equations_stay():
    generator = torch.Generator().manual_seed(0)
    X = torch.randint(3, (20, 2), generator=generator).double()
    y = torch.randn(20, generator=generator, dtype=torch.float64)
    copies = group_copies(X, y)
    weighted = X[copies.first] * copies.root.unsqueeze(1)
    torch.testing.assert_close(weighted.mT @ weighted, X.mT @ X)
    torch.testing.assert_close(weighted.mT @ copies.targets, X.mT @ y)
