"""Sampling of dictionaries by ridge leverage scores: each observed point is kept with p = min(1, q sigma^2).

Ray Chowdhury & Gopalan 2019 (section 5.1 b and Theorem 4) and Calandriello et al. 2019 (BKB) redraw the dictionary with
the variances of the model before. In the papers a point observed c times is c copies, drawn independently. A dictionary
of copies equals one of the distinct points, so only the counts are needed.
"""

import math

import numpy as np
import torch
from torch import Tensor

from bo_robust.utils.input_checks import check_accuracy, check_count, check_delta
from bo_robust.utils.linalg import are_few, row_argmax
from bo_robust.utils.random import spread, spread_at


def theory_oversampling(horizon: int, delta: float, epsilon: float) -> float:
    """q = 6 rho log(4 T / delta) / epsilon^2 with rho = (1 + epsilon) / (1 - epsilon), T = ``horizon``.

    Source: Ray Chowdhury & Gopalan 2019, Theorem 4; BKB's q is the same. ``epsilon`` is the accuracy:
    sigma^2 / rho <= approximate sigma^2 <= rho sigma^2. With the papers' epsilon = 0.1, q is in the thousands and keeps
    nearly every point; experiments set it by hand. Raises ``ValueError`` if an argument is outside its range.
    """
    check_count(1, horizon=horizon)
    check_delta(delta)
    check_accuracy(epsilon)
    return 6.0 * (1.0 + epsilon) / (1.0 - epsilon) * math.log(4.0 * horizon / delta) / epsilon**2


def keep_probability(variance: Tensor, oversampling: float, counts: Tensor) -> Tensor:
    """Probability that a point of c copies (``counts``) enters the dictionary: 1 - (1 - p)^c, p = min(1, q sigma^2).

    ``variance`` is >= 0, in the scale of the caller's paper: sigma^2 for ATA-GP-UCB, sigma^2 / noise_var for BKB (the
    two agree at noise_var = 1). ``counts`` broadcast to it. Exactly 0 where the count is 0; NaN stays NaN.
    """
    p = (oversampling * variance).clamp_(0.0, 1.0)
    # log1p and expm1 keep c p where p is below the spacing of numbers near 1.
    at_least_one = (counts.to(p.dtype) * p.neg_().log1p_()).expm1_().neg_()
    return at_least_one.masked_fill_(counts == 0, 0.0)


def entry_oversampling(variance: Tensor, uniform: Tensor, counts: Tensor) -> Tensor:
    """The least q at which each point enters, because ``uniform`` falls below its :func:`keep_probability` there.

    So the points of smallest value are a dictionary of a given size. log1p and expm1 keep the digits of small uniforms.
    """
    return -torch.expm1(torch.log1p(-uniform) / counts) / variance


def draw_dictionary(probability: Tensor, uniform: Tensor) -> Tensor:
    """Draw which arms enter each trial's dictionary, independently with their ``probability``; all ``s x n``.

    A trial that would keep nothing keeps its arm of largest probability: this departs from the papers only where their
    embedding would not be defined. Trials whose probabilities are all 0 (or NaN) stay empty.
    """
    keep = uniform < probability
    probability = torch.nan_to_num(probability, nan=0.0)
    best = row_argmax(probability).unsqueeze(-1)
    rescued = ~keep.any(-1, keepdim=True) & (probability.gather(-1, best) > 0)
    return keep.scatter(-1, best, keep.gather(-1, best) | rescued)


def redrawn(variance: Tensor, oversampling: float, counts: Tensor, uniform: Tensor) -> Tensor:
    """Dictionaries of the past arms, ``s x n`` bool, from variances in the scale of the caller's paper.

    ``counts`` are ``s x n``; ``uniform`` has a draw per arm (``s x n``), or per trial (``s``) to :func:`.spread`. A
    trial without a reward (all its pulls failed) needs a dictionary too: any one serves, and it gets arm 0.
    """
    if are_few(counts):  # only arms with a reward can enter: at 10^5 arms, uniforms of all would take 2 ms
        kept = np.zeros(counts.shape, dtype=bool)
        for row, *of_trial in zip(kept, variance.numpy(), counts.numpy(), uniform.numpy(), strict=True):
            past = of_trial[1].nonzero()[0]
            of_past, copies = (torch.from_numpy(x[past]) for x in of_trial[:2])
            draw = of_trial[2][past] if uniform.ndim == 2 else spread_at(float(of_trial[2]), past, of_trial[2].dtype)
            row[past] = draw < keep_probability(of_past, oversampling, copies).numpy()
        if kept.any(1).all():
            return torch.from_numpy(kept)
    uniforms = uniform if uniform.ndim == 2 else spread(uniform, counts.shape[1])
    keep = draw_dictionary(keep_probability(variance, oversampling, counts), uniforms)
    keep[:, 0] |= ~keep.any(1)
    return keep


def padded(keep: Tensor) -> tuple[Tensor, Tensor]:
    """The arms of each dictionary (``keep``, ``s x n`` bool) as indices, padded to one length. The host waits once.

    Returns:
        Indices in ascending order, ``s x M`` long with 0 as padding, and which of them are no padding, ``s x M`` bool.
        M is the size of the largest dictionary, at least 1.
    """
    s, n = keep.shape
    if s == 1:
        arms = keep[0].nonzero().mT
        return (arms, torch.ones_like(arms, dtype=torch.bool)) if arms.numel() else (arms.new_zeros(1, 1), keep[:, :1])
    place = keep.cumsum(-1)  # 1, 2, ... for arms that are in; column 0 takes the others and is dropped
    sizes = place[:, -1:]
    M = max(1, int(sizes.max()))
    arms = torch.arange(n, device=keep.device).expand(s, n)
    indices = arms.new_zeros(s, M + 1).scatter_(-1, place.where(keep, 0), arms)
    return indices[:, 1:].contiguous(), torch.arange(M, device=keep.device) < sizes
