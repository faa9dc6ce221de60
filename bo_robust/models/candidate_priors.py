"""Candidate priors: what one is, how plain settings make one, and whether two are the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from bo_robust.validation import check_positive

__all__ = ["Candidate", "candidate", "placed", "same"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A prior that may be the true one: a kernel of any class, a mean and a noise variance, all fixed.

    Args:
        covar_module: Kernel without batch shape, of the (transformed) inputs.
        noise_var: lambda > 0.
        mean_module: Prior mean; zero when None.
        name: For records and messages; "candidate 3" by its index when None.

    Raises:
        ValueError: if the kernel has a batch shape or is none, or ``noise_var`` is not positive.
    """

    covar_module: Kernel
    noise_var: float
    mean_module: Mean | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_positive(noise_var=self.noise_var)
        if not isinstance(self.covar_module, Kernel) or self.covar_module.batch_shape:
            raise ValueError(
                f"covar_module must be one GPyTorch kernel without batch shape, got {self.covar_module!r}."
            )


def candidate(
    kernel: str,
    lengthscale: float | Sequence[float],
    noise_var: float,
    nu: float = 2.5,
    period: float | None = None,
    outputscale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    name: str | None = None,
) -> Candidate:
    """A candidate from plain settings, as JSON can hold them.

    Args:
        kernel: "rbf", "matern" or "periodic" (GPyTorch's ``PeriodicKernel``).
        lengthscale: One number > 0, or one per input.
        noise_var: lambda > 0.
        nu: Smoothness of "matern": 0.5, 1.5 or 2.5.
        period: Of "periodic", > 0.
        outputscale: k(x, x), > 0.
        groups: Columns of X, for an additive kernel: the mean of one such kernel per group, so that k(x, x) stays
            ``outputscale``. ``lengthscale`` is then one number.
        name: By default what the settings say.

    Raises:
        ValueError: if the kernel is unknown, a number is not positive, or a period is missing or has no use.
    """
    scales = [float(x) for x in (lengthscale if isinstance(lengthscale, Sequence) else [lengthscale])]
    for scale in scales:
        check_positive(lengthscale=scale)
    check_positive(outputscale=outputscale)
    makers: dict[str, Callable[..., Kernel]] = {"rbf": RBFKernel, "matern": MaternKernel, "periodic": PeriodicKernel}
    if kernel not in makers:
        raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(makers)}, or make a Candidate of any.")
    if (period is not None) != (kernel == "periodic"):
        raise ValueError(f"a period is for the kernel 'periodic', which needs one; got {kernel!r} and {period!r}.")
    if groups is not None and len(scales) != 1:
        raise ValueError("additive candidates (groups) take one lengthscale; make a Candidate for others.")

    def part(columns: Sequence[int] | None) -> Kernel:
        options: dict[str, Any] = {"nu": nu} if kernel == "matern" else {}
        if len(scales) > 1:
            options["ard_num_dims"] = len(scales)
        made = makers[kernel](active_dims=None if columns is None else tuple(columns), **options)
        made = made.double()  # before the values go in: float32 would round them
        made.lengthscale = torch.tensor(scales, dtype=torch.float64)
        if period is not None:
            check_positive(period=period)
            made.period_length = torch.tensor(period, dtype=torch.float64)
        return made

    total = part(None) if groups is None else AdditiveKernel(*map(part, groups))
    weight = outputscale / (1 if groups is None else len(groups))
    if weight != 1.0:
        total = ScaleKernel(total).double()
        total.outputscale = torch.tensor(weight, dtype=torch.float64)
    if name is None:
        shown: dict[str, Any] = {"lengthscale": lengthscale, "nu": nu if kernel == "matern" else None}
        shown |= {"period": period, "groups": groups, "outputscale": None if outputscale == 1.0 else outputscale}
        name = f"{kernel}({', '.join(f'{k}={v}' for k, v in shown.items() if v is not None)})"
    return Candidate(total, noise_var, name=name)


def placed(c: Candidate, fn: Callable[[Tensor], Tensor], name: str) -> Candidate:
    """A copy with ``fn`` done to its tensors, fixed; with this name if it has none."""
    covar, mean = copy.deepcopy((c.covar_module, c.mean_module))
    for module in (covar, mean):
        if module is not None:
            module._apply(fn)
            module.eval().requires_grad_(False)
    return Candidate(covar, float(c.noise_var), mean, c.name or name)


def same(a: Candidate, b: Candidate) -> bool:
    """Whether two have modules of the same classes with the same hyperparameters, and the same noise."""
    modules = _same(a.covar_module, b.covar_module) and _same(a.mean_module, b.mean_module)
    return modules and a.noise_var == b.noise_var


def _same(a: Module | None, b: Module | None) -> bool:
    if a is None or b is None:
        return a is b
    x, y = a.state_dict(), b.state_dict()
    return type(a) is type(b) and x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)
