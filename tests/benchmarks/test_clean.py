"""The benchmark of clean kinds: its sets, and the arithmetic of its report."""

import dataclasses

import pytest
import torch
from botorch.models import SingleTaskGP

from benchmarks import clean
from benchmarks.clean import FRESH, KINDS, Clean, Outcome, outcome, shares, summarize


@pytest.mark.parametrize("name", KINDS)
def test_a_set_is_finite_in_the_box_and_of_its_seed(name):
    data, again, other = Clean.of(name, 0), Clean.of(name, 0), Clean.of(name, 1)
    assert data.X.shape[0] == len(data.Y) == len(data.f) == KINDS[name].n
    assert len(data.fresh) == len(data.f_fresh) == len(data.Y_fresh) == FRESH
    for values in dataclasses.astuple(data):
        assert bool(values.isfinite().all())
    assert bool(((data.X >= 0.0) & (data.X <= 1.0)).all())
    assert torch.equal(data.Y, again.Y)
    assert not torch.equal(data.X, other.X)
    assert float(data.Y.std()) > 0.0


def test_an_outcome_is_that_of_the_fit():
    data = Clean.of("linear, no noise", 0)
    found = outcome(SingleTaskGP, data, 0)
    assert (found.flagged, found.held, found.scale) == (0, 0, "y")
    assert found.error < 0.1
    assert found.regret < 0.2


def test_shares_and_limits_are_those_of_the_sets(capsys):
    plain = Outcome(0, 0, False, False, 0.1, 1.0, 0.0, "y")
    bad = dataclasses.replace(plain, flagged=4, best_flagged=True, error=0.2, regret=0.5)
    found = shares([(bad, plain), (plain, plain)], 80)
    assert found["best flagged or held"] == found["error worse"] == 50.0
    assert found["readings flagged"] == 5.0
    assert summarize({"kink": [(plain, plain)] * 2})
    assert not summarize({"kink": [(bad, plain), (plain, plain)]})
    assert "all kinds: regret less that of SingleTaskGP" in capsys.readouterr().out


def test_the_command_fails_where_a_limit_is_not_met(monkeypatch):
    monkeypatch.setattr(clean, "LIMITS", {"readings flagged": -1.0})
    monkeypatch.setattr("sys.argv", ["clean", "--kinds", "linear, no noise", "--seeds", "1", "--limits"])
    with pytest.raises(SystemExit, match="1"):
        clean.main()
