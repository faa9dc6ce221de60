"""BKB: GP-UCB on a sparse posterior whose dictionary is drawn anew by leverage scores after every pull.

Calandriello, Carratino, Lazaric, Valko, Rosasco (COLT 2019), Algorithm 1: keep every past x_i on its own with
probability min(1, q sigma~^2_t(x_i)), copies as counts. Difference from :mod:`gp_ucb`: the posterior
(:mod:`bo_robust.states.dtc`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bo_robust.algorithms.base import ArmAlgorithm, Info, Selection, State
from bo_robust.algorithms.random_arm import uniform_arms
from bo_robust.features.leverage import check_oversampling, draw_dictionary, keep_probability
from bo_robust.linalg import row_argmax
from bo_robust.random import spread
from bo_robust.schedules import BKBWidth, Width
from bo_robust.states import dtc
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dtc import DTCPosterior

__all__ = ["BKB", "REDRAWS", "new_dictionary", "sparse_width"]

REDRAWS = ("fresh", "persistent")


@dataclass
class BKBState(State):
    """State with, for persistent redraws, one uniform per arm (``s x n``)."""

    uniforms: Tensor | None = None


@dataclass(frozen=True)
class BKB(ArmAlgorithm):
    """BKB.

    Args:
        width: Confidence width; :class:`bo_robust.schedules.BKBWidth` is the theorem's.
        oversampling: q >= 1 on sigma~^2 = variance / lambda; the theorem asks for 6 alpha log(4 T / delta) / epsilon^2.
        redraw: "fresh", the paper's: independent draws every round. "persistent": every arm keeps the uniform it was
            first drawn with, so that a dictionary changes only where a probability crosses it; each dictionary has the
            paper's law, but they are no longer independent of the past, which its proof needs.
    """

    width: Width
    oversampling: float
    redraw: str = "fresh"

    def __post_init__(self) -> None:
        check_oversampling(self.oversampling)
        if self.redraw not in REDRAWS:
            raise ValueError(f"redraw must be one of {', '.join(REDRAWS)}; got {self.redraw!r}.")

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """State before any reward; ``rounds`` is not used.

        Raises:
            ValueError: on a prior mean, a noise variance <= 0 or no trials.
        """
        if prior_mean is not None:
            raise ValueError("BKB has prior mean zero: subtract prior_mean from the rewards instead.")
        return BKBState(dtc.init(kernel, noise_var, trials))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """The arm of largest upper confidence bound; a uniformly random one in the first round."""
        posterior, w = state.posterior, sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        bound = posterior.variance.sqrt().mul_(w.unsqueeze(1) if isinstance(w, Tensor) else w).add_(posterior.mean)
        return Selection(row_argmax(bound), w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Take in the rewards and redraw the dictionaries.

        Raises:
            ValueError: if ``uniform`` is missing.
        """
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        assert isinstance(state, BKBState)
        posterior: DTCPosterior = state.posterior
        ok = dtc.count(posterior, arms, rewards)
        state.round += 1
        uniforms = state.uniforms
        if uniforms is None:
            uniforms = spread(uniform, posterior.counts.shape[1])
            state.uniforms = uniforms if self.redraw == "persistent" else None
        # variances of the round before, as the paper: count did not change them
        dtc.redraw(posterior, new_dictionary(posterior, posterior.variance, self.oversampling, uniforms))
        return Info(ok)


def new_dictionary(posterior: DTCPosterior, variance: Tensor, oversampling: float, uniforms: Tensor) -> Tensor:
    """Arms drawn for the dictionaries, ``s x n`` bool: past arms with probability min(1, q variance / lambda) a copy.

    A trial without a reward (all pulls failed) takes arm 0: any dictionary serves.
    """
    p = keep_probability(variance / posterior.noise_var.unsqueeze(1), oversampling, posterior.counts)
    keep = draw_dictionary(p, uniforms)
    keep[:, 0] |= ~keep.any(1)
    return keep


def sparse_width(state: State, width: Width, uniform: Tensor) -> Tensor | float:
    """The width of the coming round; :class:`BKBWidth` is handed sum sigma~^2 where others get the information gain."""
    posterior = state.posterior
    known = posterior.effective_dimension if isinstance(width, BKBWidth) else posterior.information_gain
    return width(state.round + 1, known, uniform)
