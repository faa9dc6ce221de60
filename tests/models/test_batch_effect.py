"""Readings that share the deviation of a batch."""

import copy

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP

from bo_robust import RobustGP
from bo_robust.models import BatchEffectLikelihood
from bo_robust.models.marginal_likelihood import ModuleEvidence, StationaryEvidence
from bo_robust.proposals.suggest import Data, suggest
from tests.problems import fit

BATCH = np.arange(24) // 6


def data(deviations=(0.0, 1.0, 0.0, -0.5)):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(24, 2, generator=g, dtype=torch.float64)
    Y = torch.sin(5.0 * X[:, :1]) + X[:, 1:] + 0.05 * torch.randn(24, 1, generator=g, dtype=torch.float64)
    return X, Y + torch.tensor(deviations, dtype=torch.float64)[BATCH].unsqueeze(-1)


def model(**options):
    return RobustGP(*data(), batch=BATCH, outcome_scale=None, **options)


def test_predictions_are_those_of_the_covariance_with_a_shared_deviation():
    gp = fit(model())
    X, Z = data()[0], torch.rand(5, 2, dtype=torch.float64)
    y, same = gp.train_targets, torch.from_numpy(BATCH[:, None] == BATCH).double()
    with torch.no_grad():
        K = gp.covar_module(X).to_dense() + gp.likelihood.batch_variance * same
        K += gp.likelihood.noise * torch.eye(24)
        cross, mean = gp.covar_module(Z, X).to_dense(), gp.mean_module.constant
        wanted = mean + cross @ torch.linalg.solve(K, y - mean)
        variance = gp.covar_module(Z).to_dense() - cross @ torch.linalg.solve(K, cross.mT)
        unit, center = gp.outcome_transform.stdvs.squeeze(), gp.outcome_transform.means.squeeze()
        found, noisy = gp.posterior(Z), gp.posterior(Z, observation_noise=True)
        more = unit**2 * (gp.likelihood.batch_variance + gp.likelihood.noise)
    assert torch.allclose(found.mean.squeeze(-1), center + unit * wanted)
    assert torch.allclose(found.variance.squeeze(-1), unit**2 * variance.diagonal())
    assert torch.allclose(noisy.variance - found.variance, more.expand(5, 1))


def test_the_evidence_that_is_written_out_is_that_of_the_modules():
    gp = model()
    assert StationaryEvidence.fits(gp)
    own, y, kept = StationaryEvidence(gp), gp.train_targets.numpy(), np.arange(0, 24, 2)
    theta = own.start + 0.3 * np.random.default_rng(0).standard_normal(len(own.start))
    loss, gradient = own.loss(theta, y, kept)
    slopes = [
        (own.loss(theta + e, y, kept)[0] - own.loss(theta - e, y, kept)[0]) / 2e-6 for e in 1e-6 * np.eye(len(theta))
    ]
    assert np.allclose(gradient, slopes, atol=1e-6)
    own.assign(theta)
    modules = ModuleEvidence(copy.deepcopy(gp))
    difference = modules.loss(modules.start, y, kept)[0] - loss
    own.assign(own.start)  # up to a constant: of the priors
    modules = ModuleEvidence(copy.deepcopy(gp))
    assert modules.loss(modules.start, y, kept)[0] - own.loss(own.start, y, kept)[0] == pytest.approx(difference)


def test_the_deviations_are_found_and_their_mean_is_not_the_function():
    gp = fit(model())
    mean, lower, upper = gp.batch_deviations()
    assert mean.tolist() == pytest.approx([-0.12, 0.88, -0.12, -0.62], abs=0.2)
    assert (lower < mean).all()
    assert (mean < upper).all()
    truth = data((0.0,) * 4)[1]
    error = (gp.posterior(data()[0]).mean - truth - 0.125).square().mean().sqrt()
    plain = (fit(SingleTaskGP(*data())).posterior(data()[0]).mean - truth - 0.125).square().mean().sqrt()
    assert error < 0.5 * plain


def test_no_deviation_leaves_the_model_as_it_is():
    X, Y = data((0.0,) * 4)
    gp, plain = fit(RobustGP(X, Y, batch=BATCH)), fit(RobustGP(X, Y))
    assert float(gp.likelihood.batch_variance) < 0.02
    assert torch.allclose(gp.posterior(X).mean, plain.posterior(X).mean, atol=0.05)


def test_an_outlier_within_a_batch_is_found():
    X, Y = data()
    Y[9] += 5.0
    assert (~fit(RobustGP(X, Y, batch=BATCH)).inlier_mask).nonzero().flatten().tolist() == [9]


def test_labels_may_be_texts_and_say_only_who_goes_together():
    X, Y = data()
    names = [f"plate {7 - k}" for k in BATCH]
    one, other = fit(RobustGP(X, Y, batch=names)), fit(RobustGP(X, Y, batch=torch.from_numpy(BATCH)))
    assert torch.allclose(one.posterior(X).mean, other.posterior(X).mean)


def test_observations_that_are_added_are_of_new_batches():
    gp, Z = fit(model()), torch.rand(2, 2, dtype=torch.float64)
    gp.posterior(Z)
    later = gp.condition_on_observations(Z, torch.ones(2, 1, dtype=torch.float64))
    assert later.posterior(Z).variance.max() < gp.posterior(Z).variance.max()


def test_a_state_is_restored_with_its_batches():
    gp, other = fit(model()), model()
    other.load_state_dict(gp.state_dict())
    X = data()[0]
    assert torch.allclose(gp.posterior(X).mean, other.posterior(X).mean)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": [1, 2]}, "batch needs one label for each of the 24"),
        ({"batch": [None] * 24}, "batch has a missing label"),
        ({"batch": BATCH, "train_Yvar": torch.ones(24, 1, dtype=torch.float64)}, "give batch or train_Yvar"),
    ],
)
def test_wrong_batches_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        RobustGP(*data(), **options)


def test_suggest_takes_batches():
    X, Y = data()
    names = np.array(["Mon", "Tue", "Wed", "Thu"])[BATCH]
    found = suggest(Data(X, Y, batch=names), bounds=[[0.0] * 2, [1.0] * 2], q=1)
    assert isinstance(found.model.likelihood, BatchEffectLikelihood)
    with pytest.raises(ValueError, match="gp-ucb takes no batch; only robust does"):
        suggest(Data(X, Y, batch=names), bounds=[[0.0] * 2, [1.0] * 2], method="gp-ucb")
