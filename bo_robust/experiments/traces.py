"""The traces of a run over arms, and one round that writes them."""

import torch
from torch import Tensor

from bo_robust.algorithms import ArmAlgorithm, Selection, State
from bo_robust.experiments.problems import Problem
from bo_robust.linalg import row_argmax

DICTIONARY_COLUMNS = ("dictionary_size", "effective_dimension")


class Traces:
    """What happened in every round of every trial, ``T x s`` each; rows beyond ``rounds`` are unwritten.

    ``dictionary`` says whether the algorithm has one, and so :data:`DICTIONARY_COLUMNS`; else these are None.
    """

    def __init__(
        self, horizon: int, trials: int, device: torch.device, dtype: torch.dtype, dictionary: bool = False
    ) -> None:
        def column(of: torch.dtype = dtype, fill: float = 0.0) -> Tensor:
            return torch.full((horizon, trials), fill, dtype=of, device=device)

        self.rounds = 0  # played
        self.arms = column(torch.int32)
        self.rewards = column()  # before any truncation
        self.recommended = column(torch.int32)  # arm of largest posterior mean after the round
        # Confidence width used, and share of arms with |f - mu| <= w sigma before the pull; NaN for rules without a
        # width, and in the initial design.
        self.width, self.coverage = column(fill=torch.nan), column(fill=torch.nan)
        self.truncated = column(torch.bool)  # whether the reward was set to zero
        self.ok = column(torch.bool)  # whether the reward was finite
        # Arms in the dictionary, and the algorithm's estimate, after the round.
        self.dictionary_size = column(torch.int32) if dictionary else None
        self.effective_dimension = column() if dictionary else None

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
