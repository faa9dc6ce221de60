"""The condition z to observe a design x under: the second half of a V-UCB round (Nguyen et al. 2021, Algorithm 1).

The functional offers conditions (lacing values, :meth:`bo_robust.functionals.Functional.lacing`), a pick takes one.
"""

from dataclasses import dataclass

from torch import Tensor

from bo_robust.environments import Environment
from bo_robust.functionals import Functional
from bo_robust.picks import pick_condition


@dataclass(frozen=True)
class ConditionChoice:
    """The condition to observe each design under; leading axes are those of the designs.

    Attributes:
        index: Index of the condition, ``...``, long.
        z: Value of the condition, ``... x d_z``; the perturbation xi if x is perturbed.
        point: Input of the model to be observed, ``... x d``: (x, z), or x + xi.
        regret_bound: u - l = 2 w sigma there, ``...``, in units of f. It bounds the regret of x if x maximises the
            acquisition, the functional offered z (so not "drawn"), and l <= f <= u. Not for ``MeanVariance``.
        candidates: Who chose, over candidates: indices in U, ``... x 1`` of u_t, or ``... x 2`` of u_t and v_t of
            :class:`~bo_robust.acquisition.StableOpt`. It is what :func:`~bo_robust.acquisition.eliminate` takes as
            ``chosen``.
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
    pick: str = "probable",
    uniform: Tensor | None = None,
) -> ConditionChoice:
    """Pick a condition for every design (``... x d_x``), with l and u over the conditions (``... x w``).

    ``functional`` offers the conditions worth observing. ``pick`` is one of :mod:`bo_robust.picks`, whose draws are
    ``uniform`` (``...``). ``ValueError`` if draws are missing or the pick is unknown.
    """
    p, gap = environment.probabilities, upper - lower
    # A draw follows the probabilities of the conditions, the pick "probable" may rank by a density.
    weights = p if pick == "drawn" else environment.density
    index = pick_condition(functional.lacing(lower, upper, p), gap, weights, pick, uniform)
    x = x.expand(*index.shape, x.shape[-1])  # a batched model has a choice per member
    z = value_at(environment.values(x), index)
    bound = gap.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return ConditionChoice(index, z, environment.join(x, z), bound)


def value_at(values: Tensor, index: Tensor) -> Tensor:
    """The value of z of every design at an index: ``... x w x d_z`` and ``...`` to ``... x d_z``."""
    return values.gather(-2, index[..., None, None].expand(*index.shape, 1, values.shape[-1])).squeeze(-2)
