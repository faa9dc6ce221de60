"""ATA-GP-UCB: GP-UCB whose past rewards are all truncated anew each round, in each direction of a feature space.

Ray Chowdhury & Gopalan (NeurIPS 2019), Algorithm 2, with quadrature Fourier features (Lemma 1) or Nyström features
(Theorem 4). Difference from :mod:`tgp_ucb`: the posterior (``posteriors/truncated.py``). It compares the
share u_{i tau} y_tau of a reward in each direction with the current level, so a truncated reward may come back.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state
from bo_robust.bandits.gp_ucb import select_ucb
from bo_robust.bandits.posteriors import truncated
from bo_robust.bandits.posteriors.arms import ArmKernel, noise_of_trials
from bo_robust.bandits.posteriors.dictionary import NystromDictionary, empty_table
from bo_robust.bandits.posteriors.reward_lists import raise_floor
from bo_robust.bandits.posteriors.truncated import TruncatedPosterior
from bo_robust.bandits.posteriors.whitening import ROOTS, FeatureTable
from bo_robust.confidence import Width
from bo_robust.confidence.base import is_open, sized
from bo_robust.confidence.truncation import Rule, Truncation
from bo_robust.features import Features
from bo_robust.features.maps import WARN_ERROR
from bo_robust.utils.input_checks import quoted
from bo_robust.utils.round_numbers import by_round

PROBES = 16  # arms at which features are compared with the kernel


@dataclass(frozen=True)
class ATAGPUCB(ArmAlgorithm):
    """ATA-GP-UCB. An unknown root or rule raises ``ValueError``.

    Args:
        width: Confidence width; the theorems use :class:`~bo_robust.confidence.ATAFourierWidth` or ``ATANystromWidth``.
        truncation: Level b_t, which may not fall with t; the theorems use ``ATAFourierTruncation`` or
            ``ATANystromTruncation``. Width and level that leave their number of features open get m_t, the number of
            arms in the present dictionary.
        features: A feature map of arm locations (e.g. :class:`bo_robust.features.FourierFeatures`), or how dictionaries
            of arms are drawn (:class:`bo_robust.bandits.posteriors.dictionary.NystromDictionary`).
        root: Root of V^{-1}, whose rows are the directions: "symmetric" (the paper's V^{-1/2}) or "cholesky" (cheaper).
        rule: What becomes of rewards beyond the level: "zero" (the paper's) or "clip".
    """

    capturable: ClassVar[bool] = True
    truncates_anew: ClassVar[bool] = True
    takes_prior_mean: ClassVar[bool] = False

    width: Width
    truncation: Truncation
    features: Features | NystromDictionary
    root: str = "symmetric"
    rule: Rule = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.features, type) or not (callable(self.features) or redraws(self.features)):
            raise ValueError(f"features must be a feature map or a NystromDictionary, got {quoted(self.features)}.")
        if not redraws(self.features) and (is_open(self.width) or is_open(self.truncation)):
            raise ValueError("num_features of the width and the level can be None with a NystromDictionary only.")
        if self.root not in ROOTS:
            raise ValueError(f"root must be one of {', '.join(ROOTS)}; got {quoted(self.root)}.")

    def prior(self, kernel: ArmKernel, noise_var: float | Tensor, trials: int, **_: Any) -> TruncatedPosterior:
        """As :func:`bo_robust.bandits.posteriors.truncated.init`; ``ValueError`` also if features do not fit arms."""
        noise = noise_of_trials(kernel, noise_var, trials)
        posterior = truncated.init(feature_table(self.features, kernel, self.root), noise, self.root, self.rule)
        posterior.kernel = kernel
        return posterior

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the arm of largest upper confidence bound."""
        m = checked_state(state, State, TruncatedPosterior).posterior.size
        return select_ucb(state, self.width if m is None else sized(self.width, m), uniform)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the rewards and truncate all anew; draw a dictionary if one is due.

        A level that falls raises ``ValueError``.
        """
        posterior: TruncatedPosterior = checked_state(state, State, TruncatedPosterior).posterior
        t, redraw = state.round + 1, None
        if redraws(self.features) and t >= self.features.redraw_growth * posterior.drawn:
            if uniform is None:
                raise ValueError("observe needs `uniform`, one draw from [0, 1) per trial, to draw a dictionary.")
            assert posterior.kernel is not None
            redraw = partial(self.features.draw, posterior.kernel, uniform=uniform)
        level_of = (lambda m: sized(self.truncation, m)(t)) if is_open(self.truncation) else None
        level = sized(self.truncation, posterior.mean.shape[1])  # levels fall with m
        floor = by_round(lambda t: raise_floor(posterior.lists, level(t)), t, rewards)
        seen = truncated.observe(posterior, arms, rewards, floor, redraw, level_of)
        state.round = t
        return Info(*seen)


def redraws(features: object) -> TypeGuard[NystromDictionary]:
    """Whether features are drawn anew as rounds go by, rather than a fixed map of locations."""
    return hasattr(features, "draw")


def feature_table(features: Features | NystromDictionary, kernel: ArmKernel, root: str) -> FeatureTable:
    """The features of the arms, compressed for the symmetric root; empty if dictionaries are still to be drawn.

    A feature map that meets arms without locations, or outside its box, raises ``ValueError``.
    """
    if redraws(features):
        return empty_table(kernel)
    if kernel.arms is None:
        raise ValueError(
            f"{type(features).__name__} need the locations of the arms: ArmKernel.from_covariance(k, arms), or "
            "from_matrix(K, arms). Arms without locations take a NystromDictionary."
        )
    assert callable(features)
    Phi = features(kernel.arms)
    some = torch.arange(0, len(Phi), max(1, len(Phi) // PROBES), device=Phi.device)
    k = kernel.between(some.unsqueeze(0), some.unsqueeze(0), torch.zeros_like(some[:1]))[0]
    missed = float((Phi[some] @ Phi[some].mT - k).abs().amax() / kernel.diagonal.amax())
    if missed > WARN_ERROR:
        warnings.warn(
            f"the features miss the kernel of the arms by up to {missed:.2g} of k(x, x), and the posterior with it: "
            "they are those of another kernel or lengthscale, or have too few nodes.",
            UserWarning,
            stacklevel=2,
        )
    return FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)
