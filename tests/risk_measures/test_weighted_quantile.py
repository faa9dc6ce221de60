from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.risk_measures.weighted_quantile import keep_masses, quantile_index, sorted_masses, supported


def weighted_quantile(h, p, alpha):
    return h.gather(-1, quantile_index(h, p, alpha).unsqueeze(-1)).squeeze(-1)


@pytest.fixture
def tkwargs(device):
    return {"dtype": torch.float64, "device": device}


def by_definition(values, numerators, alpha):
    """inf{v : P(h <= v) >= alpha} by exact fractions; None: equal weights."""
    numerators = [1] * len(values) if numerators is None else numerators
    total = sum(numerators)
    for v in sorted(set(values)):
        if Fraction(sum(n for x, n in zip(values, numerators, strict=True) if x <= v), total) >= alpha:
            return v
    raise AssertionError


def test_agrees_with_the_golden_numbers(golden, tkwargs):
    assert len(golden["value_at_risk"]) == 5
    for case in golden["value_at_risk"]:
        p = torch.tensor(case["probabilities"], **tkwargs)
        for name in ("lower", "upper"):
            h = torch.tensor(case[name], **tkwargs)
            assert weighted_quantile(h, p, case["alpha"]).tolist() == case[f"var_{name}"]


@pytest.mark.parametrize("numerators", [(1, 2, 4, 2, 1), (0, 2, 0, 7, 1)])
def test_kept_masses_give_the_same_quantiles(numerators, tkwargs):
    p = torch.tensor(numerators, **tkwargs) / 10
    kept, values = keep_masses(p.clone()), torch.rand(50, 5, **tkwargs)
    for alpha in (1e-12, 0.1, 0.3, 0.5, 0.999):
        assert torch.equal(quantile_index(values, kept, alpha), quantile_index(values, p, alpha))
    every = torch.ones(50, 5, dtype=torch.bool, device=p.device)
    assert torch.equal(supported(every, kept), supported(every, p))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_agrees_with_the_definition_ties_and_zero_weights_included(data):
    w = data.draw(st.integers(1, 12))
    values = data.draw(st.lists(st.integers(-3, 3).map(float), min_size=w, max_size=w))
    equal = data.draw(st.booleans())
    numerators = None
    if not equal:
        numerators = data.draw(st.lists(st.integers(0, 5), min_size=w, max_size=w).filter(any))
    denominator = data.draw(st.integers(2, 40))
    alpha = Fraction(data.draw(st.integers(1, denominator - 1)), denominator)
    h = torch.tensor(values, dtype=torch.float64)
    p = None
    if numerators is not None:
        p = torch.tensor(numerators, dtype=torch.float64)
        p = p / p.sum()
    expected = by_definition(values, numerators, alpha)
    assert float(weighted_quantile(h, p, float(alpha))) == expected
    index = int(quantile_index(h, p, float(alpha)))
    assert numerators is None or numerators[index] > 0
    assert values[index] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("w", [3, 7, 10, 49, 100])
def test_cumulative_weights_equal_to_alpha_reach_it(w, dtype, device):
    h = torch.arange(w, dtype=dtype, device=device).flip(0)
    p = torch.full((w,), 1.0 / w, dtype=dtype, device=device)
    for k in range(1, w):
        for weights in (None, p):
            assert float(weighted_quantile(h, weights, k / w)) == k - 1
            assert float(weighted_quantile(h, weights, k / w + 2e-6)) == k


def test_one_point_and_tiny_alpha(tkwargs):
    h = torch.tensor([[5.0]], **tkwargs)
    assert weighted_quantile(h, None, 0.3).tolist() == [5.0]
    h = torch.tensor([1.0, 2.0, 3.0], **tkwargs)
    assert float(weighted_quantile(h, torch.tensor([0.0, 0.5, 0.5], **tkwargs), 1e-12)) == 2.0
    assert float(weighted_quantile(h, None, 1e-12)) == 1.0
    assert float(weighted_quantile(h, torch.tensor([0.5, 0.5, 0.0], **tkwargs), 1.0 - 1e-12)) == 2.0


def test_batches_of_values_and_weights(tkwargs):
    g = torch.Generator().manual_seed(0)
    h = torch.randn(4, 5, 9, generator=g, dtype=torch.float64).to(**tkwargs)
    p = torch.rand(4, 5, 9, generator=g, dtype=torch.float64).to(**tkwargs)
    p = p / p.sum(-1, keepdim=True)
    together = weighted_quantile(h, p, 0.37)
    assert together.shape == (4, 5)
    for i in range(4):
        for j in range(5):
            assert together[i, j] == weighted_quantile(h[i, j], p[i, j], 0.37)
    assert torch.equal(weighted_quantile(h, p[0, 0], 0.37)[1, 2], weighted_quantile(h[1, 2], p[0, 0], 0.37))
    assert weighted_quantile(h.mT, p[0, 0, :5], 0.37).shape == (4, 9)


def test_nan_sorts_last(tkwargs):
    h = torch.tensor([[torch.nan, 1.0, 2.0], [torch.nan] * 3], **tkwargs)
    p = torch.tensor([0.2, 0.4, 0.4], **tkwargs)
    for weights in (None, p):
        assert weighted_quantile(h, weights, 0.5)[0] == 2.0
        assert weighted_quantile(h, weights, 0.5)[1].isnan()


def test_gradient_goes_to_the_selected_value(tkwargs):
    g = torch.Generator().manual_seed(2)
    h = torch.randn(6, 8, generator=g, dtype=torch.float64).to(**tkwargs).requires_grad_()
    p = torch.softmax(torch.randn(8, generator=g, dtype=torch.float64), 0).to(**tkwargs)
    for weights in (None, p):
        assert torch.autograd.gradcheck(lambda x, w=weights: weighted_quantile(x, w, 0.3), h)
        (grad,) = torch.autograd.grad(weighted_quantile(h, weights, 0.3).sum(), h)
        expected = torch.nn.functional.one_hot(quantile_index(h, weights, 0.3), 8)
        assert torch.equal(grad, expected.to(grad))


def test_masses_are_exact_in_any_order():
    p = torch.tensor(np.random.default_rng(0).dirichlet(np.full(60, 0.1)), dtype=torch.float64)
    totals = {int(sorted_masses(torch.randperm(60).double(), p)[1][-1]) for _ in range(20)}
    assert len(totals) == 1
    assert abs(totals.pop() - 2**52) <= 60
