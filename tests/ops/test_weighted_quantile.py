"""The quantile against its definition, hand-computed numbers, ties, zero weights, tolerance, gradients."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.ops.weighted_quantile import quantile_index, tail_weights, weighted_quantile


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


def test_by_hand(tkwargs):
    h = torch.tensor([3.0, 1.0, 2.0, 1.0], **tkwargs)
    p = torch.tensor([0.4, 0.1, 0.3, 0.2], **tkwargs)
    for alpha, expected in [(0.05, 1.0), (0.3, 1.0), (0.31, 2.0), (0.6, 2.0), (0.61, 3.0), (0.99, 3.0)]:
        assert float(weighted_quantile(h, p, alpha)) == expected
    for alpha, expected in [(0.5, 1.0), (0.51, 2.0), (0.75, 2.0), (0.76, 3.0)]:
        assert float(weighted_quantile(h, None, alpha)) == expected


@settings(max_examples=200, deadline=None)
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


def test_gradient_goes_to_the_selected_value(tkwargs):
    g = torch.Generator().manual_seed(2)
    h = torch.randn(6, 8, generator=g, dtype=torch.float64).to(**tkwargs).requires_grad_()
    p = torch.softmax(torch.randn(8, generator=g, dtype=torch.float64), 0).to(**tkwargs)
    for weights in (None, p):
        assert torch.autograd.gradcheck(lambda x, w=weights: weighted_quantile(x, w, 0.3), h)
        (grad,) = torch.autograd.grad(weighted_quantile(h, weights, 0.3).sum(), h)
        expected = torch.nn.functional.one_hot(quantile_index(h, weights, 0.3), 8)
        assert torch.equal(grad, expected.to(grad))


def test_tail_weights_by_hand(tkwargs):
    h = torch.tensor([3.0, 1.0, 2.0, 0.0], **tkwargs)
    p = torch.tensor([0.4, 0.1, 0.3, 0.2], **tkwargs)
    # 0.5 of the lower tail: 0.2 at 0, 0.1 at 1, 0.2 of the 0.3 at 2.
    c = tail_weights(h, p, 0.5)
    assert torch.allclose(c, torch.tensor([0.0, 0.2, 0.4, 0.4], **tkwargs), atol=1e-12)
    assert torch.allclose(tail_weights(h, None, 0.3), torch.tensor([0.0, 1 / 6, 0, 5 / 6], **tkwargs), atol=1e-12)


def test_bad_input_is_refused(tkwargs):
    h = torch.zeros(2, 3, **tkwargs)
    for alpha in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"alpha .*between 0 and 1"):
            weighted_quantile(h, None, alpha)
        with pytest.raises(ValueError, match="alpha"):
            tail_weights(h, None, alpha)
    with pytest.raises(ValueError, match="weights must be w or"):
        weighted_quantile(h, torch.ones(2, **tkwargs), 0.5)
    with pytest.raises(ValueError, match="float32"):
        weighted_quantile(h, torch.ones(3, device=h.device), 0.5)
    with pytest.raises(ValueError, match="w >= 1"):
        weighted_quantile(h[:, :0], None, 0.5)
    with pytest.raises(ValueError, match="float32 or float64"):
        weighted_quantile(h.long(), None, 0.5)
