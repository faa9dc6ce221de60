from bo_robust.confidence import SelfNormalisedWidth
from bo_robust.confidence.candidate_widths import delta_of_width


def test_elimination_leaves_half_of_delta_unless_the_width_halves_it():
    assert delta_of_width({"kind": "bayesian_finite"}, 0.2) == 0.2
    assert delta_of_width({"kind": "self_normalised"}, 0.2) == 0.1
    for width in (SelfNormalisedWidth(1.0, 0.1, 0.1), 2.0, None):
        assert delta_of_width(width, 0.2) == 0.1
