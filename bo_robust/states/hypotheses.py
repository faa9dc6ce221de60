"""What is known under each of h hypotheses, for s trials: one posterior of s * h trials, all updated in one step.

A hypothesis is a prior: a kernel matrix, a prior mean and a noise variance, each shared or its own. Hypotheses may
differ in kind, not only in a parameter. Any posterior over arms can be stretched this way (:func:`stretch`);
:func:`init` is the exact one (:mod:`bo_robust.states.arms`). Row i * h + u of the stretched posterior is hypothesis u
of trial i, and every reward goes to all h rows of its trial. Also kept: which hypotheses are alive, and of each the log
marginal likelihood

    log p(y_1..t | u) = sum log N(y_t; mu^u_{t-1}(x_t), sigma^u_{t-1}(x_t)^2 + lambda).

Axes: ``s`` trials, ``h`` hypotheses, ``n`` arms.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.covariance import Covariance
from bo_robust.states import arms as arm_states
from bo_robust.states.arms import DENSE_MAX_ARMS, ArmKernel, ArmPosterior
from bo_robust.validation import check_count, check_finite

__all__ = ["HypothesisPosterior", "Stretched", "candidate_kernel", "init", "observe", "over", "stretch"]

TakeIn = Callable[[Any, Tensor, Tensor], Tensor]
"""``(what is stretched, arms (s * h), rewards (s * h)) -> ok (s * h)``, updating it in place."""

Seen = Callable[[Any, Tensor, Tensor], Tensor]
"""``(what is stretched, arms (s * h), rewards (s * h)) -> rewards (s * h)`` as they will be taken in."""


def candidate_kernel(candidates: Sequence[Covariance | Tensor], arms: Tensor | None = None) -> ArmKernel:
    """The kernels of U as one, ``h x n x n``.

    Args:
        candidates: Covariance functions, kernel matrices ``n x n``, or some of each; of any kinds.
        arms: Locations ``n x d``, needed for covariance functions.

    Raises:
        ValueError: if there are none, one is not a kernel matrix (symmetric, positive semi-definite, finite; the
            message says which), or they are not of one size, dtype and device.
    """
    if len(candidates) == 0:
        raise ValueError("U is empty: give at least one candidate.")
    matrices: list[Tensor] = []
    for u, candidate in enumerate(candidates):
        try:
            if isinstance(candidate, Tensor):
                kernel = ArmKernel.from_matrix(candidate, arms)
            elif arms is not None:
                kernel = ArmKernel.from_matrix(candidate(arms, arms), arms)
            else:
                raise ValueError("a covariance function needs the locations; give arms, n x d.")
        except ValueError as error:
            raise ValueError(f"candidate {u}: {error}") from None
        matrix = kernel.matrix
        assert matrix is not None
        first = matrices[0] if matrices else matrix
        if (matrix.shape, matrix.dtype, matrix.device) != (first.shape, first.dtype, first.device):
            raise ValueError(
                f"candidate {u} is {tuple(matrix.shape)}, {matrix.dtype} on {matrix.device}, candidate 0 "
                f"{tuple(first.shape)}, {first.dtype} on {first.device}; all must be over the same arms."
            )
        matrices.append(matrix)
    K = torch.stack(matrices)
    return ArmKernel(diagonal=K.diagonal(dim1=-2, dim2=-1).clone(), matrix=K, arms=arms)


@dataclass(frozen=True)
class _SharedKernel(ArmKernel):
    """``h`` matrices that serve ``s * h`` trials without a copy; the diagonal is that of all of them."""

    def rows(self, arms: Tensor, trials: Tensor | None = None) -> Tensor:
        return super().rows(arms, self._hypothesis(arms, trials))

    def block(self, arms: Tensor, block: slice, trials: Tensor | None = None) -> Tensor:
        return super().block(arms, block, self._hypothesis(arms, trials))

    def between(self, first: Tensor, second: Tensor, trials: Tensor) -> Tensor:
        return super().between(first, second, self._hypothesis(first, trials))

    def _hypothesis(self, arms: Tensor, trials: Tensor | None) -> Tensor:
        assert self.matrix is not None
        everyone = torch.arange(arms.shape[0], device=arms.device) if trials is None else trials
        return everyone % self.matrix.shape[0]


@dataclass(frozen=True)
class Stretched:
    """A prior per hypothesis, as the prior of s * h trials: arguments for the ``init`` of any posterior or algorithm.

    Attributes:
        kernel: Of all n arms.
        noise_var: lambda, ``s * h``.
        prior_mean: ``s * h x n``, or None for zero.
        hypotheses: h.
    """

    kernel: ArmKernel
    noise_var: Tensor
    prior_mean: Tensor | None
    hypotheses: int


def stretch(kernel: ArmKernel, noise_var: float | Tensor, trials: int, prior_mean: Tensor | None = None) -> Stretched:
    """Priors of h hypotheses, each part shared or one per hypothesis, as the prior of s * h trials.

    Args:
        kernel: One matrix or covariance for all, or ``h x n x n`` (:func:`candidate_kernel`).
        noise_var: lambda > 0, one number or ``h``.
        trials: s >= 1.
        prior_mean: ``n`` or ``h x n``; zero when None.

    Raises:
        ValueError: if numbers of hypotheses do not agree, there is none, or shapes do not fit.

    Warns:
        UserWarning: about hypotheses that are the same.
    """
    check_count(1, trials=trials)
    n, like = kernel.num_arms, kernel.diagonal
    noise = torch.as_tensor(noise_var, dtype=like.dtype, device=like.device)
    if noise.ndim > 1:
        raise ValueError(f"noise_var must be one number or one per hypothesis, got shape {tuple(noise.shape)}.")
    if prior_mean is not None:
        if prior_mean.ndim not in (1, 2) or prior_mean.shape[-1] != n:
            raise ValueError(f"prior_mean must be {n}, or {n} per hypothesis, got shape {tuple(prior_mean.shape)}.")
        check_finite("prior_mean", prior_mean)
    given = {
        "kernel matrices": like.shape[0] if like.ndim == 2 else None,
        "noise variances": noise.shape[0] if noise.ndim == 1 else None,
        "prior means": prior_mean.shape[0] if prior_mean is not None and prior_mean.ndim == 2 else None,
    }
    counts = {name: count for name, count in given.items() if count is not None}
    if len(set(counts.values())) > 1:
        raise ValueError(f"hypotheses must agree in number, got {counts}; give one of each kind, or one for all.")
    h = next(iter(counts.values()), 1)
    if h == 0:
        raise ValueError("U is empty: give at least one hypothesis.")
    _warn_of_duplicates(kernel, noise.expand(h), prior_mean)
    noise = noise.expand(trials, h).reshape(-1)
    if prior_mean is not None:
        prior_mean = prior_mean.expand(trials, h, n).reshape(-1, n)
    if like.ndim == 2:
        K, everyone = kernel.matrix, like.expand(trials, h, n).reshape(-1, n)
        assert K is not None
        if n <= DENSE_MAX_ARMS:
            kernel = ArmKernel(everyone, matrix=K.expand(trials, h, n, n).reshape(-1, n, n), arms=kernel.arms)
        else:
            kernel = _SharedKernel(everyone, matrix=K, arms=kernel.arms)
    return Stretched(kernel, noise, prior_mean, h)


def _warn_of_duplicates(kernel: ArmKernel, noise: Tensor, prior_mean: Tensor | None) -> None:
    """Same noise, mean and product of the matrix with a vector: the same hypothesis."""
    h, n = len(noise), kernel.num_arms
    parts = [noise.unsqueeze(1)]
    if kernel.diagonal.ndim == 2:
        assert kernel.matrix is not None
        parts.append(kernel.matrix @ torch.arange(n, dtype=noise.dtype, device=noise.device).cos())
    if prior_mean is not None:
        parts.append(prior_mean.to(noise).expand(h, n))
    same: dict[tuple[float, ...], list[int]] = {}
    for u, row in enumerate(torch.cat(parts, 1).tolist()):
        same.setdefault(tuple(row), []).append(u)
    for group in same.values():
        if len(group) > 1:
            warnings.warn(
                f"hypotheses {group} are the same (kernel, prior mean and noise variance): keep one of them; the "
                "others cost time and widen the test.",
                UserWarning,
                stacklevel=3,
            )


@dataclass
class HypothesisPosterior:
    """What is known under every hypothesis; :func:`observe` updates it in place.

    ``mean``, ``variance`` and ``information_gain`` are those of the leader, as rules and the runner read one posterior
    per trial; ``means``, ``variances`` and ``gains`` are those of all.

    Attributes:
        stretched: Posterior of s * h trials, or the state of an algorithm that has one.
        alive: Hypotheses still believed in, ``s x h`` bool.
        evidence: Log marginal likelihood of the rewards so far, ``s x h``, in nats.
    """

    stretched: Any
    alive: Tensor
    evidence: Tensor

    @property
    def flat(self) -> Any:
        """The posterior of s * h trials."""
        return getattr(self.stretched, "posterior", self.stretched)

    @property
    def means(self) -> Tensor:
        """mu_t of every hypothesis and arm, ``s x h x n``, a view."""
        return self.flat.mean.view(*self.alive.shape, -1)

    @property
    def variances(self) -> Tensor:
        """sigma_t^2 of every hypothesis and arm, ``s x h x n``, a view."""
        return self.flat.variance.view(*self.alive.shape, -1)

    @property
    def gains(self) -> Tensor:
        """Realised information gain of the arms chosen, under every hypothesis, ``s x h``, in nats."""
        return self.flat.information_gain.view(self.alive.shape)

    @property
    def leader(self) -> Tensor:
        """The hypothesis alive of largest marginal likelihood, first of equals, ``s`` long."""
        return self.evidence.masked_fill(~self.alive, -math.inf).argmax(1)

    @property
    def mean(self) -> Tensor:
        """mu_t of every arm under the leader, ``s x n``."""
        return self.of(self.leader, self.means)

    @property
    def variance(self) -> Tensor:
        """sigma_t^2 of every arm under the leader, ``s x n``."""
        return self.of(self.leader, self.variances)

    @property
    def counts(self) -> Tensor:
        """Rewards taken in per arm, ``s x n``; all hypotheses saw the same."""
        return self.flat.counts.view(*self.alive.shape, -1)[:, 0]

    @property
    def noise_var(self) -> Tensor:
        """lambda of the leader, ``s``."""
        return self.of(self.leader, self.flat.noise_var.view(self.alive.shape))

    @property
    def information_gain(self) -> Tensor:
        """Realised information gain under the leader, ``s``."""
        return self.of(self.leader, self.gains)

    @staticmethod
    def of(hypothesis: Tensor, values: Tensor) -> Tensor:
        """``values`` (``s x h`` or ``s x h x k``) of one hypothesis per trial, ``s`` or ``s x k``."""
        index = hypothesis.view(-1, *(1 for _ in values.shape[1:]))
        return values.gather(1, index.expand(-1, 1, *values.shape[2:])).squeeze(1)


def over(stretched: Any, hypotheses: int) -> HypothesisPosterior:
    """All hypotheses alive, no rewards yet.

    Args:
        stretched: Fresh posterior of s * h trials, or state with one, from the arguments of :func:`stretch`.
        hypotheses: h.
    """
    flat = getattr(stretched, "posterior", stretched)
    if isinstance(flat, ArmPosterior):
        flat.scratch.group = hypotheses
    noise = flat.noise_var.view(-1, hypotheses)
    return HypothesisPosterior(stretched, torch.ones_like(noise, dtype=torch.bool), torch.zeros_like(noise))


def init(
    kernel: ArmKernel,
    noise_var: float | Tensor,
    trials: int = 1,
    *,
    prior_mean: Tensor | None = None,
    rounds: int | None = None,
) -> HypothesisPosterior:
    """The exact posterior under every hypothesis; as :func:`stretch` and :func:`bo_robust.states.arms.init`."""
    prior = stretch(kernel, noise_var, trials, prior_mean)
    s_h = len(prior.noise_var)
    flat = arm_states.init(prior.kernel, prior.noise_var, s_h, prior_mean=prior.prior_mean, rounds=rounds)
    return over(flat, prior.hypotheses)


def observe(
    posterior: HypothesisPosterior,
    arms: Tensor,
    rewards: Tensor,
    take_in: TakeIn = arm_states.observe,
    seen: Seen | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Take in one reward per trial under every hypothesis, in place; no test, so for initial designs as well.

    Args:
        posterior: State before the round.
        arms: ``s``, long.
        rewards: ``s``; NaN or infinite ones are failed pulls.
        take_in: How what is stretched takes in rewards; the exact posterior's by default.
        seen: What becomes of rewards there (truncation); None: nothing. Evidence and errors are of what is seen.

    Returns:
        ``ok`` (``s`` bool), and under every hypothesis (``s x h`` each) eta_t = y_t - mu_{t-1}(x_t), mu_{t-1}(x_t) and
        sigma_{t-1}^2(x_t), of before this reward.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit, or an arm is out of range.
    """
    arm_states.check_pulls(posterior.evidence[:, 0], arms, rewards)
    shape, flat = posterior.alive.shape, posterior.flat
    low, high = (0, 0) if arms.is_cuda else (int(x) for x in arms.aminmax())
    if not 0 <= low <= high < flat.mean.shape[1]:
        raise ValueError(f"arms must be between 0 and {flat.mean.shape[1] - 1}, got {arms.tolist()}.")
    everyone = arms.unsqueeze(1).expand(shape).reshape(-1, 1)
    mean, variance = flat.mean.gather(1, everyone).view(shape), flat.variance.gather(1, everyone).view(shape)
    stretched_rewards = rewards.unsqueeze(1).expand(shape).reshape(-1)
    taken = stretched_rewards if seen is None else seen(posterior.stretched, everyone.squeeze(1), stretched_rewards)
    error = taken.view(shape) - mean
    total = variance + flat.noise_var.view(shape)
    ok = take_in(posterior.stretched, everyone.squeeze(1), stretched_rewards).view(shape)
    gained = error.square().div_(total).add_(total.mul_(2.0 * math.pi).log_()).mul_(-0.5)
    posterior.evidence.add_(gained.masked_fill_(~ok, 0.0))
    return ok[:, 0], error, mean, variance
