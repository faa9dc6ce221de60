"""Log evidence plus log prior of an exact GP on some of its training rows, with its gradient.

``RobustGP`` evaluates it some hundred times in a fit.
``StationaryEvidence`` is written out in numpy for BoTorch's default modules, because autograd takes several times as
long. ``ModuleEvidence``, the reference, takes any modules.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.utils import get_bounds_as_ndarray, get_parameters_and_bounds
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.priors import GammaPrior, LogNormalPrior
from gpytorch.settings import min_fixed_noise
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from bo_robust.models.batch_effect import BatchEffectLikelihood
from bo_robust.utils.covariance import shape_of
from bo_robust.utils.linalg import cholesky, gpu_for, on_device
from bo_robust.utils.shared import Shared

Array = NDArray[np.float64]
Indices = NDArray[np.integer[Any]]
P = ParamSpec("P")
R = TypeVar("R")
LOG_2PI = math.log(2.0 * math.pi)
IMPOSSIBLE = 1e10  # the loss where a covariance matrix has no Cholesky factor
FLOOR = min_fixed_noise.value(torch.float64)  # GPyTorch's, of known noise variances
LARGEST = 50.0  # logarithm of a lengthscale or noise variance
SMALLEST = 1e-10  # of a lengthscale or noise variance that has no lower bound
LEAST_UNIT = 1e-100  # a unit whose square is not rounded to zero
EXACT = 2.2e-9  # share of the loss that the last step of a fit may gain, as of SciPy


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks for them, which takes milliseconds


_one_thread = Shared(lambda: _libraries().limit(limits=1, user_api="blas"))


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with one thread of OpenBLAS, as BoTorch's fits have it.

    OpenBLAS's threads wait spinning: for a few hundred rows they cost more than they bring, and many times as much
    where other processes hold the cores.
    """

    @wraps(function)
    def limited(*args: P.args, **options: P.kwargs) -> R:
        with _one_thread():
            return function(*args, **options)

    return limited


class Prior(NamedTuple):
    """Mean ``n``, covariance ``n x n`` of f and noise variances ``n`` at the training points; density of ``theta``."""

    mean: Array
    covariance: Array
    noise: Array
    log_density: float = 0.0


class Evidence:
    """The evidence as a function of the hyperparameters ``theta``, a vector within ``bounds``, from ``start`` on.

    ``prior(theta, unit, extra_noise)`` is that of observations at all training points. ``loss(theta, y, kept, unit,
    extra_noise)`` is minus the log evidence of the rows ``kept`` of targets ``y``, ``n``, minus the log prior, up to a
    constant, and its gradient. Targets may be in another ``unit`` than known noise variances, which are then divided by
    its square. Every target has a noise variance of ``extra_noise`` more.
    """

    start: Array
    bounds: Array | None
    prior: Callable[..., Prior]
    loss: Callable[..., tuple[float, Array]]

    def maximize(
        self,
        y: Array,
        kept: Indices,
        steps: int = 2000,
        unit: float = 1.0,
        extra_noise: float | Array = 0.0,
        tolerance: float = EXACT,
    ) -> Array:
        """Climb from ``start`` for at most so many steps of L-BFGS, or until one gains that share of the loss."""
        if not len(self.start):
            return self.start
        arguments, options = (y, kept, unit, extra_noise), {"maxiter": steps, "ftol": tolerance}
        best = minimize(self.loss, self.start, arguments, "L-BFGS-B", True, bounds=self.bounds, options=options)
        return np.asarray(best.x)


class _Positive:
    """A hyperparameter > 0: the attribute ``name``, ``size`` numbers, of its module ``owner``."""

    def __init__(self, owner: Any, name: str, size: int = 1) -> None:
        self.owner, self.name, self.size = owner, name, size
        self.parameter, self.constraint = getattr(owner, f"raw_{name}"), getattr(owner, f"raw_{name}_constraint")
        self.prior = getattr(owner, f"{name}_prior", None)
        self.lowest = max(float(self.constraint.lower_bound.max()), SMALLEST)
        self.logarithm = np.log(np.maximum(as_array(getattr(owner, name)).reshape(-1), self.lowest))


class StationaryEvidence(Evidence):
    """``theta`` are the logarithms of d lengthscales and of variances, and the mean, where learned.

    The variances are those of the output scale, of batches and of noise. ``is_noise`` tells the latter, if learned.
    """

    def __init__(self, model: SingleTaskGP) -> None:
        modules: Any = model
        self._inputs: Tensor = modules.train_inputs[0]
        X = as_array(self._inputs)
        # Distances are differences of large numbers where inputs are far from zero.
        self._X, self._positive, self._mean = X - X.mean(0), _positive(model), modules.mean_module
        shape = shape_of(modules.covar_module)
        assert shape is not None
        self._radial = shape.radial
        self._scaled = type(modules.covar_module) is ScaleKernel
        self._fixed = as_array(model.likelihood.noise).reshape(-1) if _fixed_noise(model) else None
        self._same_batch = as_array(model.likelihood.same_batch) if _has_batches(model) else None
        mean = self._mean.constant if type(self._mean) is ConstantMean else torch.zeros(())
        logarithms = [np.broadcast_to(one.logarithm, one.size) for one in self._positive]
        sizes = [*(one.size for one in self._positive), 1]
        learned = [*(one.parameter.requires_grad for one in self._positive), mean.requires_grad]
        bounds = [*((math.log(one.lowest), LARGEST) for one in self._positive), (-math.inf, math.inf)]
        terms = [*(_terms(one.prior) for one in self._positive), _terms(None)]
        self._values = np.append(np.concatenate(logarithms), mean.item())
        self._learned = np.repeat(learned, sizes)
        self.bounds = np.repeat(bounds, sizes, axis=0)[self._learned]
        self._terms = np.repeat(terms, sizes, axis=0)[self._learned].T
        self.start = self._values[self._learned]
        place = -1 if self._fixed is not None else len(self._values) - 2
        self.is_noise = (np.arange(len(self._values)) == place)[self._learned]

    @classmethod
    def fits(cls, model: SingleTaskGP) -> bool:
        """Whether the model has BoTorch's default modules, without a batch; modules derived from them do not count."""
        modules: Any = model.eval()
        default = (
            type(modules).forward is SingleTaskGP.forward
            and shape_of(modules.covar_module) is not None
            and type(modules.mean_module) in (ConstantMean, ZeroMean)
            and type(model.likelihood) in (GaussianLikelihood, FixedNoiseGaussianLikelihood, BatchEffectLikelihood)
        )
        if not default:
            return False
        positive = _positive(modules)
        lengthscale, priors = positive[0].parameter, [one.prior for one in positive if one.prior is not None]
        return (
            (lengthscale.numel() == positive[0].size or not lengthscale.requires_grad)
            and len(list(model.parameters())) == len(positive) + (type(modules.mean_module) is ConstantMean)
            and len(list(modules.named_priors())) == len(priors)
            and len(list(modules.named_constraints())) == len(positive)
            and all(type(prior) in (LogNormalPrior, GammaPrior) and prior.batch_shape.numel() == 1 for prior in priors)
            and all(one.constraint.lower_bound.numel() == 1 for one in positive)
            and all(math.isinf(float(one.constraint.upper_bound)) for one in positive)
        )

    def assign(self, theta: Array) -> None:
        values, ends = self._all(theta), np.cumsum([entry.size for entry in self._positive])
        with torch.no_grad():
            for entry, logarithms in zip(self._positive, np.split(values[:-1], ends[:-1]), strict=True):
                if entry.parameter.requires_grad:
                    value = torch.as_tensor(np.maximum(np.exp(logarithms), entry.lowest))
                    setattr(entry.owner, entry.name, value.to(entry.parameter).view_as(entry.parameter))
            if self._learned[-1]:
                self._mean.constant = torch.as_tensor(values[-1]).to(self._mean.constant)

    def prior(self, theta: Array, unit: float = 1.0, extra_noise: float | Array = 0.0) -> Prior:
        values = self._all(theta)
        mean, noise = np.full(len(self._X), values[-1]), self._noise(values, unit, extra_noise)
        covariance, _ = self._covariance(values, _squares(self._points(values, self._X)))
        if self._same_batch is not None:
            covariance += math.exp(values[-3]) * self._same_batch
        return Prior(mean, covariance, noise, -self._penalty(theta)[0])

    def loss(
        self, theta: Array, y: Array, kept: Indices, unit: float = 1.0, extra_noise: float | Array = 0.0
    ) -> tuple[float, Array]:
        """With A = K + noise of the kept rows, r = y - mean and w = A^-1 r,

        loss = 1/2 (r' w + log|A| + n log 2 pi), and d loss = 1/2 tr(W dA) - w' d mean, W = A^-1 - w w'.

        By the logarithm of a lengthscale, dK_ij = slope_ij (x_i - x_j)^2 in units of the lengthscale. So its gradient
        is sum_ij V_ij (x_i - x_j)^2 / 2 = sum_i x_i^2 (V 1)_i - sum_i x_i (V x)_i with V = W * slope.
        """
        values, X, (n, d) = self._all(theta), self._X[kept], (len(kept), self._X.shape[1])
        noise, residual = self._noise(values, unit, extra_noise)[kept], y[kept] - values[-1]
        points = self._points(values, X)
        covariance, slope = self._covariance(values, _squares(points).T)  # .T: LAPACK stores columns one by one
        covariance[np.diag_indices(n)] += noise
        batches = 0.0 if self._same_batch is None else math.exp(values[-3]) * self._same_batch[np.ix_(kept, kept)]
        covariance += batches
        solved = _solved(gpu_for(self._inputs, n), covariance, residual)
        if solved is None:
            return IMPOSSIBLE, np.zeros_like(self.start)
        inverse, weights, log_det = solved
        quadratic = float(residual @ weights)
        evidence = 0.5 * (quadratic + log_det + n * LOG_2PI)
        W = blas.dsyr(-1.0, weights, lower=True, a=inverse, overwrite_a=True)  # the lower half
        diagonal_W = W.diagonal().copy()
        # 1/2 tr(W B) of the covariance B of batches, of whose symmetric W the lower half is valid.
        of_batches = (
            0.0
            if self._same_batch is None
            else float((np.tril(W, -1) * batches).sum()) + 0.5 * float(diagonal_W @ np.diagonal(batches))
        )
        V = np.multiply(W, slope, out=W)
        scaled, V_points = points[:, :d], blas.dsymm(1.0, V, points, lower=True)
        gradient = np.zeros_like(values)
        gradient[:d] = V_points[:, -1] @ scaled**2 - (scaled * V_points[:, :d]).sum(0)
        if self._scaled:  # dA is the covariance of f itself, A less noise and batches, and tr(W A) is n - r' w
            gradient[d] = 0.5 * (n - quadratic - float(diagonal_W @ noise)) - of_batches
        if self._same_batch is not None:
            gradient[-3] = of_batches
        if self._fixed is None:
            gradient[-2] = 0.5 * float(diagonal_W.sum()) * math.exp(values[-2])
        gradient[-1] = -float(weights.sum())
        penalty, slopes = self._penalty(theta)
        return evidence + penalty, gradient[self._learned] + slopes

    def _penalty(self, theta: Array) -> tuple[float, Array]:
        """Minus the log prior, 1/2 precision (theta - location)^2 + linear theta + rate e^theta, and its gradient."""
        precision, location, linear, rate = self._terms
        grown = rate * np.exp(np.where(rate > 0.0, theta, 0.0))
        value = float((0.5 * precision * (theta - location) ** 2 + linear * theta + grown).sum())
        return value, precision * (theta - location) + linear + grown

    def _all(self, theta: Array) -> Array:
        """All hyperparameters, those that are not learned too."""
        values = self._values.copy()
        values[self._learned] = theta
        return values

    def _noise(self, theta: Array, unit: float, extra_noise: float | Array) -> Array:
        if self._fixed is None:
            return np.full(len(self._X), np.exp(theta[-2]) + extra_noise)
        return np.maximum(self._fixed / max(unit, LEAST_UNIT) ** 2, FLOOR) + extra_noise

    def _points(self, theta: Array, X: Array) -> Array:
        """Points x in units of the lengthscales, -|x|^2 / 2 and 1, ``n x (d + 2)``."""
        d = X.shape[1]
        points = np.ones((len(X), d + 2))
        scaled = np.multiply(X, np.exp(-theta[:d]), out=points[:, :d])
        points[:, d] = -0.5 * (scaled**2).sum(1)
        return points

    def _covariance(self, theta: Array, square: Array) -> tuple[Array, Array]:
        """Covariances of f, and their derivative by ``square``, minus half the squared scaled distances."""
        np.minimum(square, 0.0, out=square)
        scale = math.exp(theta[self._X.shape[1]]) if self._scaled else 1.0
        return self._radial.with_slope(square, scale)


class ModuleEvidence(Evidence):
    """``theta`` are the raw parameters of the modules; ``model`` is changed, so it must be the caller's own copy."""

    def __init__(self, model: SingleTaskGP) -> None:
        self._model: Any = model.train()
        parameters, bounds = cast(tuple[Any, Any], get_parameters_and_bounds(model, requires_grad=True))
        self._parameters, self.bounds = list(parameters.values()), get_bounds_as_ndarray(parameters, bounds)
        self.start = _flat(self._parameters)

    def prior(self, theta: Array, unit: float = 1.0, extra_noise: float | Array = 0.0) -> Prior:
        self._set(theta)
        with torch.no_grad():
            mean, covariance, noise = (as_array(x) for x in self._moments(unit, extra_noise))
            return Prior(mean, covariance, noise, float(self._log_prior()))

    def loss(
        self, theta: Array, y: Array, kept: Indices, unit: float = 1.0, extra_noise: float | Array = 0.0
    ) -> tuple[float, Array]:
        self._set(theta)
        rows = torch.as_tensor(kept)
        try:  # GPyTorch factorizes a covariance to which a linear kernel's is added
            mean, covariance, noise = self._moments(unit, extra_noise)
            root = torch.linalg.cholesky(covariance[rows][:, rows] + torch.diag(noise[rows]))
        except torch.linalg.LinAlgError:
            return IMPOSSIBLE, np.zeros_like(theta)
        residual = torch.linalg.solve_triangular(root, (torch.as_tensor(y).to(mean) - mean)[rows, None], upper=False)
        value: Any = 0.5 * residual.square().sum() + root.diagonal().log().sum() + 0.5 * len(kept) * LOG_2PI
        value = value - self._log_prior()
        slopes = torch.autograd.grad(value, self._parameters, materialize_grads=True) if self._parameters else ()
        return float(value.detach()), _flat(slopes)

    def _moments(self, unit: float, extra_noise: float | Array) -> tuple[Tensor, Tensor, Tensor]:
        X = self._model.train_inputs[0]
        prior = self._model.forward(X)
        noise = self._model.likelihood.noise.reshape(-1).expand(len(X))
        noise = (noise / max(unit, LEAST_UNIT) ** 2).clamp_min(FLOOR) if _fixed_noise(self._model) else noise
        likelihood, covariance = self._model.likelihood, prior.covariance_matrix
        if _has_batches(self._model):
            covariance = covariance + likelihood.batch_variance * likelihood.same_batch
        return prior.mean, covariance, noise + torch.as_tensor(extra_noise).to(noise)

    def _log_prior(self) -> Any:
        priors = self._model.named_priors()
        return sum(prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in priors)

    def _set(self, theta: Array) -> None:
        if self._parameters:
            vector_to_parameters(torch.as_tensor(theta).to(self._parameters[0]), self._parameters)


def _squares(points: Array) -> Array:
    """Minus half the squared distances, ``n x n``, as one product: x x' - |x|^2 / 2 - |x'|^2 / 2."""
    swapped = points.copy()
    swapped[:, -2:] = points[:, :-3:-1]
    return points @ swapped.T


def _solved(gpu: torch.device | None, A: Array, residual: Array) -> tuple[Array, Array, float] | None:
    """A^-1, its lower half, A^-1 r and log|A| of a Fortran array, which may be overwritten; None if indefinite."""
    if gpu is not None:
        if (factor := cholesky(on_device(A.T, gpu))) is None:
            return None
        weights = torch.cholesky_solve(on_device(residual[:, None], gpu), factor[0])[:, 0]
        return torch.cholesky_inverse(factor[0]).cpu().numpy().T, weights.cpu().numpy(), factor[1]
    root, failed = lapack.dpotrf(A, lower=True, clean=False, overwrite_a=True)
    if failed:
        return None
    log_det = 2.0 * float(np.log(root.diagonal()).sum())
    weights, _ = lapack.dpotrs(root, residual, lower=True)
    return lapack.dpotri(root, lower=True, overwrite_c=True)[0], weights, log_det


def evidence_of(model: SingleTaskGP) -> Evidence:
    """The evidence of a model without batch in its present units, written out where that is possible."""
    return StationaryEvidence(model) if StationaryEvidence.fits(model) else ModuleEvidence(model)


def _base(kernel: Any) -> Any:
    return kernel.base_kernel if type(kernel) is ScaleKernel else kernel


def _positive(model: Any) -> list[_Positive]:
    found = [_Positive(_base(model.covar_module), "lengthscale", model.train_inputs[0].shape[-1])]
    if type(model.covar_module) is ScaleKernel:
        found.append(_Positive(model.covar_module, "outputscale"))
    if _has_batches(model):
        found.append(_Positive(model.likelihood, "batch_variance"))
    return found if _fixed_noise(model) else [*found, _Positive(model.likelihood.noise_covar, "noise")]


def _terms(prior: Any) -> tuple[float, float, float, float]:
    """Precision, location, linear term and rate of minus the log density, as a function of the logarithm."""
    if prior is None:
        return 0.0, 0.0, 0.0, 0.0
    if type(prior) is LogNormalPrior:
        return float(prior.scale) ** -2.0, float(prior.loc), 1.0, 0.0
    return 0.0, 0.0, 1.0 - float(prior.concentration), float(prior.rate)


def _fixed_noise(model: SingleTaskGP) -> bool:
    return isinstance(model.likelihood, FixedNoiseGaussianLikelihood)


def _has_batches(model: SingleTaskGP) -> bool:
    return isinstance(model.likelihood, BatchEffectLikelihood)


def as_array(x: Tensor) -> Array:
    return np.asarray(x.detach().to("cpu", torch.float64))


def _flat(tensors: Iterable[Tensor]) -> Array:
    return np.concatenate([np.zeros(0), *(as_array(x).reshape(-1) for x in tensors)])
