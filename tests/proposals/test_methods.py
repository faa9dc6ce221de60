import json
import math

import pytest
import torch
from botorch.acquisition import PosteriorMean
from botorch.models import SingleTaskGP

from bo_robust.acquisition import GPUCB, EliminationUCB, ValueAtRiskKnowledgeGradient, ValueAtRiskUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.truncation import ATAFourierTruncation, ATANystromTruncation, NoTruncation, TGPTruncation
from bo_robust.models import BKBModel, CandidateEnsemble, RobustGP, TruncatedFeatureGP, TruncatedGP
from bo_robust.models.verdict import predict, verdict_of
from bo_robust.proposals.methods import DEFAULT, METHODS, Method, choose

Z = {"points": [{"z": 0.0}, {"z": 1.0}], "probabilities": [0.25, 0.75]}
GIVEN = {"v-ucb": {"environment": Z}, "knowledge-gradient": {"environment": Z}}
KNOWN = {"num_arms": 7, "dim": 2, "num_initial": 3}
IN_UNITS = {
    "moment_bound": 4.0,
    "alpha": 0.5,
    "features": {"kind": "fourier", "nodes": 4},
    "horizon": 9,
    "noise_var": 0.1,
    "candidates": [{"kernel": "rbf", "lengthscale": 0.2, "noise_var": 0.1}],
    "noise_scale": 0.3,
}
CLASSES = {
    "robust": (RobustGP, None),
    "gp-ucb": (TruncatedGP, GPUCB),
    "tgp-ucb": (TruncatedGP, GPUCB),
    "ata-gp-ucb": (TruncatedFeatureGP, GPUCB),
    "v-ucb": (RobustGP, ValueAtRiskUCB),
    "knowledge-gradient": (RobustGP, ValueAtRiskKnowledgeGradient),
    "he-gp-ucb": (CandidateEnsemble, EliminationUCB),
    "bkb": (BKBModel, GPUCB),
}


def data(n=8, d=2):
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return X, X.sum(-1, keepdim=True) - 1.0


def make(name, **given):
    return choose(name, GIVEN.get(name, {}) | given, KNOWN)


@pytest.mark.filterwarnings("ignore:Data")
@pytest.mark.parametrize("name", METHODS)
def test_classes_model_acquisition_and_json(name):
    choice, (X, Y) = make(name), data()
    assert (choice.model, choice.acquisition) == CLASSES[name]
    for options in (choice.model_options, choice.acquisition_options):
        assert json.loads(json.dumps(options)) == options
    model = choice.build(X, Y)
    assert verdict_of(model, X).flagged.tolist() == [False] * 8
    if choice.acquisition is not None:
        acqf = choice.acquire(model, X[:1] + 0.01, torch.Generator().manual_seed(0))
        assert acqf((X[:, :1] if name == "v-ucb" else X).unsqueeze(-2)).shape == (8,)


def test_the_default_is_robust_and_a_width_makes_it_gp_ucb():
    assert DEFAULT == "robust"
    assert make("robust", width=2).acquisition is GPUCB
    assert make("robust", width=2).acquisition_options == {"width": {"kind": "constant", "value": 2.0}}
    assert make("robust", outlier_share=0.1).build(*data()).outlier_prior.share == 0.1


@pytest.mark.parametrize("name", METHODS)
def test_settings_in_the_units_of_the_rewards_are_required_where_they_are_not_standardized(name):
    needed = METHODS[name].in_units
    given = GIVEN.get(name, {}) | {key: IN_UNITS[key] for key in needed}
    choose(name, given, standardized=False)
    for key in needed:
        with pytest.raises(ValueError, match=rf"{name} needs {key}"):
            choose(name, {k: v for k, v in given.items() if k != key}, standardized=False)


def test_what_a_width_leaves_out_comes_from_what_is_known_and_from_the_settings():
    def width(**given):
        return make("gp-ucb", **given).acquisition_options["width"]

    assert width(width={"kind": "finite"}, delta=0.2) == {"kind": "finite", "scale": 1.0, "num_arms": 7, "delta": 0.2}
    assert choose("gp-ucb", {"width": {"kind": "finite"}}).acquisition_options["width"]["num_arms"] == 1000
    choice = make("gp-ucb", width={"kind": "finite"}, delta=0.2)
    acqf = choice.acquire(choice.build(*data()), None, torch.Generator())
    assert float(acqf.width) == pytest.approx(FiniteWidth(7, 0.2)(9))


def test_elimination_gives_half_of_delta_to_a_width_by_norm():
    given = make("he-gp-ucb", width={"kind": "self_normalized", "norm_bound": 2.0}, noise_scale=0.3)
    options = given.acquisition_options["width"]
    assert [options[name] for name in ("norm_bound", "noise_scale", "delta")] == [2.0, 0.3, 0.05]
    bayesian = make("he-gp-ucb", noise_var=0.04).acquisition_options
    assert [bayesian["width"][name] for name in ("kind", "num_arms", "delta")] == ["bayesian_finite", 7, 0.1]
    assert bayesian["noise_scale"] == pytest.approx(0.2)
    assert bayesian["num_initial"] == 3


@pytest.mark.filterwarnings("ignore:Data")
def test_levels():
    X, Y = data()
    assert make("gp-ucb").build(X, Y).truncation == NoTruncation()
    assert make("tgp-ucb", moment_bound=4.0, alpha=0.5).build(X, Y).truncation == TGPTruncation(4.0, 0.5)
    tail = {"moment_bound": 4.0, "alpha": 1.0, "delta": 0.1, "horizon": 1000}
    nystrom = make("ata-gp-ucb", moment_bound=4.0).build(X, Y)
    assert nystrom.truncation == ATANystromTruncation(**tail, num_features=8)  # of 64, all there are
    fourier = {"moment_bound": 4.0, "features": {"kind": "fourier", "nodes": 3}}
    for given, count in ((fourier, 9), (fourier | {"num_features": 5}, 5)):
        level = make("ata-gp-ucb", **given).build(X, Y).truncation
        assert level == ATAFourierTruncation(**tail, num_features=count)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("tpg-ucb", {}, r"unknown method 'tpg-ucb'; did you mean 'tgp-ucb'\?"),
        (["x"], {}, "unknown method"),
        ("tgp-ucb", {"momentbound": 1.0}, r"tgp-ucb has no setting 'momentbound'; did you mean 'moment_bound'\?"),
        ("gp-ucb", {"environment": Z}, "gp-ucb has no setting 'environment'"),
        ("v-ucb", {"environment": None}, "v-ucb needs environment"),
        ("gp-ucb", {"delta": "0.1"}, "delta"),
        ("gp-ucb", {"delta": 1.0}, "strictly between 0 and 1"),
        ("gp-ucb", {"noise_var": math.nan}, "plain JSON"),
        ("gp-ucb", {"noise_var": 0.0}, "noise_var"),
        ("tgp-ucb", {"alpha": 2.0}, "alpha must be in"),
        ("tgp-ucb", {"rule": "residual"}, "rule"),
        ("ata-gp-ucb", {"root": "qr"}, "root"),
        ("ata-gp-ucb", {"horizon": 2.5}, "horizon"),
        ("ata-gp-ucb", {"features": "fourier"}, "features"),
        ("ata-gp-ucb", {"features": {"kind": "nystrom", "nodes": 8}}, "features 'nystrom' has no 'nodes'"),
        ("ata-gp-ucb", {"num_features": 0.5}, "num_features"),
        ("v-ucb", {"environment": [0.0]}, "environment must be {'points'"),
        ("v-ucb", {"functional": 1.0}, "lower tail"),
        ("v-ucb", {"functional": "worse"}, "did you mean 'worst'"),
        ("he-gp-ucb", {"candidates": []}, "candidates must be a list"),
        ("he-gp-ucb", {"candidates": [{"kernel": "rbf", "lengthscale": -1.0, "noise_var": 0.1}]}, "lengthscale must"),
        ("he-gp-ucb", {"noise_scale": 0.0}, "noise_scale must"),
        ("bkb", {"max_size": 0}, "max_size"),
        ("robust", {"outlier_share": 0.7}, "outlier_share"),
        ("gp-ucb", {"width": "finite"}, r"width must be {'kind': one of finite, .*bkb"),
        ("gp-ucb", {"width": {"kind": "finit"}}, r"unknown width 'finit'; did you mean 'finite'\?"),
        ("gp-ucb", {"width": {"kind": "self_normalized"}}, "width 'self_normalized' needs 'norm_bound'"),
    ],
)
def test_refused(name, given, message):
    with pytest.raises(ValueError, match=message) as caught:
        choose(name, (GIVEN.get(name, {}) if isinstance(name, str) else {}) | given)
    assert len(str(caught.value)) < 400


def test_a_row_with_botorch_s_own_model_works(monkeypatch):
    """Nothing is known of its class: it flags and holds nothing, standardizes, and has no limits."""
    row = Method("BoTorch's default.", SingleTaskGP, PosteriorMean, {}, model_options=lambda settings: {})
    monkeypatch.setitem(METHODS, "mean", row)
    choice = choose("mean", {})
    X = torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = choice.build(X, X.sum(-1, keepdim=True))
    verdict = verdict_of(model, X)
    assert not (verdict.flagged | verdict.held | ~verdict.recommendable).any()
    assert predict(model, X).mean.shape == (6,)
    assert choice.standardizes
    assert not choice.takes("outcome_limits")
    acqf = choice.acquire(model, None, torch.Generator())
    torch.testing.assert_close(acqf(X.unsqueeze(-2)), predict(model, X).mean)
