"""MLE-GP-UCB: GP-UCB under the candidate of largest marginal likelihood, chosen anew each round.

The baseline of Ziomek, Adachi & Osborne (ICML 2024), section 7: common practice, over a finite U, without a guarantee.
Difference from :mod:`gp_ucb`: a posterior per candidate, one of which is used.
"""

from dataclasses import dataclass

from bo_robust.algorithms.candidate_algorithm import CandidateAlgorithm


@dataclass(frozen=True)
class MLEGPUCB(CandidateAlgorithm):
    """MLE-GP-UCB: the leader is the likeliest candidate."""
