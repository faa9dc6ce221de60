"""Constructor arguments of the models: truncation levels of consecutive rounds, and objects from specs."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bo_robust.confidence.truncation import Truncation
from bo_robust.utils.specs import build, quoted


def from_spec(given: Any, registry: Mapping[str, Callable[..., Any]], context: Mapping[str, Any], role: str) -> Any:
    """The object that a spec ``{"kind": name, ...}`` describes; any other object is returned as given.

    ``registry`` holds classes or functions by kind, ``context`` holds values for options that the spec leaves out, and
    ``role`` names the argument in errors.

    Raises:
        ValueError: if the kind or an option is unknown, missing or out of range, or a string is given.
    """
    return build(given, registry, context, role) if isinstance(given, Mapping | str) else given


def levels_of_rounds(truncation: Truncation | Tensor, rewards: Tensor, first_round: int) -> Tensor:
    """The levels of consecutive rounds in the shape ``batch_shape x n x 1`` of their rewards.

    Raises ``ValueError`` if levels do not fit the rewards or are not > 0.
    """
    n = rewards.shape[-2]
    if isinstance(truncation, Tensor):
        levels = truncation
    elif isinstance(truncation, type) or not callable(truncation):
        raise ValueError(
            f"truncation must be of bo_robust.confidence.truncation or a tensor of levels, got {quoted(truncation)}."
        )
    else:
        rounds = torch.arange(first_round, first_round + n, dtype=rewards.dtype, device=rewards.device)
        level: float | Tensor = truncation(rounds)  # a number from a truncation that does not depend on t
        levels = (level if isinstance(level, Tensor) else torch.full_like(rounds, level)).unsqueeze(-1)
    fits = levels.shape in ((n, 1), rewards.shape)
    if not fits or levels.dtype != rewards.dtype or levels.device != rewards.device:
        raise ValueError(
            f"truncation levels must be {n} x 1 (or of the shape {tuple(rewards.shape)} of the rewards), "
            f"{rewards.dtype} on {rewards.device}; got {tuple(levels.shape)}, {levels.dtype} on "
            f"{levels.device}."
        )
    if not bool((levels > 0).all()):
        raise ValueError("truncation levels must be > 0 (infinity keeps every reward).")
    return levels.expand(rewards.shape).clone()
