"""The posterior of outcomes that are modeled in another scale, and the outcome transform that makes it.

Let w = T(y) have the posterior N(m, C), g = T^-1, z be standard normal, s_i^2 = C_ii, r_ij = C_ij / (s_i s_j) and He_k
the probabilists' Hermite polynomials. With a_k(i) = E[g(m_i + s_i z) He_k(z)] the moments of y are (Mehler's formula)

    E y_i = a_0(i),    Cov(y_i, y_j) = sum_(k >= 1) r_ij^k a_k(i) a_k(j) / k!.

Every term is positive semi-definite, and so is the sum of the first TERMS. The part of a variance that these terms
miss is added to the diagonal. So variances are exact, and a covariance is off by at most the geometric mean of the
parts that its two variances miss: nothing where g is a polynomial of a degree up to TERMS. The moments of a logarithm
are in closed form.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform, Standardize
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale

NODES = 32  # of Gauss and Hermite's quadrature
TERMS = 6


class ScaledPosterior(GPyTorchPosterior):
    """The posterior of y = T^-1(w) for a Gaussian posterior of w.

    Samples and quantiles are exact. ``mean``, ``variance`` and ``distribution`` have the moments of y. What needs a
    Gaussian posterior, such as a weighted sum of outputs, sees the Gaussian of these moments.

    Args:
        latent: The posterior of w, of one output.
        scale: The scale T.
    """

    _is_mt = False  # one output

    def __init__(self, latent: GPyTorchPosterior, scale: OutcomeScale) -> None:
        self.latent, self.scale = latent, scale
        self._distribution: MultivariateNormal | None = None

    @property
    def distribution(self) -> MultivariateNormal:  # type: ignore[override]
        """The Gaussian of the same mean and covariance as y; made when first asked for."""
        if self._distribution is None:
            # As a linear operator it needs no factor now, and gets GPyTorch's jitter where it does.
            covariance = to_linear_operator(_covariance(self.latent.distribution, self.scale))
            self._distribution = MultivariateNormal(self.mean.squeeze(-1), covariance)
        return self._distribution

    @property
    def mean(self) -> Tensor:
        """E y, ``... x q x 1``."""
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """Variance of y, ``... x q x 1``."""
        return self._moments()[1]

    def quantile(self, value: Tensor) -> Tensor:
        """Quantiles of y, exact as T is monotone, ``(k x) ... x q x 1``."""
        return self.scale.untransform(self.latent.quantile(value))

    def density(self, value: Tensor) -> Tensor:
        """Marginal densities of y at ``value``, ``(k x) ... x q x 1``; 0 outside the domain of T."""
        inside = self.scale.contains(value) | (self.scale.power > 0.0)  # a root continues as an odd function
        w = self.scale.transform(value.where(inside, self.scale.untransform(torch.zeros_like(value))))
        density = self.latent.density(w)
        shape = (-1, *[1] * (density.ndim - 1)) if value.numel() > 1 else ()
        return density * self.scale.log_inverse_slope(w).neg().exp().mul(inside).reshape(shape)

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        return self.scale.untransform(self.latent.rsample(sample_shape))

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        return self.scale.untransform(self.latent.rsample_from_base_samples(sample_shape, base_samples))

    @property
    def batch_shape(self) -> torch.Size:
        return self.latent.distribution.batch_shape

    @property
    def event_shape(self) -> torch.Size:
        return self.latent.distribution.event_shape

    @property
    def base_sample_shape(self) -> torch.Size:
        return self.latent.base_sample_shape

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return self.latent._extended_shape(sample_shape)

    @property
    def device(self) -> torch.device:
        return self.latent.device

    @property
    def dtype(self) -> torch.dtype:
        return self.latent.dtype

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of y, ``... x q x 1`` each; unlike the covariance they need O(q)."""
        m, variance = self.latent.mean, self.latent.variance
        if self.scale.is_logarithm:
            mean, u = _lognormal(m, variance, self.scale)
            return mean, u.square() * variance.expm1()
        values, _, weights = _at_nodes(m, variance, self.scale)
        mean = (values * weights).sum(-1)
        return mean, ((values - mean.unsqueeze(-1)).square() * weights).sum(-1)


class LatentModel(GPyTorchModel):
    """A model of one outcome, on the scale on which it is Gaussian."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.latent_of = model

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        shape: torch.Size = self.latent_of.batch_shape
        return shape

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """The posterior of the latent values, as of BoTorch's models."""
        posterior = self.latent_of.posterior(X, output_indices, observation_noise)
        assert isinstance(posterior, ScaledPosterior)
        latent: GPyTorchPosterior = posterior.latent
        return latent if posterior_transform is None else posterior_transform(latent)


def mean_in_units(m: Tensor, variance: Tensor, scale: OutcomeScale) -> Tensor:
    """E y of w with these means and variances, of one shape."""
    if scale.is_identity:
        return m
    if scale.is_logarithm:
        return _lognormal(m, variance, scale)[0]
    values, _, weights = _at_nodes(m, variance, scale)
    return (values * weights).sum(-1)


def _lognormal(m: Tensor, variance: Tensor, scale: OutcomeScale) -> tuple[Tensor, Tensor]:
    """The means of y and of u = sign y + shift."""
    u = (scale.sign * m + 0.5 * variance).exp()
    return scale.sign * (u - scale.shift), u


def _at_nodes(m: Tensor, variance: Tensor, scale: OutcomeScale) -> tuple[Tensor, Tensor, Tensor]:
    """Values of y at the nodes of the quadrature, ``... x NODES``, the nodes and their weights, of sum 1."""
    nodes, weights = (m.new_tensor(x) for x in np.polynomial.hermite_e.hermegauss(NODES))
    values = scale.untransform(m.unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * nodes)
    return values, nodes, weights / math.sqrt(2.0 * math.pi)


def _covariance(latent: MultivariateNormal, scale: OutcomeScale) -> Tensor:
    """Covariances of y, ``... x q x q``."""
    m, C, variance = latent.mean, latent.covariance_matrix, latent.variance
    # Rounding makes variances negative, which GPyTorch then replaces.
    C = C + torch.diag_embed(variance - C.diagonal(dim1=-2, dim2=-1))
    if scale.is_logarithm:
        _, u = _lognormal(m, variance, scale)
        return u.unsqueeze(-1) * u.unsqueeze(-2) * C.expm1()
    values, nodes, weights = _at_nodes(m, variance, scale)
    values = values - (values * weights).sum(-1, keepdim=True)
    deviation = variance.sqrt()
    r = (C / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))).clamp(-1.0, 1.0)
    left, total, power = (values.square() * weights).sum(-1), torch.zeros_like(C), torch.ones_like(C)
    before, polynomial = torch.zeros_like(nodes), torch.ones_like(nodes)
    for k in range(1, TERMS + 1):
        before, polynomial = polynomial, nodes * polynomial - (k - 1) * before
        power = power * r
        a = (values * weights * polynomial).sum(-1) / math.sqrt(math.factorial(k))
        total = total + power * a.unsqueeze(-1) * a.unsqueeze(-2)
        left = left - a.square()
    return total + torch.diag_embed(left.clamp_min(0.0))


class ScaledOutcome(OutcomeTransform):
    """The outcome transform of a scale."""

    def __init__(self, scale: OutcomeScale) -> None:
        super().__init__()
        self.scale = scale

    @property
    def _is_linear(self) -> bool:
        """True: BoTorch then combines the outputs of a ``ModelListGP``, since each posterior has a ``distribution``."""
        return True

    def forward(self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """w of observations; a root continues as an odd function, as fantasies of small outcomes may be below 0."""
        if Yvar is not None:
            raise ValueError("a model with an outcome scale takes no noise variances; give outcome_scale=None.")
        if self.scale.power == 0.0 and not bool(self.scale.contains(Y).all()):
            raise ValueError(
                f"the outcomes are modeled as their {self.scale}, which has no value for some of the new ones; "
                "make and fit a new model of all data, or give outcome_scale=None."
            )
        return self.scale.transform(Y), None

    def untransform(self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None) -> tuple[Tensor, None]:
        return self.scale.untransform(Y), None

    def untransform_posterior(self, posterior: Posterior, X: Tensor | None = None) -> ScaledPosterior:
        assert isinstance(posterior, GPyTorchPosterior)
        return ScaledPosterior(posterior, self.scale)


def scaled_standardize(scale: OutcomeScale, standardize: Standardize) -> OutcomeTransform:
    if scale.is_identity:
        return standardize
    return ChainedOutcomeTransform(scale=ScaledOutcome(scale), standardize=standardize)


def standardize_of(transform: Any) -> tuple[OutcomeScale, Standardize | None]:
    """The scale and standardizing part of a transform that :func:`scaled_standardize` made; None of another one."""
    if type(transform) is Standardize:
        return IDENTITY, transform
    first = transform["scale"] if isinstance(transform, ChainedOutcomeTransform) and "scale" in transform else None
    return (first.scale, transform["standardize"]) if isinstance(first, ScaledOutcome) else (IDENTITY, None)
