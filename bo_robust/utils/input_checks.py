"""Checks of user input, shared by the whole package. Every message says what was wrong and what to change."""

import inspect
import math
import reprlib
from dataclasses import fields
from functools import cache, partial
from numbers import Real
from typing import Annotated, Any, get_args, get_type_hints

import torch
from torch import Tensor

QUOTED = 80  # characters of a value that an error repeats


def quoted(value: Any) -> str:
    """The value on one line for an error message; a long value is cut before it is written out."""
    try:
        text = repr(value[: QUOTED + 1]) if isinstance(value, str) else _SHORT.repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = "a number of very many digits"
    text = " ".join(text.split())
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def shortened(text: str, most: int = 32) -> str:
    """The text, in the middle of which letters are left out if it has more than ``most``."""
    start = most // 2
    return text if len(text) <= most else f"{text[:start]}…{text[start + 1 - most :]}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 2 * QUOTED
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict = 4, 10, 10, 10  # at most 10^4 parts


def is_number(value: Any) -> bool:
    """Whether it is a finite number: of Python or numpy, or a tensor without axes; true and false are none."""
    if type(value) is float:  # the usual case, checked every round
        return math.isfinite(value)
    plain = isinstance(value, Real) or (isinstance(value, Tensor) and value.ndim == 0 and value.dtype != torch.bool)
    try:
        return plain and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def check_tensor(name: str, x: Any, floating: bool = True) -> None:
    """Raise ``TypeError`` unless ``x`` is a tensor, and ``ValueError`` unless it is float32 or float64.

    ``floating`` is false where any dtype will do.
    """
    if not isinstance(x, Tensor):
        through = "(x.to_numpy())" if hasattr(x, "to_numpy") else ""  # PyTorch takes no table of pandas
        kind = type(x).__name__
        raise TypeError(f"{name} must be a torch tensor, got {kind}; convert it with torch.as_tensor{through}.")
    if floating and x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be floating point, float32 or float64, got {x.dtype}; convert with .double().")


def check_schedule(role: str, example: str, schedule: Any) -> None:
    """Raise ``ValueError`` unless ``schedule`` can be called with a round; the message names an ``example``."""
    if isinstance(schedule, type) or not callable(schedule):
        raise ValueError(f"{role} must be a schedule, such as {example}, got {quoted(schedule)}.")


def check_positive(**values: float) -> None:
    """Raise ``ValueError`` unless every value is a finite number > 0."""
    for name, value in values.items():
        if not (is_number(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {quoted(value)}.")


def check_at_least(minimum: float, **values: float) -> None:
    """Raise ``ValueError`` unless every value is a finite number of at least ``minimum``."""
    for name, value in values.items():
        if not (is_number(value) and value >= minimum):
            raise ValueError(f"{name} must be a finite number >= {minimum}, got {quoted(value)}.")


def check_delta(delta: float) -> None:
    """Raise ``ValueError`` unless the failure probability is in (0, 1)."""
    if not (is_number(delta) and 0.0 < delta < 1.0):
        raise ValueError(f"delta (the failure probability) must be strictly between 0 and 1, got {quoted(delta)}.")


def check_tail_index(alpha: float) -> None:
    """Raise ``ValueError`` unless alpha, of the moment bound E|y|^(1+alpha) <= v, is in (0, 1]."""
    if not (is_number(alpha) and 0.0 < alpha <= 1.0):
        raise ValueError(f"alpha must be in (0, 1] (the moment bound is on E|y|^(1+alpha)), got {quoted(alpha)}.")


def check_accuracy(epsilon: float) -> None:
    """Raise ``ValueError`` unless the accuracy of a dictionary is in (0, 1)."""
    if not (is_number(epsilon) and 0.0 < epsilon < 1.0):
        raise ValueError(f"epsilon (accuracy of the dictionary) must be in (0, 1), got {quoted(epsilon)}.")


def check_oversampling(oversampling: float) -> None:
    """Raise ``ValueError`` unless q is a finite number >= 1, as BKB's analysis has it."""
    if not (is_number(oversampling) and oversampling >= 1.0):
        raise ValueError(
            f"oversampling (q of min(1, q sigma~^2)) must be a finite number >= 1, got {quoted(oversampling)}; the "
            "theorems ask for theory_oversampling(T, delta, epsilon), 5 served well in our runs."
        )


def check_bounds(bounds: Tensor) -> None:
    """Raise ``ValueError`` unless bounds are a finite box ``2 x d``."""
    check_tensor("bounds", bounds)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0:
        raise ValueError(f"bounds must be 2 x d, got shape {tuple(bounds.shape)}.")
    check_finite("bounds", bounds)
    if not bool((bounds[0] < bounds[1]).all()):
        raise ValueError(f"bounds must be 2 x d, lower below upper, got {bounds.tolist()}.")


def check_finite(name: str, x: Tensor) -> None:
    """Raise ``ValueError`` if ``x`` has NaN or infinite entries."""
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise ValueError(f"{name} has {bad} NaN or infinite entries of {x.numel()}; remove or repair them first.")


def check_like(name: str, x: Tensor, owner: str, template: Tensor, advice: str = "convert one of them") -> None:
    """Raise ``ValueError`` unless ``x`` has the dtype and device of ``template``, which belongs to ``owner``."""
    check_tensor(name, x, floating=False)
    if (x.dtype, x.device) != (template.dtype, template.device):
        raise ValueError(f"{name} is {x.dtype} on {x.device}, {owner} {template.dtype} on {template.device}; {advice}.")


def check_kernel_matrix(K: Tensor, tol: float = 1e-8) -> None:
    """Raise ``ValueError`` unless ``K`` (``... x n x n``) is finite, symmetric and positive semi-definite.

    ``tol`` is relative to the largest diagonal entry. The smallest eigenvalue may be -tol * n times this entry.
    """
    check_tensor("the kernel matrix", K, floating=False)
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or K.shape[-1] == 0:
        raise ValueError(f"the kernel matrix must be n x n with n >= 1, got shape {tuple(K.shape)}.")
    check_tensor("the kernel matrix", K)
    check_finite("the kernel matrix", K)
    if K.dtype == torch.float32:  # whose rounding alone exceeds the default
        tol = max(tol, 1e-5)
    scale = float(K.diagonal(dim1=-2, dim2=-1).abs().max())
    skew = float((K - K.mT).abs().max())
    if skew > tol * max(scale, 1e-300):
        off = f"largest |K - K^T| is {skew:.3g}"
        raise ValueError(f"the kernel matrix is not symmetric ({off}); use (K + K.T) / 2 if rounding.")
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
    if not (type(t) is int or is_number(t)) or t < 1:  # the first is the usual case, checked every round
        raise ValueError(f"t is the round about to be run, counted from 1, got {quoted(t)}.")


def check_count(minimum: int, **values: int) -> None:
    """Raise ``ValueError`` unless every value is a whole number of at least ``minimum``."""
    for name, value in values.items():
        if not is_number(value) or value != int(value) or value < minimum:
            raise ValueError(f"{name} must be a whole number >= {minimum}, got {quoted(value)}.")


# Types of settings that :func:`check_fields` checks.
Positive = Annotated[float, check_positive]
Nonnegative = Annotated[float, partial(check_at_least, 0)]
AtLeastOne = Annotated[float, partial(check_at_least, 1)]
Count = Annotated[int, partial(check_count, 1)]
FailureProbability = Annotated[float, check_delta]
TailIndex = Annotated[float, check_tail_index]
Accuracy = Annotated[float, check_accuracy]
Oversampling = Annotated[float, check_oversampling]


def check_fields(settings: Any) -> None:
    """Check the fields of a dataclass whose types say how, as :data:`Positive` or ``Positive | None``."""
    owner: Any = type(settings)
    for name, kind in _types_of(owner).items():
        value = getattr(settings, name)
        parts = get_args(kind) if value is not None else ()
        for part in (kind, *parts):
            for check in getattr(part, "__metadata__", ()):
                check(**{name: value})


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """The types of a dataclass' fields, also where annotations are strings, as a ``__future__`` import leaves them."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def outside_package() -> int:
    """The ``stacklevel`` of a warning that names the line of the user, outside of this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        frame, level = frame.f_back, level + 1
    return level
