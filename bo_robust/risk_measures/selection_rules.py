"""The choice of z: which of the conditions that a functional offers at a design is observed.

The functional of the bounds offers conditions (:meth:`bo_robust.risk_measures.functionals.Functional.lacing`). A
selection rule takes one:

- "probable": the most probable one. Of equally probable ones (to 1e-9 of the density, 1e-6 in float32) the one with the
  widest interval; the paper leaves ties open.
- "widest": the one with the widest interval.
- "uniform": a random one.
- "drawn": a draw from the density, offered or not. This is z observed but not chosen (Nguyen et al. 2021, Remark 1).
"""

import math

import torch
from torch import Tensor

from bo_robust.utils.input_checks import quoted

SELECTION_RULES = ("probable", "widest", "uniform", "drawn")
RANDOM_RULES = ("uniform", "drawn")


def select_by_rule(
    offered: Tensor, gap: Tensor, density: Tensor | None, selection_rule: str, uniform: Tensor | None = None
) -> Tensor:
    """Index of the condition chosen, ``...`` long.

    Args:
        offered: Conditions offered, ``... x w`` bool, at least one per x.
        gap: u - l, ``... x w``.
        density: Probability or density of each condition up to a constant, ``w`` or ``... x w``. None means all equal.
        selection_rule: One of ``SELECTION_RULES``.
        uniform: Draws from [0, 1), ``...``, for the random rules, which raise ``ValueError`` without.
    """
    if selection_rule not in RANDOM_RULES:
        barred = ~offered
        if density is not None and selection_rule == "probable":
            ranked = density.expand(offered.shape).masked_fill(barred, -math.inf)
            top = ranked.amax(-1, keepdim=True)
            barred = barred | (ranked < top - (1e-9 if top.dtype == torch.float64 else 1e-6) * top.abs())
        return gap.masked_fill(barred, -math.inf).argmax(-1)
    if uniform is None:
        raise ValueError(f'the selection rule "{selection_rule}" needs uniform, a draw from [0, 1) per choice.')
    if selection_rule == "uniform":
        rank = offered.cumsum(-1)
        chosen = (uniform.unsqueeze(-1) * rank[..., -1:]).long()
        return (rank <= chosen.minimum(rank[..., -1:] - 1)).sum(-1)
    mass = (torch.ones_like(gap) if density is None else density.expand(offered.shape)).cumsum(-1)
    return (mass <= uniform.unsqueeze(-1) * mass[..., -1:]).sum(-1).clamp_(max=offered.shape[-1] - 1)


def check_selection_rule(selection_rule: object, allowed: tuple[str, ...] = SELECTION_RULES) -> None:
    """Raise ``ValueError`` unless the selection rule is one of ``allowed``."""
    if selection_rule not in allowed:
        raise ValueError(f"selection_rule must be one of {', '.join(allowed)}; got {quoted(selection_rule)}.")
