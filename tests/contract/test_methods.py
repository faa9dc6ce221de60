"""Every method: its settings, and the model and acquisition that they make."""

import dataclasses
import json
import math

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.utils.datasets import SupervisedDataset

from bo_robust.acquisition import GPUCB, EliminationUCB, ValueAtRiskUCB
from bo_robust.confidence import BayesianFiniteWidth, FiniteWidth, SelfNormalisedWidth
from bo_robust.methods import DEFAULT, METHODS, NEEDED, create_method
from bo_robust.models import BKBModel, CandidateEnsemble, RobustGP, TruncatedFeatureGP, TruncatedGP
from bo_robust.specs import build
from bo_robust.truncation import ATAFourierTruncation, ATANystromTruncation, NoTruncation, TGPTruncation

Z = {"points": [{"z": 0.0}, {"z": 1.0}], "probabilities": [0.25, 0.75]}
GIVEN = {"v-ucb": {"environment": Z}}
KNOWN = {"num_arms": 7, "dim": 2, "num_initial": 3, "seed": 5, "noise_var": 0.1, "num_features": 4}
CLASSES = {
    "robust": (RobustGP, qLogNoisyExpectedImprovement),
    "gp-ucb": (TruncatedGP, GPUCB),
    "tgp-ucb": (TruncatedGP, GPUCB),
    "ata-gp-ucb": (TruncatedFeatureGP, GPUCB),
    "v-ucb": (RobustGP, ValueAtRiskUCB),
    "he-gp-ucb": (CandidateEnsemble, EliminationUCB),
    "bkb": (BKBModel, GPUCB),
}


def data(n=8, d=2):
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return X, X.sum(-1, keepdim=True) - 1.0


def make(name, **given):
    return create_method(name, GIVEN.get(name, {}) | given)


def test_every_method_is_tested():
    assert set(CLASSES) == set(METHODS)
    assert DEFAULT == "robust"
    assert [name for name in METHODS if METHODS[name].judges_rewards] == ["robust", "v-ucb"]


@pytest.mark.filterwarnings("ignore:Data")
@pytest.mark.parametrize("name", METHODS)
def test_model_acquisition_and_bounds(name):
    method, (X, Y) = make(name), data()
    model = method.model(X, Y, KNOWN)
    acqf = method.acquisition(model, KNOWN, X_pending=X[:1] + 0.01, generator=torch.Generator().manual_seed(0))
    assert (type(model), type(acqf)) == CLASSES[name]
    designs = X[:, :1] if name == "v-ucb" else X
    assert acqf(designs.unsqueeze(-2)).shape == (8,)
    certified = dataclasses.replace(method, width=method.width or 2.0)
    mean, lower, upper = certified.bounds(certified.acquisition(model, KNOWN), designs)
    assert mean.shape == lower.shape == upper.shape == (8,)
    assert bool((lower < mean).all() & (mean < upper).all())
    unseen = method.set_aside(model)
    assert unseen is None or (unseen.shape == (8,) and not unseen.any())


@pytest.mark.parametrize("standardised", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_settings_are_frozen_plain_and_come_back(name, standardised):
    needed = {
        "moment_bound": 4.0,
        "alpha": 0.5,
        "features": {"kind": "fourier", "nodes": 4},
        "horizon": 9,
        "environment": Z,
        "candidates": [{"kernel": "rbf", "lengthscale": 0.2, "noise_var": 0.1}],
        "noise_scale": 0.3,
    }
    defaults = METHODS[name].defaults(standardised)
    given = {key: needed[key] for key, default in defaults.items() if default is NEEDED}
    method = create_method(name, given, standardised)
    stored = {key: value for key, value in method.to_json().items() if key in defaults}
    assert json.loads(json.dumps(stored)) == stored == {**defaults, **given}
    assert create_method(name, stored, standardised) == method
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.delta = 0.2
    for options in (method.model_options(KNOWN), method.acquisition_options(KNOWN)):
        assert json.loads(json.dumps(options)) == options


def test_what_differs_where_rewards_are_not_standardised():
    """All of it: Ax neither standardises rewards nor counts arms."""
    found = {}
    for name, method in METHODS.items():
        ours, reported = method.defaults(), method.defaults(standardised=False)
        found[name] = {key for key in ours.keys() | reported.keys() if ours.get(key, "-") != reported.get(key, "-")}
    tail = {"width", "moment_bound", "alpha"}
    expected = {
        "robust": set(),
        "gp-ucb": {"width"},
        "tgp-ucb": tail,
        "ata-gp-ucb": tail | {"features", "horizon", "noise_var"},
        "v-ucb": set(),
        "he-gp-ucb": {"width", "candidates", "noise_scale", "noise_var", "maximize"},
        "bkb": {"width"},
    }
    assert {name: found[name] for name in expected} == expected
    assert METHODS["gp-ucb"].defaults(standardised=False)["width"]["num_arms"] == 1000


def test_defaults_are_not_shared():
    METHODS["gp-ucb"].defaults()["width"]["kind"] = "broken"
    make("gp-ucb").width["kind"] = "broken"
    assert make("gp-ucb").width["kind"] == "randomised"


def test_what_a_width_leaves_out_comes_from_what_is_known_and_from_the_settings():
    method = make("gp-ucb", width={"kind": "finite"}, delta=0.2)
    assert method.completed_width(KNOWN) == {"kind": "finite", "scale": 1.0, "num_arms": 7, "delta": 0.2}
    assert make("gp-ucb", width={"kind": "finite", "num_arms": 3.0}).completed_width({})["num_arms"] == 3
    assert make("gp-ucb", width=3).completed_width({}) == {"kind": "constant", "value": 3.0, "scale": 1.0}
    acqf = method.acquisition(make("gp-ucb").model(*data()), KNOWN)
    assert float(acqf.width) == pytest.approx(FiniteWidth(7, 0.2)(9))


def test_elimination_gives_half_of_delta_to_a_width_by_norm():
    given = make("he-gp-ucb", width={"kind": "self_normalised", "norm_bound": 2.0}, noise_scale=0.3)
    assert given.model(*data(), KNOWN)._history.width == SelfNormalisedWidth(2.0, 0.3, 0.05)
    bayesian = make("he-gp-ucb", noise_var=0.04).model(*data(), KNOWN)._history
    assert bayesian.width == BayesianFiniteWidth(7, 0.1)
    assert bayesian.noise_scale == pytest.approx(0.2)
    assert bayesian.num_initial == 3


@pytest.mark.filterwarnings("ignore:Data")
def test_levels():
    X, Y = data()
    assert make("gp-ucb").model(X, Y).truncation == NoTruncation()
    assert make("tgp-ucb", moment_bound=4.0, alpha=0.5).model(X, Y).truncation == TGPTruncation(4.0, 0.5)
    tail = {"moment_bound": 4.0, "alpha": 1.0, "delta": 0.1, "horizon": 1000}
    nystrom = make("ata-gp-ucb", moment_bound=4.0).model(X, Y)
    assert nystrom.truncation == ATANystromTruncation(**tail, num_features=8)  # of 64, all there are
    fourier = make("ata-gp-ucb", moment_bound=4.0, features={"kind": "fourier", "nodes": 3})
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    for given, count in ((fourier, 9), (dataclasses.replace(fourier, num_features=5), 5)):
        level = TruncatedFeatureGP.construct_inputs(dataset, **given.model_options({}))["truncation"]
        assert level == ATAFourierTruncation(**tail, num_features=count)


def test_truncated_rewards():
    X, Y = data()
    Y[3] = 1e6
    tgp = make("tgp-ucb", moment_bound=1.0)
    assert tgp.set_aside(tgp.model(X, Y)).nonzero().tolist() == [[3]]
    assert make("bkb").set_aside(None) is None


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("tpg-ucb", {}, r"unknown method 'tpg-ucb'; did you mean 'tgp-ucb'\?"),
        (["x"], {}, "unknown method"),
        ("tgp-ucb", {"momentbound": 1.0}, r"tgp-ucb has no setting 'momentbound'; did you mean 'moment_bound'\?"),
        ("gp-ucb", {"environment": Z}, "gp-ucb has no setting 'environment'"),
        ("gp-ucb", {"maximize": True}, "gp-ucb has no setting 'maximize'"),
        ("he-gp-ucb", {"maximize": True}, "he-gp-ucb has no setting 'maximize'"),
        ("v-ucb", {}, "v-ucb needs environment: see bo_robust.methods.VUCBMethod"),
        ("gp-ucb", {"delta": "0.1"}, "delta of method 'gp-ucb' must be a number, got '0.1'"),
        ("gp-ucb", {"delta": True}, "delta of method 'gp-ucb' must be a number, got True"),
        ("gp-ucb", {"delta": 1.0}, "strictly between 0 and 1"),
        ("gp-ucb", {"noise_var": math.nan}, "plain JSON"),
        ("gp-ucb", {"noise_var": 0.0}, "noise_var must be a finite number > 0"),
        ("tgp-ucb", {"alpha": 2.0}, "alpha must be in"),
        ("ata-gp-ucb", {"root": "qr"}, "root must be one of symmetric, cholesky"),
        ("ata-gp-ucb", {"horizon": 2.5}, "horizon of method 'ata-gp-ucb' must be a whole number, got 2.5"),
        ("ata-gp-ucb", {"features": "fourier"}, "features must be a mapping with a `kind`, got 'fourier'"),
        ("ata-gp-ucb", {"features": {"kind": "nystrom", "nodes": 8}}, "features 'nystrom' has no 'nodes'"),
        ("ata-gp-ucb", {"features": {"kind": "rff"}}, "unknown features 'rff'"),
        ("ata-gp-ucb", {"num_features": 0}, "num_features must be a whole number >= 1"),
        ("v-ucb", {"environment": [0.0]}, "environment must be {'points'"),
        ("v-ucb", {"environment": Z, "risk_level": 1.0}, "lower tail"),
        ("he-gp-ucb", {"candidates": []}, "candidates must be a list"),
        ("he-gp-ucb", {"candidates": ["rbf"]}, "candidates must be a list"),
        ("he-gp-ucb", {"candidates": [{"kernel": "rbf", "lengthscale": -1.0, "noise_var": 0.1}]}, "lengthscale must"),
        ("he-gp-ucb", {"noise_scale": 0.0}, "noise_scale must"),
        ("bkb", {"max_size": 0}, "max_size must"),
    ],
)
def test_refused(name, given, message):
    with pytest.raises(ValueError, match=message):
        create_method(name, given)


@pytest.mark.parametrize(
    ("width", "message"),
    [
        ("finite", r"width must be {'kind': one of finite, .*bkb"),
        ({"kind": "finit"}, r"unknown width 'finit'; did you mean 'finite'\?"),
        ({"kind": ["finite"]}, "kind of width must be text"),
        ({"kind": "finite", "arms": 3}, r"width 'finite' has no 'arms'; did you mean 'num_arms'\?"),
        ({"kind": "finite", "num_arms": "3"}, "num_arms of width 'finite' must be a whole number"),
        ({"kind": "self_normalised"}, "width 'self_normalised' needs 'norm_bound'"),
    ],
)
def test_widths_refused(width, message):
    with pytest.raises(ValueError, match=message):
        make("gp-ucb", width=width).acquisition_options(KNOWN)


def test_long_values_are_cut_in_errors():
    with pytest.raises(ValueError, match="candidates must be") as caught:
        make("he-gp-ucb", candidates=["x" * 10_000])
    assert len(str(caught.value)) < 300
    assert build({"kind": "gp-ucb"}, METHODS, {}, "method") == make("gp-ucb")
