"""BoTorch models: the posteriors of the papers behind BoTorch's ``Model`` interface."""

from bo_robust.models.moments import information_gain, marginal_moments, sequential_moments
from bo_robust.models.truncated import TruncatedGP

__all__ = ["TruncatedGP", "information_gain", "marginal_moments", "sequential_moments"]
