"""Settings: complete, plain, and wrong ones refused when the study is created."""

import json
import math

import pytest

from bo_robust.schedules import FiniteWidth, RandomisedWidth, SelfNormalisedWidth, TGPTruncation
from bo_robust.study import Arms, Box, Study
from bo_robust.study.settings import METHODS, complete, schedule

BOX = Box({"x": (0.0, 1.0), "y": (0.0, 1.0)})
Z = {"points": [{"z": 0.0}, {"z": 1.0}]}


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_complete_and_plain(method):
    found = complete(method, {"environment": Z} if method == "v-ucb" else {}, BOX)
    assert json.loads(json.dumps(found)) == found
    assert found["num_initial"] == 2 * (3 if method == "v-ucb" else 2) + 2


def test_schedules_take_what_they_leave_out_from_the_settings():
    found = complete("tgp-ucb", {"moment_bound": 4.0, "alpha": 0.5, "delta": 0.2, "scale": 7.0}, BOX)
    assert schedule("truncation", found, BOX, {}) == TGPTruncation(4.0, 0.5)
    assert schedule("width", found, BOX, {}) == RandomisedWidth(1000, scale=5.0**-0.5)
    arms = Arms([{"a": i} for i in range(7)])
    assert schedule("certificate", found, arms, {}) == FiniteWidth(7, 0.2)


def test_widths_of_conditions_are_over_pairs():
    environment = {"points": [{"z": 0.0, "u": 1.0}, {"z": 1.0, "u": 2.0}, {"z": 1.0, "u": 3.0}]}
    arms = Arms([{"a": i} for i in range(7)])
    assert schedule("certificate", complete("v-ucb", {"environment": environment}, arms), arms, {}).num_arms == 21
    compact = {"kind": "compact", "a": 1.0, "b": 1.0, "r": 1.0}
    found = complete("v-ucb", {"environment": environment, "certificate": compact}, BOX)
    assert schedule("certificate", found, BOX, {}).dim == 4
    assert schedule("width", found, BOX, {}).num_arms == 1  # given by the default


def test_elimination_gives_half_of_delta_to_a_width_by_norm():
    given = {"width": {"kind": "self_normalised", "norm_bound": 2.0}}
    found = complete("he-gp-ucb", given, BOX)
    assert schedule("width", found, BOX, {"noise_scale": 0.3}) == SelfNormalisedWidth(2.0, 0.3, 0.05)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("tpg-ucb", {}, "did you mean 'tgp-ucb'"),
        ("tgp-ucb", {"momentbound": 1.0}, "did you mean 'moment_bound'"),
        ("gp-ucb", {"moment_bound": 1.0}, "gp-ucb has no setting 'moment_bound'"),
        ("gp-ucb", {"delta": 1.0}, "between 0 and 1"),
        ("gp-ucb", {"delta": "0.1"}, "delta cannot be '0.1'"),
        ("gp-ucb", {"scale": math.nan}, "plain JSON"),
        ("gp-ucb", {"width": FiniteWidth(10, 0.1)}, "plain JSON"),
        ("gp-ucb", {"width": {"kind": "finit"}}, "width must be"),
        ("gp-ucb", {"width": {"kind": "finite", "arms": 3}}, "did you mean 'num_arms'"),
        ("gp-ucb", {"width": {"kind": "self_normalised"}}, "needs 'norm_bound'"),
        ("gp-ucb", {"certificate": {"kind": "randomised"}}, "no confidence bound"),
        ("gp-ucb", {"certificate": None}, "certificate must be"),
        (["x"], {}, "unknown method"),
        ("gp-ucb", {"width": {"kind": ["finite"]}}, "width must be"),
        ("gp-ucb", {"width": {"kind": "finite", "num_arms": "3"}}, "num_arms|finite"),
        ("gp-ucb", {"num_initial": 2.0}, "num_initial must be a whole"),
        ("gp-ucb", {"center": 10**400}, "center cannot be"),
        ("gp-ucb", {"kernel": "cosine"}, "must be one of 'matern52', 'rbf'"),
        ("gp-ucb", {"lengthscale": [0.1]}, "1 lengthscales for 2 columns"),
        ("gp-ucb", {"num_initial": 0}, "num_initial must be"),
        ("gp-ucb", {"device": "tpu"}, "'cpu' or 'cuda'"),
        ("tgp-ucb", {"alpha": 2.0}, "alpha must be in"),
        ("ata-gp-ucb", {"features": {"kind": "nystrom", "nodes": 8}}, "features must be"),
        ("v-ucb", {}, "needs an environment"),
        ("v-ucb", {"environment": {"points": [{"x": 0.0}, {"x": 1.0}]}}, "x cannot be a parameter and a condition"),
        ("v-ucb", {"environment": Z | {"probabilities": [0.5, 0.4]}}, "sum to 1"),
        ("he-gp-ucb", {"candidates": [{"kernel": "rbf", "lengthscale": -1.0, "noise_var": 0.1}]}, "lengthscale must"),
        ("he-gp-ucb", {"candidates": []}, "candidates must be a list"),
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
