"""The GP over (x, z) of a method: SE-ARD, by maximum likelihood (Nguyen et al. 2021, App. I).

Ours: a constant mean, fitted too, and inputs scaled to the unit box.
"""

import copy
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

MIN_NOISE_VAR = 1e-4
INSIDE = 1.0001  # of a constraint, whose boundary is at infinity of the raw parameter
# Where a fit starts, in the unit box: short enough that bumps are seen, long enough that points know of each other.
LENGTHSCALE = 0.3


class SharedGP(torch.nn.Module):
    """Mean, covariance and likelihood of the GP on a box of (x, z), ``2 x d``; every round makes a model of them."""

    def __init__(self, bounds: Tensor, min_noise_var: float = MIN_NOISE_VAR) -> None:
        super().__init__()
        self.bounds, self.min_noise_var = bounds, min_noise_var
        d = bounds.shape[-1]
        # BoTorch's parts come with priors; maximum likelihood has none.
        self.mean = ConstantMean().to(bounds)
        self.covariance = ScaleKernel(
            RBFKernel(ard_num_dims=d, lengthscale_constraint=Positive()), outputscale_constraint=Positive()
        ).to(bounds)
        self.likelihood = GaussianLikelihood(noise_constraint=GreaterThan(min_noise_var)).to(bounds)

    def fit(self, X: Tensor, Y: Tensor) -> bool:
        """Fit from a fixed start, given points ``n x d`` and observations ``n``.

        Return whether that succeeded; otherwise the hyperparameters stay as they were.
        """
        before = copy.deepcopy(self.state_dict())
        fitted = self._maximize(X, Y) or self._maximize_standardized(X, Y)
        if not fitted:
            self.load_state_dict(before)
        return fitted

    def _maximize(self, X: Tensor, Y: Tensor) -> bool:
        noise_var = (0.1 * _spread(Y)).clamp_min(2.0 * self.min_noise_var)
        self._set(Y.mean(), _spread(Y), noise_var, LENGTHSCALE)
        return maximized(self.model(X, Y))

    def _maximize_standardized(self, X: Tensor, Y: Tensor) -> bool:
        """The same fit of standardized observations, with steps of a common size.

        Where Y varies much, the first step of a fit is as large, to length-scales whose kernel matrix is not positive
        definite.
        """
        shift, variance, scale = Y.mean(), _spread(Y), _spread(Y).sqrt()
        unit = SharedGP(self.bounds, MIN_NOISE_VAR / float(variance))
        fitted = unit._maximize(X, (Y - shift) / scale)
        with torch.no_grad():
            mean, signal_var = shift + scale * unit.mean.constant, scale.square() * unit.covariance.outputscale
            noise_var = (scale.square() * unit.likelihood.noise).clamp_min(INSIDE * MIN_NOISE_VAR)
            self._set(mean, signal_var, noise_var, unit.covariance.base_kernel.lengthscale)
        return fitted

    def _set(self, mean: Tensor, signal_var: Tensor, noise_var: Tensor, lengthscale: Tensor | float) -> None:
        self.mean.constant.data.copy_(mean)
        self.covariance.outputscale = signal_var
        self.covariance.base_kernel.lengthscale = lengthscale
        self.likelihood.noise = noise_var

    def model(self, X: Tensor, Y: Tensor, append: Tensor | None = None) -> SingleTaskGP:
        """The posterior given points (x, z) ``n x d`` and observations ``n``, at the present hyperparameters.

        Inputs are (x, z), or x alone where ``AppendFeatures`` is to add the conditions ``append``, ``w x d_z``.
        """
        model = SingleTaskGP(
            X,
            Y.unsqueeze(-1),
            likelihood=self.likelihood,
            covar_module=self.covariance,
            mean_module=self.mean,
            outcome_transform=None,
            input_transform=_inputs(self.bounds, append),
        )
        model.eval()
        return model


def _inputs(bounds: Tensor, append: Tensor | None) -> InputTransform:
    """To the unit box, after the conditions, if any, are appended."""
    transforms: dict[str, InputTransform] = {"normalize": Normalize(bounds.shape[-1], bounds=bounds)}
    if append is not None:
        transforms = {"append": AppendFeatures(append), **transforms}
    return ChainedInputTransform(**transforms)


def _spread(Y: Tensor) -> Tensor:
    """The variance of observations; equal ones would start the signal variance at 0."""
    return Y.var(unbiased=False).clamp_min(1e-2) if len(Y) > 1 else Y.new_tensor(1.0)


def maximized(model: SingleTaskGP) -> bool:
    """Fit a model; return whether that succeeded."""
    model.train()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of optimizers that stop early
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except (ModelFittingError, NotPSDError):
        return False
    return True
