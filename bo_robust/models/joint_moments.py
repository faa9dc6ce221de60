"""Joint posterior means and covariances of f between any sets of points, of one Gaussian posterior or of several.

Let O be the points observed, L L^T the covariance of the observations there, and white(A) = L^-1 k(O, A). Then the
mean at A is m(A) + white(A)^T L^-1 (y - m(O)), and the covariance of A and B is k(A, B) - white(A)^T white(B). Of an
exact GP, k is the kernel. Of any other model k is its posterior covariance, and O has only what came after its data.

``s`` are the members of an ensemble, one of other models, and ``...`` the axes of the points: ``... x a x d`` points
have means ``s x ... x a``. Results are differentiable in the points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.transforms import is_ensemble
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.models.exact_moments import exact_strategy, solved
from bo_robust.models.moments import line_of, observation_noise
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import LatentModel, standardize_of
from bo_robust.utils.covariance import shape_of
from bo_robust.utils.upstream import training_residuals


class Outcome(NamedTuple):
    """f = offset + slope T^-1(shift + unit sign w) of a Gaussian w, which it increases with."""

    unit: Tensor | float = 1.0  # > 0
    shift: Tensor | float = 0.0
    scale: OutcomeScale = IDENTITY
    offset: float = 0.0
    slope: Tensor | float = 1.0

    @property
    def sign(self) -> float:
        return 1.0 if self.slope >= 0.0 else -1.0

    def __call__(self, w: Tensor) -> Tensor:
        return self.offset + self.slope * self.scale.untransform(self.shift + self.unit * self.sign * w)


class JointMoments:
    """Joint moments of a Gaussian w that tells f by ``outcome``.

    Attributes:
        weights: How much each member of the ensemble counts, ``s``.
    """

    outcome = Outcome()

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self._hallucinated: tuple[Tensor, Tensor, Tensor] | None = None  # P, white(P) before, L^-1

    def inputs(self, X: Tensor) -> Tensor:
        """Points as the other methods take them."""
        return X

    def white(self, points: Tensor) -> Tensor:
        """``s x ... x r x a``."""
        white = self._white(points)
        if self._hallucinated is None:
            return white
        P, before, inverse = self._hallucinated
        more = inverse.reshape(len(inverse), *[1] * (points.ndim - 2), *inverse.shape[1:])
        before = before.reshape(len(before), *[1] * (points.ndim - 2), *before.shape[1:])
        return torch.cat([white, more @ (self.prior(P, points) - before.mT @ white)], -2)

    def mean(self, points: Tensor, white: Tensor) -> Tensor:
        """``s x ... x a``."""
        raise NotImplementedError

    def covariance(self, A: Tensor, white_A: Tensor, B: Tensor, white_B: Tensor) -> Tensor:
        """Covariances of w at points ``... x a x d`` and ``... x b x d``, ``s x ... x a x b``."""
        return self.prior(A, B) - white_A.mT @ white_B

    def noise(self, points: Tensor) -> Tensor:
        """The variance that an observation adds, of a shape that broadcasts with ``s x ... x a``."""
        raise NotImplementedError

    def hallucinate(self, P: Tensor) -> None:
        """Observe points ``k x d`` at their means, once: all means stay."""
        before = self._white(P)
        observed = self.prior(P, P) - before.mT @ before + torch.diag_embed(self.noise(P).expand(len(before), len(P)))
        L = psd_safe_cholesky(observed)
        inverse = torch.linalg.solve_triangular(L, torch.eye(len(P)).to(L).expand_as(L), upper=False)
        self._hallucinated = P, before, inverse

    def _white(self, points: Tensor) -> Tensor:
        """That of the data."""
        return points.new_zeros(len(self.weights), *points.shape[:-2], 0, points.shape[-2])

    def prior(self, A: Tensor, B: Tensor) -> Tensor:
        """k(A, B), of shapes as of :meth:`covariance`."""
        raise NotImplementedError


class _OfExactGP(JointMoments):
    def __init__(self, gp: Any, strategy: Any, outcome: Outcome, noise: Tensor) -> None:
        super().__init__(torch.ones_like(noise).reshape(1))
        self.gp, self.outcome, self.shape, self._noise = gp, outcome, shape_of(gp.covar_module), noise
        self.root = solved(strategy)[1]
        self.residual = self.root @ training_residuals(strategy)[1]

    def inputs(self, X: Tensor) -> Tensor:
        points: Tensor = self.gp.transform_inputs(X)
        return points

    def mean(self, points: Tensor, white: Tensor) -> Tensor:
        explained = white[..., : len(self.residual), :].mT @ self.residual
        return self.outcome.sign * (self.gp.mean_module(points) + explained)

    def noise(self, points: Tensor) -> Tensor:
        return self._noise

    def _white(self, points: Tensor) -> Tensor:
        flat = self.root @ self._kernel(self.gp.train_inputs[0], points.flatten(0, -2))
        return flat.unflatten(-1, points.shape[:-1]).movedim(0, -2).unsqueeze(0)

    def prior(self, A: Tensor, B: Tensor) -> Tensor:
        return self._kernel(A, B).unsqueeze(0)

    def _kernel(self, A: Tensor, B: Tensor) -> Tensor:
        if self.shape is None:
            lead = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
            with lazily_evaluate_kernels(False):
                covariance: Tensor = self.gp.covar_module(*(X.expand(*lead, -1, -1) for X in (A, B))).to_dense()
            return covariance
        ell = self.shape.lengthscale.detach()
        # By differences: the squares of a short lengthscale would hide them.
        squares = ((A / ell).unsqueeze(-2) - (B / ell).unsqueeze(-3)).square().sum(-1)
        return self.shape.outputscale.detach() * self.shape.radial.of(squares)


class _OfPosterior(JointMoments):
    """From joint posteriors of a model, ``lead x s x a`` of an ensemble."""

    def __init__(self, model: Any, transform: PosteriorTransform | None, outcome: Outcome, x: Tensor) -> None:
        self.model, self.transform, self.outcome = model, transform, outcome
        self.of_members = hasattr(model, "member_posterior")  # of a CandidateEnsemble
        self.has_members = self.of_members or is_ensemble(model)
        mean, _ = self._joint(x)
        equal = torch.full_like(mean[:, 0], 1.0 / len(mean)).detach()
        super().__init__(model.weights.to(equal) if self.of_members else equal)

    def mean(self, points: Tensor, white: Tensor) -> Tensor:
        return self.outcome.sign * self._joint(points)[0]

    def noise(self, points: Tensor) -> Tensor:
        if self.of_members:
            noise: Tensor = self.model.member_noise
            return noise.reshape(-1, *[1] * (points.ndim - 1))
        return self._members(observation_noise(self.model, points, self.transform), -2)

    def prior(self, A: Tensor, B: Tensor) -> Tensor:
        lead = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        both = torch.cat([X.expand(*lead, *X.shape[-2:]) for X in (A, B)], -2)
        return self._joint(both)[1][..., : A.shape[-2], A.shape[-2] :]

    def _joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        if self.of_members:
            posterior = self.model.member_posterior(points)
        else:
            posterior = self.model.posterior(points, posterior_transform=self.transform)
        if not isinstance(posterior, GPyTorchPosterior):
            raise ValueError("the knowledge gradient needs a Gaussian posterior; use an affine outcome_transform.")
        distribution = posterior.distribution
        return self._members(distribution.mean, -2), self._members(distribution.covariance_matrix, -3)

    def _members(self, x: Tensor, axis: int) -> Tensor:
        return x.movedim(axis, 0) if self.has_members else x.unsqueeze(0)


def joint_moments(model: Model, transform: PosteriorTransform | None, x: Tensor) -> JointMoments:
    """The joint moments of a fitted model; a ``transform`` makes one output of its outputs.

    ``x`` is any of its inputs, ``1 x d``. ``ValueError`` if the model has a batch shape, but is no ensemble, or its
    posterior is not Gaussian.
    """
    gp: Any = model
    if model.batch_shape and not is_ensemble(model):
        raise ValueError("the knowledge gradient needs a model without batch shape; make one for each trial.")
    line, made = line_of(transform), getattr(gp, "outcome_transform", None)
    scale, standardize = standardize_of(made)
    latent = model if scale.is_identity or line is None else LatentModel(model)
    exact = exact_strategy(gp, x) if line is not None and (made is None or standardize is not None) else None
    if exact is not None and line is not None:
        unit, shift = x.new_tensor([1.0, 0.0])
        if standardize is not None:
            unit, shift = standardize.stdvs.squeeze(), standardize.means.squeeze()
        noise = observation_noise(latent, x, None).squeeze() / unit.square()
        return _OfExactGP(gp, exact[0], Outcome(unit, shift, scale, *line), noise)
    if latent is not model and line is not None:
        return _OfPosterior(latent, None, Outcome(scale=scale, offset=line[0], slope=line[1]), x)
    return _OfPosterior(model, transform, Outcome(), x)
