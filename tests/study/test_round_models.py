"""The model of a round, and what it makes of failures and truncated rewards."""

import math

import pytest
import torch

from bo_robust.study import Box
from bo_robust.study.round_models import RoundModels
from bo_robust.study.settings import complete

BOX = Box({"x": (0.0, 1.0)})
FIXED = {"lengthscale": 0.3, "outputscale": 1.0, "noise_var": 0.1}
X = torch.tensor([[0.1], [0.4], [0.8]], dtype=torch.float64)
Y = torch.tensor([[0.5], [-1.0], [2.0]], dtype=torch.float64)
FAILED = torch.tensor([[0.6], [0.7]], dtype=torch.float64)


def made(method, Y=Y, failed=X[:0], **settings):
    return RoundModels(complete(method, settings, BOX), 0, None).make(X, Y, failed)


def test_failures_come_last_with_the_worst_reward():
    model = made("gp-ucb", failed=FAILED, **FIXED).model
    assert model.train_inputs[0][:, 0].tolist() == [0.1, 0.4, 0.8, 0.6, 0.7]
    assert model.rewards[:, 0].tolist() == [0.5, -1.0, 2.0, -1.0, -1.0]


def test_failures_come_first_where_candidates_are_tested():
    model = made("he-gp-ucb", failed=FAILED, num_initial=4).model
    assert model.train_inputs[0][:, 0].tolist() == [0.6, 0.7, 0.1, 0.4, 0.8]
    assert model.train_targets.tolist() == [-1.0, -1.0, 0.5, -1.0, 2.0]
    assert model._history.num_initial == 6
    assert made("he-gp-ucb", num_initial=4).model._history.num_initial == 4


def test_truncated_rewards_are_neither_the_worst_nor_the_largest():
    found = made("tgp-ucb", Y * torch.tensor([[1.0], [1e6], [1e6]]).double(), FAILED, moment_bound=4.0, **FIXED)
    assert found.model.rewards[3:, 0].tolist() == [0.5, 0.5]
    assert (found.best_unseen, found.largest) == (2e6, 0.5)
    assert made("tgp-ucb", **FIXED).best_unseen == -math.inf
    everything = made("tgp-ucb", Y.sign() * 1e6, FAILED, moment_bound=4.0, **FIXED)
    assert everything.largest == 0.0
    assert everything.model.rewards[3:, 0].tolist() == [0.0, 0.0]


def test_many_truncated_rewards_are_warned_about():
    """Once, in the words of the settings, whatever the model says and however often it is built."""
    for method in ("tgp-ucb", "ata-gp-ucb"):
        with pytest.warns(UserWarning, match="truncated") as said:
            made(method, Y * 1e6, FAILED, moment_bound=4.0, **FIXED).bounds(X)
        words = [str(w.message) for w in said if "truncated" in str(w.message)]
        assert len(words) == 1
        assert words[0].startswith("100% of the rewards are truncated, so that")
        assert "raise `moment_bound`, or give `center` and `scale`" in words[0]


def test_the_certificate_has_its_own_width():
    found = made("gp-ucb", width=0.5, certificate=3.0, **FIXED)
    assert float(found.acquisition(None, torch.Generator()).width) == 0.5
    assert float(found.upper().width) == 3.0
    mean, lower, upper = found.bounds(X)
    torch.testing.assert_close(upper - mean, mean - lower)
    torch.testing.assert_close(upper, found.upper()(X.unsqueeze(-2)))
