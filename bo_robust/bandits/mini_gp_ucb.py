"""mini-GP-UCB: GP-UCB that pulls the arm it chose again and again until its variance has fallen.

Calandriello, Carratino, Lazaric, Valko, Rosasco, "Scaling Gaussian Process Optimization by Evaluating a Few Unique
Candidates Multiple Times" (ICML 2022, arXiv:2201.12909). The arm x of largest mu + w sigma is pulled

    max(1, floor((C^2 - 1) lambda / sigma^2(x)))

times in a row, a repetition. Only then does the posterior learn: c rewards of one arm become one reward, their mean,
with noise lambda / c. c pulls divide no variance by more than 1 + c sigma^2(x) / lambda. So between two choices no
standard deviation falls below 1/C of its value, unless a single pull does that. Differences from :mod:`gp_ucb`:
``observe``, and ``select`` keeps the arm during a repetition.

A repetition costs one row of the posterior. A round in which no trial begins or ends one costs O(s), whatever n. If
trials choose, the host reads back which do and when the next repetition ends.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State, checked_state
from bo_robust.bandits.gp_ucb import largest_bound
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmPosterior
from bo_robust.confidence import Width
from bo_robust.utils.input_checks import AtLeastOne
from bo_robust.utils.linalg import all_numbers, on_cuda

# A repetition without end: of an arm that is known from the start, k(x, x) = 0.
MOST_PULLS = 2.0**53


@dataclass
class RepeatingState(State):
    """The exact posterior of all repetitions that have ended, and the repetitions under way.

    The posterior misses the rewards of repetitions under way, also when a run ends.
    """

    arms: Tensor = field(kw_only=True)  # The arm being repeated, `s` long
    # Pulls of that arm to come, `s` long. If none are left, the next round chooses an arm.
    left: Tensor = field(kw_only=True)
    good: Tensor = field(kw_only=True)  # Number of finite rewards of the repetition, `s`
    average: Tensor = field(kw_only=True)  # Mean of the finite rewards of the repetition, `s`
    repeats: int = 0  # Rounds to come in which every trial repeats its arm: `left.min()`, known to the host


@dataclass(frozen=True)
class MiniGPUCB(ArmAlgorithm):
    """mini-GP-UCB.

    Args:
        width: Confidence width of the present round; also while an arm is repeated, over an unchanged posterior.
        batch_constant: C, finite and >= 1 (else ``ValueError``). C = 1 is GP-UCB, 1.1 to sqrt(2) are usual. After t
            rounds a repetition lasts up to (C^2 - 1) (t + lambda / k) pulls, about 0.21 t at 1.1. The final posterior
            of a run may lack as many rewards.
    """

    width: Width
    batch_constant: AtLeastOne = 1.1

    def start(self, posterior: ArmPosterior) -> RepeatingState:
        """Make the state around a fresh posterior, with nothing to repeat."""
        none = torch.zeros_like(posterior.noise_var)
        return RepeatingState(posterior, arms=none.long(), left=none.long(), good=none, average=none)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Keep the arm being repeated, or choose the arm of largest upper confidence bound; ties go to the first."""
        state = checked_state(state, RepeatingState)
        posterior: ArmPosterior = state.posterior
        w = self.width(state.round + 1, posterior.information_gain, uniform)
        if state.repeats:
            return Selection(state.arms, w)
        due = (state.left == 0).nonzero().squeeze(1)
        chosen = largest_bound(posterior.mean[due], posterior.variance[due], w[due] if isinstance(w, Tensor) else w)
        return Selection(state.arms.index_copy(0, due, chosen), w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Gather the rewards; at the last pull of a repetition the posterior learns their mean.

        Failed pulls count as pulls but are ignored. ``ValueError`` if shapes, dtypes or devices do not fit, or if an
        arm is out of range or not the one being repeated; on CUDA its reward is a failed pull.
        """
        state = checked_state(state, RepeatingState)
        posterior: ArmPosterior = state.posterior
        arm_states.check_pulls(posterior.noise_var, arms, rewards)
        arms, rewards = arm_states.within(arms, rewards, posterior.mean.shape[1])
        if state.repeats:
            rewards = _of_repeated(state, arms, rewards)
            state.left = state.left - 1
            state.repeats -= 1
        else:
            new = state.left == 0
            rewards = _of_repeated(state, torch.where(new, state.arms, arms), rewards)
            state.arms = torch.where(new, arms, state.arms)
            state.left = torch.where(new, self._pulls(posterior, state.arms, state.round), state.left) - 1
            state.repeats = int(state.left.min())
            state.good = torch.where(new, 0.0, state.good)
            state.average = torch.where(new, 0.0, state.average)
        ok = rewards.isfinite()
        state.good = state.good + ok
        # A running mean; a failed pull adds nothing.
        innovation = torch.where(ok, rewards.detach() - state.average, 0.0)
        state.average = torch.addcdiv(state.average, innovation, state.good.clamp(min=1.0))
        if not state.repeats:
            # Trials whose repetition goes on observe no reward.
            counts = state.good * (state.left == 0)
            arm_states.observe(posterior, state.arms, state.average, counts)
            ok = ok & all_numbers(posterior.mean, posterior.variance)
        state.round += 1
        return Info(ok)

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design at once: this rule did not choose its arms, and repeats none."""
        return super().observe(state, arms, rewards)

    def _pulls(self, exact: ArmPosterior, arms: Tensor, rounds: int) -> Tensor:
        """How often each of the ``arms`` (``s``) is to be pulled, ``s`` long; ``rounds`` were run before."""
        index, noise_var = arms.unsqueeze(1), exact.noise_var
        variance = exact.variance.gather(1, index).squeeze(1)
        prior = exact.kernel.diagonal.expand_as(exact.variance).gather(1, index).squeeze(1)
        # After t rewards sigma^2 >= 1 / (1/k + t/lambda); if rounding made it less, a repetition might never end.
        variance = torch.maximum(variance, noise_var * prior / (noise_var + rounds * prior))
        slack = self.batch_constant * self.batch_constant - 1.0
        pulls = slack * noise_var / variance.clamp_(min=torch.finfo(variance.dtype).tiny)
        return pulls.clamp_(1.0, MOST_PULLS).long()


def _of_repeated(state: RepeatingState, arms: Tensor, rewards: Tensor) -> Tensor:
    """The ``rewards``, if the ``arms`` are those being repeated; others raise, or on CUDA have the reward NaN."""
    if on_cuda(arms):
        return torch.where(arms == state.arms, rewards, math.nan)
    if not torch.equal(arms, state.arms):
        raise ValueError(
            f"arms must be those that select returned, got {arms.tolist()}: an arm is pulled until its repetition ends."
        )
    return rewards
