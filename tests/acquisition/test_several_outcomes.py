import pytest
import torch
import torch.utils.cpp_extension
from botorch.acquisition.multi_objective import logei
from botorch.models import ModelListGP, SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.multi_objective.pareto import is_non_dominated

from bo_robust.acquisition.noisy_improvement import contenders
from bo_robust.acquisition.several_outcomes import LatentModels, OnePointLogNoisyExpectedHypervolumeImprovement
from bo_robust.utils.linalg import is_among
from tests.acquisition.test_noisy_improvement import skewed


@pytest.fixture
def no_compiler(monkeypatch):
    """BoTorch before its first hypervolume, where compiling fails; the list of what was to be compiled."""
    asked = []

    def load(**options):
        asked.append(options["name"])
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch.utils.cpp_extension, "load", load)
    monkeypatch.setattr(logei, "_C", None)
    monkeypatch.setattr(logei, "_load_attempted", False)
    return asked


def acquisition(kind, m, pending=0, designs=18, **options):
    """Of m distances to random points, at designs some of which are equal."""
    g = torch.Generator().manual_seed(m)
    X, centers = (torch.rand(k, 2, generator=g, dtype=torch.float64) for k in (15, m))
    X = torch.cat([X, X[:3]])
    models = ModelListGP(*(SingleTaskGP(X, -torch.cdist(X, center[None])) for center in centers)).eval()
    X_pending = torch.rand(pending, 2, generator=g, dtype=torch.float64) if pending else None
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    return kind(models, [-1.0] * m, X[:designs], sampler, X_pending=X_pending, **options)


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("options", [{}, {"pending": 2}, {"designs": 1}, {"constraints": [lambda Z: Z[..., 0] + 0.4]}])
@pytest.mark.parametrize("shape", [(7, 1), (2, 3, 1), (4, 2)])
def test_values_and_gradients_are_those_of_botorch(no_compiler, m, options, shape):
    ours = acquisition(OnePointLogNoisyExpectedHypervolumeImprovement, m, **options)
    assert no_compiler == []
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler"):
        theirs = acquisition(logei.qLogNoisyExpectedHypervolumeImprovement, m, **options)
    assert no_compiler == ["logei_fused_ext"]
    X = torch.rand(*shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(9), requires_grad=True)
    values = ours(X), theirs(X)
    assert len(ours.joint_samples) == m
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), X)[0] for v in values), rtol=1e-8, atol=1e-8)


def test_outcomes_are_sampled_as_each_alone():
    models = [skewed(), skewed(outcome_scale=None)]
    latent = LatentModels(models)
    X, base = torch.rand(5, 2, dtype=torch.float64), torch.randn(3, 5, 2, dtype=torch.float64)
    W = latent.posterior(X).rsample_from_base_samples(torch.Size([3]), base)
    for j, model in enumerate(models):
        own = model.posterior(X).rsample_from_base_samples(torch.Size([3]), base[..., j])
        torch.testing.assert_close(latent.outcome(j, W), own[..., 0])
        torch.testing.assert_close(latent.first_outcomes(2, W)[..., j], own[..., 0])


def test_designs_that_another_one_beats_in_all_outcomes_are_no_contenders():
    models, X = [skewed(), skewed(outcome_scale=None)], skewed().train_X_all
    both = contenders(models, X)
    assert 0 < len(both) < len(X)
    with torch.no_grad():
        mean = torch.cat([model.posterior(X).mean for model in models], -1)
    assert is_among(X[is_non_dominated(mean)], both).all()
    assert all(is_among(contenders([model], X), both).all() for model in models)
