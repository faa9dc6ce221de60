"""MLE-GP-UCB: GP-UCB under the hypothesis of largest marginal likelihood, chosen anew each round.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7: what is done in practice, over a finite U, without a
guarantee. Difference from :mod:`gp_ucb`: a posterior per hypothesis, one of which is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from bo_robust.algorithms.hypothesis_space import HypothesisAlgorithm

__all__ = ["MLEGPUCB"]


@dataclass(frozen=True)
class MLEGPUCB(HypothesisAlgorithm):
    """MLE-GP-UCB: the leader is the likeliest hypothesis.

    Args:
        width: Confidence width w^u_t, one for all hypotheses or a tuple of one each.
    """
