"""One Gaussian for an ensemble: the mean and the covariance of its mixture.

An acquisition function with a confidence width needs one posterior, and one that samples is faster with one. The
variance of a mixture is the mean of its members' variances plus the variance of their means. So a model that averages
over hyperparameters knows that it knows little of them.
"""

from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from bo_robust.models.candidate_ensemble import CandidateEnsemble


class AveragedGP(Model):
    """A model of which every posterior is Gaussian, with the mean and covariance of the ensemble's mixture.

    Args:
        ensemble: A ``CandidateEnsemble``, averaged by its ``weights``.

    Raises:
        ValueError: if it is another model.

    Example:
        >>> ensemble = CandidateEnsemble(X, Y, "posterior", elimination=None)
        >>> acqf = GPUCB(AveragedGP(ensemble), ConstantWidth(2.0))
    """

    num_outputs = 1
    batch_shape = torch.Size()

    def __init__(self, ensemble: CandidateEnsemble) -> None:
        super().__init__()
        if not isinstance(ensemble, CandidateEnsemble):
            raise ValueError(f"AveragedGP takes a CandidateEnsemble, got {type(ensemble).__name__}.")
        self.ensemble = ensemble

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """Those of the ensemble, as :attr:`train_targets` are."""
        return self.ensemble.train_inputs

    @property
    def train_targets(self) -> Tensor:
        return self.ensemble.train_targets

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at each point of ``lead x q x d`` on its own, ``lead x q`` each."""
        mean, variance = self.ensemble.moments(X, alive_only=True)
        weights = self._weights(mean)
        center = weights @ mean
        return center, weights @ (variance + (mean - center.unsqueeze(-2)).square())

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """The posterior of f at ``lead x q x d``; arguments and errors are those of the ensemble's."""
        members = self.ensemble.posterior(X, observation_noise=observation_noise).distribution
        weights = self._weights(members.mean)
        center = weights @ members.mean
        gap = members.mean - center.unsqueeze(-2)
        spread = torch.einsum("h,...hi,...hj->...ij", weights, gap, gap)
        covariance = torch.einsum("h,...hij->...ij", weights, members.covariance_matrix) + spread
        posterior = GPyTorchPosterior(MultivariateNormal(center, DenseLinearOperator(covariance)))
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> "AveragedGP":
        """That of the ensemble, averaged."""
        return AveragedGP(self.ensemble.condition_on_observations(X, Y, **kwargs))

    def subset_output(self, idcs: list[int]) -> "AveragedGP":
        """The model itself: it has one output."""
        self.ensemble.subset_output(idcs)  # raises
        return self

    def _weights(self, like: Tensor) -> Tensor:
        return self.ensemble.weights[self.ensemble.alive].to(like)
