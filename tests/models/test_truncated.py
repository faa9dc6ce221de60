import math
import warnings

import numpy as np
import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.likelihoods import GaussianLikelihood

from bo_robust.confidence.truncation import NoTruncation, TGPTruncation
from bo_robust.models import TruncatedGP, TruncationWarning
from tests.problems import assert_same, dense_posterior, moments, points, rand, rbf

LENGTHSCALE = 0.4
LEVEL = TGPTruncation(moment_bound=1.0, alpha=1.0)  # b_t = t^(1/4)


def make(tkwargs, n=12, batch=(), seed=0, truncation=LEVEL, **kwargs):
    """A model of heavy-tailed rewards, some of which are truncated."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(*batch, n, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    Y = 2.0 * torch.randn(*batch, n, 1, generator=g, dtype=torch.float64).to(**tkwargs)
    kwargs.setdefault("covar_module", rbf(tkwargs, LENGTHSCALE, batch))
    if not kwargs.keys() & {"train_Yvar", "likelihood", "noise_var"}:
        kwargs["noise_var"] = 0.3
    return TruncatedGP(X, Y, truncation, **kwargs)


@pytest.mark.parametrize("noise", ["noise_var", "train_Yvar", "likelihood"])
def test_posterior_is_that_of_the_truncated_rewards(tkwargs, noise):
    likelihood = GaussianLikelihood().to(**tkwargs)
    likelihood.noise = torch.tensor(0.2, **tkwargs)
    given = {"noise_var": 0.2, "train_Yvar": 0.1 + rand(tkwargs, 12, 1), "likelihood": likelihood}[noise]
    model, X = make(tkwargs, **{noise: given}), points(tkwargs, 9)
    y = model.rewards.squeeze(-1)
    y = torch.where(y.abs() > torch.arange(1, 13, **tkwargs) ** 0.25, 0.0, y)
    assert 0 < int((y == 0).sum()) < 12
    used = given.squeeze(-1).cpu().numpy() if noise == "train_Yvar" else 0.2
    expected = dense_posterior(X, model.train_inputs[0], y, used, LENGTHSCALE)
    for ours, theirs in zip(moments(model, X), expected, strict=True):
        np.testing.assert_allclose(ours.squeeze(-1).cpu(), theirs, atol=1e-9)


def test_levels_as_a_tensor(tkwargs):
    levels = LEVEL(torch.arange(1, 13, **tkwargs)).unsqueeze(-1)
    assert_same(make(tkwargs, truncation=levels), make(tkwargs), points(tkwargs, 5), tol=0.0)
    batched = make(tkwargs, batch=(2,), truncation=torch.stack([levels, levels / 100]))
    assert batched.truncated.sum(dim=(-2, -1)).tolist()[1] == 12


def test_conditioning_with_fixed_noise_of_several_values(tkwargs):
    yvar = torch.linspace(0.1, 0.5, 12, **tkwargs).unsqueeze(-1)
    model = make(tkwargs, train_Yvar=yvar)
    X, Y = points(tkwargs, 1), torch.ones(1, 1, **tkwargs)
    with pytest.raises(ValueError, match="pass `noise`"):
        model.condition_on_observations(X, Y)
    grown = model.condition_on_observations(X, Y, noise=torch.full((1, 1), 0.7, **tkwargs))
    assert float(grown.likelihood.noise[-1]) == 0.7
    learned = make(tkwargs, likelihood=GaussianLikelihood().to(**tkwargs))
    assert learned.condition_on_observations(X, Y).train_targets.shape == (13,)


def test_fantasies_at_a_batch_of_batches_learn_further(tkwargs):
    model = make(tkwargs)
    fantasies = model.fantasize(points(tkwargs, 4, 3, 2), SobolQMCNormalSampler(torch.Size([5]), seed=0))
    assert fantasies.likelihood.noise_covar.noise.shape == (4, 3, 14)  # that of the points, not of their outcomes
    X, Y = points(tkwargs, 4, 3, 1, seed=8), torch.ones(5, 4, 3, 1, 1, **tkwargs)
    assert fantasies.condition_on_observations(X, Y).train_targets.shape == (5, 4, 3, 15)


def test_setting_train_data_truncates(tkwargs):
    model, other = make(tkwargs), make(tkwargs, n=15, seed=1)
    model.set_train_data(other.train_inputs[0], other.rewards.squeeze(-1), strict=False)
    assert torch.equal(model.likelihood.noise, other.likelihood.noise)
    torch.testing.assert_close(model.information_gain, other.information_gain, atol=1e-12, rtol=0)
    assert_same(model, other, points(tkwargs, 4), tol=1e-12)
    assert torch.equal(model.levels, other.levels)
    model.set_train_data(targets=2 * other.rewards.squeeze(-1))
    assert torch.equal(model.truncated, 2 * other.rewards.abs() > other.levels)
    batch, other = make(tkwargs, batch=(2,)), make(tkwargs, n=5, batch=(2,), seed=1)
    batch.set_train_data(other.train_inputs[0], other.rewards.squeeze(-1), strict=False)
    assert_same(batch, other, points(tkwargs, 4), tol=1e-12)


def test_setting_train_data_where_rows_have_their_own_level_or_noise(tkwargs):
    other = make(tkwargs, n=15, seed=1)
    model = make(tkwargs, truncation=torch.linspace(0.5, 6.0, 12, **tkwargs).unsqueeze(-1))
    levels, rewards = model.levels.clone(), 2 * model.rewards
    model.set_train_data(targets=rewards.squeeze(-1))
    assert torch.equal(model.levels, levels)
    assert torch.equal(model.truncated, rewards.abs() > levels)
    assert torch.equal(model.train_targets, torch.where(rewards.abs() > levels, 0.0, rewards).squeeze(-1))
    with pytest.raises(ValueError, match="pass a schedule"):
        model.set_train_data(other.train_inputs[0], other.rewards.squeeze(-1), strict=False)
    yvar = torch.linspace(0.1, 0.5, 12, **tkwargs).unsqueeze(-1)
    model = make(tkwargs, train_Yvar=yvar)
    model.set_train_data(targets=rewards.squeeze(-1))
    assert torch.equal(model.likelihood.noise, yvar.squeeze(-1))
    with pytest.raises(ValueError, match="build a new model instead of changing the size"):
        model.set_train_data(other.train_inputs[0], other.rewards.squeeze(-1), strict=False)
    assert model.train_inputs[0].shape == (12, 2)  # unchanged


def test_many_truncated_rewards_are_said(tkwargs):
    """Their share, and whether the largest rewards are among them; few are no news, nor are fantasies."""
    X, Y = points(tkwargs, 20), torch.linspace(-1.0, 1.0, 20, **tkwargs).unsqueeze(-1)

    def said(Y, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = TruncatedGP(X[: len(Y)], Y, TGPTruncation(4.0, 1.0), noise_var=0.1, **options)
        return model, "".join(str(w.message) for w in caught if w.category is TruncationWarning)

    def beyond(*rows):
        rewards = Y.clone()
        rewards[list(rows)] *= 1e3
        return rewards

    for unit in (Y + 1000.0, Y * 1e12):
        for options in ({}, {"rule": "clip"}):
            model, words = said(unit, **options)
            assert "100% of the rewards are truncated, so that the model knows next to nothing of them" in words
        assert f"b_t is {float(model.levels[-1]):.2g}, the median |reward| {float(unit.abs().median()):.2g}" in words
    assert said(Y)[1] == said(beyond(0, 19))[1] == ""
    assert said(beyond(0, 1, 2))[1].startswith("15% of the rewards are truncated. The level")
    model, words = said(beyond(0, 1, 18, 19))
    assert words.startswith("20% of the rewards are truncated, the 2 largest among them: what may be best counts")
    assert said(beyond(0)[:1])[1].startswith("100%")
    with pytest.warns(TruncationWarning, match="50% of the rewards are truncated"):
        said(Y[:4])[0].condition_on_observations(X[4:8], Y[4:8] + 1e3)
    with pytest.warns(TruncationWarning, match="100% of the rewards"):
        said(Y)[0].set_train_data(targets=Y[:, 0] + 1e3)
    both = TruncatedGP(X.expand(2, 20, 2), torch.stack([Y, Y]), TGPTruncation(4.0, 1.0), noise_var=0.1)
    with pytest.warns(TruncationWarning, match="100% of the rewards"):  # of one member
        both.set_train_data(targets=torch.stack([Y[:, 0], Y[:, 0] + 1e3]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TruncationWarning)
        model.fantasize(X[:2], SobolQMCNormalSampler(torch.Size([3]), seed=0))


def test_rules_by_hand(tkwargs):
    """A reward at its level is kept; by "clip" the level remains, with the sign of the reward."""
    X, Y = points(tkwargs, 6), torch.tensor([[0.5], [-7.0], [9.0], [1.0], [2.0], [-2.0]], **tkwargs)
    levels = torch.tensor([[1.0], [2.0], [3.0], [4.0], [2.0], [math.nextafter(2.0, 0.0)]], **tkwargs)
    for rule, kept in (("zero", [0.5, 0.0, 0.0, 1.0, 2.0, 0.0]), ("clip", [0.5, -2.0, 3.0, 1.0, 2.0, -levels[5, 0]])):
        model = TruncatedGP(X, Y, levels, noise_var=0.1, rule=rule)
        expected = TruncatedGP(X, Y.new_tensor(kept).unsqueeze(-1), NoTruncation(), noise_var=0.1)
        assert torch.equal(model.train_targets, expected.train_targets)
        assert torch.equal(model.posterior(X + 0.1).mean, expected.posterior(X + 0.1).mean)
        assert model.truncated.squeeze(-1).tolist() == [False, True, True, False, False, True]
    model = TruncatedGP(X[:4], Y[:4], LEVEL, noise_var=0.1, rule="clip")
    grown = model.condition_on_observations(X[:1], 50.0 + Y[:1])
    assert float(grown.train_targets[-1]) == pytest.approx(5.0**0.25)
    model.set_train_data(targets=-Y[:4, 0])
    assert float(model.train_targets[1]) == pytest.approx(2.0**0.25)
