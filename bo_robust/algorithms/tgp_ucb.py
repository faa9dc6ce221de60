"""TGP-UCB: GP-UCB on rewards set to zero beyond a truncation level b_t, for heavy-tailed payoffs.

Ray Chowdhury & Gopalan (NeurIPS 2019), Algorithm 1: y_hat_t = y_t 1{|y_t| <= b_t} with
b_t = v^(1/(1+alpha)) t^(1/(2(1+alpha))); each reward is judged once, with the level of its own round (t counts failed
pulls too). Rewards should be centred: zeroing is a bias towards zero. Difference from :mod:`gp_ucb`: ``observe``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.schedules import Truncation, Width
from bo_robust.schedules.truncation import truncate
from bo_robust.validation import check_rule

__all__ = ["TGPUCB"]


@dataclass(frozen=True)
class TGPUCB(ArmAlgorithm):
    """TGP-UCB.

    Args:
        width: Confidence width; :class:`bo_robust.schedules.TGPWidth` is the theorem's.
        truncation: Level b_t; :class:`bo_robust.schedules.TGPTruncation` is the theorem's.
        rule: What becomes of rewards beyond the level: "zero" (the paper's), "clip" or "residual"
            (:func:`bo_robust.schedules.truncate`).

    Raises:
        ValueError: on an unknown rule.
    """

    width: Width
    truncation: Truncation
    rule: str = "zero"

    def __post_init__(self) -> None:
        check_rule(self.rule)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the truncated rewards; infinite ones are failed pulls, not truncated ones."""
        kept = self.seen(state, arms, rewards)
        info = super().observe(state, arms, kept)
        return Info(info.ok, (kept != rewards) & info.ok)

    def seen(self, state: State, arms: Tensor, rewards: Tensor) -> Tensor:
        """The rewards truncated at b_t, ``s``; those that are not finite as they are."""
        centre = state.posterior.mean.gather(1, arms.unsqueeze(1)).squeeze(1) if self.rule == "residual" else None
        kept = truncate(rewards, self.truncation(state.round + 1), self.rule, centre)
        return torch.where(rewards.isfinite(), kept, rewards)
