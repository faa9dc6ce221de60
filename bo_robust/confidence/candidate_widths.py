"""Confidence widths w^u_t of the candidates u: one width shared by all candidates, or one width per candidate.

Axes: ``s`` trials, ``h`` candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bo_robust.confidence.base import Width, width_at
from bo_robust.utils.input_checks import check_tensor

# One width for all candidates, which is handed the information gain of each, or one width per candidate
Widths = Width | tuple[Width, ...]


def delta_of_width(width: Any, delta: float) -> float:
    """The failure probability for a width of this spec: half of ``delta``, as the test of candidates takes the rest.

    "bayesian_finite" is given all of ``delta``, as its formula halves it.
    """
    halves = isinstance(width, Mapping) and width.get("kind") == "bayesian_finite"
    return delta if halves else 0.5 * delta


def each(width: Widths) -> tuple[Width, ...]:
    """The widths as a tuple."""
    return width if isinstance(width, tuple) else (width,)


def check_number(width: Widths, candidates: int) -> None:
    """Raise ``ValueError`` unless there is one width, or one per candidate."""
    if isinstance(width, tuple) and len(width) != candidates:
        raise ValueError(f"{len(width)} widths for {candidates} candidates; give one width, or one per candidate.")


def check_unit_scale(width: Widths, names: Sequence[str], diagonal: Callable[[int], Tensor]) -> None:
    """Raise ``ValueError`` if a width by a norm bound, which assumes k(x, x) <= 1, meets a larger k(x, x).

    ``names`` are those of the candidates in the message. ``diagonal`` returns k(x, x) of candidate u at the known
    points; it is called only for widths by a norm bound.
    """
    widths = width if isinstance(width, tuple) else (width,) * len(names)
    for u, (w, name) in enumerate(zip(widths, names, strict=True)):
        if not getattr(w, "by_norm_bound", False):
            continue
        largest = float(diagonal(u).max())
        # A correlation matrix may exceed 1 on its diagonal by rounding.
        if largest > 1.0 + 1e-6:
            raise ValueError(
                f"{name}: k(x, x) goes up to c = {largest:.4g}, and a width by norm bound assumes k(x, x) <= 1. "
                "Divide the kernels and noise_var by c, rewards, prior means and the noise scale R by sqrt(c); the "
                "norm bound B stays."
            )


def widths_at(width: Widths, t: int, known: Callable[[Width], Tensor], uniform: Tensor | None = None) -> Tensor | float:
    """w^u_t of every trial and candidate, ``s x h``, or a number where it is the same for all.

    ``known`` returns what a width takes as ``information_gain``, of every trial and candidate (``s x h``). ``uniform``
    has draws from [0, 1), ``s``, which only a randomized width needs.
    """
    if uniform is not None:
        check_tensor("uniform", uniform, floating=False)
    column = None if uniform is None else uniform.unsqueeze(1)
    if not isinstance(width, tuple):
        return width_at(width, t, known(width), column)
    values = []
    for u, w in enumerate(width):
        own = known(w)[:, u : u + 1]
        values.append(torch.as_tensor(width_at(w, t, own, column)).to(own).expand_as(own))
    return torch.cat(values, 1)
