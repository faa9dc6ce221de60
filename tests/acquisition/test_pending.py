import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler

from bo_robust.acquisition.pending import MOST_PENDING, foremost_pending


def noisy_improvement(seed=0):
    X = torch.rand(12, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    model = SingleTaskGP(X, torch.sin(5.0 * X[:, :1]) + X[:, 1:]).eval()
    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=0)
    return qLogNoisyExpectedImprovement(model, X, sampler)


def pending(n):
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_designs_of_the_largest_values_come_first():
    X, acqf = pending(300), noisy_improvement()
    with torch.no_grad():
        alone = noisy_improvement()(X.unsqueeze(1))
    rows = foremost_pending(acqf, X)
    assert len(rows.unique()) == MOST_PENDING
    assert torch.equal(rows[:10], alone.topk(10).indices)
    assert torch.equal(acqf.X_baseline[-MOST_PENDING:], X[rows])


def test_what_is_left_out_matters_little():
    X, acqf, every = pending(300), noisy_improvement(), noisy_improvement()
    foremost_pending(acqf, X)
    every.set_X_pending(X)
    designs = torch.rand(500, 1, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        chosen = designs[acqf(designs).argmax()]
        values = every(designs)
        assert every(chosen) > values.max() - 1.0  # of values from -45 to -7


def test_few_pending_designs_are_all_kept():
    X, acqf = pending(7), noisy_improvement()
    assert sorted(foremost_pending(acqf, X).tolist()) == list(range(7))
    assert len(foremost_pending(acqf, pending(30), most=20)) == 20
