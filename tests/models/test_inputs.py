"""Objects from specs, and what the elimination of candidates leaves to a width."""

import pytest

from bo_robust.confidence import WIDTHS, BayesianFiniteWidth, ConstantWidth, SelfNormalisedWidth
from bo_robust.confidence.candidate_widths import delta_of_width
from bo_robust.models.inputs import from_spec


def test_specs_are_built_and_objects_returned():
    width = ConstantWidth(1.0)
    assert from_spec(width, WIDTHS, {}, "width") is width
    assert from_spec({"kind": "bayesian_finite", "num_arms": 3}, WIDTHS, {"delta": 0.2}, "width") == (
        BayesianFiniteWidth(3, 0.2)
    )
    with pytest.raises(ValueError, match="width must be a mapping with a `kind`, got 'constant'"):
        from_spec("constant", WIDTHS, {}, "width")


def test_elimination_leaves_half_of_delta_unless_the_width_halves_it():
    assert delta_of_width({"kind": "bayesian_finite"}, 0.2) == 0.2
    assert delta_of_width({"kind": "self_normalised"}, 0.2) == 0.1
    for width in (SelfNormalisedWidth(1.0, 0.1, 0.1), 2.0, None):
        assert delta_of_width(width, 0.2) == 0.1
