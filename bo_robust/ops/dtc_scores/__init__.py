"""Mean and variance of a block of arms under sparse (DTC) posteriors in one pass: the scoring of BKB and BBKB.

Calandriello et al. 2019, section 3, in the notation of :mod:`bo_robust.states.dtc`: with D the dictionary,
R^T R = K_D^+, V = L L^T and F = L^{-1} R,

    mean(x) = k_D(x) . weights,    variance(x) = max(k(x, x) - ||R k_D(x)||^2, 0) + noise_var ||F k_D(x)||^2.

``naive`` is plain torch in chunks of arms, ``fused`` Triton around cuBLAS for the covariances of this package on CUDA.
Without Triton, and for any other covariance, a CUDA tensor takes the plain path. No gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bo_robust.covariance import Covariance
from bo_robust.ops import use_fused
from bo_robust.ops.dtc_scores import naive
from bo_robust.ops.dtc_scores.naive import Dictionary, Scores, form_of
from bo_robust.ops.dtc_scores.steps import Steps, dtc_steps, steps_of_columns

__all__ = ["Dictionary", "Scores", "Steps", "dtc_scores", "dtc_steps", "scores_of_columns", "steps_of_columns"]


def dtc_scores(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """Posterior mean and variance of f at a block of arms, for all trials, in O(s B r^2).

    Memory beyond the result is that of a chunk of arms, so that a block may be all arms or as few as are at hand.
    A NaN arm has NaN scores.

    Args:
        arms: ``B x d``, float32 or float64; converted chunk by chunk to the dtype of the dictionary. For a covariance
            on other things than vectors anything it takes (integers are handed over as they are), like the points.
        dictionary: The posteriors; its dtype, float64 or float32, is that of the computation and of the result.
        covariance: k. :class:`bo_robust.covariance.SquaredExponential` and :class:`bo_robust.covariance.Matern` are
            evaluated by this op, any other is called with a chunk of arms and the points of one trial.
        noise_var: lambda, ``s``.

    Returns:
        The scores, ``s x B``; :meth:`Scores.best` gives the argmax of an upper confidence bound.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
    """
    _check(dictionary, noise_var)
    points = dictionary.points
    if arms.ndim != 2 or arms.shape[1] != points.shape[2]:
        raise ValueError(f"arms must be B x {points.shape[2]} as the dictionary, got shape {tuple(arms.shape)}.")
    if arms.device != points.device:
        raise ValueError(f"arms are on {arms.device}, the dictionary on {points.device}; move one.")
    form = form_of(covariance, points)
    if form is not None:
        if arms.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"arms must be float32 or float64, got {arms.dtype}; convert them.")
        _check_kind("points", points, dictionary.root)
    if form is not None and use_fused(arms):
        from bo_robust.ops.dtc_scores import fused

        return fused.dtc_scores(arms, dictionary, form, noise_var)
    return naive.dtc_scores(arms, dictionary, covariance, noise_var)


def scores_of_columns(k: Tensor, dictionary: Dictionary, prior_variance: Tensor, noise_var: Tensor) -> Scores:
    """The same from columns of the covariance that are there already: kernel matrices, one per trial perhaps.

    Args:
        k: k_D(x), ``s x B x r``, of the dtype of the dictionary.
        dictionary: The posteriors; its points are not read.
        prior_variance: k(x, x), ``s x B`` or broadcastable to it.
        noise_var: lambda, ``s``.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit.
    """
    _check(dictionary, noise_var)
    s, r = dictionary.root.shape[:2]
    if k.ndim != 3 or k.shape[0] != s or k.shape[2] != r:
        raise ValueError(f"k must be {s} x B x {r} as the dictionary, got shape {tuple(k.shape)}.")
    _check_kind("k", k, dictionary.root)
    return naive.scores_of_columns(k, dictionary, prior_variance, noise_var)


def _check(dictionary: Dictionary, noise_var: Tensor) -> None:
    root, (s, r) = dictionary.root, dictionary.weights.shape
    if root.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the dictionary must be float32 or float64, got {root.dtype}; convert it.")
    for name, x, shape in (
        ("root", root, (s, r, r)),
        ("factor", dictionary.factor, (s, r, r)),
        ("points", dictionary.points, (s, r, *dictionary.points.shape[2:])),
        ("noise_var", noise_var, (s,)),
    ):
        if x.shape != shape:
            raise ValueError(f"{name} must be {shape} as weights are {(s, r)}, got shape {tuple(x.shape)}.")
    for name, x in (("factor", dictionary.factor), ("weights", dictionary.weights), ("noise_var", noise_var)):
        _check_kind(name, x, root)


def _check_kind(name: str, x: Tensor, root: Tensor) -> None:
    if x.dtype != root.dtype or x.device != root.device:
        raise ValueError(f"{name}: {x.dtype} on {x.device}, but root is {root.dtype} on {root.device}; convert one.")
