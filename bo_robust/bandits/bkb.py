"""BKB: GP-UCB on a sparse posterior whose dictionary is drawn anew by leverage scores after every pull.

Calandriello, Carratino, Lazaric, Valko, Rosasco (COLT 2019), Algorithm 1. Every past x_i is kept independently with
probability min(1, q sigma~^2_t(x_i)); repeated pulls are copies, stored as counts. Difference from :mod:`gp_ucb`: the
posterior (:mod:`bo_robust.bandits.posteriors.dtc`). With a truncation level its rewards are truncated as those of
:mod:`tgp_ucb`, a combination that neither paper proves.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state, uniform_arms
from bo_robust.bandits.gp_ucb import largest_bound
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel, check_pulls
from bo_robust.bandits.posteriors.dtc import DTCPosterior
from bo_robust.bandits.tgp_ucb import truncated_rewards
from bo_robust.confidence import Width
from bo_robust.confidence.base import DIMENSION, needs_of, width_at
from bo_robust.confidence.truncation import NoTruncation, Rule, Truncation
from bo_robust.features.leverage import redrawn
from bo_robust.ops import dtc_round
from bo_robust.utils.input_checks import Oversampling, quoted
from bo_robust.utils.linalg import all_numbers
from bo_robust.utils.random import spread
from bo_robust.utils.round_numbers import by_round, is_capturing


@dataclass
class BKBState(State):
    """State of BKB; ``uniforms`` holds one draw per arm (``s x n``) for persistent redraws."""

    uniforms: Tensor | None = None


@dataclass(frozen=True)
class BKB(ArmAlgorithm):
    """BKB.

    Args:
        width: Confidence width; the theorem uses :class:`bo_robust.confidence.BKBWidth`.
        oversampling: q >= 1 on sigma~^2 = variance / lambda; the theorem uses
            :func:`bo_robust.features.leverage.theory_oversampling`.
        redraw: "fresh" (the paper's) draws independently every round. "persistent" keeps one uniform per arm, so that
            an arm enters or leaves only when its probability crosses it. This probability depends on the variances,
            and these on who entered by the same draws before. So a dictionary is not independent of the past, as the
            proof needs, and its law is not the paper's: dictionaries come out a little larger.
        truncation: Level b_t beyond which rewards are truncated, by default none.
        rule: As in :class:`.tgp_ucb.TGPUCB`.
    """

    records: ClassVar[frozenset[str]] = frozenset({"dictionary"})
    takes_prior_mean: ClassVar[bool] = False
    capturable: ClassVar[bool] = True

    width: Width
    oversampling: Oversampling
    redraw: str = "fresh"
    truncation: Truncation = field(default_factory=NoTruncation)
    rule: Rule = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.redraw not in ("fresh", "persistent"):
            raise ValueError(f"redraw must be 'fresh' or 'persistent', got {quoted(self.redraw)}.")

    def prior(self, kernel: ArmKernel, noise_var: float | Tensor, trials: int, **_: Any) -> DTCPosterior:
        """As :func:`bo_robust.bandits.posteriors.dtc.init`."""
        return dtc.init(kernel, noise_var, trials)

    def start(self, posterior: DTCPosterior) -> State:
        """Make the state around a fresh posterior."""
        return BKBState(posterior)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound; a uniformly random one in the first round."""
        posterior = checked_state(state, BKBState, DTCPosterior).posterior
        w = sparse_width(state, self.width, uniform)
        if state.round == 0:
            return Selection(uniform_arms(uniform, posterior.counts.shape[1]), w)
        return Selection(largest_bound(posterior.mean, posterior.variance, w), w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards, truncated, and redraw the dictionaries."""
        if uniform is None:
            raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
        state = checked_state(state, BKBState, DTCPosterior)
        posterior: DTCPosterior = state.posterior
        t, kept = state.round + 1, rewards
        if self.truncation != NoTruncation():
            kept = truncated_rewards(rewards, by_round(self.truncation, t, rewards), self.rule)
        if posterior.slots:
            check_pulls(posterior.noise_var, arms, kept)
        else:
            ok = dtc.count(posterior, arms, kept)
        state.round += 1
        if self.redraw == "persistent":
            state.uniforms = spread(uniform, posterior.counts.shape[1]) if state.uniforms is None else state.uniforms
        draws = uniform if state.uniforms is None else state.uniforms
        # variances of the round before, as the paper: count did not change them
        if posterior.slots:
            ok = learn_by_slots(posterior, arms, kept, self.oversampling, draws)
            if not is_capturing() and posterior.overflowed():
                posterior.slots = 0  # until the next block; there is none after a capture that failed
                dtc.rebuild(posterior, posterior.dictionary.clone())
        else:
            dtc.redraw(posterior, new_dictionary(posterior, self.oversampling, draws))
        return Info(ok & all_numbers(posterior.mean, posterior.variance), (kept != rewards) & ok)


def new_dictionary(posterior: DTCPosterior, oversampling: float, uniform: Tensor) -> Tensor:
    """Draw dictionaries by :func:`.redrawn`; each copy of an arm stays with probability min(1, q variance / lambda)."""
    return redrawn(posterior.variance / posterior.noise_var.unsqueeze(1), oversampling, posterior.counts, uniform)


def sparse_width(state: State, width: Width, uniform: Tensor) -> Tensor | float:
    """The width of the coming round, which gets sum sigma~^2 if it needs that, and else the information gain."""
    posterior, needs = state.posterior, needs_of(width)
    gain = posterior.effective_dimension if DIMENSION in needs else posterior.information_gain
    return width_at(width, state.round + 1, gain, uniform)


def learn_by_slots(p: DTCPosterior, arms: Tensor, rewards: Tensor, oversampling: float, uniform: Tensor) -> Tensor:
    """:func:`.dtc.count` and a rebuild under a new dictionary, at static sizes (:mod:`.slots`), waiting for nothing.

    All arms take the part of those pulled, as their features are computed anyway. Returns which rewards were noted.
    """
    assert p.most is not None
    kernel, parts = p.kernel, (p.noise_var, p.variance, p.totals, p.learnt, p.pulled, p.dictionary, p.most)
    ok, points, size = dtc_round.draw_(p.slots, oversampling, arms, rewards, uniform, *parts)
    k = kernel.block(points, slice(None))
    K_D = k.gather(2, points.unsqueeze(1).expand(-1, p.slots, -1))
    R = dtc_round.inverse_root(K_D, size, pivoting=True)
    E = R @ k
    V = (E * p.counts.unsqueeze(1)) @ E.mT
    V.diagonal(dim1=1, dim2=2).add_(p.noise_var.unsqueeze(1))
    W = dtc_round.inverse_root(V, size, pivoting=False)
    F, G = W @ R, W @ E
    weights = (G @ p.sums.unsqueeze(2)).mT @ F
    explained, left = (torch.linalg.vector_norm(z, dim=1) for z in (E, G))
    rest = torch.addcmul(kernel.diagonal, explained, explained, value=-1.0).clamp_(min=0.0)
    p.mean, p.variance = (weights @ k).squeeze(1), rest.addcmul_(left * p.noise_var.unsqueeze(1), left)
    p.points, p.root, p.factor, p.weights = points, R, F, weights.squeeze(1)
    return ok
