"""Conditions as plain JSON."""

import pytest
import torch

from bo_robust.acquisition.conditions import check_search_space, finite_environment

PLAIN = {"points": [{"u": 0.0, "v": 5}, {"v": 7, "u": 1.0}], "probabilities": [0.25, 0.75]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_in_the_order_of_their_names(dtype, device):
    tkwargs = {"dtype": dtype, "device": device}
    made = finite_environment(PLAIN, torch.zeros(1, **tkwargs))
    assert made.z.tolist() == [[0.0, 5.0], [1.0, 7.0]]
    assert made.probabilities.tolist() == [0.25, 0.75]
    assert (made.z.dtype, made.z.device) == (dtype, torch.zeros(1, device=device).device)
    assert finite_environment({"points": PLAIN["points"]}, torch.zeros(1, **tkwargs)).probabilities is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "environment must be"),
        ([], "environment must be"),
        ({}, "environment must be"),
        ({"points": []}, "environment must be"),
        ({"points": [{}]}, "same names"),
        ({"points": [{"z": "a"}]}, "environment must be"),
        ({"points": [{"z": 10**400}]}, "environment must be"),
        ({"points": [{"z": 0.0}, {"u": 0.0}]}, "environment must be"),
        ({"points": [{"z": 0.0}, {"z": 0.0, "u": 1.0}]}, "same names"),
        (PLAIN | {"weights": [1.0, 1.0]}, "same names"),
        (PLAIN | {"probabilities": 1.0}, "environment must be"),
        (PLAIN | {"probabilities": [0.5, 0.4]}, "sum to 1"),
        ({"points": ["x" * 10_000]}, r"got \{'points': \['x{50,80}\.\.\.\.$"),
    ],
)
def test_refused(given, message):
    with pytest.raises(ValueError, match=message):
        finite_environment(given, torch.zeros(1, dtype=torch.float64))


def test_search_spaces_end_with_the_conditions_and_hold_them():
    z = finite_environment(PLAIN, torch.zeros(1, dtype=torch.float64)).z
    box = [(0.0, 1.0), (0.0, 1.0), (5.0, 7.0)]
    check_search_space(PLAIN, z, ["x", "u", "v"], box)
    for columns in (["u", "v"], ["x", "v", "u"], ["u", "v", "x"]):
        with pytest.raises(ValueError, match="last parameters of the search space must be the conditions u, v"):
            check_search_space(PLAIN, z, columns, box[-len(columns) :])
    with pytest.raises(ValueError, match="conditions must lie in the search space"):
        check_search_space(PLAIN, z, ["x", "u", "v"], [*box[:2], (5.0, 6.0)])
