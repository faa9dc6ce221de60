import math

import numpy as np
import pytest
import torch
from botorch.acquisition.risk_measures import CVaR as BotorchCVaR
from botorch.acquisition.risk_measures import VaR as BotorchVaR
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bo_robust.risk_measures.functionals import (
    CVaR,
    Expectile,
    Mean,
    MeanVariance,
    ValueAtRisk,
    WorstCase,
    as_functional,
)
from bo_robust.risk_measures.selection_rules import select_by_rule

# Few distinct numbers, so that ties are common, and any floats.
NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
LEVELS = st.one_of(st.floats(1e-12, 1 - 1e-12), st.integers(1, 19).map(lambda k: k / 20))


@st.composite
def bounds(draw, max_points=12):
    w = draw(st.integers(1, max_points))
    a, b = (draw(hnp.arrays(np.float64, w, elements=NUMBERS)) for _ in range(2))
    p = None
    if draw(st.booleans()):
        weights = draw(st.lists(st.one_of(st.integers(0, 5).map(float), st.floats(0, 1)), min_size=w, max_size=w))
        if sum(weights) <= 1e-3:
            weights[0] = 1.0
        p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    return torch.tensor(np.minimum(a, b)), torch.tensor(np.maximum(a, b)), p


@settings(max_examples=200, deadline=None)
@given(bounds(), LEVELS)
def test_lacing_values_exist(case, alpha):
    """Theorem 1: any l <= u, any weights, any alpha; a lacing value's interval holds that of the functional."""
    lower, upper, p = case
    for functional in (ValueAtRisk(alpha), CVaR(alpha), WorstCase(), Mean(), Expectile(alpha)):
        mask = functional.lacing(lower, upper, p)
        assert mask.any()
        assert p is None or (p[mask] > 0).all()
        gap = functional.upper_bound(lower, upper, p) - functional.lower_bound(lower, upper, p)
        slack = 1e-9 * (1 + upper.abs().max() + lower.abs().max())
        assert ((upper - lower)[mask] >= gap - slack).all()
    var = ValueAtRisk(alpha)
    mask = var.lacing(lower, upper, p)
    assert (lower[mask] <= var(lower, p)).all()
    assert (upper[mask] >= var(upper, p)).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 300), st.integers(0, 10_000), st.integers(1, 99))
def test_lacing_values_exist_where_sums_of_weights_hit_alpha(w, seed, percent):
    """alpha is the probability of points that l and u put first in different orders: float sums would differ."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(w))
    k = max(1, w * percent // 100)
    alpha = float(np.clip(p[:k].sum() + rng.choice([0.0, 1e-9, -1e-9, 1e-16]), 1e-9, 1 - 1e-9))
    lower, upper = np.empty(w), np.empty(w)
    lower[:k], upper[:k] = -w + rng.permutation(k), w + rng.permutation(k)
    lower[k:], upper[k:] = rng.permutation(w - k), 3 * w + rng.permutation(w - k)
    mask = ValueAtRisk(alpha).lacing(torch.tensor(lower), torch.tensor(upper), torch.tensor(p / p.sum()))
    assert mask.any()


@settings(max_examples=120, deadline=None)
@given(bounds(), LEVELS, st.floats(0, 3), st.integers(0, 2**32 - 1))
def test_bounds_hold_the_truth(case, alpha, weight, seed):
    lower, upper, p = case
    mix = torch.tensor(np.random.default_rng(seed).choice([0.0, 0.3, 0.7, 1.0], len(lower)))
    f = lower + mix * (upper - lower)
    f = f.clamp(lower, upper)
    scale = 1 + upper.abs().max() + lower.abs().max()
    for functional, slack in (
        (ValueAtRisk(alpha), 0.0),
        (WorstCase(), 0.0),
        (CVaR(alpha), 1e-9 * scale),
        (Mean(), 1e-12 * scale),
        (Expectile(alpha), 1e-9 * scale),
        (MeanVariance(weight), 1e-9 * (1 + weight) * scale**2),
    ):
        value = functional(f, p)
        assert functional.lower_bound(lower, upper, p) <= value + slack
        assert functional.upper_bound(lower, upper, p) >= value - slack


def test_golden_lacing_values(golden, tkwargs):
    for case in golden["value_at_risk"]:
        lower, upper, p = (torch.tensor(case[k], **tkwargs) for k in ("lower", "upper", "probabilities"))
        assert ValueAtRisk(case["alpha"]).lacing(lower, upper, p).tolist() == case["lacing"]


def test_by_hand(tkwargs):
    h = torch.tensor([3.0, 1.0, 2.0, 0.0], **tkwargs)
    p = torch.tensor([0.4, 0.1, 0.3, 0.2], **tkwargs)
    assert float(ValueAtRisk(0.25)(h, p)) == 1.0
    assert float(CVaR(0.5)(h, p)) == pytest.approx((0.2 * 0 + 0.1 * 1 + 0.2 * 2) / 0.5)
    assert float(WorstCase()(h, p)) == 0.0
    assert float(WorstCase()(h, torch.tensor([0.5, 0.5, 0.0, 0.0], **tkwargs))) == 1.0
    assert float(Mean()(h, p)) == pytest.approx(1.9)
    assert float(MeanVariance(2.0)(h, p)) == pytest.approx(1.9 - 2 * (0.4 * 9 + 0.1 + 0.3 * 4 - 1.9**2))
    assert float(Mean()(h)) == 1.5
    # l = h - 1, u = h + 2: m = h + 0.5, r = 1.5, sd(m) = sd(h) = 1.1358
    sd = math.sqrt(0.4 * 9 + 0.1 + 0.3 * 4 - 1.9**2)
    functional = MeanVariance(2.0)
    assert float(functional.lower_bound(h - 1, h + 2, p)) == pytest.approx(0.9 - 2 * (sd + 1.5) ** 2)
    assert float(functional.upper_bound(h - 1, h + 2, p)) == pytest.approx(3.9)  # sd < r: the variance may vanish


def test_botorch_counts_from_the_other_side(tkwargs):
    """Equal weights, off the lattice: VaR_alpha here is BoTorch's VaR(1 - alpha)."""
    g = torch.Generator().manual_seed(0)
    for w in (7, 10, 32):
        samples = torch.randn(5, w, 1, generator=g, dtype=torch.float64).to(**tkwargs)
        for k in range(w):
            alpha = (k + 0.5) / w
            theirs = BotorchVaR(alpha=1 - alpha, n_w=w)(samples).squeeze(-1)
            assert torch.equal(ValueAtRisk(alpha)(samples.squeeze(-1)), theirs)
        for k in range(1, w):
            # BoTorch's counts the point at the quantile in full, so that between lattice points it is the next one's.
            theirs = BotorchCVaR(alpha=1 - (k - 0.5) / w, n_w=w)(samples).squeeze(-1)
            assert torch.allclose(CVaR(k / w)(samples.squeeze(-1)), theirs, atol=1e-12)
    for w in (5, 10, 20, 64, 100):  # on the lattice BoTorch's is the next value
        h = torch.arange(1, w + 1, **tkwargs).view(1, w, 1)
        for alpha in (0.05, 0.1, 0.13, 0.2, 0.25, 0.5):
            rank = round(alpha * w, 9)
            assert float(ValueAtRisk(alpha)(h.squeeze(-1))) == math.ceil(rank)
            assert float(BotorchVaR(alpha=1 - alpha, n_w=w)(h)) == math.floor(rank) + 1


def test_gradients_away_from_ties(tkwargs):
    g = torch.Generator().manual_seed(3)
    h = torch.randn(4, 7, generator=g, dtype=torch.float64).to(**tkwargs).requires_grad_()
    gap = torch.rand(4, 7, generator=g, dtype=torch.float64).to(**tkwargs)
    p = torch.softmax(torch.randn(7, generator=g, dtype=torch.float64), 0).to(**tkwargs)
    for functional in (ValueAtRisk(0.3), CVaR(0.3), WorstCase(), Mean(), MeanVariance(0.5)):
        for weights in (None, p):
            assert torch.autograd.gradcheck(lambda x, f=functional, w=weights: f(x, w), h)
            assert torch.autograd.gradcheck(lambda x, f=functional, w=weights: f.upper_bound(x - gap, x + gap, w), h)
    point = torch.ones(2, 1, **tkwargs, requires_grad=True)  # no spread, no reach: roots at zero
    (grad,) = torch.autograd.grad(MeanVariance(1.0).upper_bound(point, point).sum(), point)
    assert torch.isfinite(grad).all()


def test_cvar_is_lacing_at_the_level_of_the_largest_gap(tkwargs):
    lower = torch.tensor([0.0, 1.0, 2.0, 3.0], **tkwargs)
    upper = torch.tensor([0.1, 5.0, 2.1, 3.1], **tkwargs)
    # VaR(l) at levels 1/4, 1/2: 0, 1; VaR(u): 0.1, 2.1. The largest gap 1.1 is at 1/2: l <= 1 and u >= 2.1.
    assert CVaR(0.5).lacing(lower, upper).tolist() == [False, True, False, False]
    assert CVaR(0.25).lacing(lower, upper).tolist() == ValueAtRisk(0.25).lacing(lower, upper).tolist()


def test_lacing_values_of_the_mean_are_probable_ones(device):
    """u(z) - l(z) >= F(u) - F(l), and not only the widest interval, which may be where nothing ever happens."""
    p = torch.tensor([0.001, 0.5, 0.4, 0.099], dtype=torch.float64, device=device)
    lower = torch.zeros(4, dtype=torch.float64, device=device)
    upper = torch.tensor([9.0, 1.0, 2.0, 0.5], dtype=torch.float64, device=device)
    mask = Mean().lacing(lower, upper, p)  # mean gap: .009 + .5 + .8 + .0495 = 1.3585
    assert mask.tolist() == [True, False, True, False]
    assert int(select_by_rule(mask, upper - lower, p, "probable")) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_variance_of_numbers_whose_squares_overflow(dtype):
    """Bounds are bounds, never NaN, and the upper one is finite."""
    large = torch.finfo(dtype).max ** 0.95
    lower = large * torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.3, 0.3], [-0.5, -0.5, -0.5]], dtype=dtype)
    upper = lower + large * torch.tensor([[0.2, 0.1, 0.1], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=dtype)
    for weight in (0.0, 0.5):
        functional = MeanVariance(weight)
        low, high = functional.lower_bound(lower, upper), functional.upper_bound(lower, upper)
        assert bool(high.isfinite().all())
        assert bool((low <= high).all())
        assert bool((functional((lower + upper) / 2.0) <= high).all())
    assert torch.equal(MeanVariance(0.0).upper_bound(lower, upper), upper.mean(-1))


def test_expectile_by_hand_and_its_limits():
    # tau = 0.2: 0.2 (4 - e) = 0.8 (e - 0) with equal weights, so e = 0.8.
    h = torch.tensor([4.0, 0.0], dtype=torch.float64, requires_grad=True)
    expectile = Expectile(0.2)(h)
    assert float(expectile.detach()) == pytest.approx(0.8)
    assert torch.autograd.grad(expectile, h)[0].tolist() == pytest.approx([0.2, 0.8])
    values = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = torch.tensor([0.1, 0.0, 0.2, 0.3, 0.1, 0.2, 0.1], dtype=torch.float64)
    assert torch.allclose(Expectile(0.5)(values, p), Mean()(values, p))
    assert torch.allclose(Expectile(1e-9)(values, p), WorstCase()(values, p), atol=1e-6)
    e = Expectile(0.3)(values, p).unsqueeze(-1)
    balance = (p * torch.where(values <= e, 0.7, 0.3) * (values - e)).sum(-1)  # the first-order condition
    assert torch.allclose(balance, torch.zeros(5, dtype=torch.float64), atol=1e-12)


def test_functionals_have_names():
    assert as_functional("worst") == WorstCase()
    assert as_functional({"kind": "cvar", "alpha": 0.2}) == CVaR(0.2)
    assert as_functional({"kind": "expectile", "tau": 0.1}) == Expectile(0.1)
    assert as_functional(0.1) == ValueAtRisk(0.1)


@pytest.mark.parametrize("functional", [ValueAtRisk, CVaR])
def test_a_large_alpha_is_told_which_tail_it_is(functional):
    message = r"BoTorch's VaR\(0.9\) is alpha = 0.1 here"
    with pytest.warns(UserWarning, match=message):
        functional(0.9)
    with pytest.warns(UserWarning, match=message) as seen:
        as_functional({"kind": "var", "alpha": 0.9})
    assert seen[0].filename == __file__
