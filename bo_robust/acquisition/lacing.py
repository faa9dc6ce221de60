"""The condition z to observe a design x under: the second half of a V-UCB round (Nguyen et al. 2021, Algorithm 1).

The functional offers points (lacing values, :meth:`bo_robust.functionals.Functional.lacing`), a rule picks one.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from bo_robust.environments import Environment
from bo_robust.functionals import PICK_RULES, Functional, pick
from bo_robust.validation import quoted


def check_choice(rule: object) -> None:
    """Raise ``ValueError`` unless ``rule`` can choose a condition."""
    if rule not in (*PICK_RULES, "informative"):
        raise ValueError(f"rule must be one of {', '.join(PICK_RULES)}, informative; got {quoted(rule)}.")


@dataclass(frozen=True)
class EnvironmentChoice:
    """The condition to observe each design under; leading axes are those of the designs.

    Attributes:
        index: Index of the environment point, ``...``, long.
        z: Value of the environment point, ``... x d_z``; the perturbation xi if x is perturbed.
        point: Input of the model to be observed, ``... x d``: (x, z), or x + xi.
        regret_bound: u - l = 2 w sigma there, ``...``, in units of f. It bounds the regret of x if x maximises the
            acquisition, the functional offered z (so neither "drawn" nor "informative"), and l <= f <= u. Not for
            ``MeanVariance``.
    """

    index: Tensor
    z: Tensor
    point: Tensor
    regret_bound: Tensor


def choose_environment(
    x: Tensor,
    environment: Environment,
    functional: Functional,
    lower: Tensor,
    upper: Tensor,
    rule: str = "probable",
    uniform: Tensor | None = None,
    information: Tensor | None = None,
) -> EnvironmentChoice:
    """Pick a condition for every design (``... x d_x``), with l and u over the conditions (``... x w``).

    ``functional`` offers the conditions worth observing. ``rule`` is one of :func:`bo_robust.functionals.pick`, whose
    draws are ``uniform`` (``...``); or "informative", the possible condition of most ``information`` (``... x w``).
    ``ValueError`` if draws are missing or the rule is unknown.
    """
    mask = functional.lacing(lower, upper, environment.probabilities)
    gap = upper - lower
    # A draw follows the probabilities of the points, the rule "probable" may rank by a density.
    weights = environment.probabilities if rule == "drawn" else environment.density
    check_choice(rule)
    if information is None:
        index = pick(mask, gap, weights, rule, uniform)
    else:
        p = environment.probabilities
        index = (information if p is None else information.masked_fill(p <= 0, -math.inf)).argmax(-1)
    x = x.expand(*index.shape, x.shape[-1])  # a batched model has a choice per member
    z = value_at(environment.values(x), index)
    bound = gap.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return EnvironmentChoice(index, z, environment.join(x, z), bound)


def value_at(values: Tensor, index: Tensor) -> Tensor:
    """The value of z of every design at an index: ``... x w x d_z`` and ``...`` to ``... x d_z``."""
    return values.gather(-2, index[..., None, None].expand(*index.shape, 1, values.shape[-1])).squeeze(-2)
