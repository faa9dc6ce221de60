"""Checks and conversions of what :class:`~bo_robust.models.TruncatedGP` is given, and widths by name."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from bo_robust.schedules import TRUNCATIONS, WIDTHS, Truncation, Width
from bo_robust.validation import check_finite, check_positive

__all__ = ["check_data", "check_noise_var", "levels_of_rounds", "truncation_by_name", "width_by_name"]

Given = TypeVar("Given")


def check_data(X: Tensor, Y: Tensor) -> None:
    """Raise ``ValueError`` unless X is ``batch_shape x n x d`` and Y ``batch_shape x n x 1``, finite floats."""
    if X.ndim < 2 or Y.shape != (*X.shape[:-1], 1) or X.shape[-2] == 0:
        raise ValueError(
            "TruncatedGP needs train_X batch_shape x n x d and train_Y batch_shape x n x 1 with n >= 1, got "
            f"{tuple(X.shape)} and {tuple(Y.shape)}; model several outputs with a ModelListGP."
        )
    for name, x in (("train_X", X), ("train_Y", Y)):
        if not x.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {x.dtype}; convert it with .double().")
        check_finite(name, x)


def check_noise_var(noise_var: float, dtype: torch.dtype) -> None:
    """Raise ``ValueError`` unless GPyTorch takes the fixed noise variance as it is; it rounds smaller ones up."""
    check_positive(noise_var=noise_var)
    floor = min_fixed_noise.value(dtype)
    if noise_var < floor:
        raise ValueError(
            f"noise_var must be at least {floor:g} in {dtype}, the smallest that GPyTorch does not round up, "
            f"got {noise_var!r}; raise it, or rescale the rewards and noise_var with their square."
        )


def truncation_by_name(truncation: Truncation | Tensor | str, options: dict[str, Any] | None) -> Truncation | Tensor:
    """The schedule named in ``TRUNCATIONS``, built with its options; a schedule or levels are returned as given.

    Raises:
        ValueError: if the name is unknown, or options come with a truncation that is not a name.
    """
    if isinstance(truncation, str):
        if truncation not in TRUNCATIONS:
            known = ", ".join(sorted(TRUNCATIONS))
            raise ValueError(f"unknown truncation {truncation!r}; choose one of {known}.")
        return TRUNCATIONS[truncation](**(options or {}))
    if options:
        raise ValueError("truncation_options are for a truncation given by name; put them into the schedule itself.")
    return truncation


def width_by_name(width: Given | str, options: dict[str, Any] | None, delta: float) -> Given | Width:
    """The width named in ``WIDTHS``, built with its options; a width or several are returned as given.

    Args:
        width: A name, or what is returned.
        options: Arguments of the named width.
        delta: Of the named width, unless among its options or unknown to it.

    Raises:
        ValueError: if the name is unknown, or options come with a width that is not a name.
    """
    if isinstance(width, str):
        if width not in WIDTHS:
            raise ValueError(f"unknown width {width!r}; choose one of {', '.join(sorted(WIDTHS))}.")
        arguments = dict(options or {})
        if "delta" in inspect.signature(WIDTHS[width]).parameters:
            arguments.setdefault("delta", delta)
        return WIDTHS[width](**arguments)
    if options:
        raise ValueError("width_options are for a width given by name; put them into the width itself.")
    return width


def levels_of_rounds(truncation: Truncation | Tensor, rewards: Tensor, first_round: int) -> Tensor:
    """The levels of consecutive rounds in the shape ``batch_shape x n x 1`` of their rewards.

    Raises:
        ValueError: if they do not fit the rewards or are not > 0.
    """
    n = rewards.shape[-2]
    if isinstance(truncation, Tensor):
        levels = truncation
    elif not callable(truncation):
        raise ValueError(f"truncation must be a schedule or a tensor of levels, got {truncation!r}.")
    else:
        rounds = torch.arange(first_round, first_round + n, dtype=rewards.dtype, device=rewards.device)
        level: float | Tensor = truncation(rounds)  # a number from a schedule that does not depend on t
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
