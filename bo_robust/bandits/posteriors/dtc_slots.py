"""A round of BKB on CUDA at static sizes, so that a graph repeats it (:mod:`.slots`).

It is :func:`.dtc.count` and :func:`.dtc.rebuild` under a new dictionary in some 25 launches, and waits for nothing. All
arms take the part of those pulled, as their features are computed anyway.
"""

import torch
from torch import Tensor

from bo_robust.bandits.posteriors.arms import check_pulls
from bo_robust.bandits.posteriors.dtc import DTCPosterior
from bo_robust.ops import dtc_round


def learn(posterior: DTCPosterior, arms: Tensor, rewards: Tensor, oversampling: float, uniform: Tensor) -> Tensor:
    """Observe a reward per trial under a new dictionary, drawn by ``uniform``; returns which were noted, ``s`` bool."""
    p, kernel = posterior, posterior.kernel
    check_pulls(p.noise_var, arms, rewards)
    assert p.most is not None
    parts = p.noise_var, p.variance, p.totals, p.learnt, p.pulled, p.dictionary, p.most
    ok, points, size = dtc_round.draw_(p.slots, oversampling, arms, rewards, uniform, *parts)
    k = kernel.block(points, slice(None))
    K_D = k.gather(2, points.unsqueeze(1).expand(-1, p.slots, -1))
    R = dtc_round.inverse_root(K_D, size, pivoting=True)
    E = R @ k
    V = (E * p.counts.unsqueeze(1)) @ E.mT
    V.diagonal(dim1=1, dim2=2).add_(p.noise_var.unsqueeze(1))
    F = dtc_round.inverse_root(V, size, pivoting=False) @ R
    G = F @ k
    weights = (G @ p.sums.unsqueeze(2)).mT @ F
    explained, left = (torch.linalg.vector_norm(z, dim=1) for z in (E, G))
    rest = torch.addcmul(kernel.diagonal, explained, explained, value=-1.0).clamp_(min=0.0)
    p.mean, p.variance = (weights @ k).squeeze(1), rest.addcmul_(left * p.noise_var.unsqueeze(1), left)
    p.points, p.root, p.factor, p.weights = points, R, F, weights.squeeze(1)
    return ok
