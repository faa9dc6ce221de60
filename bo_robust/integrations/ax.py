"""The methods of bo_robust in Ax: :func:`generation_strategy` makes what ``Client.set_generation_strategy`` takes.

Importing this module registers models and acquisitions for Ax' storage. In a new process, do so before
``Client.load_from_json_file``.

Rewards reach the models as reported, in the order of their trials; Ax' Winsorize, BilogY and StandardizeY are left out.
The default method and "bkb" take rewards in any units: their models standardize, and see rewards divided by a power of
1024 where they are very small or large. For the other methods report rewards in units in which f is of order one about
zero, (y - center) / scale with numbers chosen beforehand: their prior is the theory's, mean zero and k(x, x) = 1.
Parameters are mapped to the unit box. Both senses of the objective are understood.

Trials that run, or were abandoned, are hallucinated: their means stay, their variances are as if observed. Ax never
forgets an abandoned trial, so mark a trial that says nothing about its point as failed. A design whose second
observation fails is measured again; abandon the trial to have it left alone.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from ax.adapter.registry import Generators, MBM_X_trans
from ax.adapter.transforms.derelativize import Derelativize
from ax.adapter.transforms.one_hot import OH_PARAM_INFIX
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.api.client import Client
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus
from ax.core.types import ComparisonOp
from ax.exceptions.core import SearchSpaceExhausted
from ax.exceptions.generation_strategy import GenerationStrategyRepeatedPoints
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.random.sobol import SobolGenerator
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.surrogate import ModelConfig, SurrogateSpec
from ax.storage.botorch_modular_registry import register_acquisition, register_acquisition_function, register_model
from ax.storage.transform_registry import register_transform
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_robust.acquisition import (
    OnePointLogNoisyExpectedHypervolumeImprovement,
    OnePointLogNoisyExpectedImprovement,
    ValueAtRiskUCB,
)
from bo_robust.acquisition.fresh_pair import is_due, repeats, under_drawn_condition
from bo_robust.acquisition.input_constructors import CONSTRUCTORS, finite_environment
from bo_robust.acquisition.pending import MOST_PENDING, MOST_PENDING_OF_BOUNDS, foremost_pending
from bo_robust.models.reward_units import rescaling_unit
from bo_robust.proposals.conditions import best_at_risk
from bo_robust.proposals.core import SidedModel, recommendable, replicates
from bo_robust.proposals.frames import SUMS
from bo_robust.proposals.methods import DEFAULT, METHODS, choose
from bo_robust.proposals.space import OneHotAcquisition
from bo_robust.utils.input_checks import check_count, quoted
from bo_robust.utils.linalg import device_named, is_among
from bo_robust.utils.upstream import ax_objectives, ax_parts

__all__ = [
    "RobustAcquisition",
    "complete_observed",
    "generation_strategy",
    "held_trials",
    "outlier_trials",
    "recommend",
    "slips",
]

ROUNDING = 1e-8  # of a coordinate of the unit box, by Ax' changes of units


class RescaledY(StandardizeY):
    """Rewards divided by a power of 1024 (:func:`bo_robust.models.reward_units.rescaling_unit`), without a center."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super(StandardizeY, self).__init__(*args, **options)  # which would warn of small deviations
        means = options["experiment_data"].observation_data["mean"]
        self.Ymean = dict.fromkeys(means, 0.0)
        self.Ystd = {name: rescaling_unit(values.dropna().to_numpy()) for name, values in means.items()}


class ValueOfDesigns(AcquisitionFunction):
    """A :class:`ValueAtRiskUCB` at points of a search space that holds its conditions too; it sees the designs only."""

    may_repeat: ClassVar[bool] = True

    def __init__(self, acqf: ValueAtRiskUCB) -> None:
        super().__init__(acqf.model)
        self.acqf, self.X_pending = acqf, acqf.X_pending

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        super().set_X_pending(X_pending)
        self.acqf.set_X_pending(X_pending)

    def forward(self, X: Tensor) -> Tensor:
        return self.acqf(X[..., : X.shape[-1] - self.acqf.environment.appended])


WRITTEN_OUT: dict[type[AcquisitionFunction], type[AcquisitionFunction]] = {
    qLogNoisyExpectedImprovement: OnePointLogNoisyExpectedImprovement,
    qLogNoisyExpectedHypervolumeImprovement: OnePointLogNoisyExpectedHypervolumeImprovement,
}


class RobustAcquisition(Acquisition):
    """Ax' ``Acquisition``, which may also measure arms again and choose conditions.

    The models learn which side of each objective is good. An observation that is better than all inliers, but flagged
    as an outlier or held, is measured a second time before the maximum (:func:`bo_robust.suggest_replicates`), unless
    the acquisition chooses conditions. In a finite search space Ax leaves out points observed or pending, as suits
    expected improvement, until none is left; the maximum of an upper confidence bound is over all points. A space of
    choices, ordered or not, and integers is finite. Several points are chosen one after the other, the earlier ones
    hallucinated.
    """

    acqf: Any
    choosing: Any
    X_observed: Tensor | None
    X_pending: Tensor | None
    known_pending: Tensor | None  # those that the acquisition gets, the foremost where they are many

    def __init__(self, *, surrogate: Any, botorch_acqf_class: Any, torch_opt_config: Any, **options: Any) -> None:
        several = torch_opt_config.is_moo or torch_opt_config.outcome_constraints is not None
        if several and getattr(botorch_acqf_class, "may_repeat", False):
            raise ValueError(
                "this method takes one objective and no constraints on outcomes; leave method and width out."
            )
        limited = surrogate.surrogate_spec.metric_to_model_configs if surrogate.surrogate_spec is not None else {}
        if unknown := sorted(set(limited) - set(surrogate.outcomes)):
            known = ", ".join(surrogate.outcomes)
            warnings.warn(
                f"outcome_limits name {', '.join(unknown)}, but the metrics modeled are {known}.", stacklevel=2
            )
        for sided in _objectives(surrogate.model, torch_opt_config.objective_weights):
            sided.model.maximize = sided.maximize  # the strategy does not know the objective
        super().__init__(
            surrogate=surrogate, botorch_acqf_class=botorch_acqf_class, torch_opt_config=torch_opt_config, **options
        )
        self.chooses_conditions = getattr(self.acqf, "chooses_conditions", False)
        self.choosing = self.acqf  # which chooses conditions
        if self.chooses_conditions and not self.acqf.takes_conditions:
            self.acqf = ValueOfDesigns(self.acqf)
        self.repeats = getattr(self.acqf, "may_repeat", False)
        self.known_pending = self.X_pending
        most = MOST_PENDING_OF_BOUNDS if self.chooses_conditions else MOST_PENDING
        cheap = self.repeats and not self.chooses_conditions  # a bound of one point
        if not cheap and self.X_pending is not None and len(self.X_pending) > most:
            self.known_pending = self.X_pending[foremost_pending(self.acqf, self.X_pending, most)]

    def _construct_botorch_acquisition(self, botorch_acqf_class: Any, *args: Any, **options: Any) -> Any:
        """As Ax does; noisy improvements are the faster ones of the same values."""
        botorch_acqf_class = WRITTEN_OUT.get(botorch_acqf_class, botorch_acqf_class)
        return super()._construct_botorch_acquisition(botorch_acqf_class, *args, **options)

    def optimize(  # type: ignore[override]
        self,
        n: int,
        search_space_digest: Any,
        inequality_constraints: Any = None,
        equality_constraints: Any = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in Ax: points ``n x d``, their values ``n`` and weights ``n``."""
        options |= {"inequality_constraints": inequality_constraints, "equality_constraints": equality_constraints}
        avoided = observed, pending = self.X_observed, self.X_pending
        if self.repeats:
            self.X_observed = self.X_pending = None  # what `optimize` avoids; the acquisition knows of both
        finite = _Columns.of(search_space_digest).finite
        fixed = options.get("fixed_features") or {}
        points: list[Tensor] = []
        values: list[Tensor] = []
        try:
            for _ in range(n):
                x = self._replicate(observed, pending, fixed, finite)
                if x is None:
                    x, value = self._search(search_space_digest, **options)
                else:
                    value = self.evaluate(x.unsqueeze(0))
                if self.chooses_conditions:
                    x = self._with_condition(x, search_space_digest, fixed)
                    x = self._unless_stuck(x, pending, search_space_digest, **options)
                points.append(x)
                values.append(value.reshape(-1))
                if len(points) < n:
                    pending = x if pending is None else torch.cat([pending, x])
                    self.X_pending = None if self.repeats else pending
                    known = [] if self.known_pending is None else [self.known_pending]
                    self.acqf.set_X_pending(torch.cat([*known, *points]))
        finally:
            self.X_observed, self.X_pending = avoided
            if len(points) > 1:
                self.acqf.set_X_pending(self.known_pending)
        return torch.cat(points), torch.cat(values), torch.ones(len(points), dtype=points[0].dtype)

    def _search(self, digest: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """The point of the largest acquisition value, ``1 x d``, and its value.

        Points observed are left out until there is no other, and points pending until there is none but them.
        """
        if self.chooses_conditions:
            designs = len(digest.feature_names) - self.choosing.environment.appended
            if any(int(columns.max()) >= designs for columns, *_ in options.get("inequality_constraints") or ()):
                raise ValueError("parameter_constraints cannot have conditions of an environment.")
        avoided = self.X_observed, self.X_pending
        try:
            for self.X_observed, self.X_pending in (avoided, (None, avoided[1])):
                with suppress(SearchSpaceExhausted):
                    return self._search_once(digest, **options)
            self.X_pending = None
            return self._search_once(digest, **options)
        finally:
            self.X_observed, self.X_pending = avoided

    def _search_once(self, digest: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """As :meth:`_search`, where at least one point is neither observed nor pending.

        In Ax' search one-hot columns are continuous, and their best values may round to a point to be avoided. In a
        finite space this search sees an unordered choice as one column instead, as it sees an ordered one.
        """
        options["optimizer_options"] = dict(options.get("optimizer_options") or {})  # a copy, because Ax empties it
        columns = _Columns.of(digest)
        elsewhere = any(options.get(name) is not None for name in ("candidate_set", "sampling_strategy"))
        if not (columns.finite and columns.counts) or elsewhere or options.get("equality_constraints"):
            x, value, _ = super().optimize(1, digest, **options)
            return x, value
        plain = self.acqf, self.X_observed, self.X_pending
        coded = OneHotAcquisition(self.acqf, columns.counts)
        options |= columns.coded_options(options, coded.encode)
        try:
            self.acqf, self.X_observed, self.X_pending = coded, *map(columns.coded, plain[1:])
            x, value, _ = super().optimize(1, columns.coded_digest(digest), **options)
        finally:
            self.acqf, self.X_observed, self.X_pending = plain
        return coded.encode(x), value

    def _replicate(
        self, observed: Tensor | None, pending: Tensor | None, fixed: Mapping[int, float], finite: bool
    ) -> Tensor | None:
        """The best replication candidate of an objective, ``1 x d``, in the search space and not on its way already."""
        if self.chooses_conditions:
            return None  # it would be measured under another condition
        model, weights = ax_objectives(self)
        for point in replicates(_objectives(model, weights), finite):
            x = point.unsqueeze(0)
            obeys = all(abs(float(x[0, i]) - value) <= ROUNDING for i, value in fixed.items())
            if obeys and _holds(observed, x) and not _holds(pending, x):
                return x.to(weights)
        return None

    def _with_condition(self, x: Tensor, digest: Any, fixed: Mapping[int, float]) -> Tensor:
        """The design with the condition to observe it under, ``1 x d``; fixed columns keep their values."""
        z = self.choosing.environment.z
        d = x.shape[-1]
        if any(column >= d - z.shape[-1] for column in fixed):
            return x
        for column in range(z.shape[-1]):
            choices = digest.discrete_choices.get(d - z.shape[-1] + column)
            if choices is not None and not set(z[:, column].tolist()) <= {float(v) for v in choices}:
                name = digest.feature_names[d - z.shape[-1] + column]
                raise ValueError(f"some points of the environment are no values of the parameter {name!r}: {choices}.")
        return self.choosing.select_condition(x[..., : d - z.shape[-1]]).point.reshape(1, d)

    def _unless_stuck(self, x: Tensor, pending: Tensor | None, digest: Any, **options: Any) -> Tensor:
        """The pair, or a random one where V-UCB is stuck (:mod:`bo_robust.acquisition.fresh_pair`)."""
        # Ax' X_observed has each pair once, and their number would no longer grow.
        known = torch.cat([self.surrogate.Xs[0].to(x), x[:0] if pending is None else pending])
        low, high = x.new_tensor(digest.bounds).T
        if not (isinstance(self.choosing, ValueAtRiskUCB) and is_due(len(known)) and repeats(x[0], known, low, high)):
            return x
        environment: Any = self.choosing.environment
        drawn = _random_point(digest, len(known), **options).to(x)[:, : x.shape[-1] - environment.appended]
        pair = under_drawn_condition(drawn, environment, torch.Generator().manual_seed(len(known)))
        for column, value in (options.get("fixed_features") or {}).items():
            pair[:, column] = value
        return pair


def _random_point(
    digest: Any,
    seed: int,
    inequality_constraints: Any = None,
    equality_constraints: Any = None,
    fixed_features: Any = None,
    rounding_func: Any = None,
    **_: Any,
) -> Tensor:
    """A point ``1 x d`` of scrambled Sobol; options are those of Ax' ``Acquisition.optimize``."""
    d = len(digest.feature_names)
    limits = _matrices(inequality_constraints, d, -1.0), _matrices(equality_constraints, d, 1.0)
    # Where rejection finds nothing, Ax samples the polytope.
    sobol = SobolGenerator(seed=seed, deduplicate=False, fallback_to_sample_polytope=True)
    points, _weights = sobol.gen(1, digest, *limits, fixed_features=dict(fixed_features or {}))
    x = torch.from_numpy(points)
    return x if rounding_func is None else rounding_func(x[0]).unsqueeze(0)


def _matrices(constraints: Any, d: int, sign: float) -> tuple[np.ndarray, np.ndarray] | None:
    """BoTorch's rows (columns, weights, bound), whose sums are at least the bound, as Ax' A x <= b for sign -1."""
    if not constraints:
        return None
    A, b = np.zeros((len(constraints), d)), np.zeros((len(constraints), 1))
    for i, (columns, weights, bound) in enumerate(constraints):
        A[i, columns.cpu().numpy()], b[i] = sign * weights.cpu().numpy(), sign * bound
    return A, b


class _Columns(NamedTuple):
    """The columns of Ax' search by parameter; ``groups`` has the one-hot columns of an unordered choice together."""

    groups: list[list[int]]
    finite: bool  # every parameter has values of its own, as the user gave it

    @classmethod
    def of(cls, digest: Any) -> "_Columns":
        names, discrete = digest.feature_names, digest.discrete_choices

        def parameter(i: int) -> str:
            return str(names[i] if i in discrete else names[i].rpartition(OH_PARAM_INFIX)[0] or names[i])

        groups = [list(group) for _, group in groupby(range(len(names)), parameter)]
        return cls(groups, all(group[0] in discrete or len(group) > 1 for group in groups))

    @property
    def counts(self) -> dict[int, int]:
        """The number of values of each unordered choice, by its place among the parameters."""
        return {j: len(group) for j, group in enumerate(self.groups) if len(group) > 1}

    def coded(self, X: Tensor | None) -> Tensor | None:
        """Points with one column per parameter, where an unordered choice is the number of its value."""
        if X is None:
            return None
        parts = [X[..., group].argmax(-1).to(X) if len(group) > 1 else X[..., group[0]] for group in self.groups]
        return torch.stack(parts, -1)

    def coded_digest(self, digest: Any) -> Any:
        """The description of the search space in these columns."""
        choices: dict[int, Any] = {j: list(range(count)) for j, count in self.counts.items()}
        place = {group[0]: j for j, group in enumerate(self.groups) if len(group) == 1}
        choices |= {place[i]: values for i, values in digest.discrete_choices.items()}
        return replace(
            digest,
            feature_names=[digest.feature_names[group[0]] for group in self.groups],
            bounds=[(min(values), max(values)) for _, values in sorted(choices.items())],
            discrete_choices=dict(sorted(choices.items())),
            ordinal_features=[place[i] for i in digest.ordinal_features],
            categorical_features=sorted([*self.counts, *(place[i] for i in digest.categorical_features)]),
            task_features=[place[i] for i in digest.task_features],
            fidelity_features=[place[i] for i in digest.fidelity_features],
            target_values={place[i]: value for i, value in digest.target_values.items()},
        )

    def coded_options(self, options: Mapping[str, Any], encode: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Constraints, fixed columns and rounding of a search in these columns; ``encode`` leads back from them."""
        place = {i: j for j, group in enumerate(self.groups) for i in group}
        fixed: dict[int, float] = {}
        for i, value in (options.get("fixed_features") or {}).items():
            group = self.groups[place[i]]
            if len(group) == 1:
                fixed[place[i]] = value
            elif value > 0.5:
                fixed[place[i]] = group.index(i)
        limits = [
            (columns.new_tensor([place[i] for i in columns.tolist()]), coefficients, bound)
            for columns, coefficients, bound in options.get("inequality_constraints") or []
        ]
        rounding = options.get("rounding_func")
        rounded = None if rounding is None else lambda X: self.coded(rounding(encode(X)))
        return {"fixed_features": fixed, "inequality_constraints": limits or None, "rounding_func": rounded}


def _objectives(model: Any, weights: Tensor) -> list[SidedModel]:
    """The models of objectives that say something of their observations, each with its good side."""
    pairs = zip(getattr(model, "models", [model]), weights.sum(0).tolist(), strict=True)
    told = [(one, weight) for one, weight in pairs if hasattr(one, "train_X_all") and weight != 0.0]
    return [SidedModel(one, weight > 0.0, one.train_X_all) for one, weight in told]


def _holds(points: Tensor | None, x: Tensor) -> bool:
    """Whether a point ``1 x d`` of the unit box is among others, ``k x d`` or None, but for rounding."""
    return points is not None and bool(is_among(x, points, lambda a, b: (b - a).abs() <= ROUNDING))


def generation_strategy(
    method: str = DEFAULT,
    *,
    initial: int = 5,
    seed: int | None = None,
    num_restarts: int = 8,
    raw_samples: int = 128,
    outcome_limits: Mapping[str, Sequence[float | None]] = MappingProxyType({}),
    device: str = "cpu",
    **settings: Any,
) -> GenerationStrategy:
    """Make a strategy for ``Client.set_generation_strategy``: a quasi-random (Sobol) start, then a method.

    The method takes over after ``initial`` trials that did not fail, attached ones included, as soon as one of them is
    completed. The strategy can be stored as JSON.

    Args:
        method: A name in :data:`bo_robust.proposals.methods.METHODS`; the default detects outliers without any setting.
        initial: Trials of the initial design, >= 1.
        seed: Seed of the initial design, >= 0; None: drawn from Ax' random numbers (``Client(random_seed=...)``).
        num_restarts: Restarts of the search for the best acquisition.
        raw_samples: Points from which this search gets its starts, >= ``num_restarts``.
        outcome_limits: Smallest and largest possible value of a metric, by its name, such as ``{"yield": (0, 100)}``;
            either may be None. A value beyond them is flagged, and :func:`recommend` expects none. For "robust" alone.
        device: "cpu", "cuda" or "cuda:1", of models and searches.
        settings: Settings of the method, plain JSON, with the defaults of ``METHODS[method].settings``; those in the
            units of the rewards have none here. Lengthscales are in the unit box.

    Raises:
        ValueError: if the method or a setting is unknown, missing, out of range or no plain JSON.

    Example:
        >>> client.set_generation_strategy(generation_strategy())
    """
    for name in (name for name in ("conditions", *SUMS) if name in settings):
        hint = "parameter_constraints of configure_experiment (no equalities: leave out the part that is the rest)"
        raise ValueError(f"{name} is not for Ax, which has {hint}, and v-ucb with an environment for conditions.")
    check_count(1, initial=initial, num_restarts=num_restarts)
    check_count(num_restarts, raw_samples=raw_samples)
    check_count(0, seed=0 if seed is None else seed)
    initial, num_restarts, raw_samples = int(initial), int(num_restarts), int(raw_samples)  # 8.0 is a whole number
    chosen = choose(method, settings, {"num_initial": initial}, standardized=False)
    limits = list(outcome_limits.values()) if isinstance(outcome_limits, Mapping) else [None]
    if not all(isinstance(ends, Sequence) and len(ends) == 2 for ends in limits):
        hint = f'such as {{"yield": (0, 100)}}, got {quoted(outcome_limits)}'
        raise ValueError(f"outcome_limits must give the ends of each metric by its name, {hint}.")
    # Models that standardize take rewards in any units, unless one of the settings has a unit.
    standardizes = chosen.standardizes
    any_units = standardizes and "noise_var" not in chosen.model_options and not outcome_limits
    if outcome_limits and not chosen.takes("outcome_limits"):
        raise ValueError(f"{method} has no outcome_limits; only {DEFAULT} has them.")
    options = chosen.model_options | ({"maximize": None} if chosen.takes("maximize") else {})

    def config(**more: Any) -> ModelConfig:
        return ModelConfig(
            botorch_model_class=chosen.model,
            model_options=options | more,
            outcome_transform_classes=[Standardize] if standardizes else None,  # Ax takes the models' own default away
        )

    surrogate = SurrogateSpec(
        model_configs=[config()],
        metric_to_model_configs={name: [config(outcome_limits=list(ends))] for name, ends in outcome_limits.items()},
        allow_batched_models=False,
    )
    spec = GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": surrogate,
            "acquisition_class": RobustAcquisition,
            # Ax' own choice: expected improvement, with constraints, or of hypervolume
            "botorch_acqf_class": chosen.acquisition,
            "botorch_acqf_options": chosen.acquisition_options,
            "transforms": [*MBM_X_trans, Derelativize, *([RescaledY] if any_units else [])],
            "torch_device": device_named(device),
        },
        generator_gen_kwargs={
            "model_gen_options": {"optimizer_kwargs": {"num_restarts": num_restarts, "raw_samples": raw_samples}}
        },
    )
    start = {"seed": None if seed is None else int(seed), "deduplicate": False}
    sobol = GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs=start)
    lost = [TrialStatus.FAILED, TrialStatus.ABANDONED]
    counted: dict[str, Any] = {"transition_to": method, "use_all_trials_in_exp": True}
    enough = [
        MinTrials(threshold=initial, not_in_statuses=lost, **counted),
        MinTrials(threshold=1, only_in_statuses=[TrialStatus.COMPLETED], **counted),
    ]
    nodes = [
        GenerationNode(
            name="initial",
            generator_specs=[sobol],
            transition_criteria=enough,
            should_deduplicate=True,
            # There may be fewer arms than the initial design has trials.
            fallback_specs={GenerationStrategyRepeatedPoints: sobol},
        ),
        GenerationNode(name=method, generator_specs=[spec]),
    ]
    return GenerationStrategy(name=method, nodes=nodes)


def complete_observed(client: Client, trial_index: int, conditions: Mapping[str, float], raw_data: Any) -> int:
    """Complete a value-at-risk trial under the condition that came on its own, not the proposed one (field mode).

    The design of the trial under the condition observed becomes a new, completed trial, whose index is returned. The
    proposed trial is marked failed, which is how Ax forgets a point.

    Args:
        client: Client of the experiment.
        trial_index: The trial proposed.
        conditions: Observed value of every parameter of the environment; others raise ``ValueError``.
        raw_data: As in ``Client.complete_trial``.
    """
    experiment, strategy = ax_parts(client)
    (*_, node) = strategy.nodes_by_name.values()
    options = node.generator_specs[0].generator_kwargs.get("botorch_acqf_options", {})
    if "environment" not in options:
        raise ValueError("this is for experiments whose generation strategy is generation_strategy('v-ucb', ...).")
    names = tuple(options["environment"]["points"][0])
    if set(conditions) != set(names):
        raise ValueError(f"conditions must give {', '.join(names)}, got {dict(conditions)!r}.")
    (proposed,) = experiment.trials[trial_index].arms
    parameters: dict[str, Any] = {**proposed.parameters, **conditions}
    index = client.attach_trial(parameters=parameters)
    client.complete_trial(trial_index=index, raw_data=raw_data)
    client.mark_trial_failed(trial_index, failed_reason=f"observed under other conditions: trial {index}")
    return int(index)


def recommend(client: Client) -> tuple[dict[str, Any], float]:
    """Return the parameters to use among those observed, and the model's mean there, in units of the objective.

    They are those of the best mean, and not those of the luckiest observation, nor of a design whose only observations
    are outliers or held. Where the method chooses conditions, the design comes without conditions, with
    its value at risk within the limits (the UPPER tail where the objective is minimized). Under constraints on outcomes
    the means there must keep them. Raises ``ValueError`` if the strategy is not that of :func:`generation_strategy`,
    its initial design is not completed, no mean keeps the constraints, one is relative, or there are several
    objectives.
    """
    experiment, node, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    objective = optimization.objective
    if objective.is_multi_objective:
        raise ValueError("recommend takes one objective; client.get_pareto_frontier() predicts by these models, too.")
    if len(objective.metric_names) > 1:
        raise ValueError(f"recommend takes one metric: report {objective.expression!r} as one, and optimize that.")
    sign = -1.0 if objective.minimize else 1.0
    sided, data, unit = _outcome(adapter, experiment.metrics[objective.metric_names[0]].signature, sign > 0.0)
    options = node.generator_specs[0].generator_kwargs["botorch_acqf_options"]
    conditions: dict[str, float] = {}
    if "environment" in options:
        environment = finite_environment(options["environment"], data.X)
        rows = recommendable([sided], data.X).nonzero().flatten()
        designs = data.X[rows, : -environment.appended]
        place, found = best_at_risk(sided, designs, environment, options["functional"])
        row, value = int(rows[place]), unit * float(found.mean)
        conditions = options["environment"]["points"][0]
    else:
        mean = sided.predict(data.X).mean
        may = recommendable([sided], data.X) & _feasible(optimization.outcome_constraints, adapter, data.X)
        if not may.any():
            raise ValueError("no point observed so far is predicted to keep the constraints; go on with the loop.")
        row = int((sign * mean).where(may, -math.inf).argmax())
        value = unit * float(mean[row])
    (arm,) = experiment.trials[int(data.group_indices[row])].arms
    return {name: value for name, value in arm.parameters.items() if name not in conditions}, value


def outlier_trials(client: Client) -> list[int]:
    """Return the indices of completed trials of which the model flags a value as an outlier (or truncates it).

    Values are those of objectives and of constrained outcomes. Raises ``ValueError`` where there is no model of
    :func:`generation_strategy` yet.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    trials: set[int] = set()
    for signature in optimization.metric_signatures:
        sided, data, _ = _outcome(adapter, signature)
        trials |= {int(data.group_indices[row]) for row in sided.verdict.flagged.nonzero().flatten().tolist()}
    return sorted(trials)


def held_trials(client: Client) -> list[int]:
    """Return the indices of completed trials with a value of an objective that is held on the good side.

    It is plausible only if values vary by factors; the strategy measures it again first. Errors are those of
    :func:`outlier_trials`.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    trials: set[int] = set()
    for signature, weight in optimization.objective.metric_weights:
        sided, data, _ = _outcome(adapter, signature, weight > 0.0)
        trials |= {int(data.group_indices[row]) for row in sided.verdict.held.nonzero().flatten().tolist()}
    return sorted(trials)


def slips(client: Client) -> list[tuple[str, list[int]]]:
    """Return what may have happened to values that are flagged or held: a kind of ``Slip``, and its trials' indices.

    Values and errors are those of :func:`outlier_trials`.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    found = []
    for signature in optimization.metric_signatures:
        sided, data, _ = _outcome(adapter, signature)
        for slip in getattr(sided.model, "slips", ()):
            found.append((slip.kind, [int(data.group_indices[row]) for row in slip.rows]))
    return found


def _fitted(client: Client) -> tuple[Experiment, GenerationNode, Any]:
    """The experiment, the node of the method, and the adapter with its fitted models."""
    experiment, strategy = ax_parts(client)
    *_, node = strategy.nodes_by_name.values()
    if node.generator_specs[0].generator_kwargs.get("acquisition_class") is not RobustAcquisition:
        raise ValueError("this is for experiments whose generation strategy is generation_strategy(...) of bo_robust.")
    adapter: Any = strategy.fit(experiment)
    if strategy.current_node_name != node.name:
        done = len(experiment.trial_indices_by_status[TrialStatus.COMPLETED])
        raise ValueError(f"there is no model yet: {done} of {len(experiment.trials)} trials are completed.")
    return experiment, node, adapter


def _outcome(adapter: Any, signature: str, maximize: bool = True) -> tuple[SidedModel, Any, float]:
    """Model, data and unit of an outcome."""
    surrogate, rescaled = adapter.generator.surrogate, adapter.transforms.get(RescaledY.__name__)
    output = surrogate.outcomes.index(signature)
    model = getattr(surrogate.model, "models", [surrogate.model])[output]
    data = surrogate.training_data[output]
    return SidedModel(model, maximize, data.X), data, 1.0 if rescaled is None else rescaled.Ystd[signature]


def _feasible(constraints: list[Any], adapter: Any, X: Tensor) -> Tensor:
    """Whether the means of outcomes keep the constraints at points ``n x d`` of the models, ``n`` bool."""
    feasible = torch.ones(len(X), dtype=torch.bool)
    for constraint in constraints:
        if constraint.relative:
            raise ValueError(f"recommend knows no status quo: give {constraint.expression!r} as a number.")
        total, upper = torch.zeros(len(X), dtype=X.dtype), constraint.op == ComparisonOp.LEQ
        for signature, weight in constraint.metric_weights:
            sided, _, unit = _outcome(adapter, signature, maximize=(weight > 0.0) != upper)
            total += weight * unit * sided.predict(X).mean
            feasible &= recommendable([sided], X)
        feasible &= total <= constraint.bound if upper else total >= constraint.bound
    return feasible


register_acquisition(RobustAcquisition)
register_transform(RescaledY)
for _method in METHODS.values():
    register_model(_method.model)
for _acquisition in {*CONSTRUCTORS, *(method.acquisition for method in METHODS.values() if method.acquisition)}:
    register_acquisition_function(_acquisition)
