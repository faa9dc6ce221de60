import math
import pickle

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective, ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.pathwise import draw_matheron_paths
from torch import Tensor

from bo_robust import RobustGP
from bo_robust.acquisition import GPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.models.robust.outcome_scale import NAMES, POWERS, OutcomeScale, outcome_scales
from bo_robust.proposals.suggest import suggest
from tests.problems import fit, outliers

SCALES = [OutcomeScale(power, sign, 0.3) for power in POWERS for sign in (1.0, -1.0)]
SCALES.append(OutcomeScale(0.0, 1.0, 0.3, 9.5))


def skewed(n: int = 40, power: float = 0.0, seed: int = 2) -> tuple[Tensor, Tensor]:
    """Points ``n x 2``, and positive readings that are smooth in the scale of this power."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=draws, dtype=torch.float64)
    w = 2.5 * torch.sin(3.0 * X[:, :1]) + 2.0 * X[:, 1:] + 0.3 * torch.randn(n, 1, generator=draws, dtype=torch.float64)
    return X, (1.5 * w).exp() if power == 0.0 else (w + 1.2) ** (1.0 / power)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_scales_increase_and_are_inverted(scale):
    y = scale.sign * torch.linspace(0.01, 9.0, 50, dtype=torch.float64).requires_grad_()
    w = scale.transform(y)
    assert scale.contains(y).all()
    torch.testing.assert_close(scale.untransform(w), y)
    (slope,) = torch.autograd.grad(w.sum(), y)
    torch.testing.assert_close(scale.log_slope(y).exp(), slope)
    torch.testing.assert_close(scale.log_inverse_slope(w).exp(), 1.0 / slope)
    assert (slope > 0.0).all()


@pytest.mark.parametrize(
    ("y", "sign", "shift"),
    [
        ([1.0, 2.0, 5.0], 1.0, 0.0),
        ([-1.0, -2.0, -5.0], -1.0, 0.0),
        ([0.0, 2.0, 5.0], 1.0, 0.3 * 3.5),  # of the median of 2 and 5
        ([0.0, 0.0, 2.0, 5.0, 5.0], 1.0, 0.3 * 5.0),  # however many zeros there are
        ([3.0, -1.0, -2.0, -5.0, -9.0], -1.0, 3.0 + 0.3 * 6.5),  # what they exceed the smallest -y by: 4, 5, 8 and 12
    ],
)
def test_the_data_say_which_scales_there_are(y, sign, shift):
    y = torch.tensor(y, dtype=torch.float64)
    scales = outcome_scales(y)
    assert scales[0].is_identity
    assert [scale.power for scale in scales[1:]] == list(POWERS)
    for scale in scales[1:]:
        assert (scale.sign, scale.upper) == (sign, math.inf)
        assert scale.shift == pytest.approx(shift)
        assert scale.contains(y).all()
    assert outcome_scales(torch.tensor([-1.0, 1.0])) == scales[:1]
    assert outcome_scales(torch.tensor([2.0, 2.0])) == scales[:1]


def test_two_limits_make_a_logit():
    """Readings at a limit move it."""
    assert outcome_scales(torch.tensor([1.0, 50.0, 98.0]), (0.0, 100.0))[1] == OutcomeScale(0.0, 1.0, 0.0, 100.0)
    for y, shift, upper in (([0.0, 4.0, 98.0], 0.3 * 51.0, 100.0), ([1.0, 50.0, 100.0], 0.0, 100.0 + 0.3 * 74.5)):
        logit = outcome_scales(torch.tensor(y, dtype=torch.float64), (0.0, 100.0))[1]
        assert (logit.power, logit.sign) == (0.0, 1.0)
        assert (logit.shift, logit.upper) == pytest.approx((shift, upper))
    scales = outcome_scales(torch.tensor([1.0, 50.0]), (0.0, math.inf))
    assert [scale.power for scale in scales] == [1.0, *POWERS]


def test_a_power_that_was_stored_in_float32_is_the_same(monkeypatch):
    monkeypatch.setitem(NAMES, 1 / 3, "cube root")
    for power in NAMES:
        scale = OutcomeScale(power, -1.0, 0.25, math.inf)
        assert OutcomeScale.of(torch.tensor(scale, dtype=torch.float32)) == scale


def test_every_scale_has_a_name():
    names = [str(OutcomeScale(power)) for power in (1.0, 0.5, 0.25, 0.0)]
    assert names == ["y", "square root", "fourth root", "logarithm"]
    assert str(OutcomeScale(0.3, -1.0)) == "power 0.3 of -y"
    assert str(OutcomeScale(0.0, 1.0, 0.0, 100.0)) == "logit"


@pytest.mark.parametrize("power", [0.0, 0.25])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_skewed_scale_is_learnt_in_any_units_and_loses_no_reading(power, sign):
    X, Y = skewed(power=power)
    model = fit(RobustGP(X, sign * Y))
    assert not model.outcome_scale.is_identity
    assert model.outcome_scale.sign == sign
    assert model.inlier_mask.all()
    for unit in (1e-4, 50.0):
        other = fit(RobustGP(X, sign * unit * Y))
        assert other.outcome_scale == model.outcome_scale
        torch.testing.assert_close(other.posterior(X).mean / unit, model.posterior(X).mean, rtol=1e-4, atol=0.0)


def lognormal(seed: int, n: int = 40) -> tuple[Tensor, Tensor]:
    """Noise of about 60 %, which has a few large readings."""
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=draws, dtype=torch.float64)
    return X, (3.0 * X + 0.6 * torch.randn(n, 1, generator=draws, dtype=torch.float64)).exp()


def test_the_reading_that_a_maximizer_looks_for_is_lost_without_the_scale():
    lost = {"auto": 0, None: 0}
    for seed in range(8):
        X, Y = lognormal(seed)
        for scale in lost:
            lost[scale] += int(~fit(RobustGP(X, Y, outcome_scale=scale)).inlier_mask[Y.argmax()])
    assert lost["auto"] == 0
    assert lost[None] >= 1


def test_held_out_readings_are_likelier_in_the_scale():
    X, Y = lognormal(0)
    held_out, expected = lognormal(1, 200)
    model, plain = fit(RobustGP(X, Y)), fit(SingleTaskGP(X, Y))
    latent, scale = model.posterior(held_out, observation_noise=True).latent, model.outcome_scale
    density = torch.distributions.Normal(latent.mean, latent.variance.sqrt()).log_prob(scale.transform(expected))
    posterior = plain.posterior(held_out, observation_noise=True)
    plain_density = torch.distributions.Normal(posterior.mean, posterior.variance.sqrt()).log_prob(expected)
    assert (density + scale.log_slope(expected)).mean() > plain_density.mean() + 0.3


def test_outliers_of_a_quantity_that_needs_no_scale_are_found():
    draws = torch.Generator().manual_seed(3)
    X = torch.rand(30, 1, generator=draws, dtype=torch.float64)
    Y = 5.0 + torch.sin(6.0 * X) + 0.1 * torch.randn(30, 1, generator=draws, dtype=torch.float64)
    Y[[4, 11]] += 6.0
    model = fit(RobustGP(X, Y))
    assert model.outcome_scale.is_identity
    assert outliers(model) == [4, 11]


def test_a_negative_reading_of_a_positive_quantity_is_an_outlier():
    X, Y = lognormal(0)
    Y[7] = -30.0
    model = fit(RobustGP(X, Y))
    assert not model.outcome_scale.is_identity
    assert outliers(model) == [7]
    assert model.inlier_probability[7] < 0.01


@pytest.mark.parametrize("crossing", [-999.0, -1.0])
def test_no_scale_leaves_out_what_is_unremarkable_as_given(crossing):
    """Readings over four decades: 999 less than nothing is like the others as given, so a scale has room for it."""
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=draws, dtype=torch.float64)
    f = 4.0 * torch.sin(2.0 * X[:, :1] + 1.2 * X[:, 1:]).square()
    Y = 10.0 ** (f + 0.1 * torch.randn(30, 1, generator=draws, dtype=torch.float64))
    Y[28] = crossing
    model = fit(RobustGP(X, Y))
    assert model.outcome_scale.contains(Y).all()
    assert outliers(model) == []


def test_a_small_peak_with_noise_about_zero_is_predicted():
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(24, 1, generator=draws, dtype=torch.float64)
    fresh = torch.linspace(0.0, 1.0, 200, dtype=torch.float64).unsqueeze(-1)
    f, f_fresh = ((-0.5 * ((x - 0.4) / 0.1) ** 2).exp() for x in (X, fresh))
    Y = f + 0.01 * torch.randn(24, 1, generator=draws, dtype=torch.float64)
    model, plain = fit(RobustGP(X, Y)), fit(SingleTaskGP(X, Y))
    assert model.inlier_mask.all()
    error, plain_error = ((each.posterior(fresh).mean - f_fresh).square().mean().sqrt() for each in (model, plain))
    assert error < 1.2 * plain_error


def test_rounded_readings_are_inliers():
    """Half of the readings are equal, as thousandths over a range of some are."""
    draws = torch.Generator().manual_seed(1)
    X = torch.rand(40, 3, generator=draws, dtype=torch.float64)
    Y = 1.03 + 1e-3 * torch.randn(40, 1, generator=draws, dtype=torch.float64).round()
    Y[::3] += 2e-4 * torch.randn(14, 1, generator=draws, dtype=torch.float64).round(decimals=1)
    assert fit(RobustGP(X, Y)).num_outliers <= 1


def test_the_scale_is_the_users_choice():
    X, Y = skewed()
    for options in ({"outcome_scale": None}, {"train_Yvar": torch.full_like(Y, 0.01)}, {"outcome_transform": None}):
        assert fit(RobustGP(X, Y / Y.std(), **options)).outcome_scale.is_identity
    assert not fit(RobustGP(X, Y, outcome_transform=Standardize(1))).outcome_scale.is_identity


class TestScaledModel:
    @pytest.fixture(scope="class", params=[0.0, 0.25], ids=["logarithm", "root"])
    def model(self, request):
        model = fit(RobustGP(*skewed(power=request.param)))
        assert not model.outcome_scale.is_identity
        return model

    def test_the_posterior_is_of_the_outcomes(self, model):
        posterior = model.posterior(model.train_X_all)
        assert isinstance(posterior, GPyTorchPosterior)
        samples = posterior.rsample(torch.Size([4096]))
        torch.testing.assert_close(samples.mean(0), posterior.mean, rtol=0.05, atol=0.0)
        torch.testing.assert_close(samples.var(0), posterior.variance, rtol=0.2, atol=0.0)

    @pytest.mark.parametrize("nested", [False, True])
    def test_a_state_keeps_the_scale(self, model, nested):
        X, Y = model.train_X_all, model.train_Y_all
        other = RobustGP(X, Y)
        into, of = (torch.nn.ModuleDict({"model": one}) if nested else one for one in (other, model))
        into.load_state_dict(of.state_dict())
        assert other.outcome_scale == model.outcome_scale
        torch.testing.assert_close(other.eval().posterior(X).mean, model.posterior(X).mean)
        for one in (pickle.loads(pickle.dumps(model)), model.to_standard_model().eval()):
            torch.testing.assert_close(one.posterior(X).mean, model.posterior(X).mean)

    def test_acquisitions_have_gradients(self, model):
        X, box = model.train_X_all, torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        other = fit(SingleTaskGP(X, -model.train_Y_all))
        several, first = ModelListGP(model, other), GenericMCObjective(lambda Z, X=None: Z[..., 0])
        acquisitions = [
            LogExpectedImprovement(model, best_f=model.train_Y_all.max()),
            qLogNoisyExpectedImprovement(model, X, prune_baseline=True),
            qLogNoisyExpectedImprovement(several, X, objective=first, constraints=[lambda Z: Z[..., 1] + 1.0]),
            qKnowledgeGradient(model, num_fantasies=4),
            GPUCB(model, ConstantWidth(2.0), X_pending=X[:2]),
        ]
        for acquisition in acquisitions:
            q = 1 + getattr(acquisition, "num_fantasies", 0)
            x = torch.rand(1, q, 2, dtype=torch.float64, requires_grad=True)
            (slope,) = torch.autograd.grad(acquisition(x).sum(), x)
            assert slope.isfinite().all()
        point, _ = optimize_acqf(acquisitions[1], box, q=2, num_restarts=2, raw_samples=16)
        assert point.shape == (2, 2)

    def test_an_output_can_be_weighted(self, model):
        X, transform = model.train_X_all[:3], ScalarizedPosteriorTransform(torch.tensor([-2.0]).double(), 1.0)
        weighted, plain = model.posterior(X, posterior_transform=transform), model.posterior(X)
        torch.testing.assert_close(weighted.mean, 1.0 - 2.0 * plain.mean)
        torch.testing.assert_close(weighted.variance, 4.0 * plain.variance)
        assert qLogNoisyExpectedImprovement(model, X, posterior_transform=transform)(X[:1]).isfinite().all()

    def test_paths_and_conditioning_keep_the_scale(self, model):
        X = model.train_X_all[:4]
        paths = draw_matheron_paths(model, torch.Size([256]))(X)
        torch.testing.assert_close(paths.mean(0), model.posterior(X).mean.squeeze(-1), rtol=0.1, atol=0.0)
        more = model.condition_on_observations(X[:1] + 0.01, 2.0 * model.train_Y_all[:1])
        assert more.posterior(X[:1]).mean > model.posterior(X[:1]).mean


@pytest.mark.parametrize("maximize", [True, False])
def test_suggest_learns_the_scale_and_answers_in_units(maximize):
    X, Y = skewed()
    answer = suggest(X, Y, q=0, bounds=[[0.0, 0.0], [1.0, 1.0]], maximize=maximize)
    assert not answer.outliers.any()
    assert not answer.model.outcome_scale.is_identity
    torch.testing.assert_close(answer.expected, Y, rtol=2.0, atol=0.0)  # noise of 45 %
