"""Environments: the random conditions Z under which f(x, Z) is observed.

Every environment is a set of w points z with probabilities. This is exact for a finite Z. A continuous Z is replaced by
fixed quasi-random points: for d_z <= 2, 256 of them give a quantile to about 0.01 on functions of standard deviation 1.
Models over (x, z) take the columns of x first, then those of z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import Module
from torch.quasirandom import SobolEngine

from bo_robust.utils.input_checks import (
    check_bounds,
    check_count,
    check_finite,
    check_like,
    check_positive,
    check_tensor,
    quoted,
)

__all__ = ["ContinuousEnvironment", "Environment", "FiniteEnvironment", "PerturbationEnvironment"]

SUM_TOLERANCE = 1e-6  # how far the sum of given probabilities may be from 1


class Environment(Module, ABC):
    """Base of the environments. It is a module, so that ``.to`` moves its tensors.

    Attributes:
        probabilities: Probabilities of the points, ``w``. None means all equal.
        density: Probabilities or density by which the selection rule "probable" ranks the points, ``w``. None means all
        equal.
        dim: Number of columns of z. None if it is not known before a call.
        appended: Number of columns that z adds to x: d = d_x + appended.
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
        """Values of z at every x: ``... x d_x`` to ``... x w x d_z``."""

    @abstractmethod
    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        """Model inputs for pairs of x and z: ``... x d_x`` and ``... x d_z`` to ``... x d``."""

    def points(self, X: Tensor) -> Tensor:
        """Model inputs for every x with each of its z: ``... x d_x`` to ``... x w x d``, differentiable in X."""
        Z = self.values(X)
        return self.join(X.unsqueeze(-2).expand(*Z.shape[:-1], X.shape[-1]), Z)


class _FixedEnvironment(Environment):
    """An environment whose z does not depend on x."""

    z: Tensor

    def __init__(self, z: Tensor, probabilities: Tensor | None, density: Tensor | None) -> None:
        super().__init__(probabilities, density)
        self.register_buffer("z", z)
        self.dim = self.appended = z.shape[-1]

    def values(self, X: Tensor) -> Tensor:
        check_like("X", X, "the environment", self.z)
        return self.z.expand(*X.shape[:-1], *self.z.shape)

    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        return torch.cat([X, Z], -1)


class FiniteEnvironment(_FixedEnvironment):
    """Finitely many z with known probabilities; ``ValueError`` if an argument is not as described.

    Args:
        points: z, ``w x d_z``, w >= 1, floating point and finite.
        probabilities: ``w``, >= 0, with sum 1 (within 1e-6). None means all equal; equal ones are stored as None.
    """

    def __init__(self, points: Tensor, probabilities: Tensor | None = None) -> None:
        z = _check_points("points", points)
        p = _check_probabilities(probabilities, z)
        super().__init__(z, p, p)


class ContinuousEnvironment(_FixedEnvironment):
    """A continuous Z on a box, replaced by fixed, equally likely points.

    Give either a ``distribution`` or a ``sampler``. A distribution with independent coordinates is truncated to the
    box, and its inverse distribution function maps a scrambled Sobol sequence to the points. For d_z = 1 it maps the
    midpoints of ``num_points`` cells of equal probability instead. A sampler draws the points once.

    Args:
        bounds: Lower and upper corner of the support, ``2 x d_z``. Fixes dtype and device.
        distribution: Has ``cdf`` and ``icdf``, scalar or ``d_z`` batch shape and no event shape, such as
            ``Normal(0.5, 0.125)``.
        sampler: Called with n; returns ``n x d_z`` draws from the support.
        log_prob: Log density of the sampler's draws at ``... x d_z``, up to a constant, by which the rule "probable"
            ranks points. Without it all rank alike.
        num_points: w.
        seed: Seed of the Sobol scrambling.

    Raises:
        ValueError: if an argument is not as described, the distribution has no probability in the box, or a draw of the
            sampler is NaN or outside of it.

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
        check_bounds(bounds)
        check_count(1, num_points=num_points)
        if (distribution is None) == (sampler is None):
            raise ValueError("give either a distribution (with cdf and icdf) or a sampler of Z.")
        if distribution is not None:
            if log_prob is not None:
                raise ValueError("log_prob belongs to a sampler; that of a distribution is its own.")
            if not (hasattr(distribution, "cdf") and hasattr(distribution, "icdf")):
                raise ValueError(f"distribution needs cdf and icdf, as Normal(0.5, 0.1); got {quoted(distribution)}.")
            if len(distribution.event_shape) > 0:
                raise ValueError("the coordinates of the distribution must be independent (batch, not event shape).")
        # The points need the bounds, which can be registered only after the module is initialized: empty until then.
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
            self.density = (log_density - log_density.max()).exp()  # relative to the largest, so that none overflows

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n independent points, ``n x d_z``.

        A distribution uses the ``generator`` (on the device of the bounds), a sampler ignores it. Raises ``ValueError``
        if the points of a sampler do not fit the box, and ``TypeError`` if it returns no tensor.
        """
        template, shape = self.bounds, (n, self.bounds.shape[-1])
        if self._sampler is None:
            return self._from_uniform(
                torch.rand(shape, generator=generator, dtype=template.dtype, device=template.device)
            )
        z = self._sampler(n)
        check_like("what the sampler returns", z, "the bounds", template)
        if z.shape != shape:
            raise ValueError(f"the sampler must return {n} x {template.shape[-1]} draws, got {tuple(z.shape)}.")
        check_finite("the sampler's draws", z)
        outside = int(((z < template[0]) | (z > template[1])).any(-1).sum())
        if outside:
            raise ValueError(f"{outside} of {n} draws of the sampler are outside the declared bounds; widen them.")
        return z.detach()

    def log_prob(self, z: Tensor) -> Tensor | None:
        """Log density at ``... x d_z``, -inf outside the box of a distribution. None if a sampler came without one."""
        if self._distribution is None:
            return None if self._log_prob is None else self._log_prob(z)
        low, high = self._cdf_of_bounds()
        inside = ((z >= self.bounds[0]) & (z <= self.bounds[1])).all(-1)
        each = self._distribution.log_prob(z.clamp(self.bounds[0], self.bounds[1])) - (high - low).log()
        return each.sum(-1).masked_fill(~inside, -torch.inf)

    def _cdf_of_bounds(self) -> tuple[Tensor, Tensor]:
        assert self._distribution is not None
        try:
            low, high = self._distribution.cdf(self.bounds).to(self.bounds).expand_as(self.bounds)
        except ValueError:  # torch's check of arguments
            raise ValueError("the bounds must lie in the distribution's support (or validate_args=False).") from None
        if not bool((high > low).all()):
            raise ValueError("the distribution has no probability within the bounds.")
        return low, high

    def _from_uniform(self, u: Tensor) -> Tensor:
        """Points of the truncated distribution from uniforms, ``n x d_z``."""
        assert self._distribution is not None
        low, high = self._cdf_of_bounds()
        z = self._distribution.icdf(low + (high - low) * u).to(u)
        # Rounding of cdf and icdf may put a point just outside the box.
        return z.maximum(self.bounds[0]).minimum(self.bounds[1])


class PerturbationEnvironment(Environment):
    """The environment perturbs the design itself: f is observed at x + xi. Adds no columns.

    Args:
        perturbations: xi, ``w x d_x``, or a function from X (``... x d_x``) to xi (``... x w x d_x``).
        probabilities: ``w``, as in :class:`FiniteEnvironment`.
        bounds: Box of the domain, ``2 x d_x``, or None. Points outside are moved to its boundary.

    Errors are those of :class:`FiniteEnvironment`. Besides, ``ValueError`` if x, xi and bounds differ in dtype or
    device, or a function returns NaN or a wrong shape, and ``TypeError`` if it returns no tensor.
    """

    bounds: Tensor | None

    def __init__(
        self,
        perturbations: Tensor | Callable[[Tensor], Tensor],
        probabilities: Tensor | None = None,
        bounds: Tensor | None = None,
    ) -> None:
        fixed = None if callable(perturbations) else _check_points("perturbations", perturbations)
        p = _check_probabilities(probabilities, fixed)
        super().__init__(p, p)
        self.register_buffer("perturbations", fixed)
        if bounds is not None:
            check_bounds(bounds)
            if fixed is not None:
                check_like("bounds", bounds, "the perturbations", fixed)
        self.register_buffer("bounds", bounds)
        self._function = perturbations if callable(perturbations) else None
        self._num_points = None if probabilities is None else probabilities.shape[-1]
        self.dim, self.appended = None if fixed is None else fixed.shape[-1], 0

    @classmethod
    def ball(cls, radius: float, bounds: Tensor, num_points: int = 64, seed: int = 0) -> PerturbationEnvironment:
        """Make the Euclidean ball around x, within the box, as in StableOpt (Bogunovic et al. 2018).

        The points are the center and Sobol directions. Half of these have the full radius, where minima of smooth
        functions mostly are; the others are spread over the inside. In one dimension they are an even grid, which
        contains the center if ``num_points`` is odd. The radius is in units of x, and the bounds fix dtype and device.
        ``ValueError`` if the radius is not positive, ``num_points`` < 2, or the bounds are no box ``2 x d_x``.
        """
        check_positive(radius=radius)
        check_count(2, num_points=num_points)
        check_bounds(bounds)
        d = bounds.shape[-1]
        if d == 1:
            xi = torch.linspace(-radius, radius, num_points, dtype=bounds.dtype, device=bounds.device).unsqueeze(-1)
            return cls(xi, bounds=bounds)
        u = SobolEngine(d + 1, scramble=True, seed=seed).draw(num_points, dtype=torch.float64)
        # Normal vectors have uniform directions; the clamp keeps ndtri finite at 0.
        direction = torch.special.ndtri(u[:, :d].clamp(1e-9, 1.0 - 1e-9))
        length = u[:, d:].pow(1.0 / d)  # uniform in volume
        length[1::2] = 1.0
        length[0] = 0.0
        xi = direction / direction.norm(dim=-1, keepdim=True).clamp_min(1e-12) * (radius * length)
        return cls(xi.to(bounds), bounds=bounds)

    def values(self, X: Tensor) -> Tensor:
        if self.bounds is not None:
            check_like("X", X, "the bounds of the environment", self.bounds)
        if self._function is None:
            xi: Tensor = self.perturbations  # type: ignore[assignment]
            check_like("X", X, "the environment", xi)
            if X.shape[-1] != xi.shape[-1]:
                raise ValueError(f"perturbations have {xi.shape[-1]} columns, X has {X.shape[-1]}.")
            return xi.expand(*X.shape[:-1], *xi.shape)
        xi = self._function(X)
        check_like("what the function of perturbations returns", xi, "X", X)
        w = self._num_points or (xi.shape[-2] if xi.ndim > 1 else 0)
        if xi.shape != (*X.shape[:-1], w, X.shape[-1]) or w == 0:
            raise ValueError(f"perturbations must be ... x {w or 'w'} x {X.shape[-1]}, got {tuple(xi.shape)}.")
        check_finite("the perturbations", xi)
        return xi

    def join(self, X: Tensor, Z: Tensor) -> Tensor:
        """x + xi, moved into the box."""
        moved = X + Z
        return moved if self.bounds is None else moved.maximum(self.bounds[0]).minimum(self.bounds[1])


def _check_points(name: str, z: Tensor) -> Tensor:
    check_tensor(name, z, floating=False)
    if z.ndim != 2 or 0 in z.shape or z.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be w x d, w and d >= 1, float32 or float64; got {z.dtype} {tuple(z.shape)}.")
    check_finite(name, z)
    return z.detach().clone()


def _check_probabilities(p: Tensor | None, z: Tensor | None) -> Tensor | None:
    """The normalized probabilities, or None if they are all equal."""
    if p is None:
        return None
    check_tensor("probabilities", p, floating=False)
    if p.ndim != 1 or len(p) == 0 or (z is not None and len(p) != len(z)):
        raise ValueError(f"probabilities must be {'w' if z is None else len(z)}, got shape {tuple(p.shape)}.")
    if z is not None:
        check_like("probabilities", p, "the points", z)
    check_finite("probabilities", p)
    if bool((p < 0).any()):
        raise ValueError(f"probabilities must not be negative; the smallest is {float(p.min()):g}.")
    total = float(p.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"probabilities must sum to 1, got {total:g}; divide them by their sum.")
    return None if bool((p == p[0]).all()) else (p / p.sum()).detach()
