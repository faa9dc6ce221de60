"""The GP over (x, z) that the methods of a run share: SE-ARD on the unit box, and how its hyperparameters are found.

Nguyen et al. 2021, App. I, fit length-scales, signal variance and noise variance (>= 1e-4) every third round by maximum
likelihood. Ours: a constant mean, fitted too, and inputs scaled to the unit box.
"""

import copy
import statistics
import warnings
from dataclasses import dataclass

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AppendFeatures, ChainedInputTransform, InputTransform, Normalize
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from bo_robust.models import AveragedGP, CandidateEnsemble
from bo_robust.models.candidate_gps import units
from bo_robust.specs import quoted
from bo_robust.validation import check_positive

MIN_NOISE_VAR = 1e-4
# Where a fit starts, in the unit box: short enough that bumps are seen, long enough that points know of each other.
LENGTHSCALE = 0.3
SHORTEST = 0.025  # length-scale that BoTorch's fits can find
# The boundary of a constraint is at infinity of the raw parameter.
INSIDE = 1.0001


@dataclass(frozen=True)
class Fitting:
    """How hyperparameters are found.

    Args:
        prior: False: maximum likelihood, as in the paper. True: the priors of BoTorch's ``SingleTaskGP``, on
            standardised observations.
        max_lengthscale: With priors, the largest length-scale, in units of the box; None: no limit.
        draws: Average over draws of them in place of a fit, under the same priors.
    """

    prior: bool = False
    max_lengthscale: float | None = None
    draws: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.prior, bool):
            raise ValueError(f"prior must be true or false, got {quoted(self.prior)}.")
        if self.max_lengthscale is not None:
            check_positive(max_lengthscale=self.max_lengthscale)
            if self.max_lengthscale <= SHORTEST:
                raise ValueError(f"max_lengthscale must be above {SHORTEST}, the shortest, got {self.max_lengthscale}.")
            if not self.prior:
                raise ValueError("max_lengthscale is for fits with priors; set prior: true, or max_lengthscale: null.")
            if self.draws:
                raise ValueError("max_lengthscale is for fits, not for candidates: posterior; set one of them to null.")


class SharedGP:
    """Mean, covariance and likelihood of the GP on a box of (x, z), ``2 x d``; every round makes a model of them."""

    def __init__(self, bounds: Tensor, fitting: Fitting | None = None, min_noise_var: float = MIN_NOISE_VAR) -> None:
        self.bounds, self.fitting, self.min_noise_var = bounds, fitting or Fitting(), min_noise_var
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
        if self.fitting.draws:
            transform = Normalize(self.bounds.shape[-1], bounds=self.bounds)
            data = X, Y.unsqueeze(-1), "posterior"
            self._drawn = CandidateEnsemble(*data, input_transform=transform, elimination=None)
            noise_var = statistics.fmean(c.noise_var for c in self._drawn.candidates) * units(Y)[1] ** 2
            self.likelihood.noise = max(noise_var, INSIDE * self.min_noise_var)
            return True
        before = [copy.deepcopy(part.state_dict()) for part in self._parts()]
        fitted = self._posterior_mode(X, Y) if self.fitting.prior else self._most_likely(X, Y)
        if not fitted:
            for part, state in zip(self._parts(), before, strict=True):
                part.load_state_dict(state)
        return fitted

    def _most_likely(self, X: Tensor, Y: Tensor) -> bool:
        """Maximise the likelihood; return whether that succeeded."""
        # Equal observations would start the signal variance at 0.
        spread = Y.var(unbiased=False).clamp_min(1e-2) if len(Y) > 1 else Y.new_tensor(1.0)
        # Strictly inside its constraint, whose boundary is at infinity of the raw parameter.
        self._set(Y.mean(), spread, (0.1 * spread).clamp_min(2.0 * self.min_noise_var), LENGTHSCALE)
        fitted = _maximised(self.model(X, Y))
        if fitted or self.min_noise_var != MIN_NOISE_VAR:
            return fitted
        # Where Y varies much, the first step of a fit is as large, to length-scales whose kernel matrix is not positive
        # definite. The same fit of standardised observations has steps of a common size.
        shift, scale = Y.mean(), spread.sqrt()
        unit = SharedGP(self.bounds, self.fitting, MIN_NOISE_VAR / float(spread))
        fitted = unit._most_likely(X, (Y - shift) / scale)
        self._set(*unit._in_units(shift, scale))
        return fitted

    def _posterior_mode(self, X: Tensor, Y: Tensor) -> bool:
        """Fit BoTorch's model; return whether that succeeded."""
        shift, scale = Y.mean(), Y.std().clamp_min(0.1) if len(Y) > 1 else Y.new_tensor(1.0)
        transform = Normalize(self.bounds.shape[-1], bounds=self.bounds)
        unit = SingleTaskGP(X, ((Y - shift) / scale).unsqueeze(-1), outcome_transform=None, input_transform=transform)
        kernel, limit = unit.covar_module, self.fitting.max_lengthscale
        if limit is not None:
            least = kernel.raw_lengthscale_constraint.lower_bound
            kernel.register_constraint("raw_lengthscale", Interval(least, limit, transform=None).to(Y))
        kernel.lengthscale = LENGTHSCALE if limit is None else min(LENGTHSCALE, limit)
        fitted = _maximised(unit)
        constant, noise_var = unit.mean_module.constant.detach(), unit.likelihood.noise.detach()
        self._set(
            shift + scale * constant,
            scale.square(),
            (scale.square() * noise_var).clamp_min(INSIDE * MIN_NOISE_VAR),
            kernel.lengthscale.detach(),
        )
        return fitted

    def _in_units(self, shift: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, signal variance, noise variance and length-scales for observations times ``scale`` plus ``shift``."""
        noise_var = scale.square() * self.likelihood.noise.detach()
        return (
            shift + scale * self.mean.constant.detach(),
            scale.square() * self.covariance.outputscale.detach(),
            noise_var.clamp_min(INSIDE * MIN_NOISE_VAR),
            self.covariance.base_kernel.lengthscale.detach(),
        )

    def _set(self, mean: Tensor, signal_var: Tensor, noise_var: Tensor, lengthscale: Tensor | float) -> None:
        self.mean.constant.data.copy_(mean)
        self.covariance.outputscale = signal_var
        self.covariance.base_kernel.lengthscale = lengthscale
        self.likelihood.noise = noise_var

    def averaged(self, X: Tensor, Y: Tensor) -> AveragedGP:
        """The average over the draws of the last fit, after ``n x d`` points and ``n`` rewards."""
        rows = len(self._drawn.train_targets)
        return AveragedGP(self._drawn.condition_on_observations(X[rows:], Y[rows:].unsqueeze(-1)))

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


def _maximised(model: SingleTaskGP) -> bool:
    """Fit a model; return whether that succeeded."""
    model.train()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of optimisers that stop early
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except (ModelFittingError, NotPSDError):
        return False
    return True
