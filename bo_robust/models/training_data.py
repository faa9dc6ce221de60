"""What the constructors of the models share: checks of data, noise models, objects from specs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from bo_robust.utils.input_checks import check_finite, check_like, check_positive, check_tensor, quoted
from bo_robust.utils.linalg import refuse_tf32
from bo_robust.utils.specs import build
from bo_robust.utils.upstream import drop_prediction_strategy, move_original_inputs

ROUNDING = 16.0  # units in the last place by which a change of units there and back moves a coordinate
FEW = 2  # observations that may be truncated without a word, unless these are all


class TruncationWarning(UserWarning):
    """A notable share of the rewards is truncated: the level is too small for them, or they are not centered."""


class MovableGP(SingleTaskGP):
    """``SingleTaskGP`` that can be moved to another dtype or device after predictions."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MovableGP:
        before = self.train_targets
        super()._apply(fn)
        if self.train_targets is not before:  # really moved: caches and original inputs are left behind
            drop_prediction_strategy(self)
            move_original_inputs(self, fn)
        return self


def nearly_equal(x: Tensor, z: Tensor, size: Tensor | None = None) -> Tensor:
    """Whether coordinates are equal up to rounding, such as a change of units there and back leaves."""
    size = torch.maximum(x.abs(), z.abs()) if size is None else size
    return (x - z).abs() <= ROUNDING * torch.finfo(z.dtype).eps * size


def from_spec(spec: Any, registry: Mapping[str, Callable[..., Any]], context: Mapping[str, Any], role: str) -> Any:
    """The object that a spec ``{"kind": name, ...}`` describes (:func:`build`); any other object as it is."""
    return build(spec, registry, context, role) if isinstance(spec, Mapping | str) else spec


def check_data(model: str, X: Tensor, Y: Tensor, batched: bool, Yvar: Tensor | None = None, least: int = 1) -> None:
    """Raise ``ValueError`` unless X is ``n x d`` and Y ``n x 1``, finite floats, n >= ``least``; Yvar >= 0 is as Y."""
    for name, x in (("train_X", X), ("train_Y", Y)):
        check_tensor(name, x, floating=False)
    if (X.ndim < 2 if batched else X.ndim != 2) or Y.shape != (*X.shape[:-1], 1) or X.shape[-2] < least:
        batch = "batch_shape x " if batched else ""
        advice = "give data, one reward for each point"
        if X.ndim < 2 or Y.ndim < 2:
            advice = "make a column of a vector with .unsqueeze(-1)"
        elif max(X.ndim, Y.ndim) > 2 and not batched:
            advice = "make one model for each data set of a batch"
        elif Y.shape[-1] != 1:
            advice = "model several outputs with a ModelListGP"
        raise ValueError(
            f"{model} needs train_X {batch}n x d and train_Y {batch}n x 1 with n >= {least}, got {tuple(X.shape)} "
            f"and {tuple(Y.shape)}; {advice}."
        )
    for name, x in (("train_X", X), ("train_Y", Y)):
        check_tensor(name, x)
        check_finite(name, x)
    check_like("train_Y", Y, "train_X", X)
    refuse_tf32(X)
    if Yvar is not None:
        check_like("train_Yvar", Yvar, "train_Y", Y)
        if Yvar.shape != Y.shape:
            raise ValueError(f"train_Yvar has a variance for each reward, {tuple(Y.shape)}, got {tuple(Yvar.shape)}.")
        check_finite("train_Yvar", Yvar)
        if (Yvar < 0.0).any():
            raise ValueError(f"train_Yvar has variances, which are not negative, got {float(Yvar.min()):g}.")


def checked_limits(limits: Any, Y: Tensor) -> tuple[float, float]:
    """The limits of outcomes, infinite where None was given.

    Raises ``ValueError`` unless they are two numbers in order, and an observation lies within them.
    """
    ends = limits if limits is not None else (None, None)
    if not (isinstance(ends, Sequence) and len(ends) == 2 and all(x is None or isinstance(x, Real) for x in ends)):
        raise ValueError(f"outcome_limits must be two numbers such as (0, 100), or None, got {quoted(limits)}.")
    lower, upper = (math.copysign(math.inf, k - 0.5) if x is None else float(x) for k, x in enumerate(ends))
    if not lower < upper:
        raise ValueError(f"the first of outcome_limits must be smaller than the second, got {quoted(limits)}.")
    if not bool(((lower <= Y) & (upper >= Y)).any()):
        raise ValueError(f"no observation lies within outcome_limits, {lower:g} to {upper:g}.")
    return lower, upper


def check_added(X: Tensor, Y: Tensor) -> None:
    """Raise ``ValueError`` unless new rewards are ``... x n' x 1`` for new points ``... x n' x d``."""
    for name, x in (("X", X), ("Y", Y)):
        check_tensor(name, x, floating=False)
    if Y.shape[-2:] != (X.shape[-2], 1):
        raise ValueError(f"Y must be ... x n' x 1 for X ... x n' x d, got {tuple(Y.shape)} and {tuple(X.shape)}.")


def check_learnt(X: Tensor, Y: Tensor, template: Tensor) -> None:
    """Raise ``ValueError`` unless new points and rewards are finite and of the model's dtype and device."""
    for name, x in (("X", X), ("Y", Y)):
        check_finite(name, x)
        check_like(name, x, "the model", template)


def check_noise_var(noise_var: float, dtype: torch.dtype) -> None:
    check_positive(noise_var=noise_var)
    floor = min_fixed_noise.value(dtype)
    if noise_var < floor:
        raise ValueError(
            f"noise_var must be at least {floor:g} in {dtype}, the smallest that GPyTorch does not round up, "
            f"got {noise_var!r}; raise it, or rescale the rewards and noise_var with their square."
        )


def check_no_outcome_transform(model: str, transform: OutcomeTransform | None) -> None:
    if transform is not None:
        raise ValueError(
            f"{model} takes no outcome_transform (got {type(transform).__name__}): levels and widths are in the units "
            "of train_Y. Rescale train_Y and the moment bound instead."
        )


@contextmanager
def rewards_as_they_are() -> Iterator[None]:
    """Silence BoTorch's advice to standardize rewards: heavy tails have no standard deviation to divide by."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Data \(outcome observations\) is not standardized", InputDataWarning)
        yield


def one_noise_likelihood(
    model: str, noise_var: float | None, likelihood: GaussianLikelihood | None, dtype: torch.dtype
) -> GaussianLikelihood:
    """``likelihood``, or one that holds ``noise_var``; with neither, one that learns its noise under BoTorch's prior.

    The caller must set ``noise_var`` again after moving the model to its dtype.
    """
    if noise_var is None:
        if likelihood is None:
            return get_gaussian_likelihood_with_lognormal_prior()
        noise: Any = likelihood.noise if isinstance(likelihood, GaussianLikelihood) else None
        if noise is None or noise.numel() != 1:
            raise ValueError(f"{model} has one noise variance: pass noise_var or a GaussianLikelihood without batch.")
        return likelihood
    if likelihood is not None:
        raise ValueError("give one of noise_var and likelihood.")
    check_noise_var(noise_var, dtype)
    # No transform: the variance is stored as it is, not rounded by a softplus and its inverse.
    return GaussianLikelihood(noise_constraint=Positive(transform=None, initial_value=noise_var))


def warn_of_truncated(y: Tensor, truncated: Tensor, notable: float, level: float) -> None:
    """Give a :class:`TruncationWarning` if a notable share of observations ``batch_shape x n`` is ``truncated`` (bool).

    In a batch the member with most truncated observations is looked at; ``level`` is the last b_t.
    """
    median = float(y.abs().median())
    y, truncated = y.reshape(-1, y.shape[-1]), truncated.reshape(-1, y.shape[-1])
    worst = int(truncated.sum(-1).argmax())
    y, truncated, n = y[worst], truncated[worst], y.shape[-1]
    count = int(truncated.sum())
    if count <= max(FEW, notable * n) and count < n:
        return
    what = "so that the model knows next to nothing of them"
    if count < n:
        best = int((y > y[~truncated].amax()).sum())
        what = f"the {best} largest among them: what may be best counts as no better than others" if best else ""
    warnings.warn(
        f"{count / n:.0%} of the rewards are truncated{', ' if what else ''}{what}. The level b_t is {level:.2g}, the "
        f"median |reward| {median:.2g}. If these are no outliers, raise `truncation` (its moment_bound or scale), or "
        "center and rescale the rewards.",
        TruncationWarning,
        stacklevel=4,
    )
