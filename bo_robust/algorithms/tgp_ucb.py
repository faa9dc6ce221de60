"""TGP-UCB: GP-UCB on rewards set to zero beyond a truncation level b_t, for heavy-tailed payoffs.

Ray Chowdhury & Gopalan (NeurIPS 2019), Algorithm 1: y_hat_t = y_t 1{|y_t| <= b_t} with b_t = v^(1/(1+alpha))
t^(1/(2(1+alpha))). Each reward is judged once, with the level of its own round; t counts failed pulls too. Rewards
should be centred: zeroing is a bias towards zero. The rule "residual" judges y_t - g_t instead, with a reference g_t
known before y_t: docs/pages/residual_truncation.md proves Theorem 1 for it. Difference from :mod:`gp_ucb`: ``observe``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.confidence import Width
from bo_robust.truncation import Truncation, truncate
from bo_robust.validation import check_rule


@dataclass(frozen=True)
class TGPUCB(ArmAlgorithm):
    """TGP-UCB.

    Args:
        width: Confidence width; the theorem uses :class:`bo_robust.confidence.TGPWidth`.
        truncation: Level b_t; the theorem uses :class:`bo_robust.truncation.TGPTruncation`.
        rule: What becomes of rewards beyond the level: "zero" (the paper's), "clip" or "residual"
            (:func:`bo_robust.truncation.truncate`). Another rule raises ``ValueError``.
        reference_bound: C >= 0, for the rule "residual" only: its reference is mu_{t-1}(x_t) clipped to [-C, C]. The
            theorem needs one: with |f| <= C no residual is larger than 2 C plus the noise, and v bounds its moment.
            C = 0 is the rule "zero"; None does not clip and has no guarantee.
    """

    width: Width
    truncation: Truncation
    rule: str = "zero"
    reference_bound: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.rule, self.reference_bound)

    @classmethod
    def default_truncation(cls, features: Any = None) -> Mapping[str, Any]:
        """The level of the theorem."""
        return {"kind": "tgp"}

    @property
    def fused_rounds(self) -> bool:
        """Whether rewards beyond the level become zero."""
        return self.rule == "zero"

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the truncated rewards; infinite rewards are failed pulls, not truncated ones."""
        kept = self.transform_rewards(state, arms, rewards)
        info = super().observe(state, arms, kept)
        return Info(info.ok, (kept != rewards) & info.ok)

    def transform_rewards(self, state: State, arms: Tensor, rewards: Tensor) -> Tensor:
        """The rewards truncated at b_t, ``s``; rewards that are not finite stay as they are."""
        level = self.truncation(state.round + 1)
        return truncated_rewards(state, arms, rewards, level, self.rule, self.reference_bound)


def truncated_rewards(
    state: State, arms: Tensor, rewards: Tensor, level: float, rule: str, reference_bound: float | None
) -> Tensor:
    """The rewards truncated at ``level``, ``s``, by a rule of :class:`TGPUCB`; those not finite stay as they are."""
    centre = None
    if rule == "residual":
        centre = state.posterior.mean.gather(1, arms.unsqueeze(1)).squeeze(1)
        if reference_bound is not None:
            centre = centre.clamp(-reference_bound, reference_bound)
    kept = truncate(rewards, level, rule, centre)
    return torch.where(rewards.isfinite(), kept, rewards)
