"""Plain torch on any device: one rank-one update of C per round. Tests compare the fused path with it."""

from dataclasses import dataclass

import torch
from torch import Tensor

# |f - mu| up to this counts as covered, as in the runner: sigma may be mere rounding of the prior.
SLACK = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class FusedRounds:
    """Traces of T rounds (``T x s``), and the posterior after them."""

    arms: Tensor  # Arms pulled, int32
    rewards: Tensor  # y_t before truncation
    recommended: Tensor  # Arm of largest posterior mean after the round, int32
    coverage: Tensor  # Share of arms with |f - mu| <= w sigma before the pull
    mean: Tensor  # mu_T, `s x n`
    variance: Tensor  # sigma_T^2, `s x n`
    counts: Tensor  # Pulls per arm, `s x n`
    information_gain: Tensor  # Realised information gain in nats, `s`
    covariance: Tensor  # C_T, `s x n x n`


def fused_rounds(
    covariance: Tensor, mean: Tensor, f: Tensor, noise_var: Tensor, noise: Tensor, widths: Tensor, levels: Tensor
) -> FusedRounds:
    """See :func:`bo_robust.ops.fused_rounds.fused_rounds`."""
    s, _ = f.shape
    C, mu = covariance.clone(memory_format=torch.contiguous_format), mean.clone()
    variance = C.diagonal(dim1=1, dim2=2).clamp(min=0.0)
    counts, gain = torch.zeros_like(f), torch.zeros_like(noise_var)
    arms = torch.empty(noise.shape, dtype=torch.int32, device=f.device)
    recommended, rewards, coverage = torch.empty_like(arms), torch.empty_like(noise), torch.empty_like(noise)
    everyone, slack = torch.arange(s, device=f.device), SLACK[f.dtype]
    for t in range(len(noise)):
        reach = widths[t].unsqueeze(1) * variance.sqrt()
        coverage[t] = ((f - mu).abs() <= reach + slack).to(f.dtype).mean(1)
        arm = _first_argmax(mu + reach)
        y = f[everyone, arm] + noise[t]
        kept = torch.where(y.abs() <= levels[t], y, 0.0)
        row = C[everyone, arm]
        prior = row[everyone, arm].clamp(min=0.0)
        scale = (prior + noise_var).rsqrt()
        new = row * scale.unsqueeze(1)
        mu += new * ((kept - mu[everyone, arm]) * scale).unsqueeze(1)
        variance.addcmul_(new, new, value=-1.0).clamp_(min=0.0)
        C -= new.unsqueeze(2) * new.unsqueeze(1)
        counts[everyone, arm] += 1.0
        gain += 0.5 * torch.log1p(prior / noise_var)
        arms[t], rewards[t], recommended[t] = arm, y, _first_argmax(mu)
    return FusedRounds(arms, rewards, recommended, coverage, mu, variance, counts, gain, C)


def _first_argmax(x: Tensor) -> Tensor:
    """First index of the maximum of every row, ``s``."""
    return (x == x.amax(1, keepdim=True)).to(torch.uint8).argmax(1)
