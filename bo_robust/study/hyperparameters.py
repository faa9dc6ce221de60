"""The kernel and the noise of a study's GP: given values are fixed, the others are fitted to the rewards.

A fit uses the first m rewards, or those of them that :func:`bo_robust.models.fitting.fit_rows` names. Up to 50 rewards,
m is their number. Each later m is 1.1 times the one before (beyond 200, 1.3 times). So a later process gets the same
hyperparameters from the same file.
"""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from bo_robust.models.fitting import fit_evidence
from bo_robust.study.settings import KernelSettings
from bo_robust.study.steps import last_step, seeded, stream_seed

NOISE_FLOOR = 1e-6  # least learned noise_var; BoTorch's 1e-4 would blur the optimum of an exact objective
# Up to FEW rewards, every new reward means a new fit. Beyond, a new fit waits until the rewards have grown by a factor,
# which depends on their number: with many rewards a fit takes long and changes little.
FEW, GROWTHS = 50, ((200, 1.1), (math.inf, 1.3))


class Fit(NamedTuple):
    """What was fitted to the points ``m x d`` and rewards ``m x 1``.

    ``modules`` are those of :meth:`Hyperparameters.modules_for`. ``believed`` says which of these rewards the fit
    believed, ``m`` bool; it is None where the model does not judge rewards.
    """

    X: Tensor
    Y: Tensor
    modules: dict[str, Any]
    believed: Tensor | None


class Hyperparameters:
    """Fits the hyperparameters that are not given, and remembers the last fit.

    A setting or a ``noise_var`` that is None is learned, and so is the prior mean where ``learns_mean`` says so.
    ``build`` makes the model from points, rewards and the keywords that :meth:`modules_for` returns.
    """

    def __init__(
        self,
        settings: KernelSettings,
        noise_var: float | None,
        learns_mean: bool,
        build: Callable[..., Any],
        seed: int,
        device: str,
    ) -> None:
        self._settings, self._noise_var, self._learns_mean, self._build = settings, noise_var, learns_mean, build
        self._seed, self._device = seed, device
        self._last: Fit | None = None

    def modules_for(self, X: Tensor, Y: Tensor) -> tuple[dict[str, Any], Tensor | None]:
        """Return modules for a new model of points ``n x d`` in the order told and rewards ``n x 1``.

        They are ``covar_module`` and, where noise and mean are learned, ``likelihood`` and ``mean_module``. With them
        comes which of the first m rewards the fit believed, ``m`` bool, where the model judges rewards.
        """
        settings = self._settings
        if None not in (settings.lengthscale, settings.outputscale, self._noise_var) and not self._learns_mean:
            return {"covar_module": self._kernel(X.shape[-1])}, None
        m = last_step(len(X), FEW, GROWTHS)
        fit = self._last  # once, because another thread may replace it
        if fit is None or not (torch.equal(fit.X, X[:m]) and torch.equal(fit.Y, Y[:m])):
            fit = self._last = self._fit(X[:m], Y[:m])
        # Copies, so that no model can change the hyperparameters of a later one.
        return copy.deepcopy(fit.modules), fit.believed

    def _prior(self, X: Tensor) -> dict[str, Any]:
        modules: dict[str, Any] = {"covar_module": self._kernel(X.shape[-1])}
        if self._noise_var is None:
            modules["likelihood"] = _likelihood().to(X)
        if self._learns_mean:
            modules["mean_module"] = ConstantMean().to(X)
        return modules

    def _fit(self, X: Tensor, Y: Tensor) -> Fit:
        """Fit to these rewards; the values of the prior stay if that fails, or if all rewards are equal."""
        model = self._prior_model(X, Y)
        if bool((Y[0] != Y).any()):
            with seeded(stream_seed(self._seed, "fit", len(X)), self._device), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of single restarts; a failure of all is caught below
                try:
                    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
                except ModelFittingError:
                    model = self._prior_model(X, Y)
        modules = {name: getattr(model, name) for name in self._prior(X)}
        return Fit(X, Y, modules, getattr(model, "believed", None))

    def _prior_model(self, X: Tensor, Y: Tensor) -> Any:
        return self._build(X, Y, **self._prior(X))

    def _kernel(self, d: int) -> Kernel:
        """The prior covariance: given hyperparameters are fixed, the others start from their prior."""
        settings = self._settings
        lengthscale, outputscale, rbf = settings.lengthscale, settings.outputscale, settings.kernel == "rbf"
        if lengthscale is None:
            base = get_covar_module_with_dim_scaled_prior(ard_num_dims=d, use_rbf_kernel=rbf)
        else:
            ard = {"ard_num_dims": d} if isinstance(lengthscale, list) else {}
            base = RBFKernel(**ard) if rbf else MaternKernel(2.5, **ard)
            base = base.double()
            base.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
            base.requires_grad_(False)
        if outputscale == 1.0:
            return base.double()
        # The prior of `get_matern_kernel_with_gamma_prior` in BoTorch.
        scaled = ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15) if outputscale is None else None).double()
        scaled.outputscale = torch.tensor(1.0 if outputscale is None else outputscale, dtype=torch.float64)
        scaled.raw_outputscale.requires_grad_(outputscale is None)
        return scaled


def _likelihood() -> GaussianLikelihood:
    """BoTorch's default likelihood with a lower floor of the noise."""
    prior = LogNormalPrior(-4.0, 1.0)
    return GaussianLikelihood(
        noise_prior=prior, noise_constraint=GreaterThan(NOISE_FLOOR, transform=None, initial_value=prior.mode)
    )
