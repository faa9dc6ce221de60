"""What a problem over arms is: true mean rewards, a prior covariance, a reward model and constants.

Axes: ``s`` trials, ``n`` arms, ``d`` input dimensions, ``h`` candidates, ``k`` random numbers per reward.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bo_robust.risk_measures.functionals import Functional, as_functional
from bo_robust.utils.covariance import Covariance
from bo_robust.utils.input_checks import check_finite, check_positive, check_tail_index
from bo_robust.utils.random import stream


@dataclass(frozen=True)
class Trials:
    """The trials that a problem is made for: one or more ``indices`` >= 0, and the ``seed`` >= 0 of the experiment.

    The randomness of a problem in trial i depends on (seed, i) alone. The rewards are drawn from other streams.
    """

    indices: Sequence[int]
    seed: int

    def __len__(self) -> int:
        return len(self.indices)

    def streams(self, block: int = 0) -> Iterator[np.random.Generator]:
        """One random generator per trial, in order. Different values of ``block`` give independent generators."""
        return (stream(self.seed, "problem", int(i), block) for i in self.indices)

    def share(self, f: np.ndarray | Tensor) -> Tensor:
        """Repeat the mean rewards ``n`` for every trial, ``s x n``."""
        return torch.as_tensor(f).repeat(len(self), 1)


class OverArms(ABC):
    """Base of the kinds of problems over arms: frozen dataclasses whose fields are the settings.

    The docstring of a kind need not repeat these:

    - ``num_arms``: n, the number of arms. Problems on the line have even points of [0, 1].
    - ``kernel``: "se", "matern12", "matern32" or "matern52", with k(x, x) = 1.
    - ``lengthscale``: l > 0 of the kernel.
    - ``noise``: Reward model, e.g. ``StudentT()``.
    - ``noise_var``: lambda of the posterior.
    - ``alpha``: Tail index in (0, 1]. None takes that of the reward model.
    - ``noise_scale``: R > 0. The noise is Gaussian of variance R^2, as is lambda.
    - ``norm_bound``: B, the bound on the norm of f that algorithms get.
    """

    @abstractmethod
    def make(self, trials: Trials) -> Problem:
        """Make the problem, whose row i depends on the seed and on ``trials.indices[i]`` alone.

        Raises:
            ValueError: for a bad setting.
            FileNotFoundError: if a data file is missing.
            ImportError: if the problem needs a package that is not installed.
        """


class Movable:
    """Base of dataclasses with tensors."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        """The same with all tensors on ``device``, and those of numbers that are not whole in ``dtype``."""
        moved: dict[str, Any] = {}
        for part in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                moved[part.name] = value.to(device, dtype if value.is_floating_point() else None)
            elif isinstance(value, Movable):
                moved[part.name] = value.to(device, dtype)
        return dataclasses.replace(self, **moved)  # type: ignore[type-var]


class RewardModel(Movable, ABC):
    """How rewards arise: a model draws random numbers for a trial, then maps them to the reward of any arm."""

    # Whether the class's own `__call__` reads no number back to the host, so that a CUDA graph can repeat it
    capturable: ClassVar[bool] = False

    @abstractmethod
    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Draw the random numbers of ONE trial, ``rounds x k`` float64; k must not depend on the arm."""

    @abstractmethod
    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """Rewards ``s`` of ``arms`` (``s``, integer), given mean rewards ``s x n`` and ``draws`` ``s x k``."""


@dataclass(frozen=True, eq=False, repr=False)
class CandidatePriors(Movable):
    """The finite set U of ``h`` candidate priors that algorithms over candidates choose from. All trials share it."""

    names: tuple[str, ...]  # One per candidate, as reports show it
    kernels: Tensor | None = None  # Kernel matrices, `h x n x n`. None takes the problem's kernel for all.
    prior_means: Tensor | None = None  # `h x n`. None is zero.
    lengthscales: tuple[float, ...] | None = None  # One per candidate, where it is unknown (A-GP-UCB needs them)
    true: tuple[int, ...] | None = None  # Index of the right candidate in every trial, `s`. None where unknown.

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"candidates need names, one each, all different; got {self.names}.")
        if self.kernels is None and self.prior_means is None:
            raise ValueError("candidates must differ in something: give kernels or prior_means.")

    @classmethod
    def of_lengthscales(cls, lengthscales: Sequence[float], covariance: Callable[[float], Tensor]) -> Self:
        """One candidate for each lengthscale > 0, of which ``covariance`` makes the kernel matrix."""
        scales = tuple(float(ell) for ell in lengthscales)
        if not scales:
            raise ValueError("lengthscales must hold at least one number.")
        kernels = torch.stack([covariance(ell) for ell in scales])
        return cls(tuple(f"l = {ell:g}" for ell in scales), kernels, lengthscales=scales)


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Movable):
    """One problem over arms, for s trials. Kernels, arms and candidates are checked when an algorithm starts."""

    name: str
    f: Tensor  # Mean reward of every arm, `s x n`. Regret is in its units.
    # A kernel matrix, `n x n` (shared by the trials) or `s x n x n`, or a covariance function of `arms`. With
    # candidates it is the kernel of the right one, or the best guess where none is known to be right.
    kernel: Tensor | Covariance
    rewards: RewardModel
    noise_var: float  # lambda of the posterior
    arms: Tensor | None = None  # Locations, `n x d`
    arm_names: tuple[str, ...] = ()
    norm_bound: float | None = None  # B, the bound on the norm of f that algorithms get
    moment_bound: float | None = None  # v, with E|y|^(1+alpha) <= v
    alpha: float | None = None  # Tail index of `moment_bound`, in (0, 1]
    noise_scale: float | None = None  # R, the sub-Gaussian scale of the noise. None where there is none.
    candidates: CandidatePriors | None = None
    # Where arms are pairs x * w + z: w, the probabilities of the conditions (None: all equal), and the functional of
    # f(x, Z) that regret is about (a number is the level of a value at risk).
    num_conditions: int = 1
    probabilities: tuple[float, ...] | None = None
    functional: Functional | float | None = None
    # How many rounds a run will have, for widths and levels that hold for so many; 0 where no run is planned
    rounds: int = 0
    design_arms: int | None = None  # An initial design is drawn from the first of the arms, so many; None: from all
    notes: str = ""  # The source, the units of rewards and regret, and what the constants mean

    def __post_init__(self) -> None:
        f = self.f
        if f.ndim != 2 or 0 in f.shape or not f.is_floating_point():
            raise ValueError(f"f must be s x n, s and n >= 1, floating point; got {tuple(f.shape)} {f.dtype}.")
        check_finite("f (mean rewards)", f)
        bounds = {name: getattr(self, name) for name in ("norm_bound", "moment_bound", "noise_scale")}
        check_positive(noise_var=self.noise_var, **{name: value for name, value in bounds.items() if value is not None})
        if self.alpha is not None:
            check_tail_index(self.alpha)

    @property
    def prior_mean(self) -> Tensor | None:
        """Prior mean of the right candidate in every trial, ``s x n``. None is zero."""
        priors = self.candidates
        if priors is None or priors.prior_means is None or priors.true is None:
            return None
        return priors.prior_means[list(priors.true)]

    @property
    def trials(self) -> int:
        return self.f.shape[0]

    @property
    def num_arms(self) -> int:
        return self.f.shape[1]

    @property
    def optimum(self) -> Tensor:
        return self.value.max(dim=-1).values

    @property
    def value(self) -> Tensor:
        """What regret is about, ``s x n``: mean rewards, or of pairs the functional at their design."""
        if self.functional is None:
            return self.f
        p = None if self.probabilities is None else self.f.new_tensor(self.probabilities)
        designs = as_functional(self.functional)(self.f.view(len(self.f), -1, self.num_conditions), p)
        return designs.repeat_interleave(self.num_conditions, 1)
