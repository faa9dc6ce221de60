"""Input constructors, by which Ax and other frameworks build these acquisition functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import construct_inputs_qLogNEHVI, construct_inputs_qLogNEI
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.elimination import EliminationUCB, eliminate
from bo_robust.acquisition.knowledge_gradient import ValueAtRiskKnowledgeGradient
from bo_robust.acquisition.noisy_improvement import OnePointLogNoisyExpectedImprovement
from bo_robust.acquisition.several_outcomes import OnePointLogNoisyExpectedHypervolumeImprovement
from bo_robust.acquisition.ucb import GPUCB, reference
from bo_robust.acquisition.value_at_risk import StableOpt, ValueAtRiskUCB
from bo_robust.confidence import WIDTHS, ConstantWidth, Width
from bo_robust.confidence.candidate_widths import Widths, delta_of_width
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.training_data import from_spec
from bo_robust.risk_measures.environments import Environment, FiniteEnvironment
from bo_robust.risk_measures.functionals import Functional, WorstCase
from bo_robust.utils.specs import quoted
from bo_robust.utils.upstream import register_input_constructor


def construct_inputs_gp_ucb(
    model: Model,
    width: Width | Mapping[str, Any],
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`GPUCB`.

    ``width`` may also be ``{"kind": name in WIDTHS, ...}``, the only form that Ax can store in JSON; a wrong one raises
    ``ValueError``. ``delta`` is the failure probability of such a width, unless its options name one or it has none.
    """
    return {
        "model": model,
        "width": from_spec(width, WIDTHS, {"delta": delta}, "width"),
        "t": t,
        "posterior_transform": posterior_transform,
        "X_pending": X_pending,
    }


def construct_inputs_elimination_ucb(
    model: CandidateEnsemble,
    elimination: str = "errors",
    width: Widths | Mapping[str, Any] | None = None,
    noise_scale: float | None = None,
    delta: float = 0.1,
    num_initial: int = 0,
    maximize: bool = True,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`EliminationUCB` for a ``CandidateEnsemble`` whose rows are in the order observed.

    The settings are those of :func:`eliminate`, which is called here; an objective that Ax minimizes needs
    ``maximize=False``. ``width`` may also be ``{"kind": name in WIDTHS, ...}``, and its delta is then delta / 2 by
    default (delta for "bayesian_finite", which halves it itself). A wrong option raises ``ValueError``.
    """
    schedule = from_spec(width, WIDTHS, {"delta": delta_of_width(width, delta)}, "width")
    left = eliminate(model, elimination, schedule, noise_scale, delta, num_initial, maximize)
    return {"model": model, "elimination": left, "posterior_transform": posterior_transform, "X_pending": X_pending}


def construct_inputs_value_at_risk_ucb(
    model: Model,
    environment: Environment | Mapping[str, Any],
    functional: Functional | float | str | Mapping[str, Any],
    width: Width | Mapping[str, Any] | float,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    training_data: Any = None,
    bounds: list[tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`ValueAtRiskUCB`, as of :func:`construct_inputs_gp_ucb`; ``width`` may be a number.

    ``environment`` may also be plain JSON, ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``. Ax gives the
    names of its columns in ``training_data``, and their ``bounds``. ``ValueError`` if a plain environment has another
    form, or is not the last columns of this search space.
    """
    environment = _environment(environment, model, training_data, bounds)
    if isinstance(width, int | float):
        width = ConstantWidth(float(width))
    inputs = construct_inputs_gp_ucb(model, width, delta, t, posterior_transform, X_pending)
    return {**inputs, "environment": environment, "functional": functional}


def construct_inputs_value_at_risk_knowledge_gradient(
    model: Model,
    environment: Environment | Mapping[str, Any],
    functional: Functional | float | str | Mapping[str, Any],
    X_evaluated: Tensor | None = None,
    num_fantasies: int = 10,
    num_samples: int = 10,
    num_conditions: int = 32,
    seed: int = 0,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    training_data: Any = None,
    bounds: list[tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`ValueAtRiskKnowledgeGradient`.

    ``environment`` may be plain JSON, as in :func:`construct_inputs_value_at_risk_ucb`.
    """
    inputs = dict(locals())
    inputs["environment"] = _environment(environment, model, inputs.pop("training_data"), inputs.pop("bounds"))
    return inputs


def construct_inputs_stable_opt(
    model: Model,
    environment: Environment,
    width: Width | Mapping[str, Any] | float,
    delta: float = 0.1,
    t: int | None = None,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    """Keyword arguments of :class:`StableOpt`, as :func:`construct_inputs_value_at_risk_ucb` makes them."""
    options = width, delta, t, posterior_transform, X_pending
    inputs = construct_inputs_value_at_risk_ucb(model, environment, WorstCase(), *options)
    del inputs["functional"]
    return inputs


def _environment(environment: Environment | Mapping[str, Any], model: Model, data: Any, bounds: Any) -> Environment:
    """An environment as it is, or of plain JSON, within Ax' search space if that is given."""
    if not isinstance(environment, Mapping):
        return environment
    made = finite_environment(environment, reference(model))
    if data is not None and bounds is not None:
        check_search_space(environment, made.z, data.feature_names, bounds)
    return made


def finite_environment(conditions: Any, template: Tensor) -> FiniteEnvironment:
    """The environment of ``{"points": [{"z": 0.0}, ...], "probabilities": [...]}``, in the dtype of ``template``."""
    try:
        names = list(conditions["points"][0])
        rows = [[float(point[name]) for name in names] for point in conditions["points"]]
        alike = all(set(point) == set(names) for point in conditions["points"])
        p = conditions.get("probabilities")
        probabilities = None if p is None else template.new_tensor([float(v) for v in p])
    except (TypeError, KeyError, IndexError, ValueError, AttributeError, OverflowError):
        names, alike = [], False
    if not names or not alike or not set(conditions) <= {"points", "probabilities"}:
        form = "{'points': [{'z': number}, ...], 'probabilities': numbers or left out}, same names in all points"
        raise ValueError(f"environment must be {form}; got {quoted(conditions)}.")
    return FiniteEnvironment(template.new_tensor(rows), probabilities)


def check_search_space(
    conditions: Mapping[str, Any], z: Tensor, columns: Sequence[str], bounds: Sequence[tuple[float, float]]
) -> None:
    """Raise ``ValueError`` unless the last columns are the conditions ``z``, ``w x d_z``, and the box holds them."""
    names, columns = list(conditions["points"][0]), list(columns)
    if columns[-len(names) :] != names or len(columns) == len(names):
        conditions_last = f"the last parameters of the search space must be the conditions {', '.join(names)}"
        raise ValueError(f"{conditions_last}, in this order and after others; its columns are {', '.join(columns)}.")
    low, high = z.new_tensor(bounds[-len(names) :]).T
    if bool(((z < low) | (z > high)).any()):
        box = bounds[-len(names) :]
        raise ValueError(f"conditions must lie in the search space, whose bounds have no logarithm: {box}.")


CONSTRUCTORS: dict[type[AcquisitionFunction], Callable[..., dict[str, Any]]] = {
    GPUCB: construct_inputs_gp_ucb,
    EliminationUCB: construct_inputs_elimination_ucb,
    ValueAtRiskUCB: construct_inputs_value_at_risk_ucb,
    StableOpt: construct_inputs_stable_opt,
    ValueAtRiskKnowledgeGradient: construct_inputs_value_at_risk_knowledge_gradient,
    OnePointLogNoisyExpectedHypervolumeImprovement: construct_inputs_qLogNEHVI,
    OnePointLogNoisyExpectedImprovement: construct_inputs_qLogNEI,
}
for acquisition, constructor in CONSTRUCTORS.items():
    register_input_constructor(acquisition, constructor)
