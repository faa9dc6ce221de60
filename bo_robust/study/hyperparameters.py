"""The kernel and the noise of a study's GP: given values are fixed, the others are fitted to the rewards.

A fit uses the first m rewards. Up to 50 rewards, m is their number. Each later m is 1.1 times the one before (beyond
200, 1.3 times). So a later process gets the same hyperparameters from the same file, even if they are not kept there.
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from bo_robust.study.settings import KernelSettings
from bo_robust.study.steps import last_step, seeded, stream_seed

__all__ = ["NOISE_FLOOR", "Hyperparameters"]

RULES = b"1"  # version of the fitting rules: a new number whenever they change
NOISE_FLOOR = 1e-6  # least learned noise_var; BoTorch's 1e-4 would blur the optimum of an exact objective
# Up to FEW rewards, every new reward means a new fit. Beyond, a new fit waits until the rewards have grown by a factor,
# which depends on their number: with many rewards a fit takes long and changes little.
FEW, GROWTHS = 50, ((200, 1.1), (math.inf, 1.3))


class Hyperparameters:
    """Fits the hyperparameters that are not given, and remembers them.

    A setting or a ``noise_var`` that is None is learned. ``build`` makes the model from points, rewards and the
    keywords ``covar_module`` and ``likelihood``. ``fits`` starts as the hyperparameters known already, plain JSON by a
    digest of the data they were fitted to; those fitted since are added.
    """

    def __init__(
        self,
        settings: KernelSettings,
        noise_var: float | None,
        build: Callable[..., Any],
        seed: int,
        device: str,
        fits: Mapping[str, Any],
    ) -> None:
        self._settings, self._noise_var, self._build = settings, noise_var, build
        self._seed, self._device = seed, device
        self.fits = dict(fits)
        self._fitted: dict[str, tuple[Kernel, Any]] = {}

    def of(self, X: Tensor, Y: Tensor) -> dict[str, Any]:
        """Return modules for a new model of points ``n x d`` in the order told and rewards ``n x 1``.

        They are ``covar_module`` and, where the noise is learned, ``likelihood``.
        """
        settings = self._settings
        if None not in (settings.lengthscale, settings.outputscale, self._noise_var):
            return {"covar_module": self._kernel(X.shape[-1])}
        m = last_step(len(X), FEW, GROWTHS)
        data = _digest(X[:m], Y[:m])
        if data not in self._fitted:
            model = self._fitted_model(X[:m], Y[:m], self.fits.get(data))
            self.fits[data] = {name: p.tolist() for name, p in _learned(model).items()}
            self._fitted[data] = model.covar_module, model.likelihood
        # Copies, so that no model can change the hyperparameters of a later one.
        return self._modules(*copy.deepcopy(self._fitted[data]))

    def _modules(self, covar_module: Kernel, likelihood: Any) -> dict[str, Any]:
        return {"covar_module": covar_module} | ({"likelihood": likelihood} if self._noise_var is None else {})

    def _fitted_model(self, X: Tensor, Y: Tensor, known: Any) -> Any:
        """A model with the hyperparameters ``known``, or else fitted to the rewards.

        It keeps the values of the prior if fitting fails, or if all rewards are equal and say nothing.
        """
        model = self._prior_model(X, Y)
        learned = _learned(model)
        if isinstance(known, dict) and learned.keys() == known.keys():
            for name, parameter in learned.items():
                parameter.data.copy_(torch.tensor(known[name], dtype=parameter.dtype))
            return model
        if not bool((Y[0] != Y).any()):
            return model
        with seeded(stream_seed(self._seed, "fit", len(X)), self._device), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of single restarts; a failure of all is caught below
            try:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                return model
            except ModelFittingError:
                return self._prior_model(X, Y)

    def _prior_model(self, X: Tensor, Y: Tensor) -> Any:
        return self._build(X, Y, **self._modules(self._kernel(X.shape[-1]), _likelihood().to(X)))

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


def _digest(*data: Tensor) -> str:
    """Digest of the data that hyperparameters are fitted to, and of the fitting rules."""
    return hashlib.sha256(b"".join([RULES, *(of.cpu().numpy().tobytes() for of in data)])).hexdigest()


def _learned(model: Any) -> dict[str, torch.nn.Parameter]:
    """The fitted hyperparameters by name."""
    of = {"covar_module": model.covar_module, "likelihood": model.likelihood}
    return {f"{k}.{name}": p for k, module in of.items() for name, p in module.named_parameters()}
