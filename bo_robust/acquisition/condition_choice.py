"""The condition to observe a design under, as V-UCB, LNSO and the knowledge gradient choose it."""

from dataclasses import dataclass

from botorch.models.model import Model
from torch import Tensor

from bo_robust.acquisition.ucb import reference
from bo_robust.risk_measures.environments import Environment
from bo_robust.risk_measures.functionals import Functional
from bo_robust.risk_measures.selection_rules import select_by_rule
from bo_robust.utils.input_checks import check_like, quoted


@dataclass(frozen=True)
class ConditionChoice:
    """The condition to observe each design under; leading axes are those of the designs.

    Attributes:
        index: Index of the condition, ``...``, long.
        z: Value of the condition, ``... x d_z``; the perturbation xi if x is perturbed.
        point: Input of the model to be observed, ``... x d``: (x, z), or x + xi.
        regret_bound: u - l = 2 w sigma there, ``...``, in units of f. It bounds the regret of x if x maximizes the
            acquisition, the functional offered z (so not "drawn"), and l <= f <= u. Not for ``MeanVariance``.
        candidates: The candidates that chose, indices in U, which :func:`~bo_robust.acquisition.eliminate` takes as
            ``chosen``: ``... x 1`` of u_t, or ``... x 2`` of u_t and v_t of :class:`StableOpt`.
    """

    index: Tensor
    z: Tensor
    point: Tensor
    regret_bound: Tensor
    candidates: Tensor | None = None


def choose_condition(
    x: Tensor,
    environment: Environment,
    functional: Functional,
    lower: Tensor,
    upper: Tensor,
    selection_rule: str = "probable",
    uniform: Tensor | None = None,
) -> ConditionChoice:
    """Pick a condition for every design (``... x d_x``), with l and u over the conditions (``... x w``).

    ``uniform`` (``...``) are draws for the selection rules of :mod:`bo_robust.risk_measures.selection_rules`.
    """
    p, gap = environment.probabilities, upper - lower
    # A draw follows the probabilities of the conditions, the selection rule "probable" may rank by a density.
    weights = p if selection_rule == "drawn" else environment.density
    index = select_by_rule(functional.lacing(lower, upper, p), gap, weights, selection_rule, uniform)
    x = x.expand(*index.shape, x.shape[-1])  # a batched model has a choice per member
    z = value_at(environment.values(x), index)
    bound = gap.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return ConditionChoice(index, z, environment.join(x, z), bound)


def value_at(values: Tensor, index: Tensor) -> Tensor:
    """The value of z of every design at an index: ``... x w x d_z`` and ``...`` to ``... x d_z``."""
    return values.gather(-2, index[..., None, None].expand(*index.shape, 1, values.shape[-1])).squeeze(-2)


def columns_over(model: Model, environment: Environment) -> int | None:
    """The columns of a model over (x, z), None where it does not tell; ``ValueError`` if the environment is another."""
    if not isinstance(environment, Environment):
        raise ValueError(f"environment must be one of bo_robust.risk_measures, got {quoted(environment)}.")
    d = reference(model).shape[-1] if getattr(model, "train_inputs", None) is not None else None
    appended, dim = environment.appended, environment.dim
    if d is not None and not (appended < d if appended else dim in (None, d)):
        columns = f"the model has {d} columns, the environment {dim}"
        raise ValueError(f"{columns}: the model must be over (x, z), or over x where z are perturbations.")
    for buffer in environment.buffers():
        check_like("the environment", buffer, "the model", reference(model))
    return d
