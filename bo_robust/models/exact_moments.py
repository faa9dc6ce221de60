"""Marginal posterior moments of one exact GP, by one matrix product per block of points.

mu(x) = m(x) + k(x, X) alpha and sigma^2(x) = k(x, x) - |R k(X, x)|^2 with R = L^-1, L L^T = K + noise. GPyTorch's
prediction strategy also evaluates the kernel between the points and solves with the factor; here neither happens. By
``posterior``, a search of ``GPUCB`` or ``ValueAtRiskUCB`` takes 1.5 to 1.8 times as long (30 to 200 observations, up to
64 conditions; in pairs, one thread). alpha and R are kept with the model's prediction strategy, which the model drops
when its data or hyperparameters are set.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch.models.utils import gpt_posterior_settings
from gpytorch.kernels import Kernel
from gpytorch.settings import lazily_evaluate_kernels
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bo_robust.utils.covariance import shape_of, squared_distances
from bo_robust.utils.linalg import entries_at_once, on_cuda
from bo_robust.utils.upstream import DefaultPredictionStrategy, prediction_strategy, training_residuals

MIN_VARIANCE = 1e-12  # as BoTorch's analytic acquisition functions
# Entries of k(x, X) held at once: such a block stays in the processor's cache, or takes half a GiB of a GPU.
BLOCK_ENTRIES = (1 << 17, 1 << 26)
# alpha and R by prediction strategy; weak keys, so that they go when the model drops its strategy.
_SOLVED: WeakKeyDictionary[Any, tuple[Tensor, Tensor]] = WeakKeyDictionary()


class _NothingIsEqual(TorchFunctionMode):
    """``torch.equal`` says no at once: a kernel asks it to save work, and on CUDA the answer is a wait per block."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return False if func is torch.equal else func(*args, **(kwargs or {}))


def exact_moments(model: Model, X: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of f at points ``lead x q x d``, ``lead x q`` each; None where they may not hold.

    They hold where :func:`exact_strategy` is one, and the outcome transform, if there is one, is ``Standardize``.
    Results are differentiable in X. The variance is at least ``MIN_VARIANCE``, in units of ``Standardize``: BoTorch's
    own limit, in units of the observations, would hide the variance of small ones.
    """
    gp: Any = model
    outcome = getattr(gp, "outcome_transform", None)
    if outcome is not None and type(outcome) is not Standardize:
        return None
    exact = exact_strategy(gp, X)
    if exact is None:
        return None
    strategy, points = exact
    train, covariance = gp.train_inputs[0], _covariance_with(gp.covar_module, gp.train_inputs[0])
    alpha, root = solved(strategy)
    flat = points.reshape(-1, points.shape[-1])
    parts = []
    entries = entries_at_once(flat, *BLOCK_ENTRIES)
    for block in flat.split(max(1, entries // max(1, len(train)))):
        k, prior = covariance(block)
        mean = gp.mean_module(block) + k @ alpha
        parts.append((mean, prior - torch.linalg.vector_norm(k @ root.mT, dim=-1).square()))
    mean, variance = (torch.cat(column).reshape(X.shape[:-1]) for column in zip(*parts, strict=True))
    variance = variance.clamp_min(MIN_VARIANCE)
    if outcome is not None:
        scale = outcome.stdvs.squeeze()
        mean, variance = outcome.means.squeeze() + scale * mean, scale.square() * variance
    return mean, variance


def exact_strategy(gp: Any, X: Tensor) -> tuple[DefaultPredictionStrategy, Tensor] | None:
    """The prediction strategy of one exact GP of one output, and points as its kernel sees them; None of others.

    The posterior of a ``SingleTaskGP`` is that of its strategy, and so is that of a class that defines
    ``has_exact_moments``. A subclass of either has to define it too, because its posterior may be another. It is None
    where there is a batch shape, the input transform makes several points of one, or the strategy is the kernel's own.
    """
    kind = type(gp)
    plain = kind is SingleTaskGP or ("has_exact_moments" in vars(kind) and gp.has_exact_moments)
    if not plain or gp.num_outputs != 1 or gp.batch_shape:
        return None
    gp.eval()  # as `posterior` does; inputs are transformed from here on
    points = gp.transform_inputs(X)
    if points.shape[:-1] != X.shape[:-1]:
        return None
    if prediction_strategy(gp) is None:
        with torch.no_grad(), gpt_posterior_settings():  # one prediction makes the strategy
            gp(points.reshape(-1, points.shape[-1])[:1])
    strategy = prediction_strategy(gp)
    return (strategy, points) if type(strategy) is DefaultPredictionStrategy else None


def _covariance_with(kernel: Kernel, train: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """k(x, X) and k(x, x) as a function of points ``N x d``, ``N x n`` and ``N``; X are ``train``, ``n x d``.

    BoTorch's usual kernels are written out, because GPyTorch passes over k(x, X) three times as often.
    """
    shape = shape_of(kernel)
    if shape is None:

        def evaluated(points: Tensor) -> tuple[Tensor, Tensor]:
            with lazily_evaluate_kernels(False), _NothingIsEqual() if on_cuda(points) else nullcontext():
                return kernel(points, train).to_dense(), kernel(points, diag=True)

        return evaluated
    lengthscale, outputscale, center = shape.lengthscale.detach(), shape.outputscale.detach(), train.mean(0)
    scaled = (train - center) / lengthscale

    def written_out(points: Tensor) -> tuple[Tensor, Tensor]:
        k = shape.radial.of(squared_distances((points - center) / lengthscale, scaled))
        return k * outputscale, outputscale

    return written_out


def solved(strategy: DefaultPredictionStrategy) -> tuple[Tensor, Tensor]:
    """alpha = (K + noise)^-1 (y - m), ``n``, and R, ``n x n``, without gradient."""
    solved = _SOLVED.get(strategy)
    if solved is None:
        with torch.no_grad():
            L, error = training_residuals(strategy)
            alpha = torch.cholesky_solve(error.unsqueeze(-1), L).squeeze(-1)
            root = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype, device=L.device), upper=False)
        solved = _SOLVED[strategy] = (alpha, root)
    return solved
