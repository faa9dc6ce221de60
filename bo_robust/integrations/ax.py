"""Our methods in Ax: ``generation_strategy("tgp-ucb", ...)`` for ``Client.set_generation_strategy``.

Importing this registers models and acquisitions for Ax' storage: do so before ``Client.load_from_json_file`` in a new
process. Rewards reach the models as reported, in the order of their trials: Ax' Winsorize, BilogY and StandardizeY, by
which levels, widths and noise variances would mean something else every round, are left out. The prior of the models is
the theory's, mean zero and k(x, x) = 1: report rewards in units in which f is of order one about zero, (y - center) /
scale with numbers chosen beforehand. Parameters are mapped to the unit box (logarithms and one-hot columns where the
search space asks for them); both senses of the objective are understood.

Trials that run, or were abandoned, are hallucinated (mean as it is, variance as if observed). Ax never forgets an
abandoned trial: one that says nothing about its point is to be marked failed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import torch
from ax.adapter.registry import Generators, MBM_X_trans
from ax.adapter.transforms.derelativize import Derelativize
from ax.api.client import Client
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.surrogate import ModelConfig, SurrogateSpec
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition import GPUCB, EliminationUCB, ValueAtRiskUCB, recommend
from bo_robust.acquisition.value_at_risk import construct_inputs_value_at_risk_ucb
from bo_robust.environments import FiniteEnvironment
from bo_robust.functionals import ValueAtRisk
from bo_robust.models import BKBModel, CandidateEnsemble, FeatureGP, TruncatedFeatureGP, TruncatedGP, candidate
from bo_robust.models.feature_maps import feature_map_by_name
from bo_robust.schedules import TRUNCATIONS, WIDTHS
from bo_robust.validation import check_count, check_delta, check_positive

__all__ = [
    "SETTINGS",
    "AxValueAtRiskUCB",
    "RobustAcquisition",
    "complete_observed",
    "generation_strategy",
    "recommended",
]

NEEDED = object()  # has no default
RANDOMISED = {"kind": "randomised", "num_arms": 1000, "scale": 5.0**-0.5}
COMMON: dict[str, Any] = {"width": RANDOMISED, "delta": 0.1, "noise_var": None}
TAIL: dict[str, Any] = {"moment_bound": NEEDED, "alpha": NEEDED, "rule": "zero"}

SETTINGS: dict[str, dict[str, Any]] = {
    "gp-ucb": COMMON,
    "tgp-ucb": COMMON | TAIL | {"truncation": {"kind": "tgp"}},
    "ata-gp-ucb": COMMON
    | TAIL
    | {
        "features": NEEDED,  # {"kind": "fourier", "nodes": m} or {"kind": "nystrom", "inducing_points": [[...]]}
        "num_features": NEEDED,  # m of the level: nodes^d, or the number of inducing points
        "horizon": NEEDED,  # T
        "truncation": None,  # ata_fourier or ata_nystrom
        "root": "symmetric",
    },
    "v-ucb": COMMON
    | {
        "environment": NEEDED,  # {"points": [{"z": 0.0}, ...], "probabilities": [...] or left out}
        "risk_level": 0.1,  # alpha of the value at risk: the worst share of conditions
        "width": {"kind": "finite", "num_arms": 1},
    },
    "he-gp-ucb": {
        "candidates": NEEDED,  # settings of bo_robust.models.candidate, in the unit box
        "noise_scale": NEEDED,  # R
        "delta": 0.1,
        "width": {"kind": "bayesian_finite", "num_arms": 1000},
        "maximize": True,  # has to agree with the experiment's objective
    },
    "bkb": COMMON | {"oversampling": 4.0, "max_size": 512, "min_size": 128},
}
"""The settings of every method and their defaults; ``NEEDED`` ones have none."""


class AxValueAtRiskUCB(ValueAtRiskUCB):
    """:class:`~bo_robust.acquisition.ValueAtRiskUCB`, built from plain JSON by Ax."""


class RobustAcquisition(Acquisition):
    """Ax' ``Acquisition``, in which arms may be played again, and V-UCB chooses the condition as well.

    On search spaces of finitely many points Ax leaves out those observed or pending, for noise-free functions. Here the
    maximum is taken over all. Several points are chosen one after the other, those before them hallucinated.
    """

    acqf: Any
    X_observed: Tensor | None
    X_pending: Tensor | None

    def optimize(
        self,
        n: int,
        search_space_digest: Any,
        *constraints: Any,
        optimizer_options: dict[str, Any] | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in Ax: points ``n x d``, their values ``n`` and weights ``n``."""
        avoided, hallucinated = (self.X_observed, self.X_pending), self.acqf.X_pending
        self.X_observed = self.X_pending = None  # what `optimize` avoids; the acquisition knows of both
        points: list[Tensor] = []
        values: list[Tensor] = []
        try:
            for _ in range(n):
                given = dict(optimizer_options or {})  # taken apart by Ax
                x, value, _ = super().optimize(1, search_space_digest, *constraints, optimizer_options=given, **others)
                if isinstance(self.acqf, ValueAtRiskUCB):
                    x = self._with_condition(x, search_space_digest)
                points.append(x)
                values.append(value.reshape(-1))
                if len(points) < n:
                    before = [] if hallucinated is None else [hallucinated]
                    self.acqf.set_X_pending(torch.cat([*before, *points]))
        finally:
            self.X_observed, self.X_pending = avoided
            if len(points) > 1:
                self.acqf.set_X_pending(hallucinated)
        return torch.cat(points), torch.cat(values), torch.ones(len(points), dtype=points[0].dtype)

    def _with_condition(self, x: Tensor, digest: Any) -> Tensor:
        z = self.acqf.environment.z
        d = x.shape[-1]
        for column in range(z.shape[-1]):
            known = digest.discrete_choices.get(d - z.shape[-1] + column)
            if known is not None and not set(z[:, column].tolist()) <= {float(v) for v in known}:
                name = digest.feature_names[d - z.shape[-1] + column]
                raise ValueError(f"some points of the environment are no values of the parameter {name!r}: {known}.")
        return self.acqf.select_environment(x[..., : d - z.shape[-1]]).point.reshape(1, d)


def generation_strategy(
    method: str,
    *,
    initial: int = 5,
    seed: int | None = None,
    num_restarts: int = 8,
    raw_samples: int = 128,
    **settings: Any,
) -> GenerationStrategy:
    """A quasi-random (Sobol) start, then one of our methods.

    The method takes over after ``initial`` trials that did not fail, attached ones included, as soon as one of them is
    completed.

    Args:
        method: "gp-ucb", "tgp-ucb", "ata-gp-ucb", "v-ucb", "he-gp-ucb" or "bkb".
        initial: Trials of the initial design, >= 1.
        seed: Of the initial design; None: drawn from Ax' random numbers (``Client(random_seed=...)``).
        num_restarts: Of the search for the best acquisition.
        raw_samples: It starts from.
        settings: Of the method, see ``SETTINGS``; plain JSON. A width is a number or ``{"kind": name in WIDTHS, ...}``,
            a truncation ``{"kind": name in TRUNCATIONS, ...}``; arguments left out come from the settings of the same
            name. ``noise_var`` is learned where it is None. Lengthscales (learned, or of candidates) are in the unit
            box.

    Returns:
        The strategy, for ``Client.set_generation_strategy``; it can be stored as JSON.

    Raises:
        ValueError: on an unknown method or setting, one that is missing or out of range, or no plain JSON.

    Example:
        >>> client.set_generation_strategy(generation_strategy("tgp-ucb", moment_bound=4.0, alpha=1.0))
    """
    check_count(1, initial=initial, num_restarts=num_restarts, raw_samples=raw_samples)
    chosen = _complete(method, settings)
    model, model_options, acqf, acqf_options = _parts(method, chosen, initial)
    config = ModelConfig(botorch_model_class=model, model_options=model_options)
    spec = GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": SurrogateSpec(model_configs=[config]),
            "acquisition_class": RobustAcquisition,
            "botorch_acqf_class": acqf,
            "botorch_acqf_options": acqf_options,
            "transforms": [*MBM_X_trans, Derelativize],
        },
        generator_gen_kwargs={
            "model_gen_options": {"optimizer_kwargs": {"num_restarts": num_restarts, "raw_samples": raw_samples}}
        },
    )
    sobol = GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": seed, "deduplicate": False})
    lost = [TrialStatus.FAILED, TrialStatus.ABANDONED]
    enough = [
        MinTrials(threshold=initial, transition_to=method, not_in_statuses=lost, use_all_trials_in_exp=True),
        MinTrials(
            threshold=1, transition_to=method, only_in_statuses=[TrialStatus.COMPLETED], use_all_trials_in_exp=True
        ),
    ]
    nodes = [
        GenerationNode(name="initial", generator_specs=[sobol], transition_criteria=enough),
        GenerationNode(name=method, generator_specs=[spec]),
    ]
    return GenerationStrategy(name=method, nodes=nodes)


def complete_observed(client: Client, trial_index: int, conditions: Mapping[str, float], raw_data: Any) -> int:
    """Complete a trial of a value at risk whose condition was not the proposed one but came on its own (field mode).

    The design of the trial under the condition observed becomes a new, completed trial; the one proposed is marked
    failed, which is how Ax forgets a point. (In simulator mode the condition proposed is the one to play:
    ``Client.complete_trial`` as always.)

    Args:
        client: Of the experiment.
        trial_index: The trial proposed.
        conditions: Observed value of every parameter of the environment.
        raw_data: As in ``Client.complete_trial``.

    Returns:
        Index of the new trial.

    Raises:
        ValueError: if the conditions are not those of the environment.
    """
    names = tuple(_options(client)["environment"]["points"][0])
    if set(conditions) != set(names):
        raise ValueError(f"conditions must give {', '.join(names)}, got {dict(conditions)!r}.")
    proposed = client._experiment.trials[trial_index].arm.parameters
    index = client.attach_trial(parameters={**proposed, **conditions})
    client.complete_trial(trial_index=index, raw_data=raw_data)
    client.mark_trial_failed(trial_index, failed_reason=f"observed under other conditions: trial {index}")
    return int(index)


def recommended(client: Client) -> tuple[dict[str, Any], float]:
    """The design of a value at risk experiment to use, of those observed, and its value at risk by the model's mean.

    Ax' own ``get_best_parameterization`` looks for the best pair of design and condition, which is not what is wanted.

    Returns:
        Parameters without conditions, and the value at risk in units of the objective (the UPPER tail where it is
        minimised).

    Raises:
        ValueError: if the strategy is not that of "v-ucb", or its initial design is not completed.
    """
    options, strategy = _options(client), client._generation_strategy
    adapter = strategy.fit(client._experiment)
    if strategy.current_node_name != "v-ucb":
        raise ValueError("the initial design is not completed: there is no model yet.")
    surrogate = adapter.generator.surrogate
    data = surrogate.training_data[0]
    environment = _finite(options["environment"], data.X)
    minimize = client._experiment.optimization_config.objective.minimize
    weight = ScalarizedPosteriorTransform(data.X.new_tensor([-1.0])) if minimize else None
    designs = data.X[:, : -environment.appended]
    found = recommend(surrogate.model, environment, options["risk_level"], designs, weight)
    trial = client._experiment.trials[int(data.group_indices[int(found.index)])]
    conditions = options["environment"]["points"][0]
    x = {name: value for name, value in trial.arm.parameters.items() if name not in conditions}
    return x, -float(found.value) if minimize else float(found.value)


def _complete(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings, checked."""
    if method not in SETTINGS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(SETTINGS)}.")
    defaults = SETTINGS[method]
    for name in given:
        if name not in defaults:
            raise ValueError(f"{method} has no setting {name!r}; choose among {', '.join(defaults)}.")
    missing = [name for name, value in defaults.items() if value is NEEDED and given.get(name) is None]
    if missing:
        raise ValueError(f"{method} needs {', '.join(missing)}.")
    try:
        settings: dict[str, Any] = defaults | json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings must be plain JSON (numbers, strings, lists, dicts): {error}.") from None
    check_delta(settings["delta"])
    for name in ("noise_var", "noise_scale"):
        if settings.get(name) is not None:
            check_positive(**{name: settings[name]})
    return settings


def _parts(method: str, settings: dict[str, Any], initial: int) -> tuple[Any, dict[str, Any], Any, dict[str, Any]]:
    """Class and options of the model, and of the acquisition."""
    width = _schedule("width", settings["width"], WIDTHS, settings)
    acqf_options = {"width": width["kind"], "width_options": width["options"], "delta": settings["delta"]}
    if method == "he-gp-ucb":
        for c in settings["candidates"]:
            if not isinstance(c, Mapping):
                raise ValueError(f"candidates must be a list of settings of bo_robust.models.candidate, got {c!r}.")
            candidate(**c)
        kept = {name: settings[name] for name in ("candidates", "noise_scale", "maximize")}
        return CandidateEnsemble, kept | acqf_options | {"num_initial": initial}, EliminationUCB, {}
    noise = {} if settings["noise_var"] is None else {"noise_var": settings["noise_var"]}
    if method == "bkb":
        sizes = {name: settings[name] for name in ("oversampling", "max_size", "min_size")}
        return BKBModel, sizes | noise, GPUCB, acqf_options
    if method == "ata-gp-ucb":
        if not isinstance(settings["features"], Mapping):
            raise ValueError(f"features must be {{'kind': 'fourier', 'nodes': m}}, got {settings['features']!r}.")
        features = dict(settings["features"])
        kind = str(features.pop("kind", None))
        feature_map_by_name(kind, features)
        level = _schedule("truncation", settings["truncation"] or {"kind": f"ata_{kind}"}, TRUNCATIONS, settings)
        options = {"features": kind, "features_options": features, "root": settings["root"], "rule": settings["rule"]}
        return TruncatedFeatureGP, options | _truncation(level) | noise, GPUCB, acqf_options
    if method == "tgp-ucb":
        level = _schedule("truncation", settings["truncation"], TRUNCATIONS, settings)
        return TruncatedGP, _truncation(level) | {"rule": settings["rule"]} | noise, GPUCB, acqf_options
    plain = {"truncation": "none"} | noise  # an exact GP of prior mean zero
    if method == "gp-ucb":
        return TruncatedGP, plain, GPUCB, acqf_options
    environment = settings["environment"]
    _finite(environment, torch.zeros(1, dtype=torch.float64))
    ValueAtRisk(settings["risk_level"])  # raises
    risk = {"environment": environment, "risk_level": settings["risk_level"]}
    return TruncatedGP, plain, AxValueAtRiskUCB, risk | acqf_options


def _truncation(level: dict[str, Any]) -> dict[str, Any]:
    return {"truncation": level["kind"], "truncation_options": level["options"]}


def _schedule(role: str, spec: Any, registry: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Kind and options of a width or level; what ``spec`` leaves out comes from the settings, delta later."""
    if isinstance(spec, int | float) and not isinstance(spec, bool) and role == "width":
        spec = {"kind": "constant", "value": float(spec)}
    if not isinstance(spec, Mapping) or spec.get("kind") not in registry:
        raise ValueError(f"{role} must be {{'kind': one of {', '.join(registry)}, ...}}, got {spec!r}.")
    made, fields = registry[spec["kind"]], {f.name: f for f in dataclasses.fields(registry[spec["kind"]])}
    options = {name: value for name, value in spec.items() if name != "kind"}
    for name, field in fields.items():
        if name not in options and name not in ("delta", "scale") and settings.get(name) is not None:
            options[name] = settings[name]
        if name not in options and name != "delta" and field.default is dataclasses.MISSING:
            raise ValueError(f"{role} {spec['kind']!r} needs {name!r}: put it beside its kind.")
    if unknown := [name for name in options if name not in fields]:
        raise ValueError(f"{role} {spec['kind']!r} takes no {unknown[0]!r}, but {', '.join(fields)}.")
    if role == "truncation" and "delta" in fields:
        options.setdefault("delta", settings["delta"])
    made(**({"delta": settings["delta"]} if "delta" in fields else {}) | options)  # raises
    return {"kind": spec["kind"], "options": options}


def _finite(environment: Any, like: Tensor) -> FiniteEnvironment:
    """The environment of its settings."""
    form = "environment must be {'points': [{'z': number}, ...], 'probabilities': numbers, or left out}"
    try:
        rows = [[float(p[name]) for name in environment["points"][0]] for p in environment["points"]]
        alike = all(set(p) == set(environment["points"][0]) for p in environment["points"])
    except (TypeError, KeyError, IndexError, ValueError):
        raise ValueError(f"{form}, got {environment!r}.") from None
    if not alike or not set(environment) <= {"points", "probabilities"}:
        raise ValueError(f"{form}, all points with the same names; got {environment!r}.")
    p = environment.get("probabilities")
    return FiniteEnvironment(like.new_tensor(rows), None if p is None else like.new_tensor(p))


def _construct_inputs(
    model: Model,
    training_data: Any,
    bounds: list[tuple[float, float]],
    environment: dict[str, Any],
    risk_level: float,
    width: str,
    width_options: dict[str, Any],
    delta: float,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`AxValueAtRiskUCB`; raises ``ValueError`` where the search space does not fit."""
    names, columns = list(environment["points"][0]), list(training_data.feature_names)
    if columns[-len(names) :] != names or len(columns) == len(names):
        raise ValueError(
            f"the last parameters of the search space must be the conditions {', '.join(names)}, in this order and as "
            f"numbers; its columns are {', '.join(columns)}."
        )
    made = _finite(environment, training_data.X)
    low, high = made.z.new_tensor(bounds[-len(names) :]).T
    if bool(((made.z < low) | (made.z > high)).any()):
        raise ValueError(
            f"conditions must lie in the search space, and its parameters {', '.join(names)} must not be scaled by a "
            f"logarithm: they range over {bounds[-len(names) :]}."
        )
    return construct_inputs_value_at_risk_ucb(
        model, made, risk_level, width, width_options, delta, None, posterior_transform, X_pending
    )


def _options(client: Client) -> dict[str, Any]:
    """Options of the acquisition of our node."""
    nodes = {node.name: node for node in client._generation_strategy._nodes}
    if "v-ucb" not in nodes:
        raise ValueError("this is for experiments whose generation strategy is generation_strategy('v-ucb', ...).")
    return dict(nodes["v-ucb"].generator_specs[0].generator_kwargs["botorch_acqf_options"])


for _model in (TruncatedGP, TruncatedFeatureGP, FeatureGP, BKBModel, CandidateEnsemble):
    register_model(_model)
for _acqf in (GPUCB, EliminationUCB, ValueAtRiskUCB, AxValueAtRiskUCB):
    register_acquisition_function(_acqf)
register_acquisition(RobustAcquisition)
if AxValueAtRiskUCB not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:  # registering twice, as on a reload, is an error
    acqf_input_constructor(AxValueAtRiskUCB)(_construct_inputs)
