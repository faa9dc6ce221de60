"""The contract of every model. A new model is one row of ROWS and passes the whole suite."""

import copy
import functools
import io
import math
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.cross_validation import loo_cv
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from bo_robust.confidence.truncation import NoTruncation, TGPTruncation
from bo_robust.models import (
    BKBModel,
    CandidateEnsemble,
    FeatureGP,
    FourierMap,
    NystromMap,
    RobustGP,
    TruncatedFeatureGP,
    TruncatedGP,
    information_gain,
)
from tests import problems
from tests.problems import assert_same, moments, points, rewards, unit_box

LENGTHSCALE, NOISE_VAR = 0.4, 0.05


def rbf(X: Tensor) -> Kernel:
    return problems.rbf({"dtype": X.dtype, "device": X.device}, LENGTHSCALE)


def fixed(X: Tensor) -> dict[str, Any]:
    return {"noise_var": NOISE_VAR, "covar_module": rbf(X)}


def zero_mean(X: Tensor) -> dict[str, Any]:
    """In the units of the rewards, as models with a constant in these units are by themselves."""
    return {**fixed(X), "mean_module": ZeroMean(), "outcome_transform": None}


def ensemble(X: Tensor, Y: Tensor, **options: Any) -> CandidateEnsemble:
    kinds = [{"kernel": "rbf", "lengthscale": scale, "noise_var": NOISE_VAR} for scale in (LENGTHSCALE, 0.3)]
    return CandidateEnsemble(X, Y, options.pop("kinds", kinds), **options)


def one_candidate(X: Tensor, Y: Tensor) -> CandidateEnsemble:
    return ensemble(X, Y, kinds=[{"kernel": "rbf", "lengthscale": LENGTHSCALE, "noise_var": NOISE_VAR}])


def robust(X: Tensor, Y: Tensor) -> RobustGP:
    """With about the noise that there is, for at the hyperparameters of a state it judges rewards."""
    model = RobustGP(X, Y)
    model.likelihood.noise = 0.1
    return model


@dataclass(frozen=True)
class Row:
    """A model and what can be asked of it.

    Attributes:
        make: The model of data ``n x d`` and ``n x 1``, with the hyperparameters above where they are fixed.
        exact: The same where it is to equal the exact GP with these hyperparameters; None if it never does.
        fantasizes: Whether it conditions on several sets of rewards at once.
    """

    make: Callable[..., Model]
    exact: Callable[[Tensor, Tensor], Model] | None
    fantasizes: bool = True


def grid(X: Tensor) -> Tensor:
    return torch.cartesian_prod(*[torch.linspace(0, 1, 4).to(X)] * 2)


ROWS = {
    "truncated": Row(
        lambda X, Y: TruncatedGP(X, Y, TGPTruncation(1.0, 1.0), **fixed(X)),
        lambda X, Y: TruncatedGP(X, Y, NoTruncation(), **fixed(X)),
    ),
    "truncated, learned": Row(lambda X, Y: TruncatedGP(X, Y, TGPTruncation(1.0, 1.0)), None),
    "fourier": Row(
        lambda X, Y: FeatureGP(X, Y, FourierMap(8), **zero_mean(X)),
        lambda X, Y: FeatureGP(X, Y, FourierMap(16), **zero_mean(X)),
    ),
    "nystrom": Row(
        lambda X, Y: FeatureGP(X, Y, NystromMap(grid(X)), **zero_mean(X)),
        lambda X, Y: FeatureGP(X, Y, NystromMap(X), **zero_mean(X)),
    ),
    "nystrom, learned": Row(lambda X, Y: FeatureGP(X, Y, NystromMap(grid(X))), None),
    "truncated fourier": Row(
        lambda X, Y: TruncatedFeatureGP(X, Y, FourierMap(8), 0.4, **fixed(X)),
        lambda X, Y: TruncatedFeatureGP(X, Y, FourierMap(16), float("inf"), **fixed(X)),
    ),
    "truncated nystrom": Row(
        lambda X, Y: TruncatedFeatureGP(X, Y, NystromMap(grid(X)), 0.4, **fixed(X)),
        lambda X, Y: TruncatedFeatureGP(X, Y, NystromMap(X), float("inf"), **fixed(X)),
    ),
    "bkb": Row(lambda X, Y: BKBModel(X, Y, **zero_mean(X)), lambda X, Y: BKBModel(X, Y, **zero_mean(X))),
    "bkb, learned": Row(lambda X, Y: BKBModel(X, Y), None),
    "robust, learned": Row(
        robust,
        lambda X, Y: RobustGP(X, Y, torch.full_like(Y, NOISE_VAR), None, rbf(X), ZeroMean(), None),
    ),
    "ensemble": Row(ensemble, one_candidate, fantasizes=False),
}
EVERY = pytest.mark.parametrize("name", ROWS)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)  # advice to standardize
        yield


def make(name, tkwargs, n=14):
    X = points(tkwargs, n)
    return ROWS[name].make(X, rewards(X))


@EVERY
def test_shapes_and_batches(name, tkwargs):
    """A batch of q points has the moments of its points one at a time, whatever the batch's shape."""
    model, X = make(name, tkwargs), points(tkwargs, 3, 5, 2, seed=1)
    mean, variance = moments(model, X)
    assert mean.shape == variance.shape == (3, 5, 2, 1)
    assert mean.dtype == torch.float64
    assert mean.device.type == tkwargs["device"].type
    one_mean, one_variance = moments(model, X[1, 3, 1:])
    torch.testing.assert_close(mean[1, 3, ..., 1:, :], one_mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(variance[1, 3, ..., 1:, :], one_variance, atol=1e-9, rtol=0)
    assert model.num_outputs == 1
    assert model.batch_shape == torch.Size()


@EVERY
def test_the_limit_is_the_exact_gp(name, tkwargs):
    """No truncation, enough features, all points in the dictionary, one candidate: BoTorch's GP, to rounding."""
    row, X = ROWS[name], points(tkwargs, 14)
    if row.exact is None:
        pytest.skip("its hyperparameters are learned")
    Y = rewards(X)
    noise = torch.full_like(Y, NOISE_VAR)
    exact = SingleTaskGP(X, Y, noise, None, rbf(X), ZeroMean(), outcome_transform=None)
    model = row.exact(X, Y)
    ours, theirs = model.posterior(points(tkwargs, 9, seed=2)), exact.posterior(points(tkwargs, 9, seed=2))
    torch.testing.assert_close(ours.mean.reshape(9), theirs.mean.reshape(9), atol=1e-7, rtol=0)
    covariance = ours.distribution.covariance_matrix.reshape(9, 9)
    torch.testing.assert_close(covariance, theirs.distribution.covariance_matrix, atol=1e-7, rtol=0)
    if hasattr(model, "information_gain"):
        torch.testing.assert_close(model.information_gain, information_gain(exact), atol=1e-7, rtol=0)


@EVERY
def test_joint_covariances_are_symmetric_and_positive(name, tkwargs):
    covariance = make(name, tkwargs).posterior(points(tkwargs, 6, seed=3)).distribution.covariance_matrix
    torch.testing.assert_close(covariance, covariance.mT, atol=1e-9, rtol=0)
    assert float(torch.linalg.eigvalsh(covariance.detach()).min()) > -1e-7
    assert bool((covariance.diagonal(dim1=-2, dim2=-1) >= 0).all())


@EVERY
@pytest.mark.parametrize("q", [1, 4])
def test_observation_noise_and_posterior_transforms(name, q, tkwargs):
    model, X = make(name, tkwargs), points(tkwargs, 3, q, seed=4)
    plain = model.posterior(X)
    added = model.posterior(X, observation_noise=True).variance - plain.variance
    assert float((added - added.mean()).abs().max()) < 1e-8
    if "learned" not in name:
        assert float(added.mean()) == pytest.approx(NOISE_VAR, abs=1e-8)
    if not hasattr(model, "outcome_transform"):  # which BoTorch applies to the given noise as well
        given = torch.linspace(0.1, 0.4, q, **tkwargs).unsqueeze(-1).expand(3, q, 1)
        added = model.posterior(X, observation_noise=given).variance - plain.variance
        torch.testing.assert_close(added, given, atol=1e-9, rtol=0)
    turned = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(torch.tensor([-2.0], **tkwargs)))
    torch.testing.assert_close(turned.mean, -2.0 * plain.mean)
    torch.testing.assert_close(turned.variance, 4.0 * plain.variance)


@EVERY
@pytest.mark.parametrize("q", [1, 2])
def test_gradients_are_those_of_differences(name, q, tkwargs):
    model = make(name, tkwargs)

    def both(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.distribution.covariance_matrix

    torch.autograd.gradcheck(both, (points(tkwargs, 2, q, seed=5).requires_grad_(),), atol=1e-5)


@EVERY
def test_the_same_data_make_the_same_model(name, tkwargs):
    assert_same(make(name, tkwargs), make(name, tkwargs), points(tkwargs, 7, seed=6), tol=0.0)


@EVERY
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_independent(name, copier, tkwargs):
    model, X = make(name, tkwargs), points(tkwargs, 5, seed=7)
    before, new = moments(model, X), points(tkwargs, 2, seed=18)
    other = copier(model)
    assert_same(model, other, X)
    grown = [m.condition_on_observations(new, rewards(new)) for m in (model, other)]
    assert_same(*grown, X)
    assert_same(copier(grown[0]), grown[1], X)
    for parameter in other.parameters():
        parameter.data.add_(0.3)
    other.train()
    other.eval()
    torch.testing.assert_close(moments(model, X), before, atol=0, rtol=0)


@EVERY
def test_state_dict_carries_hyperparameters(name, tkwargs):
    model, X = make(name, tkwargs), points(tkwargs, 14)
    for parameter in model.parameters():
        parameter.data.add_(0.2)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = ROWS[name].make(X, rewards(X))
    other.load_state_dict(torch.load(file, weights_only=True))
    model.train()
    model.eval()
    assert_same(model, other, points(tkwargs, 5, seed=8))
    longer = make(name, tkwargs, n=17)  # hyperparameters are no data
    longer.load_state_dict(model.state_dict())
    for key, value in model.named_parameters():
        assert torch.equal(longer.get_parameter(key), value)


@EVERY
def test_float32_and_back(name, tkwargs):
    model, X = make(name, tkwargs), points(tkwargs, 5, seed=9)
    before = moments(model, X)
    mean, variance = moments(model.float(), X.float())
    assert mean.dtype == variance.dtype == torch.float32
    torch.testing.assert_close(mean.double(), before[0], atol=2e-3, rtol=0)
    torch.testing.assert_close(variance.double(), before[1], atol=2e-3, rtol=0)
    torch.testing.assert_close(moments(model.double(), X), before, atol=2e-3, rtol=0)
    data = points(tkwargs, 14).float()
    built = ROWS[name].make(data, rewards(data))
    if "learned" not in name:
        torch.testing.assert_close([m.double() for m in moments(built, X.float())], [*before], atol=2e-3, rtol=0)


@EVERY
def test_conditioning_is_building_from_all_data(name, tkwargs):
    X = points(tkwargs, 14)
    Y = rewards(X)
    model, whole = ROWS[name].make(X[:11], Y[:11]), ROWS[name].make(X, Y)
    if "learned" in name:  # hyperparameters that start from their data
        whole.load_state_dict({**whole.state_dict(), **model.state_dict()}, strict=False)
    before = moments(model, X[:3])
    conditioned = model.condition_on_observations(X[11:], Y[11:])
    assert_same(conditioned, whole, points(tkwargs, 6, seed=10), tol=1e-6)
    assert_same(conditioned, whole, points(tkwargs, 3, 2, seed=10), tol=1e-6)
    torch.testing.assert_close(conditioned.train_targets, whole.train_targets)
    if hasattr(model, "information_gain"):
        torch.testing.assert_close(conditioned.information_gain, whole.information_gain, atol=1e-6, rtol=0)
    conditioned.train()  # from the data again, not from what was updated
    conditioned.eval()
    assert_same(conditioned, whole, points(tkwargs, 6, seed=10), tol=1e-6)
    torch.testing.assert_close(moments(model, X[:3]), before, atol=1e-9, rtol=0)


@EVERY
def test_fantasies_of_the_mean_lower_the_variance_only(name, tkwargs):
    if not ROWS[name].fantasizes:
        pytest.skip("it takes one set of rewards")
    model, X = make(name, tkwargs), points(tkwargs, 6, seed=11)
    fantasies = model.fantasize(points(tkwargs, 2, seed=12), SobolQMCNormalSampler(torch.Size([64]), seed=0))
    mean, variance = moments(fantasies, X)
    assert mean.shape == (64, 6, 1)
    plain_mean, plain_variance = moments(model, X)
    torch.testing.assert_close(mean.mean(0), plain_mean, atol=0.1, rtol=0)
    assert bool((variance[0] <= plain_variance + 1e-7).all())
    assert bool((variance[0] < plain_variance - 1e-6).any())


@EVERY
def test_stock_acquisitions_and_their_search(name, tkwargs):
    model = make(name, tkwargs)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    for acqf in (
        qLogNoisyExpectedImprovement(model, points(tkwargs, 4, seed=13), sampler, prune_baseline=False),
        qUpperConfidenceBound(model, beta=2.0, sampler=sampler),
    ):
        X = points(tkwargs, 3, 2, seed=14).requires_grad_()
        value = acqf(X)
        assert value.shape == (3,)
        (gradient,) = torch.autograd.grad(value.sum(), X)
        assert bool(gradient.isfinite().all())
        assert bool((gradient != 0).any())
    torch.manual_seed(0)
    x, value = optimize_acqf(acqf, unit_box(tkwargs), q=1, num_restarts=2, raw_samples=16)
    assert x.shape == (1, 2)
    assert float(value) >= float(acqf(points(tkwargs, 16, 1, seed=15)).max()) - 0.2


@EVERY
def test_member_of_a_model_list(name, tkwargs):
    model, X = make(name, tkwargs), points(tkwargs, 3, 2, seed=16)
    both = ModelListGP(model, make("truncated", tkwargs))
    mean, variance = moments(both, X)
    assert mean.shape == (3, 2, 2)
    torch.testing.assert_close((mean[..., :1], variance[..., :1]), moments(model, X), atol=1e-9, rtol=0)
    new = points(tkwargs, 2, seed=19)
    if not ROWS[name].fantasizes:
        return  # nor noise beside them
    grown = both.condition_on_observations([new, new], rewards(new).expand(2, 2)).models[0]
    Y = rewards(new)
    if isinstance(model, FeatureGP) and hasattr(model, "outcome_transform"):
        Y = Y.unsqueeze(0)  # BoTorch's list makes a batch of one of standardized rewards
    assert_same(grown, model.condition_on_observations(new, Y), X, tol=1e-9)
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    assert moments(both.fantasize(new, sampler).models[0], X[0])[0].shape == (3, 2, 1)


@EVERY
def test_fitting(name, tkwargs):
    """What is fixed stays; what is learned gets a larger evidence, and the same each time."""
    model, again = make(name, tkwargs, n=20), make(name, tkwargs, n=20)
    before = {key: value.clone() for key, value in model.named_parameters()}

    def evidence(one):
        one.train()
        mll = ExactMarginalLogLikelihood(one.likelihood, one)
        if hasattr(one, "compute_custom_loss"):
            return -one.compute_custom_loss(mll).item()
        return mll(one(*one.train_inputs), one.train_targets).item()

    def fit(one):
        mll = ExactMarginalLogLikelihood(one.likelihood, one)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_gpytorch_mll(mll)
        return one

    if name == "ensemble":
        assert_same(fit(model), again, points(tkwargs, 4, seed=17), tol=0.0)
        return
    first = evidence(make(name, tkwargs, n=20))
    fit(model), fit(again)
    assert_same(model, again, points(tkwargs, 4, seed=17), tol=1e-6)
    changed = [key for key, value in model.named_parameters() if not torch.equal(value, before[key])]
    assert bool(changed) == any(p.requires_grad for p in model.parameters())
    if "learned" in name:
        assert evidence(model) > first + 1e-3
    else:
        torch.testing.assert_close(model.likelihood.noise.mean().item(), NOISE_VAR)


def contaminated(x, bad):
    return x.index_put((torch.tensor(3, device=x.device), torch.tensor(0, device=x.device)), x.new_tensor(bad))


BAD_DATA = {
    "reward NaN": (lambda X, Y: (X, contaminated(Y, math.nan)), "Y has 1 NaN|NaN"),
    "reward infinite": (lambda X, Y: (X, contaminated(Y, math.inf)), "Y has 1 NaN|NaN"),
    "point NaN": (lambda X, Y: (contaminated(X, math.nan), Y), "X has 1 NaN|NaN"),
    "rewards of others": (lambda X, Y: (X, Y[:5]), ""),
    "two outcomes": (lambda X, Y: (X, Y.expand(8, 2)), ""),
    "flat rewards": (lambda X, Y: (X, Y.squeeze(-1)), ""),
    "whole rewards": (lambda X, Y: (X, Y.long()), "Y must be"),
    "mixed dtypes": (lambda X, Y: (X, Y.float()), "float32"),
}


@EVERY
@pytest.mark.parametrize("mistake", BAD_DATA)
def test_bad_data_are_refused(name, mistake, tkwargs):
    spoil, words = BAD_DATA[mistake]
    X = points(tkwargs, 8)
    with pytest.raises((ValueError, InputDataError), match=words):
        ROWS[name].make(*spoil(X, rewards(X)))


@EVERY
@pytest.mark.parametrize("mistake", ["reward NaN", "reward infinite", "point NaN", "two outcomes", "mixed dtypes"])
def test_bad_new_data_are_refused(name, mistake, tkwargs):
    if name == "robust, learned":
        pytest.skip("it conditions as BoTorch's SingleTaskGP does")
    spoil, words = BAD_DATA[mistake]
    model, X = make(name, tkwargs), points(tkwargs, 8)
    before = moments(model, X)
    with pytest.raises((ValueError, InputDataError), match=words):
        model.condition_on_observations(*spoil(X, rewards(X)))
    torch.testing.assert_close(moments(model, X), before, atol=0, rtol=0)


@functools.cache
def learned_moments(name, a, b, device):
    """Of a fitted model of rewards a + b Y."""
    X = points({"dtype": torch.float64, "device": device}, 40)
    Y = a + b * rewards(X)
    model = FeatureGP(X, Y, FourierMap(12)) if name == "fourier, learned" else ROWS[name].make(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return moments(model, X[:9] + 0.01)


@pytest.mark.parametrize(("a", "b"), [(0.0, 50.0), (0.0, 1e-4), (1e3, 1.0), (-3e5, 50.0), (-3e5, 1e-4)])
@pytest.mark.parametrize("name", ["nystrom, learned", "fourier, learned", "bkb, learned", "robust, learned"])
def test_units_of_the_rewards_do_not_matter(name, a, b, device):
    """``Model(X, a + b Y)`` predicts what ``Model(X, Y)`` does where no constant is in the units of the rewards."""
    (mean, variance), (moved_mean, moved_variance) = (learned_moments(name, *u, device) for u in ((0.0, 1.0), (a, b)))
    # Rewards 3e5 from zero that differ by 1e-4 keep six digits of their differences.
    torch.testing.assert_close((moved_mean - a) / b, mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(moved_variance / b**2, variance, atol=0, rtol=1e-5)


@EVERY
def test_leave_one_out_leaves_rows_out(name, tkwargs):
    """BoTorch's ``loo_cv`` predicts what the model of the other rows does, with the same hyperparameters."""
    X = points(tkwargs, 14)
    Y = rewards(X)
    make_exact = ROWS[name].exact
    if make_exact is None:
        pytest.skip("its features change with the rows")
    model = make_exact(X, Y).eval()
    if name == "ensemble":
        with pytest.raises(UnsupportedError):
            loo_cv(model)
        return
    found = loo_cv(model).posterior
    for i in range(14):
        others = torch.arange(14, device=X.device) != i
        mean, variance = moments(make_exact(X[others], Y[others]), X[i : i + 1])
        torch.testing.assert_close(found.mean[i], mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.variance[i], variance + NOISE_VAR, atol=1e-5, rtol=0)
