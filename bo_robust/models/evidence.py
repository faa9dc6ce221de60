"""Log evidence plus log prior of an exact GP on some of its training rows, with its gradient.

``RobustGP`` evaluates it some hundred times in a fit. ``StationaryEvidence`` is written out in numpy for BoTorch's
default modules, because autograd takes several times as long. ``ModuleEvidence``, the reference, takes any modules.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.utils import get_parameters_and_bounds
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import LogNormalPrior
from gpytorch.settings import min_fixed_noise
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

__all__ = ["Array", "Evidence", "Indices", "ModuleEvidence", "Prior", "StationaryEvidence", "evidence_of"]

Array = NDArray[np.float64]
Indices = NDArray[np.integer[Any]]
LOG_2PI = math.log(2.0 * math.pi)
IMPOSSIBLE = 1e10  # the loss where a covariance matrix has no Cholesky factor
FLOOR = min_fixed_noise.value(torch.float64)  # GPyTorch's, of known noise variances
LARGEST = 50.0  # logarithm of a lengthscale or noise variance
SMALLEST = 1e-10  # of a lengthscale or noise variance that has no lower bound


class Prior(NamedTuple):
    """Prior mean ``n`` and covariance ``n x n`` of f at the training points, and the noise variances ``n``."""

    mean: Array
    covariance: Array
    noise: Array


class Evidence(ABC):
    """The evidence as a function of the hyperparameters ``theta``, a vector within ``bounds``.

    ``start`` are the hyperparameters that the model has now. Targets may be in another ``unit`` than those of the
    model, in the units of the model: known noise variances are then divided by its square. ``blur`` is a noise variance
    that every target has beside its own.
    """

    blur = 0.0
    start: Array
    bounds: list[tuple[float | None, float | None]]

    @abstractmethod
    def prior(self, theta: Array, unit: float = 1.0) -> Prior:
        """The prior of rewards at all training points."""

    @abstractmethod
    def loss(self, theta: Array, y: Array, kept: Indices, unit: float = 1.0) -> tuple[float, Array]:
        """Minus the log evidence of ``y[kept]`` minus the log prior, up to a constant, and its gradient.

        Targets ``y`` are ``n``; ``kept`` are indices of rows.
        """

    def maximise(self, theta: Array, y: Array, kept: Indices, steps: int, unit: float = 1.0) -> Array:
        """Climb from ``theta`` for some steps of L-BFGS."""
        arguments, options = (y, kept, unit), {"maxiter": steps}
        found: Array = minimize(self.loss, theta, arguments, "L-BFGS-B", True, bounds=self.bounds, options=options).x
        return found


class StationaryEvidence(Evidence):
    """``theta`` are the logarithms of d lengthscales, that of the noise variance if it is learned, and the mean."""

    def __init__(self, X: Array, model: SingleTaskGP) -> None:
        modules: Any = model
        kernel = modules.covar_module
        self._X, self._matern = X, isinstance(kernel, MaternKernel)
        self._fixed = _numpy(model.likelihood.noise).reshape(-1) if _fixed_noise(model) else None
        values = [*_numpy(kernel.lengthscale).reshape(-1)]
        learned = [(kernel.lengthscale_prior, kernel.raw_lengthscale_constraint)] * len(values)
        if self._fixed is None:
            noise = model.likelihood.noise_covar
            values.append(noise.noise.item())
            learned.append((noise.noise_prior, noise.raw_noise_constraint))
        self._location = np.array([float(prior.loc) for prior, _ in learned])
        self._precision = np.array([float(prior.scale) ** -2.0 for prior, _ in learned])
        lowest = [max(float(constraint.lower_bound), SMALLEST) for _, constraint in learned]
        self.bounds = [(math.log(bound), LARGEST) for bound in lowest] + [(None, None)]
        self.start = np.append(np.log(np.maximum(values, lowest)), modules.mean_module.constant.item())

    def prior(self, theta: Array, unit: float = 1.0) -> Prior:
        covariance, _ = self._covariance(theta, self._X)
        return Prior(np.full(len(self._X), theta[-1]), covariance, self._noise(theta, unit))

    def loss(self, theta: Array, y: Array, kept: Indices, unit: float = 1.0) -> tuple[float, Array]:
        X, d = self._X[kept], self._X.shape[1]
        covariance, slope = self._covariance(theta, X)
        noise = self._noise(theta, unit)[kept]
        covariance[np.diag_indices_from(covariance)] += noise
        residual = y[kept] - theta[-1]
        root, failed = lapack.dpotrf(covariance, lower=True, overwrite_a=True)
        if failed:
            return IMPOSSIBLE, np.zeros_like(theta)
        log_det = 2.0 * float(np.log(root.diagonal()).sum())
        inverse, _ = lapack.dpotri(root, lower=True, overwrite_c=True)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        alpha = inverse @ residual
        value = 0.5 * (float(residual @ alpha) + log_det + len(kept) * LOG_2PI)
        weight = 0.5 * (inverse - np.outer(alpha, alpha))  # d value / d covariance
        gradient = np.empty_like(theta)
        if self._fixed is None:
            gradient[d] = float(weight.diagonal().sum() * np.exp(theta[d]))
        weight *= slope
        scaled = X * np.exp(-theta[:d])
        # sum_ij weight_ij (x_i - x_j)^2, a column of x at a time
        gradient[:d] = 2.0 * (weight.sum(0) @ scaled**2 - (scaled * (weight @ scaled)).sum(0))
        gradient[-1] = -float(alpha.sum())
        distance = theta[:-1] - self._location
        value += 0.5 * float(self._precision @ distance**2) + float(theta[:-1].sum())
        gradient[:-1] += self._precision * distance + 1.0
        return value, gradient

    def _noise(self, theta: Array, unit: float) -> Array:
        if self._fixed is None:
            return np.full(len(self._X), np.exp(theta[-2]) + self.blur)
        return np.maximum(self._fixed / unit**2, FLOOR) + self.blur

    def _covariance(self, theta: Array, X: Array) -> tuple[Array, Array]:
        """Covariances of f, and -2 times their derivative by the squared scaled distance."""
        scaled = X * np.exp(-theta[: X.shape[1]])
        norms = (scaled**2).sum(1)
        square = np.maximum(norms[:, None] + norms - 2.0 * (scaled @ scaled.T), 0.0)
        if not self._matern:
            covariance = np.exp(-0.5 * square)
            return covariance, covariance.copy()
        root = np.sqrt(5.0 * square)
        decay = np.exp(-root)
        return (1.0 + root + 5.0 / 3.0 * square) * decay, 5.0 / 3.0 * (1.0 + root) * decay


class ModuleEvidence(Evidence):
    """``theta`` are the raw parameters of the modules; ``model`` is changed, so it must be the caller's own copy."""

    def __init__(self, model: SingleTaskGP) -> None:
        self._model = model.train()
        parameters, bounds = get_parameters_and_bounds(model, requires_grad=True)
        self._parameters = parameters
        self.bounds = []
        for name, parameter in parameters.items():
            low, high = (_elements(bound, parameter.numel()) for bound in bounds.get(name, (None, None)))
            self.bounds += list(zip(low, high, strict=True))
        values = [_numpy(parameter).reshape(-1) for parameter in parameters.values()]
        self.start = np.concatenate(values) if values else np.zeros(0)

    def prior(self, theta: Array, unit: float = 1.0) -> Prior:
        self._set(theta)
        with torch.no_grad():
            return Prior(*(_numpy(x) for x in self._moments(unit)))

    def loss(self, theta: Array, y: Array, kept: Indices, unit: float = 1.0) -> tuple[float, Array]:
        self._set(theta)
        mean, covariance, noise = self._moments(unit)
        rows = torch.as_tensor(kept)
        total = covariance[rows][:, rows] + torch.diag(noise[rows])
        root, failed = torch.linalg.cholesky_ex(total)
        if failed:
            return IMPOSSIBLE, np.zeros_like(theta)
        residual = torch.linalg.solve_triangular(root, (torch.as_tensor(y).to(mean) - mean)[rows, None], upper=False)
        value: Any = 0.5 * residual.square().sum() + root.diagonal().log().sum() + 0.5 * len(kept) * LOG_2PI
        modules: Any = self._model
        for _, module, prior, closure, _ in modules.named_priors():
            value = value - prior.log_prob(closure(module)).sum()
        parameters = list(self._parameters.values())
        slopes = torch.autograd.grad(value, parameters, allow_unused=True) if parameters else []
        pairs = zip(parameters, slopes, strict=True)
        flat = [_numpy(torch.zeros_like(of) if slope is None else slope).reshape(-1) for of, slope in pairs]
        return float(value.detach()), np.concatenate(flat) if flat else np.zeros(0)

    def _moments(self, unit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        X = self._model.train_inputs[0]
        prior = self._model.forward(X)
        likelihood: Any = self._model.likelihood
        noise = likelihood.noise.reshape(-1).expand(len(X))
        noise = (noise / unit**2).clamp_min(FLOOR) if _fixed_noise(self._model) else noise
        return prior.mean, prior.covariance_matrix, noise + self.blur

    def _set(self, theta: Array) -> None:
        first = 0
        with torch.no_grad():
            for parameter in self._parameters.values():
                values = theta[first : first + parameter.numel()]
                parameter.copy_(torch.as_tensor(values).to(parameter).view_as(parameter))
                first += parameter.numel()


def evidence_of(model: SingleTaskGP) -> Evidence:
    """The evidence of a double-precision copy of a model without batch: written out for BoTorch's default modules."""
    modules: Any = model
    kernel = modules.covar_module
    learned = 1 if _fixed_noise(model) else 2  # hyperparameters with a prior: lengthscales, and perhaps the noise
    priors = [prior for _, _, prior, _, _ in modules.named_priors()]
    limits = [constraint for _, constraint in modules.named_constraints()]
    plain = (
        (type(kernel) is RBFKernel or (type(kernel) is MaternKernel and kernel.nu == 2.5))
        and kernel.active_dims is None
        and kernel.lengthscale.numel() == model.train_inputs[0].shape[-1]
        and type(model.mean_module) is ConstantMean
        and len(list(model.parameters())) == learned + 1  # that of the mean
        and all(parameter.requires_grad for parameter in model.parameters())
        and len(priors) == len(limits) == learned
        and all(type(prior) is LogNormalPrior and prior.loc.numel() == prior.scale.numel() == 1 for prior in priors)
        and all(limit.lower_bound.numel() == 1 and math.isinf(float(limit.upper_bound)) for limit in limits)
    )
    return StationaryEvidence(_numpy(model.eval().train_inputs[0]), model) if plain else ModuleEvidence(model)


def _fixed_noise(model: SingleTaskGP) -> bool:
    return isinstance(model.likelihood, FixedNoiseGaussianLikelihood)


def _numpy(x: torch.Tensor) -> Array:
    found: Array = x.detach().to("cpu", torch.float64).numpy()
    return found


def _elements(bound: Any, count: int) -> list[float | None]:
    """One bound for each element of a parameter; None for an infinite one."""
    values = torch.full((count,), math.nan) if bound is None else torch.as_tensor(bound).expand(count)
    return [float(value) if math.isfinite(value) else None for value in values]
