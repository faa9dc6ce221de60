"""Candidate priors: what one is, how to make one from plain settings, and how to choose a set U of them.

Ziomek, Adachi & Osborne (ICML 2024) leave the choice of U to future work; :func:`candidate_grid` is ours. Elimination
by errors removes candidates whose errors are larger than they predicted. A short lengthscale or a large output scale
predicts large errors, so such candidates stay, and the regret is that of the most flexible member of U: let a range
begin at the fastest variation of f that is still plausible. Nothing outside U is found.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.utils.input_checks import check_count, check_positive, quoted

KERNELS: dict[str, Callable[..., Kernel]] = {"rbf": RBFKernel, "matern": MaternKernel, "periodic": PeriodicKernel}
SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}  # nu of the Matérn kernels by name
SOBOL_SIZE = 16  # candidates per family where several hyperparameters have a range
Range = float | tuple[float, float]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A prior that may be the true one: a kernel of any class, a mean and a noise variance, all fixed.

    Args:
        covar_module: Kernel without batch shape, of the inputs after the input transform.
        noise_var: lambda > 0.
        mean_module: Prior mean; None for zero.
        name: For records and messages; None for its index, as in "candidate 3".

    Raises ``ValueError`` if one of them is not as described.
    """

    covar_module: Kernel
    noise_var: float
    mean_module: Mean | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_positive(noise_var=self.noise_var)
        if not (self.mean_module is None or isinstance(self.mean_module, Mean)):
            raise ValueError(f"mean_module must be a GPyTorch mean or None, got {quoted(self.mean_module)}.")
        if not isinstance(self.covar_module, Kernel) or self.covar_module.batch_shape:
            raise ValueError(f"covar_module must be a GPyTorch kernel without batch, got {quoted(self.covar_module)}.")


def candidate(
    kernel: str,
    lengthscale: float | Sequence[float],
    noise_var: float,
    nu: float | None = None,
    period: float | None = None,
    outputscale: float = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    name: str | None = None,
) -> Candidate:
    """A candidate from plain settings, as JSON can hold them.

    Args:
        kernel: "rbf", "matern12", "matern32", "matern52", "matern" with its ``nu``, or "periodic" (GPyTorch's
            ``PeriodicKernel``).
        lengthscale: One number > 0, or one per input.
        noise_var: lambda > 0.
        nu: Smoothness of "matern": 0.5, 1.5 or 2.5 (default).
        period: Period of "periodic", > 0.
        outputscale: k(x, x), > 0.
        groups: Columns of X, for an additive kernel: the mean of one such kernel per group, so that k(x, x) stays
            ``outputscale``. ``lengthscale`` is then one number.
        name: By default made of the settings.

    Raises:
        ValueError: if the kernel is unknown, a number is not positive, or a period is missing or has no use.
    """
    scales = _lengthscales(lengthscale)
    check_positive(outputscale=outputscale)
    kernel, nu = _kernel_and_smoothness(kernel, nu)
    if (period is not None) != (kernel == "periodic"):
        raise ValueError(f"a period is for the kernel 'periodic', which needs one; got {quoted(kernel)}, {period!r}.")
    if period is not None:
        check_positive(period=period)
    if groups is not None:
        _check_groups(groups, scales)
    parts = [_part(kernel, scales, nu, period, columns) for columns in groups or (None,)]
    total = parts[0] if groups is None else AdditiveKernel(*parts)
    weight = outputscale / len(parts)
    if weight != 1.0:
        total = ScaleKernel(total).double()
        total.outputscale = torch.tensor(weight, dtype=torch.float64)
    if name is None:
        shown: dict[str, Any] = {"lengthscale": lengthscale, "nu": nu if kernel == "matern" else None}
        shown |= {"period": period, "groups": groups, "outputscale": None if outputscale == 1.0 else outputscale}
        name = f"{kernel}({', '.join(f'{k}={v}' for k, v in shown.items() if v is not None)})"
    return Candidate(total, noise_var, name=name)


def _lengthscales(value: Any) -> list[float]:
    """The lengthscales of one number, or of one per input; ``ValueError`` unless they are positive."""
    scales = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not scales:
        raise ValueError("lengthscale is empty: give one number, or one per input.")
    for scale in scales:
        check_positive(lengthscale=scale)
    return [float(scale) for scale in scales]


def _kernel_and_smoothness(kernel: str, nu: float | None) -> tuple[str, float]:
    """A name in :data:`KERNELS` and nu; ``ValueError`` if the kernel is unknown or nu is not its smoothness."""
    named_nu = SMOOTHNESS.get(kernel) if isinstance(kernel, str) else None
    if named_nu is not None:
        if nu not in (None, named_nu):
            raise ValueError(f"nu of {kernel!r} is {named_nu}, got {nu!r}; leave it out, or name another kernel.")
        return "matern", named_nu
    if not isinstance(kernel, str) or kernel not in KERNELS:
        names = ", ".join((*KERNELS, *SMOOTHNESS))
        raise ValueError(f"unknown kernel {quoted(kernel)}; choose one of {names}, or make a Candidate of any.")
    if nu is not None and nu not in SMOOTHNESS.values():
        raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {nu!r}; make a Candidate of another kernel.")
    return kernel, 2.5 if nu is None else nu


def _check_groups(groups: Any, scales: list[float]) -> None:
    if len(scales) != 1:
        raise ValueError("additive candidates (groups) take one lengthscale; make a Candidate for others.")
    if not (isinstance(groups, Sequence) and groups and all(isinstance(g, Sequence) and g for g in groups)):
        raise ValueError(f"groups must list columns of X, such as [[0], [1, 2]], got {quoted(groups)}.")
    for column in (column for group in groups for column in group):
        check_count(0, column=column)


def _part(kernel: str, scales: list[float], nu: float, period: float | None, columns: Sequence[int] | None) -> Kernel:
    """The kernel of some columns of X, or of all."""
    options: dict[str, Any] = {"nu": nu} if kernel == "matern" else {}
    if len(scales) > 1:
        options["ard_num_dims"] = len(scales)
    part = KERNELS[kernel](active_dims=None if columns is None else tuple(columns), **options)
    part = part.double()  # before the values go in: float32 would round them
    part.lengthscale = torch.tensor(scales, dtype=torch.float64)
    if period is not None:
        part.period_length = torch.tensor(period, dtype=torch.float64)
    return part


def candidate_grid(
    lengthscale: Range,
    noise_var: Range,
    outputscale: Range = 1.0,
    kernels: Sequence[str | Mapping[str, Any]] = ("rbf",),
    num: int | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Settings of candidates, with the same set of hyperparameters for each family of kernels.

    One range is stepped through evenly in the logarithm, from end to end. Several are filled by a scrambled Sobol
    sequence in the logarithms. Without a range there is one candidate per family.

    Args:
        lengthscale: A number > 0, or (low, high).
        noise_var: lambda > 0, or (low, high).
        outputscale: k(x, x) > 0, or (low, high).
        kernels: Families: "rbf", "matern12", "matern32", "matern52", or the settings of :func:`candidate` that define
            one, such as ``{"kernel": "periodic", "period": 7.0}`` or ``{"kernel": "rbf", "groups": [[0], [1, 2]]}``.
        num: Candidates per family. By default, one range has steps of at most a factor of two, and several ranges have
            16 candidates.
        seed: Seed of the Sobol sequence.

    Returns arguments of :func:`candidate`, plain enough for JSON, which :class:`~bo_robust.models.CandidateEnsemble`
    takes too. Raises ``ValueError`` if a number is not positive, a range is upside down, or a family is unknown, and
    ``TypeError`` if a family has no kernel.

    Examples:
        >>> U = candidate_grid(lengthscale=(0.1, 0.8), noise_var=0.01, kernels=["rbf", "matern52"])  # 2 x 4 candidates
    """
    ranges_of = {"lengthscale": lengthscale, "noise_var": noise_var, "outputscale": outputscale}
    ranges: dict[str, Any] = {name: value for name, value in ranges_of.items() if isinstance(value, tuple)}
    for name, value in ranges_of.items():
        for number in ranges.get(name, (value,)):
            check_positive(**{name: number})
        if name in ranges and not (len(ranges[name]) == 2 and ranges[name][0] < ranges[name][1]):
            raise ValueError(f"the range of {name} must be (low, high) with low < high, got {value}.")
    check_count(1, num=1 if num is None else num)
    if not kernels or isinstance(kernels, str):
        raise ValueError(f"kernels must list at least one family, such as ['rbf'], got {quoted(kernels)}.")
    hyperparameters = [
        ranges_of
        | {name: low * (high / low) ** at for (name, (low, high)), at in zip(ranges.items(), point, strict=True)}
        for point in _unit_points(list(ranges.values()), num, seed)
    ]
    families = [dict(family) if isinstance(family, Mapping) else {"kernel": family} for family in kernels]
    for family in families:
        candidate(**family | hyperparameters[0])  # which checks it
    return [family | values for family in families for values in hyperparameters]


def _unit_points(ranges: list[tuple[float, float]], num: int | None, seed: int) -> list[list[float]]:
    """The candidates of a family as points in the unit box of their ranges."""
    if not ranges:
        return [[]]
    if len(ranges) == 1:
        low, high = ranges[0]
        # 1e-9: a rounding error of the logarithm must not add a candidate.
        count = math.ceil(math.log2(high / low) - 1e-9) + 1 if num is None else num
        return [[i / (count - 1)] for i in range(count)] if count > 1 else [[0.5]]
    return SobolEngine(len(ranges), scramble=True, seed=seed).draw(SOBOL_SIZE if num is None else num).tolist()


def moved(c: Candidate, fn: Callable[[Tensor], Tensor], name: str) -> Candidate:
    """A copy of the candidate with ``fn`` applied to its tensors, all fixed; ``name`` names it if it has no name."""
    covar, mean = copy.deepcopy((c.covar_module, c.mean_module))
    for module in (covar, mean):
        if module is not None:
            module._apply(fn)
            module.eval().requires_grad_(False)
    return Candidate(covar, float(c.noise_var), mean, c.name or name)


def same(a: Candidate, b: Candidate) -> bool:
    """Whether two candidates have modules of the same classes and learnable numbers, and the same noise."""
    modules = _same(a.covar_module, b.covar_module) and _same(a.mean_module, b.mean_module)
    return modules and a.noise_var == b.noise_var


def _same(a: Module | None, b: Module | None) -> bool:
    if a is None or b is None:
        return a is b
    x, y = a.state_dict(), b.state_dict()
    return type(a) is type(b) and x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)
