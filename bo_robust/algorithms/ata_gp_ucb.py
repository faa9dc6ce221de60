"""ATA-GP-UCB: GP-UCB whose past rewards are all truncated anew each round, in each direction of a feature space.

Ray Chowdhury & Gopalan (NeurIPS 2019), Algorithm 2, with quadrature Fourier features (Lemma 1) or Nyström features
(Theorem 4). Difference from :mod:`tgp_ucb`: the posterior (:mod:`bo_robust.states.truncated`), in which a reward is
judged by its share u_{i tau} y_tau of every direction, with the current level, and may come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.feature_space import FeatureState, feature_table, prior_noise
from bo_robust.algorithms.gp_ucb import select_ucb
from bo_robust.features.base import Features
from bo_robust.schedules import Truncation, Width
from bo_robust.states import truncated
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dictionary import NystromDictionary
from bo_robust.states.truncated import TruncatedPosterior
from bo_robust.states.whitening import ROOTS, FeatureTable
from bo_robust.validation import check_rule

__all__ = ["ATAGPUCB"]


@dataclass(frozen=True)
class ATAGPUCB(ArmAlgorithm):
    """ATA-GP-UCB.

    Args:
        width: Confidence width; :class:`bo_robust.schedules.ATAFourierWidth` and ``ATANystromWidth`` are the theorems'.
        truncation: Level b_t, never falling; ``ATAFourierTruncation`` and ``ATANystromTruncation`` are the theorems'.
        features: A feature map of arm locations (e.g. :class:`bo_robust.features.FourierFeatures`), or how dictionaries
            of arms are drawn (:class:`bo_robust.states.dictionary.NystromDictionary`).
        root: Of V^{-1}, whose rows are the directions: "symmetric" (the paper's V^{-1/2}) or "cholesky" (cheaper).
        rule: What becomes of rewards beyond the level: "zero" (the paper's), "clip" or "residual".

    Raises:
        ValueError: on an unknown root or rule.
    """

    width: Width
    truncation: Truncation
    features: Features | NystromDictionary
    root: str = "symmetric"
    rule: str = "zero"

    def __post_init__(self) -> None:
        check_rule(self.rule)
        if self.root not in ROOTS:
            raise ValueError(f"root must be one of {', '.join(ROOTS)}; got {self.root!r}.")

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; ``rounds`` is not used, room is made as needed.

        Raises:
            ValueError: on a prior mean (the features have none), a noise variance <= 0, no trials, features of points
                for arms of unknown location, or arms outside the features' box.
        """
        noise = prior_noise(kernel, noise_var, trials, prior_mean)
        posterior = truncated.init(feature_table(self.features, kernel, self.root), noise, self.root, self.rule)
        return FeatureState(posterior, kernel=kernel)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound."""
        return select_ucb(state, self.width, uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards, truncate all anew; with a dictionary, then draw it anew from ``uniform``.

        Raises:
            ValueError: if the level falls, or a dictionary is to be drawn and ``uniform`` is missing.
        """
        assert isinstance(state, FeatureState)
        assert state.kernel is not None
        t, kernel, redraw = state.round + 1, state.kernel, None
        if isinstance(self.features, NystromDictionary) and t >= self.features.redraw * state.posterior.drawn:
            if uniform is None:
                raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
            redraw = partial(self._redrawn, kernel=kernel, uniform=uniform)
        ok, lost = truncated.observe(state.posterior, arms, rewards, self.truncation(t), redraw)
        state.round = t
        return Info(ok, lost)

    def seen(self, state: State, arms: Tensor, rewards: Tensor) -> Tensor:
        """The rewards, zero beyond b_t, ``s``: within b_t none is lost in any direction, as |u| <= 1."""
        return rewards.masked_fill(rewards.abs() > self.truncation(state.round + 1), 0.0)

    def _redrawn(self, posterior: TruncatedPosterior, kernel: ArmKernel, uniform: Tensor) -> FeatureTable:
        assert isinstance(self.features, NystromDictionary)
        return self.features.draw(kernel, posterior.variance, posterior.counts, uniform)
