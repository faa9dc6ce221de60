"""What is known about arms under each of h candidate priors, for s trials: one posterior of s * h rows.

A candidate is a prior: a kernel matrix, a prior mean and a noise variance, each shared by all candidates or its own.
Candidates may differ in kind, not only in a parameter. Their priors are the prior of s * h trials: row i * h + u is
candidate u of trial i. Every reward goes to all h rows of its trial.

Also kept are which candidates are active, and the log marginal likelihood of each,

    log p(y_1..t | u) = sum log N(y_t; mu^u_{t-1}(x_t), sigma^u_{t-1}(x_t)^2 + lambda).

Source: Ziomek, Adachi & Osborne (ICML 2024), section 3, whose U is the set of candidates.

Axes: ``s`` trials, ``h`` candidates, ``n`` arms.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bo_robust.bandits.posteriors import arms as arm_posteriors
from bo_robust.bandits.posteriors.arm_kernel import checked_diagonal, noise_of_each
from bo_robust.bandits.posteriors.arms import ArmKernel, ArmPosterior
from bo_robust.confidence.elimination import log_density
from bo_robust.utils.covariance import Covariance
from bo_robust.utils.input_checks import check_count, check_like, check_tensor, quoted


def candidate_kernel(candidates: Sequence[Covariance | Tensor], arms: Tensor | None = None) -> ArmKernel:
    """The kernels of all candidates as one, ``h x n x n``.

    ``candidates`` are covariance functions, kernel matrices ``n x n``, or some of each. Covariance functions need the
    locations ``arms``, ``n x d``. Raises ``ValueError`` if there is no list of candidates or none in it, one is neither
    (the message says which), or they differ in size, dtype or device.
    """
    if isinstance(candidates, str) or not isinstance(candidates, Sequence | Tensor):
        raise ValueError(f"candidates must be a list of covariance functions or matrices, got {quoted(candidates)}.")
    if len(candidates) == 0:
        raise ValueError("U is empty: give at least one candidate.")
    matrices: list[Tensor] = []
    for u, candidate in enumerate(candidates):
        try:
            if isinstance(candidate, Tensor):
                if candidate.ndim > 2:
                    raise ValueError(f"a kernel matrix is n x n, got {tuple(candidate.shape)}; list each of them.")
                kernel = ArmKernel.from_matrix(candidate, arms)
            elif arms is None and callable(candidate):
                raise ValueError("a covariance function needs the locations; give arms, n x d.")
            else:
                checked_diagonal(candidate, arms)
                kernel = ArmKernel.from_matrix(candidate(arms, arms), arms)
        except ValueError as error:
            raise ValueError(f"candidate {u}: {error}") from None
        matrix = kernel.matrix
        assert matrix is not None
        matrices.append(matrix)
        check_like(f"candidate {u}", matrix, "candidate 0", matrices[0])
        if matrix.shape != matrices[0].shape:
            raise ValueError(f"candidate {u} is over {len(matrix)} arms, candidate 0 over {len(matrices[0])}.")
    K = torch.stack(matrices)
    return ArmKernel(diagonal=K.diagonal(dim1=-2, dim2=-1).clone(), matrix=K, arms=arms)


def _warn_of_duplicates(kernel: ArmKernel, noise: Tensor, prior_mean: Tensor | None) -> None:
    """Warn of candidates with the same noise, the same mean and the same product of the matrix with one vector."""
    h, n = len(noise), kernel.num_arms
    parts = [noise.unsqueeze(1)]
    if kernel.diagonal.ndim == 2:
        assert kernel.matrix is not None
        product = kernel.matrix @ torch.arange(n, dtype=noise.dtype, device=noise.device).cos()
        parts.append(product.expand(h, n))
    if prior_mean is not None:
        parts.append(prior_mean.to(noise).expand(h, n))
    same: dict[tuple[float, ...], list[int]] = {}
    for u, row in enumerate(torch.cat(parts, 1).tolist()):
        same.setdefault(tuple(row), []).append(u)
    for group in same.values():
        if len(group) > 1:
            warnings.warn(
                f"candidates {group} are the same (kernel, prior mean and noise variance): keep one of them; the "
                "others cost time and widen the test.",
                UserWarning,
                stacklevel=3,
            )


@dataclass
class CandidatePosterior:
    """What is known under every candidate; :func:`observe` updates it in place.

    Rules and the runner read one posterior per trial: ``mean``, ``variance``, ``noise_var`` and ``information_gain``
    are those of the MAP candidate. ``means``, ``variances`` and ``gains`` are those of all candidates.

    Attributes:
        flat: The exact posterior of s * h trials.
        active: Candidates that were not removed, ``s x h`` bool.
        evidence: Log marginal likelihood of the rewards so far, ``s x h``, in nats.
        last_gain: Information gain of the last reward, 1/2 log(1 + sigma^2 / lambda), ``s x h``, in nats; at first
            infinite.
    """

    flat: ArmPosterior
    active: Tensor
    evidence: Tensor
    last_gain: Tensor

    has_blocks: ClassVar[bool] = True

    def begin_block(self) -> tuple[int, ...]:
        """As that of :class:`.arms.ArmPosterior`."""
        return self.flat.begin_block()

    @property
    def means(self) -> Tensor:
        """mu_t of every candidate and arm, ``s x h x n``, a view."""
        return self.flat.mean.view(*self.active.shape, -1)

    @property
    def variances(self) -> Tensor:
        """sigma_t^2 of every candidate and arm, ``s x h x n``, a view."""
        return self.flat.variance.view(*self.active.shape, -1)

    @property
    def gains(self) -> Tensor:
        """Realized information gain of the arms pulled, under every candidate, ``s x h``, in nats."""
        return self.flat.information_gain.view(self.active.shape)

    @property
    def map_candidate(self) -> Tensor:
        """The active candidate of largest marginal likelihood, first of equals, ``s`` long."""
        return self.evidence.masked_fill(~self.active, -math.inf).argmax(1)

    @property
    def mean(self) -> Tensor:
        """mu_t of every arm under the MAP candidate, ``s x n``."""
        return self.under(self.map_candidate, self.means)

    @property
    def variance(self) -> Tensor:
        """sigma_t^2 of every arm under the MAP candidate, ``s x n``."""
        return self.under(self.map_candidate, self.variances)

    @property
    def counts(self) -> Tensor:
        """Rewards observed per arm, ``s x n``; all candidates saw the same."""
        return self.flat.counts.view(*self.active.shape, -1)[:, 0]

    @property
    def noise_var(self) -> Tensor:
        """lambda of the MAP candidate, ``s``."""
        return self.under(self.map_candidate, self.flat.noise_var.view(self.active.shape))

    @property
    def information_gain(self) -> Tensor:
        """Realized information gain under the MAP candidate, ``s``."""
        return self.under(self.map_candidate, self.gains)

    @staticmethod
    def under(candidate: Tensor, values: Tensor) -> Tensor:
        """``values`` (``s x h`` or ``s x h x k``) of one candidate per trial (``s``), ``s`` or ``s x k``."""
        index = candidate.view(-1, *(1 for _ in values.shape[1:]))
        return values.gather(1, index.expand(-1, 1, *values.shape[2:])).squeeze(1)


def init(
    kernel: ArmKernel,
    noise_var: float | Tensor,
    trials: int = 1,
    *,
    prior_mean: Tensor | None = None,
    rounds: int | None = None,
) -> CandidatePosterior:
    """The exact posterior under every candidate, all active; warns of candidates that are the same.

    ``kernel`` is one for all or ``h x n x n`` (:func:`candidate_kernel`), ``noise_var`` > 0 is one number or ``h``, and
    ``prior_mean`` is ``n``, ``h x n`` or None for zero. Raises ``ValueError`` if numbers of candidates do not agree,
    there is none, or shapes do not fit. The rest is as in :func:`.arms.init`.
    """
    check_count(1, trials=trials)
    noise = noise_of_each(kernel, noise_var, "candidate")
    n, template = kernel.num_arms, kernel.diagonal
    if prior_mean is not None:
        check_tensor("prior_mean", prior_mean)
    mean_shape = (n,) if prior_mean is None else prior_mean.shape
    try:
        (h, _) = torch.broadcast_shapes((1, n), template.shape, (*noise.shape, 1), mean_shape)
    except (RuntimeError, ValueError):
        raise ValueError(
            f"kernel, noise_var and prior_mean must be of one number of candidates h, or shared: h x {n} x {n}, h and "
            f"h x {n}, got kernels of {tuple(template.shape)}, {tuple(noise.shape)} and {tuple(mean_shape)}."
        ) from None
    if h == 0:
        raise ValueError("U is empty: give at least one candidate.")
    noise = noise.expand(h)
    _warn_of_duplicates(kernel, noise, prior_mean)
    noise = noise.expand(trials, h).reshape(-1)
    if prior_mean is not None:
        prior_mean = prior_mean.expand(trials, h, n).reshape(-1, n)
    if template.ndim == 2:
        K, everyone = kernel.matrix, template.expand(trials, h, n).reshape(-1, n)
        assert K is not None
        # The dense layout copies the matrices for every trial anyway.
        if arm_posteriors.is_dense(template, trials * h):
            K = K.expand(trials, h, n, n).reshape(-1, n, n)
        kernel = ArmKernel(everyone, matrix=K, arms=kernel.arms)
    flat = arm_posteriors.init(kernel, noise, trials * h, prior_mean=prior_mean, rounds=rounds)
    flat.group = h
    noise = flat.noise_var.view(-1, h)
    active, last_gain = torch.ones_like(noise, dtype=torch.bool), torch.full_like(noise, math.inf)
    return CandidatePosterior(flat, active, torch.zeros_like(noise), last_gain)


def checked_pulls(posterior: CandidatePosterior, arms: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """``arms`` and ``rewards`` of a round, with the checks of :func:`observe`; on CUDA, too, all arms are in range."""
    arm_posteriors.check_pulls(posterior.evidence[:, 0], arms, rewards)
    return arm_posteriors.within(arms, rewards, posterior.flat.mean.shape[1])


class Observed(NamedTuple):
    """A round's rewards under every candidate, as of before them."""

    ok: Tensor  # Whether the reward was observed, `s` bool
    error: Tensor  # eta_t = y_t - mu_{t-1}(x_t), `s x h`
    mean: Tensor  # mu_{t-1}(x_t), `s x h`
    variance: Tensor  # sigma_{t-1}^2(x_t), `s x h`


def observe(posterior: CandidatePosterior, arms: Tensor, rewards: Tensor) -> Observed:
    """Condition every candidate on one reward per trial (``s``) of ``arms`` (``s`` long), in place.

    No candidate is tested, so this serves initial designs as well. A NaN or infinite reward is a failed pull. Raises
    ``ValueError`` if shapes, dtypes or devices do not fit, or an arm is out of range; on CUDA its reward is a failed
    pull.
    """
    arms, rewards = checked_pulls(posterior, arms, rewards)
    shape, flat = posterior.active.shape, posterior.flat
    index = arms.unsqueeze(1).expand(shape).reshape(-1, 1)
    mean, variance = flat.mean.gather(1, index).view(shape), flat.variance.gather(1, index).view(shape)
    observed = rewards.unsqueeze(1).expand(shape).reshape(-1)
    error = observed.view(shape) - mean
    total = variance + flat.noise_var.view(shape)
    ok = arm_posteriors.observe(flat, index.squeeze(1), observed).view(shape)
    last_gain = (total / flat.noise_var.view(shape)).log_().mul_(0.5)
    posterior.last_gain = torch.where(ok, last_gain, posterior.last_gain)
    posterior.evidence.add_(log_density(error.square().div_(total), total).masked_fill_(~ok, 0.0))
    return Observed(ok.all(1), error, mean, variance)
