"""Settings: complete, plain, and wrong ones refused when the study is created."""

import json
import math

import pytest

from bo_robust.confidence import FiniteWidth
from bo_robust.methods import METHODS
from bo_robust.study import Arms, Box, Study
from bo_robust.study.settings import complete

BOX = Box({"x": (0.0, 1.0), "y": (0.0, 1.0)})
Z = {"points": [{"z": 0.0}, {"z": 1.0}]}


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_complete_and_plain(method):
    found = complete(method, {"environment": Z} if method == "v-ucb" else {}, BOX)
    stored = found.to_json()
    assert json.loads(json.dumps(stored)) == stored
    assert stored["num_initial"] == 2 * (3 if method == "v-ucb" else 2) + 2
    assert complete(method, stored, BOX) == found


def test_what_widths_leave_out_comes_from_the_settings_and_the_space():
    given = {"moment_bound": 4.0, "alpha": 0.5, "delta": 0.2, "scale": 7.0}
    found = complete("tgp-ucb", given, BOX)
    level = found.method.model_options(found.known)["truncation"]
    assert level == {"kind": "tgp", "moment_bound": 4.0, "alpha": 0.5, "scale": 1.0}
    width = found.method.completed_width(found.known)
    assert width == {"kind": "randomised", "num_arms": 1000, "scale": 5.0**-0.5}
    found = complete("tgp-ucb", given, Arms([{"a": i} for i in range(7)]))
    certificate = found.certified.completed_width(found.known)
    assert certificate == {"kind": "finite", "num_arms": 7, "delta": 0.2, "scale": 1.0}


def test_widths_of_conditions_are_over_pairs():
    environment = {"points": [{"z": 0.0, "u": 1.0}, {"z": 1.0, "u": 2.0}, {"z": 1.0, "u": 3.0}]}
    arms = Arms([{"a": i} for i in range(7)])
    found = complete("v-ucb", {"environment": environment}, arms)
    assert found.certified.completed_width(found.known)["num_arms"] == 21
    compact = {"kind": "compact", "a": 1.0, "b": 1.0, "r": 1.0}
    found = complete("v-ucb", {"environment": environment, "certificate": compact}, BOX)
    assert found.certified.completed_width(found.known)["dim"] == 4
    assert found.method.completed_width(found.known)["num_arms"] == 1  # given by the default


def test_conditions_are_told_to_the_model_in_the_unit_cube(tmp_path):
    environment = {"points": [{"z": -10.0}, {"z": 0.0}, {"z": 30.0}], "probabilities": [0.5, 0.25, 0.25]}
    with Study.create(tmp_path / "a.study", BOX, "v-ucb", environment=environment, num_initial=1) as study:
        study.add({"x": 0.5, "y": 0.5, "z": 30.0}, 1.0)
        study.add({"x": 0.1, "y": 0.5, "z": 0.0}, 0.0)
        acqf = study._policy.round_model(study._history(2, 2, [])).upper()
    assert acqf.environment.z[:, 0].tolist() == [0.0, 0.25, 1.0]
    assert acqf.environment.probabilities.tolist() == [0.5, 0.25, 0.25]
    assert acqf.model.train_inputs[0][:, 2].tolist() == [1.0, 0.25]


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("gp-ucb", {"centre": 1.0}, "did you mean 'center'"),
        ("he-gp-ucb", {"kernel": "rbf"}, "he-gp-ucb has no setting 'kernel'"),
        ("gp-ucb", {"lengthscale": [0.1, "0.2"]}, "lengthscale|number"),
        ("gp-ucb", {"lengthscale": -1.0}, "lengthscale must be a finite number > 0"),
        ("gp-ucb", {"minimize": 1}, "minimize of settings of 'gp-ucb' must be true or false"),
        ("v-ucb", {"environment": {"points": [{"z": 0.0}]}}, "points of the environment: give at least two"),
        ("gp-ucb", {"scale": math.nan}, "plain JSON"),
        ("gp-ucb", {"width": FiniteWidth(10, 0.1)}, "plain JSON"),
        ("gp-ucb", {"certificate": {"kind": "randomised"}}, "no confidence bound"),
        ("gp-ucb", {"certificate": None}, "certificate must be"),
        ("robust", {"constraints": ["g"]}, "no constraints: use Ax with .*generation_strategy"),
        ("gp-ucb", {"num_initial": 2.0}, "num_initial of settings of 'gp-ucb' must be a whole"),
        ("gp-ucb", {"center": 10**400}, "center of settings of 'gp-ucb' must be a number or empty"),
        ("gp-ucb", {"kernel": "cosine"}, "must be one of 'matern52', 'rbf'"),
        ("gp-ucb", {"lengthscale": [0.1]}, "1 lengthscales for 2 columns"),
        ("gp-ucb", {"num_initial": 0}, "num_initial must be"),
        ("gp-ucb", {"device": "tpu"}, "'cpu' or 'cuda'"),
        (
            "v-ucb",
            {"environment": {"points": [{"x": 0.0}, {"x": 1.0}]}},
            "x cannot be a parameter and a condition; leave",
        ),
        ("v-ucb", {"environment": Z | {"probabilities": [0.5, 0.4]}}, "sum to 1"),
    ],
)
def test_refused(method, given, message):
    with pytest.raises(ValueError, match=message):
        complete(method, given, BOX)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("ata-gp-ucb", {"features": {"kind": "fourier", "nodes": 8}}, "use NystromMap for other kernels"),
        ("he-gp-ucb", {"width": {"kind": "randomised"}}, "width must be a schedule"),
        ("gp-ucb", {"noise_var": 1e-12}, "noise_var must be at least"),
        ("gp-ucb", {"width": {"kind": "bkb", "norm_bound": 1.0, "noise_scale": 1.0, "epsilon": 0.5}}, "BKBModel"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_there_is_a_file(method, given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Study.create(tmp_path / "a.study", BOX, method, **given)
    assert not list(tmp_path.iterdir())
