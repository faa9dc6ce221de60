"""Elimination by likelihood in the settings of a study: it explores with less than it certifies with."""

import pytest
import torch

from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.methods import create_method
from bo_robust.methods.he_gp_ucb import EXPLORING

KNOWN = {"num_arms": 50, "dim": 1, "num_initial": 3}


def made(**settings):
    X = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
    method = create_method("he-gp-ucb", {"noise_var": 0.01} | settings)
    return method, method.model(X, torch.sin(6.0 * X), KNOWN)


@pytest.mark.parametrize(
    ("settings", "scale"), [({}, EXPLORING), ({"width": {"kind": "bayesian_finite", "scale": 2.0}}, 2.0)]
)
def test_by_likelihood_it_chooses_with_a_part_of_the_certificates_width(settings, scale):
    method, model = made(elimination="likelihood", **settings)
    w = BayesianFiniteWidth(50, method.delta)(model.t)
    assert float(model.widths[model.leader]) == pytest.approx(scale * w)
    X = torch.tensor([[0.33]], dtype=torch.float64)
    _, lower, upper = method.bounds(method.acquisition(model, KNOWN), X)
    mean, variance = (m[model.alive] for m in model.moments(X))
    reach = (w if not settings else scale * w) * variance.sqrt()
    torch.testing.assert_close(lower, (mean - reach).amin(0))
    torch.testing.assert_close(upper, (mean + reach).amax(0))


def test_by_errors_both_widths_are_the_same_and_other_tests_are_refused():
    method, model = made()
    assert model.widths.tolist() == pytest.approx(
        [BayesianFiniteWidth(50, method.delta)(model.t)] * len(model.candidates)
    )
    with pytest.raises(ValueError, match="likelihood"):
        made(elimination="shrinking")
