"""The traces of a run over arms, and one round that writes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, Selection, State
from bo_robust.experiments.problems import Problem
from bo_robust.linalg import row_argmax

DICTIONARY_COLUMNS = ("dictionary_size", "effective_dimension")


@dataclass
class Traces:
    """What happened in every round of every trial, ``T x s`` each; rows beyond ``rounds`` are unwritten.

    Attributes:
        arms: Arm pulled, int32.
        rewards: Reward before any truncation.
        recommended: Arm of largest posterior mean after the round, int32.
        width: Confidence width used; NaN for rules without one, and in the initial design.
        coverage: Share of arms with |f - mu| <= w sigma before the pull; NaN where there is no width.
        truncated: Whether the reward was set to zero.
        ok: Whether the reward was finite.
        rounds: Rounds played.
        dictionary_size: Arms in the dictionary after the round, int32; None for algorithms without one.
        effective_dimension: The algorithm's estimate after the round
            (:attr:`bo_robust.posteriors.dtc.DTCPosterior.effective_dimension`); None for the same algorithms.
    """

    arms: Tensor
    rewards: Tensor
    recommended: Tensor
    width: Tensor
    coverage: Tensor
    truncated: Tensor
    ok: Tensor
    rounds: int = 0
    dictionary_size: Tensor | None = None
    effective_dimension: Tensor | None = None

    @classmethod
    def empty(
        cls, horizon: int, trials: int, device: torch.device, dtype: torch.dtype, dictionary: bool = False
    ) -> Traces:
        """Unwritten traces of ``horizon`` rounds; ``dictionary`` adds :data:`DICTIONARY_COLUMNS`."""
        shape = (horizon, trials)
        like = torch.zeros(0, dtype=dtype, device=device)
        return cls(
            arms=like.new_zeros(shape, dtype=torch.int32),
            rewards=like.new_zeros(shape),
            recommended=like.new_zeros(shape, dtype=torch.int32),
            width=like.new_full(shape, torch.nan),
            coverage=like.new_full(shape, torch.nan),
            truncated=like.new_zeros(shape, dtype=torch.bool),
            ok=like.new_zeros(shape, dtype=torch.bool),
            dictionary_size=like.new_zeros(shape, dtype=torch.int32) if dictionary else None,
            effective_dimension=like.new_zeros(shape) if dictionary else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The traces by name."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}


def play_round(
    algorithm: ArmAlgorithm,
    problem: Problem,
    state: State,
    draws: Tensor,
    uniform: Tensor,
    traces: Traces,
    design: Tensor,
) -> None:
    """Play one round of all trials: choose, reward, observe, and write row ``traces.rounds``. The state changes.

    ``draws`` are raw reward variates (``s x k``) and ``uniform`` draws from [0, 1) (``s``) of the round. ``design``
    holds the arms of the initial design, ``rounds x s``, which take the place of the algorithm's choice.
    """
    t, posterior = traces.rounds, state.posterior
    chosen = t >= len(design)
    selection = algorithm.select(state, uniform) if chosen else Selection(design[t])
    if selection.width is not None:
        width = selection.width
        traces.width[t] = width
        reach = posterior.variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) else width)
        # Where sigma is rounding of the prior, so is |f - mu|: a billionth of the prior scale counts as covered.
        slack = 1e-9 if posterior.mean.dtype == torch.float64 else 1e-4
        covered = (problem.f - posterior.mean).abs_() <= reach.add_(slack)
        traces.coverage[t] = covered.to(reach.dtype).mean(1)
    rewards = problem.rewards(problem.f, selection.arms, draws)
    observe = algorithm.observe if chosen else algorithm.observe_initial
    info = observe(state, selection.arms, rewards, uniform)
    traces.arms[t] = selection.arms
    traces.rewards[t] = rewards
    traces.ok[t] = info.ok
    if info.truncated is not None:
        traces.truncated[t] = info.truncated
    traces.recommended[t] = row_argmax(posterior.mean)
    if traces.dictionary_size is not None and traces.effective_dimension is not None:
        traces.dictionary_size[t] = posterior.size
        traces.effective_dimension[t] = posterior.effective_dimension
    traces.rounds += 1
