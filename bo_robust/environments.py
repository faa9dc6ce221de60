"""Environments: the random conditions Z under which f(x, Z) is seen.

Each stands for finitely many points z with probabilities, exact for finite Z and fixed quasi-random points for a
continuous one (256 for d_z <= 2 give a quantile to about 0.01 on functions of standard deviation 1). ``points(X)`` are
the inputs of a model over (x, z), ``... x w x d``, in one order of columns: x, then z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import Module
from torch.quasirandom import SobolEngine

from bo_robust.validation import check_count, check_finite, check_positive

__all__ = ["ContinuousEnvironment", "Environment", "FiniteEnvironment", "PerturbationEnvironment"]

SUM_TOLERANCE = 1e-6


class Environment(Module, ABC):
    """Base of the environments; a module, so that ``.to`` moves its tensors.

    Attributes:
        probabilities: Of the points, ``w``; None: all equal.
        density: What the rule "probable" ranks the points by, ``w``: probabilities, or a density; None: all equal.
        dim: Columns of z; None where they are not known before a call.
        appended: Columns that z adds to x: d = d_x + appended.
    """

    probabilities: Tensor | None
    density: Tensor | None
    dim: int | None
    appended: int

    def __init__(self, probabilities: Tensor | None, density: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("probabilities", probabilities)
        self.register_buffer("density", density)

    @abstractmethod
    def values(self, X: Tensor) -> Tensor:
        """The values of z at every x: ``... x d_x`` to ``... x w x d_z``."""

    @abstractmethod
    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        """Inputs of the model for pairs of x and z: ``... x d_x`` and ``... x d_z`` to ``... x d``."""

    def points(self, X: Tensor) -> Tensor:
        """Inputs of the model for every x and each of its z: ``... x d_x`` to ``... x w x d``, differentiable in X."""
        Z = self.values(X)
        return self.join(X.unsqueeze(-2).expand(*Z.shape[:-1], X.shape[-1]), Z)


class _FixedEnvironment(Environment):
    """z does not depend on x; its columns follow those of x."""

    z: Tensor

    def __init__(self, z: Tensor, probabilities: Tensor | None, density: Tensor | None) -> None:
        super().__init__(probabilities, density)
        self.register_buffer("z", z)
        self.dim = self.appended = z.shape[-1]

    def values(self, X: Tensor) -> Tensor:
        """The points, the same for every x."""
        if (X.dtype, X.device) != (self.z.dtype, self.z.device):
            raise ValueError(
                f"X is {X.dtype} on {X.device}, the environment {self.z.dtype} on {self.z.device}; convert one."
            )
        return self.z.expand(*X.shape[:-1], *self.z.shape)

    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        """(x, z)."""
        return torch.cat([X, Z], -1)


class FiniteEnvironment(_FixedEnvironment):
    """Finitely many z with known probabilities.

    Args:
        points: z, ``w x d_z``.
        probabilities: ``w``, >= 0 and summing to 1 (within 1e-6); None: all equal. Equal ones are kept as None.

    Raises:
        ValueError: if there are no points, they are not ``w x d_z``, floating point and finite, or the probabilities
            are not ``w`` of the same kind, negative, or do not sum to 1.
    """

    def __init__(self, points: Tensor, probabilities: Tensor | None = None) -> None:
        z = _check_points("environment points", points)
        p = _check_probabilities(probabilities, z)
        super().__init__(z, p, p)


class ContinuousEnvironment(_FixedEnvironment):
    """A continuous Z on a box, as fixed equally likely points.

    Quasi-random where a ``distribution`` with independent coordinates is given: a scrambled Sobol sequence (for d_z = 1
    the midpoints of ``num_points`` cells of equal probability) mapped by the inverse distribution function, truncated
    to the box. With a ``sampler`` they are its draws, made once.

    Args:
        bounds: Lower and upper corner of the support, ``2 x d_z``; fixes dtype and device.
        distribution: With ``cdf`` and ``icdf``, of scalar or ``d_z`` batch shape, without event shape, such as
            ``Normal(0.5, 0.125)``. It is truncated to the box here.
        sampler: Called with n, returns ``n x d_z`` draws from the support.
        log_prob: Log density of the sampler's law at ``... x d_z`` (up to a constant), by which the rule "probable"
            ranks; without it all points rank alike.
        num_points: w.
        seed: Of the Sobol scrambling.

    Raises:
        ValueError: if the bounds are no box, not one of distribution and sampler is given, the distribution has no
            probability in the box, or the sampler returns NaN, values outside the bounds or another shape.

    Example:
        >>> ContinuousEnvironment(torch.tensor([[0.25], [0.75]]).double(), Normal(0.5, 0.125))
    """

    bounds: Tensor

    def __init__(
        self,
        bounds: Tensor,
        distribution: Distribution | None = None,
        sampler: Callable[[int], Tensor] | None = None,
        log_prob: Callable[[Tensor], Tensor] | None = None,
        num_points: int = 256,
        seed: int = 0,
    ) -> None:
        _check_box(bounds)
        check_count(1, num_points=num_points)
        if (distribution is None) == (sampler is None):
            raise ValueError("give either a distribution (with cdf and icdf) or a sampler of Z.")
        if distribution is not None and log_prob is not None:
            raise ValueError("log_prob belongs to a sampler; that of a distribution is its own.")
        if distribution is not None and len(distribution.event_shape) > 0:
            raise ValueError(
                "the coordinates of the distribution must be independent (batch shape d_z, no event shape)."
            )
        super().__init__(bounds.new_zeros(0, bounds.shape[-1]), None, None)
        self._distribution, self._sampler, self._log_prob = distribution, sampler, log_prob
        self.register_buffer("bounds", bounds.detach().clone())
        if distribution is None:
            self.z = self.sample(num_points)
        elif self.dim == 1:
            cells = torch.arange(num_points, dtype=bounds.dtype, device=bounds.device).unsqueeze(-1)
            self.z = self._from_uniform((cells + 0.5) / num_points)
        else:
            sobol = SobolEngine(bounds.shape[-1], scramble=True, seed=seed)
            self.z = self._from_uniform(sobol.draw(num_points, dtype=torch.float64).to(bounds))
        log_density = self.log_prob(self.z)
        if log_density is not None:
            check_finite("log_prob of the points of the environment", log_density)
            self.density = (log_density - log_density.max()).exp()

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws, ``n x d_z``.

        Args:
            n: How many.
            generator: Of a distribution (on the device of the bounds); a sampler has its own.

        Raises:
            ValueError: if a sampler returns NaN, values outside the bounds or another shape or kind.
        """
        like = self.bounds
        if self._sampler is None:
            shape = (n, like.shape[-1])
            return self._from_uniform(torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device))
        z = self._sampler(n)
        if not isinstance(z, Tensor) or z.shape != (n, like.shape[-1]) or (z.dtype, z.device) != _kind(like):
            got = f"{z.dtype} {tuple(z.shape)} on {z.device}" if isinstance(z, Tensor) else repr(type(z))
            raise ValueError(
                f"the sampler must return {n} x {like.shape[-1]} {like.dtype} on {like.device}, got {got}."
            )
        check_finite("the sampler's draws", z)
        outside = int(((z < like[0]) | (z > like[1])).any(-1).sum())
        if outside:
            raise ValueError(f"{outside} of {n} draws of the sampler are outside the declared bounds; widen them.")
        return z.detach()

    def log_prob(self, z: Tensor) -> Tensor | None:
        """Log density at ``... x d_z``, ``...``, -inf outside the box; None where a sampler came without one."""
        if self._distribution is None:
            return None if self._log_prob is None else self._log_prob(z)
        low, high = self._cdf_of_bounds()
        inside = ((z >= self.bounds[0]) & (z <= self.bounds[1])).all(-1)
        each = self._distribution.log_prob(z.clamp(self.bounds[0], self.bounds[1])) - (high - low).log()
        return each.sum(-1).masked_fill(~inside, -torch.inf)

    def _cdf_of_bounds(self) -> tuple[Tensor, Tensor]:
        assert self._distribution is not None
        low, high = self._distribution.cdf(self.bounds).to(self.bounds).expand_as(self.bounds)
        if not bool((high > low).all()):
            raise ValueError("the distribution has no probability within the bounds.")
        return low, high

    def _from_uniform(self, u: Tensor) -> Tensor:
        assert self._distribution is not None
        low, high = self._cdf_of_bounds()
        z = self._distribution.icdf(low + (high - low) * u).to(u)
        return z.maximum(self.bounds[0]).minimum(self.bounds[1])


class PerturbationEnvironment(Environment):
    """x + xi: the environment disturbs the design itself (Z depends on x where xi does).

    Args:
        perturbations: xi, ``w x d_x``, or a function of X (``... x d_x``) returning ``... x w x d_x``.
        probabilities: ``w``, as in :class:`FiniteEnvironment`.
        bounds: Box of the domain, ``2 x d_x``: points outside are moved to its boundary. None: they are taken as is.

    Raises:
        ValueError: as :class:`FiniteEnvironment`; on a call, if a function returns NaN or a shape that does not fit.
    """

    def __init__(
        self,
        perturbations: Tensor | Callable[[Tensor], Tensor],
        probabilities: Tensor | None = None,
        bounds: Tensor | None = None,
    ) -> None:
        fixed = _check_points("perturbations", perturbations) if isinstance(perturbations, Tensor) else None
        p = _check_probabilities(probabilities, fixed)
        super().__init__(p, p)
        self.register_buffer("perturbations", fixed)
        if bounds is not None:
            _check_box(bounds)
        self.register_buffer("bounds", bounds)
        self._function = None if isinstance(perturbations, Tensor) else perturbations
        self._num_points = None if probabilities is None else probabilities.shape[-1]
        self.dim, self.appended = None if fixed is None else fixed.shape[-1], 0

    @classmethod
    def ball(cls, radius: float, bounds: Tensor, num_points: int = 64, seed: int = 0) -> PerturbationEnvironment:
        """The Euclidean ball of a radius around x, within the box, as in StableOpt (Bogunovic et al. 2018).

        Its points: the centre, and Sobol directions, half of them at the full radius (where minima of smooth functions
        mostly are) and half spread over the inside. In one dimension: an even grid, its middle the centre where
        ``num_points`` is odd.

        Args:
            radius: > 0, in units of x.
            bounds: Box of the domain, ``2 x d_x``; fixes dtype and device.
            num_points: w >= 2.
            seed: Of the Sobol scrambling.

        Raises:
            ValueError: if the radius is not positive, ``num_points`` < 2, or the bounds are no box.
        """
        check_positive(radius=radius)
        check_count(2, num_points=num_points)
        _check_box(bounds)
        d = bounds.shape[-1]
        if d == 1:
            xi = torch.linspace(-radius, radius, num_points, dtype=bounds.dtype, device=bounds.device).unsqueeze(-1)
            return cls(xi, bounds=bounds)
        u = SobolEngine(d + 1, scramble=True, seed=seed).draw(num_points, dtype=torch.float64)
        direction = torch.special.ndtri(u[:, :d].clamp(1e-9, 1.0 - 1e-9))
        length = u[:, d:].pow(1.0 / d)
        length[1::2] = 1.0
        length[0] = 0.0
        xi = direction / direction.norm(dim=-1, keepdim=True).clamp_min(1e-12) * (radius * length)
        return cls(xi.to(bounds), bounds=bounds)

    def values(self, X: Tensor) -> Tensor:
        """xi at every x."""
        if self._function is None:
            xi: Tensor = self.perturbations  # type: ignore[assignment]
            if X.shape[-1] != xi.shape[-1]:
                raise ValueError(f"perturbations have {xi.shape[-1]} columns, X has {X.shape[-1]}.")
            return xi.expand(*X.shape[:-1], *xi.shape)
        xi = self._function(X)
        w = self._num_points or (xi.shape[-2] if xi.ndim > 1 else 0)
        if xi.shape != (*X.shape[:-1], w, X.shape[-1]) or w == 0:
            raise ValueError(
                f"the function of perturbations must return ... x {w or 'w'} x {X.shape[-1]} at X of shape "
                f"{tuple(X.shape)}, got {tuple(xi.shape)}."
            )
        check_finite("the perturbations", xi)
        return xi

    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        """x + xi, moved into the box."""
        moved = X + Z
        bounds: Tensor | None = self.bounds  # type: ignore[assignment]
        return moved if bounds is None else moved.maximum(bounds[0]).minimum(bounds[1])


def _kind(x: Tensor) -> tuple[torch.dtype, torch.device]:
    return x.dtype, x.device


def _check_points(name: str, z: Tensor) -> Tensor:
    if z.ndim != 2 or 0 in z.shape or not z.is_floating_point():
        raise ValueError(f"{name} must be w x d, w and d >= 1, floating point; got {z.dtype} {tuple(z.shape)}.")
    check_finite(name, z)
    return z.detach().clone()


def _check_probabilities(p: Tensor | None, z: Tensor | None) -> Tensor | None:
    """The probabilities normalised, or None where they are all equal."""
    if p is None:
        return None
    if p.ndim != 1 or len(p) == 0 or (z is not None and (len(p) != len(z) or _kind(p) != _kind(z))):
        like = "w" if z is None else f"{len(z)} of {z.dtype} on {z.device}, one per point"
        raise ValueError(f"probabilities must be {like}; got {tuple(p.shape)} of {p.dtype} on {p.device}.")
    check_finite("probabilities", p)
    if bool((p < 0).any()):
        raise ValueError(f"probabilities must not be negative; the smallest is {float(p.min()):g}.")
    total = float(p.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"probabilities must sum to 1, got {total:g}; divide them by their sum.")
    return None if bool((p == p[0]).all()) else (p / p.sum()).detach()


def _check_box(bounds: Tensor) -> None:
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0 or not bounds.is_floating_point():
        raise ValueError(
            f"bounds must be 2 x d (lower and upper corner), floating point; got {bounds.dtype} {tuple(bounds.shape)}."
        )
    check_finite("bounds", bounds)
    if not bool((bounds[0] < bounds[1]).all()):
        raise ValueError("every lower bound must be below the upper one.")
