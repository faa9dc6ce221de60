"""What a finite-arm bandit problem is: true means, prior covariance, a reward model, and its constants.

Axes: ``s`` trials, ``n`` arms, ``d`` input dimension, ``k`` raw variates a reward takes.
Per-trial randomness of a problem comes from ``stream(seed, "problem", trial)`` only, so trial 7 alone is
trial 7 of 256. Rewards are drawn later, by the runner, from other streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bo_robust.covariance import Covariance
from bo_robust.validation import check_count, check_finite, check_positive, check_tail_index

__all__ = ["Candidates", "Problem", "RewardModel", "trial_list"]


class RewardModel(Protocol):
    """How a reward comes about: raw variates of one trial, and their map to a reward of any arm."""

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Raw variates of ONE trial, ``rounds x k`` float64; k is the same whatever the arm."""

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """Rewards ``s`` of ``arms`` (``s``, integer), from mean rewards ``s x n`` and ``draws`` ``s x k``."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> RewardModel:
        """The same model with any tensors it holds on ``device`` and in ``dtype``."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The finite set U of priors of which one is right, for algorithms over hypotheses; ``h`` of them, for all trials.

    Attributes:
        names: One per candidate, as reports show it.
        kernels: Kernel matrices, ``h x n x n``; None: the problem's kernel for all.
        prior_means: ``h x n``; None: zero.
        noise_vars: lambda of each; None: the problem's for all.
        lengthscales: Of each, where that is what is unknown (A-GP-UCB needs them).
        true: Index of the right one in every trial, ``s`` of them; None where none is known to be right.

    Raises:
        ValueError: if there is none, names repeat, nothing differs, or shapes or constants do not fit together.
    """

    names: tuple[str, ...]
    kernels: Tensor | None = field(default=None, repr=False)
    prior_means: Tensor | None = field(default=None, repr=False)
    noise_vars: tuple[float, ...] | None = None
    lengthscales: tuple[float, ...] | None = None
    true: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        h = len(self.names)
        if h == 0 or len(set(self.names)) < h:
            raise ValueError(f"candidates need names, one each, all different; got {self.names}.")
        parts = {"kernels": self.kernels, "prior_means": self.prior_means, "noise_vars": self.noise_vars}
        if all(part is None for part in parts.values()):
            raise ValueError(f"candidates must differ in something: give one or more of {', '.join(parts)}.")
        for name, part in {**parts, "lengthscales": self.lengthscales}.items():
            if part is not None and len(part) != h:
                raise ValueError(f"{name} must hold one entry per candidate, {h}, got {len(part)}.")
        for name, dims in (("kernels", 3), ("prior_means", 2)):
            part = parts[name]
            if isinstance(part, Tensor) and part.ndim != dims:
                raise ValueError(f"{name} must be {'h x n x n' if dims == 3 else 'h x n'}, got {tuple(part.shape)}.")
        for value in self.noise_vars or ():
            check_positive(noise_vars=value)
        for value in self.lengthscales or ():
            check_positive(lengthscales=value)
        for index in self.true or ():
            check_count(0, true=index)
            if index >= h:
                raise ValueError(f"true must name one of the {h} candidates, 0 to {h - 1}, got {index}.")

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Candidates:
        """The same candidates with all tensors on ``device`` and in ``dtype``."""
        return dataclasses.replace(
            self,
            kernels=None if self.kernels is None else self.kernels.to(device, dtype),
            prior_means=None if self.prior_means is None else self.prior_means.to(device, dtype),
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """One finite-arm bandit problem for s trials at once.

    Attributes:
        name: Name in the registry.
        f: Mean reward of every arm, ``s x n``, on the scale regret is counted on.
        kernel: Kernel matrix ``n x n`` (shared by the trials) or ``s x n x n``, or a covariance function of
            ``arms``; where there are candidates, that of the true one or the best guess without them.
        rewards: The reward model.
        noise_var: lambda suggested for the posterior.
        arms: Locations, ``n x d``.
        arm_names: One name per arm, or empty.
        norm_bound: B, the bound on the norm of f an algorithm is told.
        moment_bound: v of E|y|^(1+alpha) <= v.
        alpha: Tail index of ``moment_bound``, in (0, 1].
        noise_scale: R, the sub-Gaussian scale of the noise, where there is one.
        candidates: The priors to choose from, for algorithms over hypotheses.
        notes: Source, whether it is a substitute, the scale of rewards and regret, what the constants mean.

    Raises:
        ValueError: if shapes, dtypes, devices or constants do not fit together.
    """

    name: str
    f: Tensor = field(repr=False)
    kernel: Tensor | Covariance = field(repr=False)
    rewards: RewardModel = field(repr=False)
    noise_var: float
    arms: Tensor | None = field(default=None, repr=False)
    arm_names: tuple[str, ...] = field(default=(), repr=False)
    norm_bound: float | None = None
    moment_bound: float | None = None
    alpha: float | None = None
    noise_scale: float | None = None
    candidates: Candidates | None = None
    notes: str = ""

    def __post_init__(self) -> None:
        f = self.f
        if f.ndim != 2 or 0 in f.shape or not f.is_floating_point():
            raise ValueError(f"f must be s x n, s and n >= 1, floating point; got {tuple(f.shape)} {f.dtype}.")
        check_finite("f (mean rewards)", f)
        s, n = f.shape
        if isinstance(self.kernel, Tensor):
            if self.kernel.shape not in ((n, n), (s, n, n)):
                raise ValueError(
                    f"the kernel matrix must be {n} x {n} or {s} x {n} x {n} to fit f, got {tuple(self.kernel.shape)}."
                )
            _same_kind("the kernel matrix", self.kernel, f)
        elif self.arms is None:
            raise ValueError("a covariance function needs arm locations: give arms (n x d) or a kernel matrix.")
        if self.arms is not None:
            if self.arms.ndim != 2 or self.arms.shape[0] != n:
                raise ValueError(f"arms must be {n} x d to fit f, got {tuple(self.arms.shape)}.")
            _same_kind("arms", self.arms, f)
            check_finite("arms", self.arms)
        if self.arm_names and len(self.arm_names) != n:
            raise ValueError(f"arm_names must hold {n} names, one per arm, got {len(self.arm_names)}.")
        if (self.moment_bound is None) != (self.alpha is None):
            raise ValueError("moment_bound and alpha belong together, E|y|^(1+alpha) <= v: give both or neither.")
        if self.alpha is not None:
            check_tail_index(self.alpha)
        check_positive(noise_var=self.noise_var)
        for name in ("norm_bound", "moment_bound", "noise_scale"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})
        if self.candidates is not None:
            self._check_candidates(self.candidates)

    def _check_candidates(self, candidates: Candidates) -> None:
        s, n = self.f.shape
        for name, part, each in (
            ("kernels", candidates.kernels, (n, n)),
            ("prior_means", candidates.prior_means, (n,)),
        ):
            if part is not None:
                if part.shape[1:] != each:
                    raise ValueError(f"{name} of the candidates must be over {n} arms, got {tuple(part.shape)}.")
                _same_kind(f"{name} of the candidates", part, self.f)
                check_finite(f"{name} of the candidates", part)
        if candidates.kernels is None and isinstance(self.kernel, Tensor) and self.kernel.ndim == 3:
            raise ValueError("candidates are shared by the trials: give them kernels, or one kernel for all trials.")
        if candidates.true is not None and len(candidates.true) != s:
            raise ValueError(f"true of the candidates must hold {s} indices, one per trial, got {candidates.true}.")

    @property
    def prior_mean(self) -> Tensor | None:
        """Prior mean of the true candidate of every trial, ``s x n``; None: zero."""
        known = self.candidates
        if known is None or known.prior_means is None or known.true is None:
            return None
        return known.prior_means[list(known.true)]

    @property
    def trials(self) -> int:
        """s."""
        return self.f.shape[0]

    @property
    def num_arms(self) -> int:
        """n."""
        return self.f.shape[1]

    @property
    def optimum(self) -> Tensor:
        """Largest mean reward of every trial, ``s``."""
        return self.f.max(dim=-1).values

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Problem:
        """The same problem with all its tensors on ``device`` and in ``dtype``."""
        return dataclasses.replace(
            self,
            f=self.f.to(device, dtype),
            kernel=self.kernel.to(device, dtype) if isinstance(self.kernel, Tensor) else self.kernel,
            rewards=self.rewards.to(device, dtype),
            arms=None if self.arms is None else self.arms.to(device, dtype),
            candidates=None if self.candidates is None else self.candidates.to(device, dtype),
        )


def trial_list(trials: Sequence[int]) -> list[int]:
    """The trial indices as a list.

    Raises:
        ValueError: if there are none or one is negative or not an integer.
    """
    indices = list(trials)
    bad = [i for i in indices if not isinstance(i, (int, np.integer)) or isinstance(i, bool) or i < 0]
    if bad or not indices:
        raise ValueError(f"trials must be one or more integers >= 0, e.g. range(20); got {bad or indices!r}.")
    return [int(i) for i in indices]


def _same_kind(name: str, x: Tensor, f: Tensor) -> None:
    if x.dtype != f.dtype or x.device != f.device:
        raise ValueError(f"{name} is {x.dtype} on {x.device} but f is {f.dtype} on {f.device}; convert one with .to().")
