"""A round of BKB at static sizes in PyTorch; the reference of ``fused``. Nothing is read back to the host."""

import torch
from torch import Tensor

from bo_robust.utils.random import spread


@torch.no_grad()
def draw_(
    slots: int, oversampling: float, arms: Tensor, rewards: Tensor, uniforms: Tensor, noise_var: Tensor,
    variance: Tensor, totals: Tensor, learnt: Tensor, pulled: Tensor, dictionary: Tensor, most: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Note a reward of each trial, and draw its dictionary as :func:`bo_robust.features.leverage.redrawn`; in place.

    Arguments from ``noise_var`` on are those of a :class:`bo_robust.bandits.posteriors.dtc.DTCPosterior`.

    Returns:
        Which rewards were noted, ``s`` bool; the first R arms of every dictionary, padded by arm 0, ``s x R``; and how
        many these are, ``s`` long.
    """
    n = variance.shape[1]
    ok = (arms >= 0) & (arms < n) & rewards.isfinite()
    at = arms.clamp(0, n - 1).unsqueeze(1)
    gain = torch.log1p(variance.gather(1, at).squeeze(1) / noise_var).mul_(0.5).mul_(ok)
    pull = torch.stack([torch.where(ok, rewards, 0.0), ok.to(rewards)]).unsqueeze(2)
    learnt.copy_(totals.scatter_add_(2, at.expand(2, -1, -1), pull))
    pulled.copy_(torch.stack([pulled[:, 0] + gain, torch.zeros_like(gain)], 1))
    # Of c copies one enters where uniform < 1 - (1 - p)^c; the logarithms are zero without copies, and in place of NaN
    log = totals[1] * torch.log1p(-(variance / noise_var.unsqueeze(1) * oversampling).clamp(max=1.0))
    log = torch.where(log < 0.0, log, 0.0)
    keep = log < torch.log(1.0 - (uniforms if uniforms.ndim == 2 else spread(uniforms, n)))
    best = log.argmin(1, keepdim=True)
    dictionary.copy_(keep.scatter(1, best, keep.gather(1, best) | ~keep.any(1, keepdim=True)))
    place = dictionary.cumsum(1)
    size = place[:, -1]
    most.copy_(torch.maximum(most, size))
    column = place.where(dictionary & (place <= slots), 0)  # the first takes all others
    numbers = torch.arange(n, device=arms.device).expand_as(place)
    points = arms.new_zeros(len(arms), slots + 1).scatter_(1, column, numbers)[:, 1:]
    return ok, points, size.clamp(max=slots)


@torch.no_grad()
def inverse_root(C: Tensor, size: Tensor, pivoting: bool) -> Tensor:
    """W with W^T W = C^+ of the first ``size`` (``s``) rows and columns of C, ``s x R x R``; zero elsewhere.

    W is lower triangular, and C is to be positive definite. With ``pivoting`` the rows of W belong to points chosen one
    by one, and its columns to those of C: as :func:`bo_robust.features.nystrom.dictionary_root` does it from dependent
    points, here always.
    """
    (s, R), diagonal = C.shape[:2], C.diagonal(dim1=1, dim2=2)
    i, trial = torch.arange(R, device=C.device), torch.arange(s, device=C.device)
    present = (i < size.unsqueeze(1)) & (diagonal > 0.0)
    scale = (torch.where(present, diagonal, 1.0).rsqrt() * present).unsqueeze(2)
    eye = torch.eye(R, dtype=C.dtype, device=C.device).expand_as(C)
    A = torch.cat([torch.where(present.unsqueeze(1), C, 0.0) * scale.mT, eye], 2) * scale
    rounding = present.sum(1, dtype=C.dtype) * (torch.finfo(C.dtype).eps if pivoting else 0.0)
    left = torch.where(present, 1.0 + 0.5 * rounding.unsqueeze(1), -1.0)
    X = torch.zeros_like(A)  # L^T and W
    for k in range(R):
        p = left.argmax(1) if pivoting else torch.full_like(size, k)
        d = left.gather(1, p.unsqueeze(1))
        row = (A[trial, p] - (X[trial, :, p].unsqueeze(1) @ X).squeeze(1)) * d.clamp(min=0.0).rsqrt()
        X[:, k] = row = torch.where(d > 1.5 * rounding.unsqueeze(1), row, 0.0)
        left = (left - row[:, :R].square()).scatter(1, p.unsqueeze(1), -1.0)
    return X[..., R:]
