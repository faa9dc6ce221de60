"""The GP over (x, z) that all methods of a value-at-risk run share: SE-ARD, hyperparameters by maximum likelihood.

Nguyen et al. 2021, App. I, fit length-scales, signal variance and noise variance (>= 1e-4) every third round. Ours: a
constant mean, fitted too, and inputs scaled to the unit box.
"""

from __future__ import annotations

import warnings

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AppendFeatures, ChainedInputTransform, InputTransform, Normalize
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

__all__ = ["MIN_NOISE_VAR", "Surrogate"]

MIN_NOISE_VAR = 1e-4
# Where a fit starts, in the unit box: short enough that bumps are seen, long enough that points know of each other.
LENGTHSCALE = 0.3


class Surrogate:
    """Mean, covariance and likelihood of the GP on a box of (x, z), ``2 x d``; every round makes a model of them."""

    def __init__(self, bounds: Tensor) -> None:
        self.bounds = bounds
        d = bounds.shape[-1]
        # BoTorch's parts come with priors; maximum likelihood has none.
        self.mean = ConstantMean().to(bounds)
        self.covariance = ScaleKernel(
            RBFKernel(ard_num_dims=d, lengthscale_constraint=Positive()), outputscale_constraint=Positive()
        ).to(bounds)
        self.likelihood = GaussianLikelihood(noise_constraint=GreaterThan(MIN_NOISE_VAR)).to(bounds)

    def fit(self, X: Tensor, Y: Tensor) -> bool:
        """Fit by maximum likelihood from a fixed start, given points ``n x d`` and observations ``n``.

        Return whether the fit succeeded; otherwise the hyperparameters stay as they were.
        """
        before = [{k: v.clone() for k, v in part.state_dict().items()} for part in self._parts()]
        # Equal observations would start the signal variance at 0.
        spread = Y.var(unbiased=False).clamp_min(1e-2) if len(Y) > 1 else Y.new_tensor(1.0)
        self.mean.constant.data.copy_(Y.mean())
        self.covariance.outputscale = spread
        self.covariance.base_kernel.lengthscale = LENGTHSCALE
        # Strictly inside its constraint, whose boundary is at infinity of the raw parameter.
        self.likelihood.noise = (0.1 * spread).clamp_min(2.0 * MIN_NOISE_VAR)
        model = self.model(X, Y)
        model.train()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of optimisers that stop early
                fit_gpytorch_mll(ExactMarginalLogLikelihood(self.likelihood, model))
        except (ModelFittingError, NotPSDError):
            for part, state in zip(self._parts(), before, strict=True):
                part.load_state_dict(state)
            return False
        return True

    def model(self, X: Tensor, Y: Tensor, append: Tensor | None = None) -> SingleTaskGP:
        """The posterior given points (x, z) ``n x d`` and observations ``n``, at the present hyperparameters.

        Inputs are (x, z), or x alone where ``AppendFeatures`` is to add the conditions ``append``, ``w x d_z``.
        """
        transforms: dict[str, InputTransform] = {"normalize": Normalize(self.bounds.shape[-1], bounds=self.bounds)}
        if append is not None:
            transforms = {"append": AppendFeatures(append), **transforms}
        model = SingleTaskGP(
            X,
            Y.unsqueeze(-1),
            likelihood=self.likelihood,
            covar_module=self.covariance,
            mean_module=self.mean,
            outcome_transform=None,
            input_transform=ChainedInputTransform(**transforms),
        )
        model.eval()
        return model

    def hyperparameters(self) -> dict[str, list[float]]:
        """Length-scales (of the unit box), signal and noise variance, mean."""
        return {
            "lengthscale": self.covariance.base_kernel.lengthscale.detach().flatten().tolist(),
            "signal_var": [float(self.covariance.outputscale.detach())],
            "noise_var": self.likelihood.noise.detach().flatten().tolist(),
            "mean": [float(self.mean.constant.detach())],
        }

    def _parts(self) -> tuple[torch.nn.Module, ...]:
        return self.mean, self.covariance, self.likelihood
