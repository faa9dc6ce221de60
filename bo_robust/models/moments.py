"""Posterior moments of any BoTorch model at many points, without the ``b x 1 x d`` penalty.

GPyTorch expands the training set once per t-batch, so ``b`` arms as ``b x 1 x d`` cost ``b`` copies of every kernel and
solve. Here points whose joint covariance nobody needs are flattened and evaluated as ``(b / c) x c x d``, blocks of at
most ``c`` points. A single exact GP takes one matrix product instead (:mod:`bo_robust.models.exact_moments`).

``lead`` are the t-batch dimensions beyond the model's own ``batch_shape``. Results have shape
``lead x batch_shape x q`` and are differentiable with respect to X.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.model import Model, ModelList
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from gpytorch.models import ExactGP
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.confidence.information_gain import exact as exact_gain
from bo_robust.models.exact_moments import MIN_VARIANCE, exact_moments
from bo_robust.models.robust.posterior import LatentModel, standardize_of
from bo_robust.utils.upstream import latent_posterior, moment_transforms


def marginal_moments(
    model: Model,
    X: Tensor,
    block: int = 256,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Posterior mean and variance (> 0) of f at each point of X on its own, ``lead x batch_shape x q`` each.

    Args:
        model: A model with one output, or with several and a ``posterior_transform``. A list of models must be a
            ``ModelListGP`` for pending points.
        X: Points, ``q x d`` or ``lead x q x d``; for a batched model ``lead x batch_shape x q x d``, where dimensions
            of ``batch_shape`` may be 1 or missing.
        block: Points evaluated together, >= 1; memory is about ``block`` numbers per point.
        posterior_transform: To one output.
        X_pending: Points whose outcomes are on their way, ``k x d`` for all of X or ``lead x k x d``. The variance is
            the one after observing them, the mean stays (GP-BUCB, Desautels et al. 2014, hallucination). A model with
            a method ``with_pending`` is asked for it with ``k x d`` points, as ``BKBModel``.

    Raises:
        ValueError: if the posterior has more than one output per point, or there are pending points and the posterior
            is neither Gaussian nor one per model of a ``ModelListGP``.
    """
    asked: Any = model
    if X_pending is not None and X_pending.ndim == 2 and hasattr(model, "with_pending"):
        mean, _ = marginal_moments(model, X, block, posterior_transform)
        return mean, marginal_moments(asked.with_pending(X_pending), X, block, posterior_transform)[1]
    line = line_of(posterior_transform)
    if X_pending is None and line is not None:
        exact = asked.marginal(X) if hasattr(model, "marginal") else exact_moments(model, X)
        if exact is not None:
            return line[0] + line[1] * exact[0], line[1] ** 2 * exact[1]
    # On a ModelList's posteriors, transforms to one output work for one point at a time only.
    if _is_plain_list(model) or (getattr(model, "evaluates_in_blocks", False) and X_pending is None):
        block = 1
    if X_pending is not None and X_pending.ndim > 2:  # points of one t-batch belong together
        return _with_pending(model, X, posterior_transform, X_pending)
    blocks, restore = _to_blocks(X, model.batch_shape, block)
    if X_pending is None:
        posterior = checked_posterior(model, blocks, posterior_transform)
        mean, variance = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1).clamp_min(MIN_VARIANCE)
    else:
        mean, variance = _with_pending(model, blocks, posterior_transform, X_pending)
    return restore(mean), restore(variance)


def marginal_quantiles(
    model: Model,
    X: Tensor,
    reaches: Sequence[Tensor | float],
    block: int = 256,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
) -> list[Tensor]:
    """Quantiles of f, so many standard deviations from the mean on the scale where f is Gaussian; 0 is the median.

    In a learnt scale w = T(f) they are T^-1 of those of w. The mean of a skewed f less some standard deviations would
    be no quantile, and may be a value that f cannot have. Other arguments, shapes and errors are those of
    :func:`marginal_moments`.
    """
    scale, line = standardize_of(getattr(model, "outcome_transform", None))[0], line_of(posterior_transform)
    if scale.is_identity or line is None:
        mean, variance = marginal_moments(model, X, block, posterior_transform, X_pending)
        return [mean + reach * variance.sqrt() for reach in reaches]
    mean, variance = marginal_moments(LatentModel(model), X, block, None, X_pending)
    offset, slope = line
    deviation = variance.sqrt() * (1.0 if slope > 0.0 else -1.0)
    return [offset + slope * scale.untransform(mean + reach * deviation) for reach in reaches]


def sequential_moments(
    model: Model, X: Tensor, posterior_transform: PosteriorTransform | None = None, X_pending: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """As :func:`marginal_moments`, with the variance of point j taken after observing points 1 .. j - 1 of X too.

    These moments belong to a batch of q points chosen one after the other, in this order, without feedback.
    ``X_pending`` is observed before the first of X. Points are evaluated jointly per t-batch, so keep ``lead`` small.
    Errors are those of :func:`marginal_moments` with pending points.
    """
    _check_joint(model)
    k = 0 if X_pending is None else X_pending.shape[-2]
    if X_pending is not None:
        X = torch.cat([X_pending.expand(*X.shape[:-2], -1, -1), X], dim=-2)
    posterior = checked_posterior(model, X, posterior_transform)
    mean, covariance = _joint_moments(posterior)
    variance = variance_in_sequence(covariance, observation_noise(model, X, posterior_transform))
    return _of_outcomes(posterior, mean[..., k:], variance[..., k:])


def variance_in_sequence(covariance: Tensor, noise: Tensor) -> Tensor:
    """Variance (> 0) of f at point j after observing points 1 .. j - 1, ``... x q``.

    ``covariance`` is that of f at the points (``... x q x q``), ``noise`` the variance of their observations.
    """
    # Entry j of the factor's diagonal is the standard deviation of y_j given y_1 .. y_{j-1}.
    L = psd_safe_cholesky(covariance + torch.diag_embed(noise))
    return (L.diagonal(dim1=-2, dim2=-1).square() - noise).clamp_min(MIN_VARIANCE)


def given_first(mean: Tensor, covariance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (> 0) of f at all points but the first k, ``... x q``, given these, observed at their means.

    ``mean`` is ``... x (k + q)``; ``noise``, the variance of observations, is ``... x k``.
    """
    k = noise.shape[-1]
    L = psd_safe_cholesky(covariance[..., :k, :k] + torch.diag_embed(noise))
    explained = torch.linalg.solve_triangular(L, covariance[..., :k, k:], upper=False)
    left = covariance[..., k:, k:].diagonal(dim1=-2, dim2=-1) - explained.square().sum(-2)
    return mean[..., k:], left.clamp_min(MIN_VARIANCE)


def information_gain(model: Model) -> Tensor:
    """1/2 logdet(I + N^(-1/2) K N^(-1/2)) of an exact GP's training inputs, in nats, ``batch_shape``.

    N holds the noise variances: with N = noise_var I it is the realized gamma_t of the widths. It has no gradient. A
    model with an attribute ``information_gain`` has its own; of a ``FeatureGP`` K is Phi Phi^T. ``ValueError`` for
    other models, or several outputs.
    """
    exact: Any = model
    return exact.information_gain if hasattr(model, "information_gain") else exact_information_gain(model)


def exact_information_gain(model: Model) -> Tensor:
    """:func:`information_gain` of an exact GP."""
    noise = getattr(getattr(model, "likelihood", None), "noise", None)
    if not isinstance(model, ExactGP) or model.num_outputs != 1 or noise is None:
        raise ValueError(f"the information gain is that of exact GPs with one output, not of {type(model).__name__}.")
    with torch.no_grad():
        # In both modes of the model `forward` maps its current `train_inputs` to the prior.
        K = model.forward(*model.train_inputs).covariance_matrix
        root_noise = noise.expand(K.shape[:-1]).sqrt()
        scaled = K / (root_noise.unsqueeze(-1) * root_noise.unsqueeze(-2))
        return exact_gain(scaled, 1.0)


def line_of(transform: PosteriorTransform | None) -> tuple[float, Tensor | float] | None:
    """Offset and slope of a transform of one output; None where it is another."""
    if transform is None:
        return 0.0, 1.0
    weights: Any = getattr(transform, "weights", None)
    if type(transform) is ScalarizedPosteriorTransform and weights.numel() == 1:
        return float(transform.offset), weights.squeeze()
    return None


def checked_posterior(model: Model, X: Tensor, transform: PosteriorTransform | None) -> Any:
    for part in getattr(model, "models", [model]):
        if getattr(getattr(part, "input_transform", None), "is_one_to_many", False):
            raise ValueError(f"{type(part.input_transform).__name__} makes several points of one; fit without it.")
    posterior: Any = model.posterior(X, posterior_transform=transform)
    if posterior.mean.shape[-2:] != (X.shape[-2], 1):
        raise ValueError(f"give a posterior_transform: {tuple(posterior.mean.shape)} is not one output per point.")
    return posterior


def _is_plain_list(model: Model) -> bool:
    return isinstance(model, ModelList) and not isinstance(model, ModelListGP)


def _check_joint(model: Model) -> None:
    if _is_plain_list(model):
        raise ValueError("pending points and q > 1 need a joint posterior; put the GPs into a ModelListGP.")


def _of_outcomes(posterior: Any, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of outcomes from those of :func:`latent_posterior`, ``... x q``."""
    if not isinstance(posterior, TransformedPosterior):
        return mean, variance
    transforms = (f for f in moment_transforms(posterior) if f is not None)
    moments = [f(mean.unsqueeze(-1), variance.unsqueeze(-1)).squeeze(-1) for f in transforms]
    if len(moments) < 2:
        raise ValueError("the outcome transform of the model tells no mean and variance; use another, or none.")
    return moments[0], moments[1].clamp_min(MIN_VARIANCE)


def _joint_moments(posterior: Any) -> tuple[Tensor, Tensor]:
    """Mean ``... x q`` and covariance ``... x q x q``, of :func:`latent_posterior`."""
    posterior = latent_posterior(posterior)
    if not isinstance(posterior, GPyTorchPosterior):
        raise ValueError("pending points and q > 1 need a Gaussian posterior; use an affine outcome_transform.")
    return posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix


def _with_pending(
    model: Model, X: Tensor, transform: PosteriorTransform | None, X_pending: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance at X, ``... x q`` each, after the pending points were observed at their means."""
    _check_joint(model)
    points = torch.cat([X_pending.expand(*X.shape[:-2], *X_pending.shape[-2:]), X], dim=-2)
    posterior = checked_posterior(model, points, transform)
    mean, covariance = _joint_moments(posterior)
    moments = given_first(mean, covariance, observation_noise(model, X_pending, transform))
    return _of_outcomes(posterior, *moments)


def observation_noise(model: Model, X: Tensor, transform: PosteriorTransform | None) -> Tensor:
    """The variance that observing adds to f at X, ``... x q``, in the units of :func:`latent_posterior`."""
    noisy = latent_posterior(model.posterior(X, observation_noise=True, posterior_transform=transform))
    clean = latent_posterior(checked_posterior(model, X, transform))
    return (noisy.variance - clean.variance).squeeze(-1).clamp_min(0.0)


def _to_blocks(X: Tensor, batch_shape: torch.Size, block: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """``lead x batch_shape x q x d`` as ``(blocks) x batch_shape x c x d``, and the way back for values ``... x c``.

    One block has no leading dimension. The last block is filled up with copies of the last point.
    """
    k = len(batch_shape)
    try:
        shape = torch.broadcast_shapes(X.shape[:-2], batch_shape)
    except RuntimeError:
        raise ValueError(
            f"X of shape {tuple(X.shape)} does not broadcast with the model's batch_shape "
            f"{tuple(batch_shape)}; n arms of a batched model are `n {'1 ' * k}1 d`."
        ) from None
    lead = shape[: len(shape) - k]
    q, d = X.shape[-2:]
    points = X.expand(*shape, q, d).reshape(-1, *batch_shape, q, d)  # L x B x q x d
    points = points.movedim(0, k).reshape(*batch_shape, -1, d)  # B x (L q) x d
    total = points.shape[-2]
    num_blocks = max(1, math.ceil(total / block))
    c = math.ceil(total / num_blocks)

    def restore(values: Tensor) -> Tensor:
        values = values if num_blocks == 1 else values.movedim(0, k)  # B x blocks x c
        values = values.reshape(*batch_shape, -1)[..., :total].reshape(*batch_shape, -1, q)
        return values.movedim(k, 0).reshape(*lead, *batch_shape, q)

    if num_blocks == 1:
        return points, restore
    filling = points[..., -1:, :].expand(*batch_shape, num_blocks * c - total, d)
    blocks = torch.cat([points, filling], dim=-2).reshape(*batch_shape, num_blocks, c, d)
    return blocks.movedim(k, 0), restore
