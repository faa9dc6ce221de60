"""The methods that Ax, Optuna and run configurations offer by name: a model, an acquisition function, their options.

A method is one row of :data:`METHODS`. Its options are plain JSON, the only form that Ax can store: they are arguments
of the ``construct_inputs`` of the model and of the input constructor of the acquisition function. A width is a number
or ``{"kind": name in WIDTHS, ...}``, a truncation ``{"kind": name in TRUNCATIONS, ...}``; an option that they leave out
is taken from the setting of the same name.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT as STANDARDIZED
from torch import Tensor

from bo_robust.acquisition import GPUCB, EliminationUCB, ValueAtRiskKnowledgeGradient, ValueAtRiskUCB
from bo_robust.acquisition.elimination import GRID
from bo_robust.acquisition.input_constructors import finite_environment
from bo_robust.confidence import WIDTHS, ConstantWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.candidate_widths import delta_of_width
from bo_robust.confidence.elimination import check_elimination
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.features.maps import FEATURE_MAPS
from bo_robust.models import (
    BKBModel,
    CandidateEnsemble,
    RobustGP,
    TruncatedFeatureGP,
    TruncatedGP,
    candidate,
    candidate_grid,
)
from bo_robust.models.robust.prior import OutlierPrior
from bo_robust.risk_measures.functionals import as_functional
from bo_robust.utils.input_checks import check_delta, check_positive, is_number
from bo_robust.utils.specs import SpecError, build, nearest, quoted

__all__ = ["DEFAULT", "METHODS", "Choice", "Method", "choose"]

DEFAULT = "robust"
RANDOMIZED = {"kind": "randomized", "scale": EXPLORING}
HEAVY_TAILS = {"moment_bound": 100.0, "alpha": 1.0, "rule": "zero", "noise_var": None}

Options = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A row of :data:`METHODS`.

    Attributes:
        summary: What it is, in one sentence.
        model: The class of the model.
        acquisition: The class of the acquisition function. None: BoTorch's logarithmic noisy expected improvement, or
            expected hypervolume improvement where there are several objectives. A ``width`` makes it :class:`GPUCB`.
        settings: Settings and their defaults. The defaults suppose rewards with median 0 and a robust standard
            deviation of 1, and parameters in the unit cube.
        in_units: Settings in the units of the rewards, which have to be given where rewards are not standardized.
        model_options: Options of the model, from settings.
        acquisition_options: Options of the acquisition function beside its width, from settings.
        needs_conditions: Whether it chooses conditions, too.
    """

    summary: str
    model: type[Model]
    acquisition: type[AcquisitionFunction] | None
    settings: Mapping[str, Any]
    in_units: tuple[str, ...] = ()
    model_options: Callable[[Options], Options] = field(default=lambda settings: _given(settings, "noise_var"))
    acquisition_options: Callable[[Options], Options] = field(default=lambda settings: {})
    needs_conditions: bool = False


class Choice(NamedTuple):
    """Classes and options of a method with its settings; see :class:`Method`."""

    model: type[Model]
    model_options: Options
    acquisition: type[AcquisitionFunction] | None
    acquisition_options: Options

    @property
    def standardizes(self) -> bool:
        """Whether the model standardizes rewards by default."""
        outcome_transform = inspect.signature(self.model).parameters.get("outcome_transform")
        return outcome_transform is not None and outcome_transform.default is STANDARDIZED

    @property
    def centers(self) -> bool:
        """Whether observations may be centered before the model gets them."""
        return bool(getattr(self.model, "centers", True))

    def takes(self, *options: str) -> bool:
        """Whether the model has options of these names."""
        return {*options} <= {*inspect.signature(self.model).parameters}

    def build(self, X: Tensor, Y: Tensor, of_data: Mapping[str, Any] = MappingProxyType({}), **modules: Any) -> Any:
        """Make the model of points ``n x d`` and rewards ``n x 1``.

        It gets the options ``of_data`` that it has, such as ``maximize``, and further arguments such as ``likelihood``.
        """
        options = self.model_options | {name: value for name, value in of_data.items() if self.takes(name)}
        names = [f"x{i}" for i in range(X.shape[-1])]
        data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
        return self.model(**self.model.construct_inputs(data, **options), **modules)

    def acquire(self, model: Model, X_pending: Tensor | None, generator: torch.Generator) -> Any:
        """Make the acquisition function of a method that has a class of its own; random numbers use ``generator``."""
        assert self.acquisition is not None
        constructor = get_acqf_input_constructor(self.acquisition)
        takes_pending = "X_pending" in inspect.signature(constructor).parameters
        pending = {"X_pending": X_pending} if takes_pending or X_pending is not None else {}
        inputs = constructor(model=model, **pending, **self.acquisition_options)
        # BoTorch's input constructors know of no generator, so it is added here.
        takes = inspect.signature(self.acquisition).parameters
        if "generator" in takes:
            inputs["generator"] = generator
        if "seed" in takes:
            inputs["seed"] = int(torch.randint(2**31, (1,), generator=generator, device=generator.device))
        return self.acquisition(**inputs)


def choose(
    method: str,
    changes: Mapping[str, Any],
    facts: Mapping[str, Any] = MappingProxyType({}),
    standardized: bool = True,
    also: Iterable[str] = (),
) -> Choice:
    """Return the classes and options of a method.

    Args:
        method: A name in :data:`METHODS`.
        changes: Its settings, plain JSON; others have their defaults.
        facts: Facts that widths and truncations may ask for: ``num_arms`` (default 1000), ``dim``, ``num_initial``; and
            settings that have no default.
        standardized: Whether the rewards that the model gets are standardized.
        also: Names that the caller takes beside the settings, for the hint of an error.

    ``ValueError`` if the method or a setting is unknown (the nearest is named), missing, out of range or no JSON.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise SpecError(f"unknown method {quoted(method)}; {nearest(method, METHODS)}")
    row = METHODS[method]
    if not isinstance(changes, Mapping):
        raise SpecError(f"settings must give values by name, got {quoted(changes)}.")
    for name in changes:
        if name not in row.settings:
            raise SpecError(f"{method} has no setting {quoted(name)}; {nearest(name, [*row.settings, *also])}")
    try:
        plain = json.loads(json.dumps(dict(changes), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SpecError(f"settings of {method} must be plain JSON (numbers, strings, lists, dicts): {error}.") from None
    required = {name for name, default in row.settings.items() if default is ...}
    required |= set() if standardized else set(row.in_units)
    plain = {name: facts[name] for name in required if name in facts} | plain
    if missing := sorted(name for name in required if plain.get(name) is None):
        raise SpecError(f"{method} needs {', '.join(missing)}.")
    check_delta(plain.get("delta", 0.1))
    settings = {"num_arms": GRID, **facts, **row.settings, **plain}
    width, acquisition = settings.get("width"), row.acquisition or (GPUCB if "width" in plain else None)
    options = row.acquisition_options(settings)
    if acquisition is not None and "width" in settings and "width" not in options:
        options = {"width": _width(width, settings), **options}
    choice = Choice(row.model, row.model_options(settings), acquisition, options)
    if plain:
        _try_out(method, choice)
    return choice


def _try_out(method: str, choice: Choice) -> None:
    """Raise ``ValueError`` where the options do not make a model of two points."""
    scales = [one.get("lengthscale") for one in choice.model_options.get("candidates", ())]
    dim = max((len(scale) for scale in scales if isinstance(scale, list)), default=2)
    X = torch.eye(2, dim, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two points
        try:
            choice.build(X, X[:, :1])
        except (OverflowError, RuntimeError, TypeError) as error:
            raise SpecError(f"{method} cannot be built with these settings: {error}") from error


def _given(settings: Options, *names: str) -> Options:
    return {name: settings[name] for name in names if settings[name] is not None}


def _completed(spec: Any, registry: Mapping[str, Callable[..., Any]], settings: Options, role: str) -> Options:
    """A spec of a width or truncation with all its options, plain JSON."""
    if not isinstance(spec, Mapping) or "kind" not in spec:
        raise SpecError(f"{role} must be {{'kind': one of {', '.join(registry)}, ...}}, got {quoted(spec)}.")
    built = build(spec, registry, settings, role)
    return {"kind": spec["kind"], **vars(built)}


def _width(spec: Any, settings: Options) -> Options:
    if is_number(spec):
        return {"kind": "constant", "value": ConstantWidth(float(spec)).value}
    return _completed(spec, WIDTHS, settings, "width")


def _truncated(settings: Options) -> Options:
    level = _completed(settings["truncation"], TRUNCATIONS, settings, "truncation")
    return _given(settings, "noise_var") | {"truncation": level, "rule": settings["rule"]}


def _adaptively_truncated(settings: Options) -> Options:
    features = settings["features"]
    build(features, FEATURE_MAPS, {}, "features")  # raises
    spec = settings["truncation"] or {"kind": f"ata_{features['kind']}"}
    level = _completed(spec, TRUNCATIONS, {**settings, "num_features": settings["num_features"] or 1}, "truncation")
    if settings["num_features"] is None and "num_features" not in spec:
        level.pop("num_features", None)  # the model counts them
    chosen = {"features": features, "truncation": level, "root": settings["root"], "rule": settings["rule"]}
    return _given(settings, "noise_var") | chosen


def _grid(settings: Options) -> list[Options]:
    candidates = settings["candidates"]
    if not (
        candidates is None
        or (isinstance(candidates, list) and candidates and all(isinstance(one, Mapping) for one in candidates))
    ):
        raise SpecError(
            f"candidates must be a list of settings of bo_robust.models.candidate, got {quoted(candidates)}."
        )
    return candidates or candidate_grid((0.05, 0.8), settings["noise_var"], kernels=("rbf", "matern52"))


def _elimination(settings: Options) -> Options:
    check_elimination(settings["elimination"])
    noise_scale = settings["noise_scale"]
    if noise_scale is None:
        noise_scale = math.sqrt(max(candidate(**one).noise_var for one in _grid(settings)))
    check_positive(noise_scale=noise_scale)
    constants = {**settings, "noise_scale": noise_scale, "delta": delta_of_width(settings["width"], settings["delta"])}
    options = {name: settings[name] for name in ("delta", "elimination", "maximize")}
    options |= {"noise_scale": noise_scale, "width": _width(settings["width"], constants)}
    return options | {"num_initial": settings.get("num_initial", 0)}


def _risk(settings: Options) -> Options:
    finite_environment(settings["environment"], torch.zeros(1, dtype=torch.float64))  # raises
    as_functional(settings["functional"])  # raises
    return {"environment": settings["environment"], "functional": settings["functional"]}


METHODS: dict[str, Method] = {
    "robust": Method(
        "Expected improvement on RobustGP, which finds outliers from the data alone.",
        RobustGP,
        None,
        {"outlier_share": OutlierPrior.share, "outlier_density": OutlierPrior.density, "outcome_scale": "auto"}
        | {"noise_var": None, "width": None, "delta": 0.1},
        model_options=lambda settings: (
            _given(settings, "noise_var", "outlier_share", "outlier_density")
            | {"outcome_scale": settings["outcome_scale"]}
        ),
    ),
    "gp-ucb": Method(
        "GP-UCB (Srinivas et al. 2010) on an exact GP that sees every reward as it is.",
        TruncatedGP,
        GPUCB,
        {"width": RANDOMIZED, "delta": 0.1, "noise_var": None},
        model_options=lambda settings: _given(settings, "noise_var") | {"truncation": {"kind": "none"}},
    ),
    "tgp-ucb": Method(
        "TGP-UCB (Ray Chowdhury & Gopalan 2019): rewards beyond a growing level are truncated.",
        TruncatedGP,
        GPUCB,
        {"width": RANDOMIZED, "delta": 0.1, "truncation": {"kind": "tgp"}, **HEAVY_TAILS},
        in_units=("moment_bound", "alpha"),
        model_options=_truncated,
    ),
    "ata-gp-ucb": Method(
        "ATA-GP-UCB (Ray Chowdhury & Gopalan 2019): truncation along directions of a feature space.",
        TruncatedFeatureGP,
        GPUCB,
        {"width": RANDOMIZED, "delta": 0.1, "truncation": None, **HEAVY_TAILS, "noise_var": 1.0}
        | {"features": {"kind": "nystrom", "size": 64}, "horizon": 1000, "num_features": None, "root": "symmetric"},
        in_units=("moment_bound", "alpha", "noise_var", "features", "horizon"),
        model_options=_adaptively_truncated,
    ),
    "v-ucb": Method(
        "V-UCB (Nguyen et al. 2021): the value at risk, and the condition to observe a design under.",
        RobustGP,
        ValueAtRiskUCB,
        {"width": {"kind": "finite", "num_arms": 1}, "delta": 0.1}  # the paper's
        | {"noise_var": None, "environment": ..., "functional": 0.1},
        acquisition_options=_risk,
        needs_conditions=True,
    ),
    "knowledge-gradient": Method(
        "The knowledge gradient of the value at risk (Cakmak et al. 2020): the design and the condition to observe.",
        RobustGP,
        ValueAtRiskKnowledgeGradient,
        {"noise_var": None, "environment": ..., "functional": 0.1},
        acquisition_options=_risk,
        needs_conditions=True,
    ),
    "he-gp-ucb": Method(
        "HE-GP-UCB (Ziomek et al. 2024): candidate kernels, eliminated by their errors.",
        CandidateEnsemble,
        EliminationUCB,
        {"width": {"kind": "bayesian_finite"}, "delta": 0.1, "elimination": "errors", "candidates": None}
        | {"noise_var": 0.1, "noise_scale": None, "maximize": True},
        in_units=("candidates", "noise_scale"),
        model_options=lambda settings: {"candidates": _grid(settings)},
        acquisition_options=_elimination,
    ),
    "bkb": Method(
        "BKB (Calandriello et al. 2019): GP-UCB on a dictionary of the points observed.",
        BKBModel,
        GPUCB,
        {"width": RANDOMIZED, "delta": 0.1, "noise_var": None, "oversampling": 4.0, "max_size": 512, "min_size": 128},
        model_options=lambda settings: _given(settings, "noise_var", "oversampling", "max_size", "min_size"),
    ),
}
