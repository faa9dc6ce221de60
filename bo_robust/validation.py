"""Checks of user input, shared by the whole package. Every message says what was wrong and what to change."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "check_accuracy",
    "check_count",
    "check_delta",
    "check_finite",
    "check_kernel_matrix",
    "check_like",
    "check_positive",
    "check_round",
    "check_rule",
    "check_tail_index",
]


def check_positive(**values: float) -> None:
    """Raise ``ValueError`` unless every value is a finite number > 0."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}.")


def check_delta(delta: float) -> None:
    """Raise ``ValueError`` unless the failure probability is in (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta (the failure probability) must be strictly between 0 and 1, got {delta!r}.")


def check_tail_index(alpha: float) -> None:
    """Raise ``ValueError`` unless alpha, of the moment bound E|y|^(1+alpha) <= v, is in (0, 1]."""
    if not 0.0 < alpha <= 1.0:
        raise ValueError(
            f"alpha must be in (0, 1] (the moment bound is on E|y|^(1+alpha); 1 = finite variance), got {alpha!r}."
        )


def check_accuracy(epsilon: float) -> None:
    """Raise ``ValueError`` unless the accuracy of a dictionary is in (0, 1)."""
    if not 0.0 < epsilon < 1.0:
        raise ValueError(f"epsilon (accuracy of the dictionary) must be in (0, 1), got {epsilon!r}.")


def check_finite(name: str, x: Tensor) -> None:
    """Raise ``ValueError`` if ``x`` has NaN or infinite entries."""
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise ValueError(f"{name} has {bad} NaN or infinite entries of {x.numel()}; remove or repair them first.")


def check_like(name: str, x: Tensor, owner: str, like: Tensor, advice: str = "convert one of them") -> None:
    """Raise ``ValueError`` unless ``x`` has the dtype and device of ``like``, which belongs to ``owner``."""
    if (x.dtype, x.device) != (like.dtype, like.device):
        raise ValueError(f"{name} is {x.dtype} on {x.device}, {owner} {like.dtype} on {like.device}; {advice}.")


def check_kernel_matrix(K: Tensor, tol: float = 1e-8) -> None:
    """Raise ``ValueError`` unless ``K`` (``... x n x n``) is finite, symmetric and positive semi-definite.

    ``tol`` is relative to the largest diagonal entry. The smallest eigenvalue may be -tol * n times this entry.
    """
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or K.shape[-1] == 0:
        raise ValueError(f"the kernel matrix must be n x n with n >= 1, got shape {tuple(K.shape)}.")
    if not K.is_floating_point():
        raise ValueError(f"the kernel matrix must be floating point, got {K.dtype}; convert it with .double().")
    check_finite("the kernel matrix", K)
    if K.dtype == torch.float32:  # whose rounding alone exceeds the default
        tol = max(tol, 1e-5)
    scale = float(K.diagonal(dim1=-2, dim2=-1).abs().max())
    skew = float((K - K.mT).abs().max())
    if skew > tol * max(scale, 1e-300):
        raise ValueError(
            f"the kernel matrix is not symmetric (largest |K - K^T| is {skew:.3g}); use (K + K.T) / 2 if rounding."
        )
    # K + slack I has a Cholesky factor where no eigenvalue is below -slack: cheaper than the eigenvalues.
    slack = tol * K.shape[-1] * max(scale, 1e-300)
    shifted = K.double() + slack * torch.eye(K.shape[-1], dtype=torch.float64, device=K.device)
    if bool((torch.linalg.cholesky_ex(shifted)[1] > 0).any()):
        smallest = float(torch.linalg.eigvalsh(K.double())[..., 0].min())
        raise ValueError(
            f"the kernel matrix is not positive semi-definite (smallest eigenvalue {smallest:.3g}); "
            "project it (clip negative eigenvalues) or add jitter to its diagonal."
        )


def check_round(t: int) -> None:
    """Raise ``ValueError`` unless ``t``, a round counted from 1, is at least 1."""
    if t < 1:
        raise ValueError(f"t is the round about to be played, counted from 1, got {t!r}.")


def check_count(minimum: int, **values: int) -> None:
    """Raise ``ValueError`` unless every value is a whole number of at least ``minimum``."""
    for name, value in values.items():
        if value != int(value) or value < minimum:
            raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}.")


# What happens to a reward beyond its truncation level, see bo_robust.truncation.truncate.
RULES = ("zero", "clip", "residual")


def check_rule(rule: str, reference_bound: float | None = None) -> None:
    """Raise ``ValueError`` unless ``rule`` is in RULES, and a ``reference_bound`` >= 0 and beside rule "residual"."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r:.80}.")
    if reference_bound is None:
        return
    if rule != "residual":
        raise ValueError(f"reference_bound is for rule 'residual'; leave it out, or change rule {rule!r:.80}.")
    if not 0.0 <= reference_bound < math.inf:
        raise ValueError(f"reference_bound must be a finite number >= 0, got {reference_bound!r}.")
