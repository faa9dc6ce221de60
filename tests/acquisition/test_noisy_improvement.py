import pytest
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.acquisition.noisy_improvement import noisy_improvement
from bo_robust.models import RobustGP


def skewed(n=40, **options):
    """Outcomes that vary by factors, some of which are wrong."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    noise = 0.3 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    Y = (4.0 * torch.sin(3.0 * X[:, :1]) - 6.0 * (X[:, 1:] - 0.4).square() + noise).exp()
    model = RobustGP(X, Y, **options)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def sampler():
    return SobolQMCNormalSampler(torch.Size([64]), seed=0)


@pytest.mark.parametrize("pending", [0, 3])
@pytest.mark.parametrize("prune", [False, True])
def test_values_are_those_of_plain_noisy_improvement(pending, prune):
    model = skewed()
    assert not model.outcome_scale.is_identity
    g = torch.Generator().manual_seed(1)
    X = torch.rand(20, 1, 2, generator=g, dtype=torch.float64, requires_grad=True)
    X_pending = torch.rand(pending, 2, generator=g, dtype=torch.float64) if pending else None
    fast = noisy_improvement(model, model.train_X_all, sampler=sampler(), X_pending=X_pending, prune_baseline=prune)
    value = fast(X)
    baseline = fast.X_baseline[: len(fast.X_baseline) - pending]
    options = {"X_pending": X_pending, "prune_baseline": False, "cache_root": False}
    plain = qLogNoisyExpectedImprovement(model, baseline, sampler(), **options)
    plain.sampler.base_samples = fast.sampler.base_samples  # of the baseline and a design
    assert fast._cache_root
    torch.testing.assert_close(value, plain(X), rtol=1e-6, atol=1e-6)
    slopes = [torch.autograd.grad(values.sum(), X)[0] for values in (value, plain(X))]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)


def test_a_model_without_a_scale_gets_noisy_improvement_of_botorch():
    model = skewed(outcome_scale=None)
    assert noisy_improvement(model, model.train_X_all).model is model
