"""Joint posterior means and covariances of f between any sets of points, by one Gaussian posterior or several.

Let O be the points observed, L L^T the covariance of the observations there, and white(A) = L^-1 k(O, A). Then the
mean at A is m(A) + white(A)^T L^-1 (y - m(O)), and the covariance of A and B is k(A, B) - white(A)^T white(B). Of an
exact GP k is the kernel. Of any other model m and k are its posterior, and O has only what comes after its data.
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
from bo_robust.models.moments import checked_posterior, line_of, observation_noise
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import LatentModel, standardize_of
from bo_robust.utils.covariance import shape_of
from bo_robust.utils.upstream import training_residuals


class Outcome(NamedTuple):
    """f = offset + slope T^-1(shift + unit sign w), which increases with w."""

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
    """Joint moments of a Gaussian w, from which f is by ``outcome``, at points ``... x a x d``.

    Results are ``s x ... x a``, with ``s`` members of an ensemble (one of other models) that count by ``weights``, and
    differentiable in the points.

    Args:
        model: A fitted model; a ``transform`` makes one output of its outputs.
        x: Any input of the model, ``1 x d``.

    Raises:
        ValueError: if the model has a batch shape and is no ensemble, or its posterior is not Gaussian.
    """

    weights: Tensor

    def __init__(self, model: Model, transform: PosteriorTransform | None, x: Tensor) -> None:
        if model.batch_shape and not is_ensemble(model):
            raise ValueError("joint moments are of a model without batch shape; make a model for each trial.")
        line, made = line_of(transform), getattr(model, "outcome_transform", None)
        scale, standardize = standardize_of(made)
        self.model: Any = model
        self.transform, self.outcome = transform, Outcome()
        if line is not None and not scale.is_identity:
            self.model, self.transform, self.outcome = LatentModel(model), None, Outcome(1.0, 0.0, scale, *line)
        self.of_members = hasattr(model, "member_posterior")  # of a CandidateEnsemble
        self.has_members = self.of_members or is_ensemble(model)
        self.given: tuple[Tensor, Tensor, Tensor] | None = None  # P, white(P) by the data, L^-1
        self.gp: Any = None
        exact = exact_strategy(model, x) if line is not None and (made is None or standardize is not None) else None
        if exact is None or line is None:
            mean, _ = self._posterior(x)
            equal = torch.full_like(mean[:, 0], 1.0 / len(mean)).detach()
            self.weights = self.model.weights.to(equal) if self.of_members else equal
            return
        unit, shift = x.new_tensor([1.0, 0.0])
        if standardize is not None:
            unit, shift = standardize.stdvs.squeeze(), standardize.means.squeeze()
        self._noise = observation_noise(self.model, x, None).squeeze() / unit.square()
        self.gp, self.outcome, self.weights = model, Outcome(unit, shift, scale, *line), x.new_ones(1)
        self.shape, self.root = shape_of(self.gp.covar_module), solved(exact[0])[1]
        self.residual = self.root @ training_residuals(exact[0])[1]

    def inputs(self, X: Tensor) -> Tensor:
        """Points as the other methods take them."""
        return X if self.gp is None else self.gp.transform_inputs(X)

    def mean(self, points: Tensor, white: Tensor) -> Tensor:
        """``s x ... x a``."""
        if self.gp is None:
            return self.outcome.sign * self._posterior(points)[0]
        explained = white[..., : len(self.residual), :].mT @ self.residual
        return self.outcome.sign * (self.gp.mean_module(points) + explained)

    def prior(self, A: Tensor, B: Tensor) -> Tensor:
        """k(A, B) of points ``... x a x d`` and ``... x b x d``, ``s x ... x a x b``."""
        if self.gp is not None:
            return self._kernel(A, B).unsqueeze(0)
        return self._posterior(torch.cat(_broadcast(A, B), -2))[1][..., : A.shape[-2], A.shape[-2] :]

    def covariance(self, A: Tensor, white_A: Tensor, B: Tensor, white_B: Tensor) -> Tensor:
        """Covariances of w at two sets of points, of the shape of :meth:`prior`."""
        return self.prior(A, B) - white_A.mT @ white_B

    def noise(self, points: Tensor) -> Tensor:
        """The variance that an observation adds; it broadcasts with ``s x ... x a``."""
        if self.gp is not None:
            return self._noise
        if self.of_members:
            noise: Tensor = self.model.member_noise
            return noise.reshape(-1, *[1] * (points.ndim - 1))
        return self._members(observation_noise(self.model, points, self.transform), -2)

    def hallucinate(self, P: Tensor) -> None:
        """Observe points ``k x d`` at their means, once: all means stay."""
        before = self._white(P)
        L = psd_safe_cholesky(
            self.covariance(P, before, P, before) + torch.diag_embed(self.noise(P).expand(len(before), len(P)))
        )
        self.given = P, before, torch.linalg.inv(L)

    def white(self, points: Tensor) -> Tensor:
        """White(points), ``s x ... x r x a``."""
        white = self._white(points)
        if self.given is None:
            return white
        lead = len(white), *[1] * (points.ndim - 2)
        P, before, inverse = self.given[0], *(x.reshape(*lead, *x.shape[1:]) for x in self.given[1:])
        return torch.cat([white, inverse @ self.covariance(P, before, points, white)], -2)

    def _white(self, points: Tensor) -> Tensor:
        """By the data alone."""
        if self.gp is None:
            return points.new_zeros(len(self.weights), *points.shape[:-2], 0, points.shape[-2])
        flat = self.root @ self._kernel(self.gp.train_inputs[0], points.flatten(0, -2))
        return flat.unflatten(-1, points.shape[:-1]).movedim(0, -2).unsqueeze(0)

    def _kernel(self, A: Tensor, B: Tensor) -> Tensor:
        if self.shape is None:
            with lazily_evaluate_kernels(False):
                covariance: Tensor = self.gp.covar_module(*_broadcast(A, B)).to_dense()
            return covariance
        ell = self.shape.lengthscale.detach()
        # By differences: the squares of a short lengthscale would hide them.
        squares = ((A / ell).unsqueeze(-2) - (B / ell).unsqueeze(-3)).square().sum(-1)
        return self.shape.outputscale.detach() * self.shape.radial.of(squares)

    def _posterior(self, points: Tensor) -> tuple[Tensor, Tensor]:
        asked = self.model
        if self.of_members:
            posterior = asked.member_posterior(points)
        else:
            posterior = checked_posterior(asked, points, self.transform)
        if not isinstance(posterior, GPyTorchPosterior):
            raise ValueError("joint moments need a Gaussian posterior; use an affine outcome_transform.")
        distribution = posterior.distribution
        return self._members(distribution.mean, -2), self._members(distribution.covariance_matrix, -3)

    def _members(self, x: Tensor, axis: int) -> Tensor:
        return x.movedim(axis, 0) if self.has_members else x.unsqueeze(0)


def _broadcast(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    lead = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return A.expand(*lead, *A.shape[-2:]), B.expand(*lead, *B.shape[-2:])
