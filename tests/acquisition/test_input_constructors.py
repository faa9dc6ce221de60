import importlib

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.utils.datasets import SupervisedDataset

from bo_robust.acquisition import GPUCB, input_constructors
from bo_robust.acquisition.input_constructors import check_search_space, finite_environment
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.models import TruncatedGP

PLAIN = {"points": [{"u": 0.0, "v": 5}, {"v": 7, "u": 1.0}], "probabilities": [0.25, 0.75]}


@pytest.fixture
def model(device):
    X = torch.rand(6, 2, dtype=torch.float64, device=device)
    return TruncatedGP(X, X.sum(-1, keepdim=True), TGPTruncation(4.0, 1.0), noise_var=0.1)


def build(model, **options):
    """As Ax does: everything by name, much of it not for us."""
    X = model.train_inputs[0]
    names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
    data = SupervisedDataset(X, model.rewards, **names)
    ignored = dict.fromkeys(("objective", "constraints", "constraints_tuple", "ref_point"))
    given = {"training_data": data, "bounds": [(0.0, 1.0)] * 2, "model": model, "X_baseline": X}
    return GPUCB(**get_acqf_input_constructor(GPUCB)(**given, **ignored, **options))


def test_constructor_is_registered_and_passes_everything_on(model):
    pending = model.train_inputs[0][:2] + 0.1
    transform = ScalarizedPosteriorTransform(torch.tensor([-1.0]).to(pending))
    acqf = build(model, width=ConstantWidth(1.5), posterior_transform=transform, X_pending=pending, t=4)
    assert float(acqf.width) == 1.5
    assert acqf.t == 4
    assert acqf.posterior_transform is transform
    assert torch.equal(acqf.X_pending, pending)
    assert build(model, width=ConstantWidth(1.5), X_pending=None).t == 7


def test_widths_from_specs(model):
    spec = {"kind": "finite", "num_arms": 9}
    for options, delta in (({}, 0.1), ({"delta": 0.02}, 0.02), ({"width": spec | {"delta": 0.02}}, 0.02)):
        expected = GPUCB(model, FiniteWidth(num_arms=9, delta=delta)).width
        assert torch.equal(build(model, **{"width": spec} | options).width, expected)
    # Widths without a delta do not get one.
    assert float(build(model, width={"kind": "constant", "value": 2.0}).width) == 2.0
    assert build(model, width={"kind": "randomized", "num_arms": 4}).width > 0
    with pytest.raises(TypeError, match="beta"):
        build(model, width={"kind": "constant", "value": 1.0}, beta=0.2)


def test_importing_again_does_not_register_twice():
    before = get_acqf_input_constructor(GPUCB)
    importlib.reload(input_constructors)
    assert get_acqf_input_constructor(GPUCB) is before


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
        *((given, "environment must be") for given in (None, [], {}, {"points": []})),
        *(({"points": [{"z": z}]}, "environment must be") for z in ("a", 10**400)),
        ({"points": [{}]}, "same names"),
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
