import math

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import UnsupportedError
from botorch.models import ModelList, ModelListGP, SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel

from bo_robust.acquisition import GPUCB, ucb
from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomizedWidth, SelfNormalizedWidth, TGPWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.models import TruncatedGP
from tests.problems import rand, rbf

NOISE_VAR = 0.1


def data(tkwargs, n=14):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    Y = torch.sin(4 * X).sum(-1, keepdim=True) + torch.randn(n, 1, generator=g, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def make(tkwargs, n=14):
    return TruncatedGP(*data(tkwargs, n), TGPTruncation(4.0, 1.0), noise_var=NOISE_VAR, covar_module=rbf(tkwargs, 0.3))


def test_round_and_information_gain_reach_the_width(tkwargs, monkeypatch):
    model, calls = make(tkwargs), []
    original = ucb.information_gain
    monkeypatch.setattr(ucb, "information_gain", lambda m: calls.append(m) or original(m))
    assert GPUCB(model, FiniteWidth(num_arms=10, delta=0.1)).t == 15
    acqf = GPUCB(model, FiniteWidth(num_arms=10, delta=0.1), t=3)
    assert float(acqf.width) == pytest.approx(math.sqrt(2 * math.log(10 * 9 * math.pi**2 / 0.6)))
    assert not calls  # the width does not depend on the gain
    acqf = GPUCB(model, SelfNormalizedWidth(norm_bound=2.0, noise_scale=0.5, delta=0.1))
    assert len(calls) == 1
    gain = float(model.information_gain)
    assert float(acqf.width) == pytest.approx(2 + 0.5 * math.sqrt(2 * (gain + 1 + math.log(10))), abs=1e-10)
    width = TGPWidth(norm_bound=2.0, moment_bound=4.0, alpha=1.0, noise_var=NOISE_VAR, delta=0.1)
    expected = 2 + 3 / math.sqrt(NOISE_VAR) * 2 * 14**0.25 * math.sqrt(2 * gain + 2 * math.log(10))
    assert float(GPUCB(model, width).width) == pytest.approx(expected, rel=1e-10)


def test_a_model_that_moves_alone_is_refused(tkwargs):
    acqf = GPUCB(make(tkwargs), ConstantWidth(2.0), X_pending=rand(tkwargs, 2, 2, seed=5))
    x = rand(tkwargs, 5, 1, 2, seed=3)
    acqf.model.float()
    with pytest.raises(ValueError, match=r"the width is torch.float64.*`.to` of the acquisition function"):
        acqf(x.float())


def test_random_numbers_are_drawn_only_for_widths_that_use_them(tkwargs):
    model, before = make(tkwargs), torch.get_rng_state()
    for width in (ConstantWidth(2.0), SelfNormalizedWidth(norm_bound=1.0, noise_scale=1.0, delta=0.1)):
        GPUCB(model, width)
        assert torch.equal(torch.get_rng_state(), before)
    width = RandomizedWidth(num_arms=50)
    drawn = GPUCB(model, width).width
    torch.set_rng_state(before)
    uniform = torch.rand((), dtype=torch.float64)  # one number, as drawn from the global generator
    torch.testing.assert_close(drawn.cpu(), width(15, uniform=uniform), atol=1e-14, rtol=0)


def test_a_plain_callable_gets_information_gain_and_draws(tkwargs):
    """Also one that guards its arguments, so that NaN in their place would not show that it reads them."""

    def guarded(t, information_gain=0.0, uniform=None):
        return (information_gain if information_gain > 0 else 0.0) + (uniform if uniform > 0 else 0.0)

    model = make(tkwargs)
    torch.manual_seed(1)
    width = float(GPUCB(model, guarded).width)
    torch.manual_seed(1)
    assert width == pytest.approx(float(model.information_gain) + float(torch.rand((), dtype=torch.float64)))


def test_a_list_of_any_models_at_one_point(tkwargs):
    X, Y = data(tkwargs)
    members, x = (make(tkwargs), SingleTaskGP(X, Y)), rand(tkwargs, 300, 1, 2, seed=3)
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, -0.5], **tkwargs))
    acqf = GPUCB(ModelList(*members), FiniteWidth(num_arms=10, delta=0.1), posterior_transform=weights)
    same = GPUCB(ModelListGP(*members), FiniteWidth(num_arms=10, delta=0.1), posterior_transform=weights)
    assert acqf.t == 15
    for X in (x, x[0], x.reshape(3, 100, 1, 2)):
        torch.testing.assert_close(acqf(X), same(X), atol=1e-10, rtol=0)
    cost = GenericDeterministicModel(lambda x: x.sum(-1, keepdim=True), batch_shape=torch.Size())
    both = GPUCB(ModelList(members[0], cost), ConstantWidth(2.0), posterior_transform=weights)
    expected = GPUCB(members[0], ConstantWidth(2.0))(x) - 0.5 * x.sum((-2, -1))
    assert both.t == 15
    torch.testing.assert_close(both(x), expected, atol=1e-9, rtol=0)
    with pytest.raises(ValueError, match="put the GPs into a ModelListGP"):
        acqf(rand(tkwargs, 5, 2, 2, seed=3))
    with pytest.raises(UnsupportedError, match="posterior transform"):
        GPUCB(ModelListGP(*members), ConstantWidth(1.0))
    acqf.set_X_pending(rand(tkwargs, 1, 2, seed=3))
    with pytest.raises(ValueError, match="put the GPs into a ModelListGP"):
        acqf(x)
