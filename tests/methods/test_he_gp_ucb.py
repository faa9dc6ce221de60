"""Elimination by likelihood in the settings of a study: it explores with less, and certifies nothing."""

import pytest
import torch

from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.methods import create_method
from bo_robust.study import Study

KNOWN = {"num_arms": 50, "dim": 1, "num_initial": 3}


def made(**settings):
    X = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
    method = create_method("he-gp-ucb", {"noise_var": 0.01} | settings)
    return method, method.model(X, torch.sin(6.0 * X), KNOWN)


@pytest.mark.parametrize(
    ("settings", "scale"), [({}, EXPLORING), ({"width": {"kind": "bayesian_finite", "scale": 2.0}}, 2.0)]
)
def test_by_likelihood_it_explores_with_a_part_of_the_width_and_certifies_nothing(settings, scale, tmp_path):
    method, model = made(elimination="likelihood", **settings)
    assert float(model.widths[model.leader]) == pytest.approx(scale * BayesianFiniteWidth(50, method.delta)(model.t))
    with Study.create(
        tmp_path / "a", {"x": (0.0, 1.0)}, "he-gp-ucb", elimination="likelihood", restarts=2, raw_samples=16, **settings
    ) as study:
        for y in (0.1, 0.5, 0.2, 0.4, 0.6):
            study.tell(study.ask()[0].id, y)
        found = study.recommend()
        assert (found.worst, found.regret_bound) == (None, None)
        assert not study.should_stop(1e6)


def test_by_errors_both_widths_are_the_same_and_other_tests_are_refused():
    method, model = made()
    assert model.widths.tolist() == pytest.approx(
        [BayesianFiniteWidth(50, method.delta)(model.t)] * len(model.candidates)
    )
    with pytest.raises(ValueError, match="likelihood"):
        made(elimination="shrinking")


@pytest.mark.parametrize("noise_var", [0.001, 1.0])
def test_the_noise_is_that_of_the_candidates(noise_var):
    candidates = [{"kernel": "rbf", "lengthscale": scale, "noise_var": noise_var} for scale in (0.1, 0.5)]
    candidates[1]["noise_var"] = 0.5 * noise_var
    options = create_method("he-gp-ucb", {"candidates": candidates}).model_options(KNOWN)
    assert options["noise_scale"] == pytest.approx(noise_var**0.5)
    given = create_method("he-gp-ucb", {"candidates": candidates, "noise_scale": 0.3}).model_options(KNOWN)
    assert given["noise_scale"] == 0.3
