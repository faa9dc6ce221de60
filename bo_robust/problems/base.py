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
from bo_robust.validation import check_finite, check_positive, check_tail_index

__all__ = ["Problem", "RewardModel", "trial_list"]


class RewardModel(Protocol):
    """How a reward comes about: raw variates of one trial, and their map to a reward of any arm."""

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Raw variates of ONE trial, ``rounds x k`` float64; k is the same whatever the arm."""

    def __call__(self, f: Tensor, arms: Tensor, draws: Tensor) -> Tensor:
        """Rewards ``s`` of ``arms`` (``s``, integer), from mean rewards ``s x n`` and ``draws`` ``s x k``."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> RewardModel:
        """The same model with any tensors it holds on ``device`` and in ``dtype``."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One finite-arm bandit problem for s trials at once.

    Attributes:
        name: Name in the registry.
        f: Mean reward of every arm, ``s x n``, on the scale regret is counted on.
        kernel: Kernel matrix ``n x n`` (shared by the trials) or ``s x n x n``, or a covariance function of
            ``arms``.
        rewards: The reward model.
        noise_var: lambda suggested for the posterior.
        arms: Locations, ``n x d``.
        arm_names: One name per arm, or empty.
        norm_bound: B, the bound on the norm of f an algorithm is told.
        moment_bound: v of E|y|^(1+alpha) <= v.
        alpha: Tail index of ``moment_bound``, in (0, 1].
        noise_scale: R, the sub-Gaussian scale of the noise, where there is one.
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
