import importlib.util
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from bo_robust.experiments.problems import make_problem, tables
from bo_robust.experiments.problems.tables import HeldReturns

needs_skfolio = pytest.mark.skipif(importlib.util.find_spec("skfolio") is None, reason="skfolio is not installed")


@needs_skfolio
def test_returns_by_hand(device):
    problem = make_problem("sp500", range(3), 0)
    folder = importlib.util.find_spec("skfolio").submodule_search_locations[0]
    prices = pd.read_csv(f"{folder}/datasets/data/sp500_dataset.csv.gz", index_col=0)
    assert prices.shape == (8313, 20)
    first, second = prices.iloc[:4156], prices.iloc[4156:]
    past = 100 * (first.shift(-63) / first - 1).iloc[:-63]
    later = 100 * (second.shift(-63) / second - 1).iloc[:-63]
    centre = np.median(past)
    scale = np.median(np.abs(past - centre))
    assert (centre, scale) == (pytest.approx(4.3107, abs=1e-4), pytest.approx(8.9050, abs=1e-4))
    np.testing.assert_allclose(problem.f[1].numpy(), (later.mean() - centre) / scale, rtol=1e-9)
    np.testing.assert_allclose(problem.kernel.numpy(), past.corr(), rtol=1e-8, atol=1e-10)
    assert problem.arm_names == tuple(prices.columns)
    assert problem.arm_names[problem.f[0].argmax()] == later.mean().idxmax()
    assert problem.noise_var == pytest.approx(np.median(past.var(ddof=0)) / scale**2)
    assert problem.moment_bound == pytest.approx((((past - centre) / scale) ** 2).mean().max())
    assert float((((later - centre) / scale) ** 2).mean().max()) < problem.moment_bound  # it does bound them

    moved = problem.to(device, torch.float64)
    m = len(later)
    draws = torch.stack([torch.arange(m, dtype=torch.float64), torch.ones(m, dtype=torch.float64)], 1).to(device)
    for arm in (0, 19):
        y = moved.rewards(moved.f[:1].expand(m, -1), torch.full((m,), arm, device=device), draws)
        np.testing.assert_allclose(y.cpu().numpy(), (later.iloc[:, arm] - centre) / scale, rtol=1e-9, atol=1e-9)


def test_bad_ticks_hit_each_quote_independently():
    rounds, p = 200_000, 0.1
    clean = HeldReturns(torch.ones(50, 2), 0.0, 1.0)
    dirty = HeldReturns(torch.ones(50, 2), 0.0, 1.0, bad_ticks=p)
    a, b = (model.draw(np.random.default_rng(0), rounds) for model in (clean, dirty))
    np.testing.assert_array_equal(a[:, 0], b[:, 0])  # the same days with and without bad ticks
    assert set(np.unique(a[:, 1])) == {1.0}
    power = np.round(np.log(b[:, 1]) / np.log(100.0))
    counts = {k: int((power == k).sum()) for k in (-2, -1, 0, 1, 2)}
    assert sum(counts.values()) == rounds
    q = p / 2  # each quote is up or down with probability q
    expected = {2: q * q, 1: 2 * q * (1 - p), 0: (1 - p) ** 2 + 2 * q * q, -1: 2 * q * (1 - p), -2: q * q}
    for k, probability in expected.items():
        assert counts[k] == pytest.approx(rounds * probability, abs=4 * np.sqrt(rounds * probability))


def test_a_bad_quote_by_hand(device):
    model = HeldReturns(torch.tensor([[1.1], [0.9]]), centre=4.0, scale=2.0, bad_ticks=0.5)
    model = model.to(device, torch.float64)
    draws = torch.tensor([[0, 1.0], [0, 100.0], [1, 0.01]], dtype=torch.float64, device=device)
    arm = torch.zeros(3, dtype=torch.long, device=device)
    y = model(torch.zeros(3, 1, device=device), arm, draws)
    # +10 %, +10900 %, -99.1 %
    assert y.tolist() == pytest.approx([3.0, 5448.0, -51.55], rel=1e-6)


@needs_skfolio
def test_bad_ticks_change_rewards_only():
    clean, dirty = make_problem("sp500", [0], 0), make_problem("sp500", [0], 0, bad_ticks=1 / 500)
    assert torch.equal(clean.f, dirty.f)
    assert clean.moment_bound == dirty.moment_bound
    assert clean.noise_scale > 0
    assert dirty.noise_scale is None
    assert ["SIMULATED" in problem.notes for problem in (clean, dirty)] == [False, True]


@needs_skfolio
def test_skfolio_is_read_but_not_imported():
    make_problem("sp500", [0], 0)
    assert "skfolio" not in sys.modules


def test_missing_skfolio_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "bo-robust\[data\]"'):
        make_problem("sp500", [0], 0)


@needs_skfolio
def test_another_file_is_refused(monkeypatch):
    monkeypatch.setattr(tables, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"not the expected file.*skfolio 1\.12\.2"):
        make_problem("sp500", [0], 0)
