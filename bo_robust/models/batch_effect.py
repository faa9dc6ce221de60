"""Readings of one batch, day or instrument share a deviation: :class:`BatchEffectLikelihood`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.operators import ConstantDiagLinearOperator, DenseLinearOperator, LinearOperator
from torch import Tensor

from bo_robust.utils.input_checks import quoted

LEAST = 1e-6  # smallest variance of the deviations, in variances of the observations


class BatchEffectLikelihood(GaussianLikelihood):
    """Gaussian noise, and a deviation that the observations of a batch share: y_i = f(x_i) + d_b(i) + e_i.

    With d_b ~ N(0, s_b^2), two observations have the covariance k(x, x') + s_b^2 [b = b'], and the noise variance where
    they are the same one. So the posterior of f is for a batch that is not seen yet, whose deviation is 0 on average,
    and an observation there has s_b^2 more variance. A fit learns s_b^2, ``batch_variance``, with the noise.

    Args:
        batch: Number of the batch of each training point, ``n``, whole.
        likelihood: The likelihood of the noise, with one variance for all.
    """

    batch: Tensor

    def __init__(self, batch: Tensor, likelihood: GaussianLikelihood) -> None:
        super().__init__()
        self.noise_covar = likelihood.noise_covar
        self.register_buffer("batch", batch, persistent=False)
        prior = LogNormalPrior(-3.0, 1.5)  # wider than BoTorch's of the noise, so that a factor of two is no surprise
        self.register_parameter("raw_batch_variance", torch.nn.Parameter(torch.zeros(1)))
        self.register_prior("batch_variance_prior", prior, lambda m: m.batch_variance)
        constraint = GreaterThan(LEAST, transform=None, initial_value=prior.mode)
        self.register_constraint("raw_batch_variance", constraint)
        self.to(likelihood.noise)

    @property
    def batch_variance(self) -> Tensor:
        """s_b^2, in the units of the model's targets."""
        return self.raw_batch_variance_constraint.transform(self.raw_batch_variance)

    @batch_variance.setter
    def batch_variance(self, value: Tensor) -> None:
        raw = self.raw_batch_variance_constraint.inverse_transform(torch.as_tensor(value).to(self.raw_batch_variance))
        self.initialize(raw_batch_variance=raw)

    @property
    def same_batch(self) -> Tensor:
        """1 where two training points are of one batch, else 0, ``n x n``."""
        return (self.batch == self.batch.unsqueeze(-1)).to(self.raw_batch_variance)

    def of(self, batch: Tensor) -> BatchEffectLikelihood:
        """This likelihood, with the same parameters, of other training points."""
        other = BatchEffectLikelihood(batch, self)
        other.raw_batch_variance = self.raw_batch_variance
        return other.train(self.training)

    def _shaped_noise_covar(self, base_shape: torch.Size, *params: Any, **kwargs: Any) -> LinearOperator:
        """The covariance of noise and deviations; of points beside the training points, which come first, each its own.

        GPyTorch gives the training points as a list, BoTorch the points of a prediction as a tensor.
        """
        noise: LinearOperator = super()._shaped_noise_covar(base_shape, *params, **kwargs)
        n, known = base_shape[-1], len(self.batch)
        if n < known or (params and isinstance(params[0], Tensor)):
            variance = self.batch_variance.expand(*base_shape[:-1], 1)
            return noise + ConstantDiagLinearOperator(variance, diag_shape=n)
        same = torch.eye(n).to(self.raw_batch_variance)
        same[:known, :known] = self.same_batch
        return noise + DenseLinearOperator(self.batch_variance * same.expand(*base_shape, n))


def label_numbers(name: str, labels: Any, template: Tensor) -> Tensor:
    """Numbers of labels, numbers or texts, one for each row of ``template``; ``ValueError`` otherwise."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (len(template),):
        raise ValueError(f"{name} needs one label for each of the {len(template)} observations, got {quoted(labels)}.")
    if any(label is None or str(label) == "<NA>" or label != label for label in array):
        raise ValueError(f"{name} has a missing label; give each observation one.")
    _, numbers = np.unique(array.astype(str) if array.dtype == object else array, return_inverse=True)
    return torch.from_numpy(numbers).to(template.device)
