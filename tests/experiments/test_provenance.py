"""What counts as another world than the one a run began in."""

from bo_robust.experiments.provenance import differences


def test_what_only_one_side_has_differs_too():
    """Plain ops in one of two places play other traces, whichever place that is."""
    assert differences({"torch": "2"}, {"torch": "2", "ops": "naive"}) == [("ops", None, "naive")]
    assert differences({"torch": "2", "ops": "naive"}, {"torch": "3"}) == [("torch", "2", "3"), ("ops", "naive", None)]
    assert differences({"torch": "2"}, {"torch": "2"}) == []
