"""TGP-UCB: GP-UCB on rewards set to zero beyond a truncation level b_t, for heavy-tailed payoffs.

Ray Chowdhury & Gopalan (NeurIPS 2019), Algorithm 1: y_hat_t = y_t 1{|y_t| <= b_t} with b_t = v^(1/(1+alpha))
t^(1/(2(1+alpha))). Each reward is truncated once, with the level of its own round; t counts failed pulls too. Rewards
should be centered: zeroing is a bias towards zero. Difference from :mod:`gp_ucb`: ``observe``.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state
from bo_robust.bandits.gp_ucb import select_ucb
from bo_robust.confidence import Width
from bo_robust.confidence.truncation import Rule, Truncation, truncate
from bo_robust.utils.round_numbers import by_round


@dataclass(frozen=True)
class TGPUCB(ArmAlgorithm):
    """TGP-UCB.

    Args:
        width: Confidence width; the theorem uses :class:`bo_robust.confidence.TGPWidth`.
        truncation: Level b_t; the theorem uses :class:`bo_robust.confidence.truncation.TGPTruncation`.
        rule: What becomes of rewards beyond the level: "zero" (the paper's) or "clip"
            (:func:`bo_robust.confidence.truncation.truncate`). Another rule raises ``ValueError``.
    """

    capturable: ClassVar[bool] = True

    width: Width
    truncation: Truncation
    rule: Rule = "zero"

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        return select_ucb(checked_state(state, State), self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the truncated rewards; infinite rewards are failed pulls, not truncated ones."""
        level = by_round(self.truncation, checked_state(state, State).round + 1, rewards)
        kept = truncated_rewards(rewards, level, self.rule)
        info = super().observe(state, arms, kept)
        return Info(info.ok, (kept != rewards) & info.ok)


def truncated_rewards(rewards: Tensor, level: Tensor | float, rule: str) -> Tensor:
    """The rewards truncated at ``level``, a number or ``s``, by a rule of :class:`TGPUCB`; none that is not finite."""
    return torch.where(rewards.isfinite(), truncate(rewards, level, rule), rewards)
