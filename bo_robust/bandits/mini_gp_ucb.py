"""mini-GP-UCB: GP-UCB that pulls the arm it chose again and again until that has taught it something.

Calandriello, Carratino, Lazaric, Valko, Rosasco, "Scaling Gaussian Process Optimization by Evaluating a Few Unique
Candidates Multiple Times" (ICML 2022, arXiv:2201.12909). The arm x of largest mu + w sigma is pulled

    max(1, floor((C^2 - 1) lambda / sigma^2(x)))

times in a row, a repetition. Only then does the posterior learn: c rewards of one arm become one reward, their mean,
with noise lambda / c. c pulls divide no variance by more than 1 + c sigma^2(x) / lambda. So between two choices no
standard deviation falls below 1/C of its value, unless a single pull does that. Differences from :mod:`gp_ucb`:
``observe``, and ``select`` keeps the arm during a repetition.

A repetition costs one row of the posterior. A round in which no trial begins or ends one costs O(s), whatever n. If
some trials end theirs, the others do not change: on a CPU each costs a row of zeros, on CUDA the update is one masked
step. If trials choose, the host reads back which do and when the next repetition ends.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, Info, Selection, State
from bo_robust.bandits.gp_ucb import largest_bound
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmPosterior
from bo_robust.confidence import Width
from bo_robust.utils.input_checks import is_number
from bo_robust.utils.linalg import all_numbers, on_cuda

# A repetition without end: of an arm that is known from the start, k(x, x) = 0.
MOST_PULLS = 2.0**53


@dataclass
class RepeatingPosterior:
    """The exact posterior of all repetitions that have ended, and the repetitions under way.

    Mean, variance, counts and information gain miss the rewards of repetitions under way, also when a run ends.
    """

    exact: ArmPosterior  # The posterior
    arms: Tensor  # The arm being repeated, `s` long
    left: Tensor  # Pulls of that arm to come, `s` long. If none are left, the next round chooses an arm.
    good: Tensor  # Number of finite rewards of the repetition, `s`
    average: Tensor  # Mean of the finite rewards of the repetition, `s`
    repeats: int = 0  # Rounds to come in which every trial repeats its arm: `left.min()`, known to the host

    @property
    def mean(self) -> Tensor:
        """mu of every arm, ``s x n``."""
        return self.exact.mean

    @property
    def variance(self) -> Tensor:
        """sigma^2 of every arm, without noise, ``s x n``."""
        return self.exact.variance

    @property
    def counts(self) -> Tensor:
        """Rewards learnt from per arm, ``s x n``."""
        return self.exact.counts

    @property
    def noise_var(self) -> Tensor:
        """lambda, ``s``."""
        return self.exact.noise_var

    @property
    def information_gain(self) -> Tensor:
        """Realised 1/2 log det(I + K / lambda) of the rewards learnt from, ``s``."""
        return self.exact.information_gain


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
    batch_constant: float = 1.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.batch_constant) and self.batch_constant >= 1.0):
            raise ValueError(
                "batch_constant (C: standard deviations fall at most by 1/C between choices) must be a finite number "
                f">= 1, got {self.batch_constant!r}."
            )

    def start(self, posterior: ArmPosterior) -> State:
        """Make the state around a fresh posterior, with nothing to repeat."""
        none = torch.zeros_like(posterior.noise_var)
        return State(RepeatingPosterior(posterior, none.long(), none.long(), none, none.clone()))

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Keep the arm being repeated, or choose the arm of largest upper confidence bound; ties go to the first."""
        posterior = state.posterior
        w = self.width(state.round + 1, posterior.information_gain, uniform)
        if posterior.repeats:
            return Selection(posterior.arms, w)
        due = (posterior.left == 0).nonzero().squeeze(1)
        chosen = largest_bound(posterior.mean[due], posterior.variance[due], w[due] if isinstance(w, Tensor) else w)
        return Selection(posterior.arms.index_copy(0, due, chosen), w)

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Gather the rewards; at the last pull of a repetition the posterior learns their mean.

        Failed pulls count as pulls but teach nothing. ``ValueError`` if shapes, dtypes or devices do not fit, or if an
        arm is out of range or not the one being repeated; on CUDA its reward is a failed pull.
        """
        posterior = state.posterior
        arm_states.check_pulls(posterior.noise_var, arms, rewards)
        arms, rewards = arm_states.within(arms, rewards, posterior.mean.shape[1])
        if posterior.repeats:
            rewards = _of_repeated(posterior, arms, rewards)
            posterior.left = posterior.left - 1
            posterior.repeats -= 1
        else:
            new = posterior.left == 0
            rewards = _of_repeated(posterior, torch.where(new, posterior.arms, arms), rewards)
            posterior.arms = torch.where(new, arms, posterior.arms)
            posterior.left = torch.where(new, self._pulls(posterior, state.round), posterior.left) - 1
            posterior.repeats = int(posterior.left.min())
            posterior.good = torch.where(new, 0.0, posterior.good)
            posterior.average = torch.where(new, 0.0, posterior.average)
        ok = rewards.isfinite()
        posterior.good = posterior.good + ok
        # A running mean; a failed pull adds nothing.
        innovation = torch.where(ok, rewards.detach() - posterior.average, 0.0)
        posterior.average = torch.addcdiv(posterior.average, innovation, posterior.good.clamp(min=1.0))
        if not posterior.repeats:
            # Trials whose repetition goes on observe no reward.
            counts = posterior.good * (posterior.left == 0)
            arm_states.observe(posterior.exact, posterior.arms, posterior.average, counts)
            ok = ok & all_numbers(posterior.mean, posterior.variance)
        state.round += 1
        return Info(ok)

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design at once: this rule did not choose its arms, and repeats none."""
        ok = arm_states.observe(state.posterior.exact, arms, rewards)
        state.round += 1
        return Info(ok)

    def _pulls(self, posterior: RepeatingPosterior, rounds: int) -> Tensor:
        """How often each arm of ``posterior.arms`` is to be pulled, ``s`` long; ``rounds`` were run before."""
        exact, index = posterior.exact, posterior.arms.unsqueeze(1)
        noise_var = exact.noise_var
        variance = exact.variance.gather(1, index).squeeze(1)
        prior = exact.kernel.diagonal.expand_as(exact.variance).gather(1, index).squeeze(1)
        # After t rewards sigma^2 >= 1 / (1/k + t/lambda); if rounding made it less, a repetition might never end.
        variance = torch.maximum(variance, noise_var * prior / (noise_var + rounds * prior))
        slack = self.batch_constant * self.batch_constant - 1.0
        pulls = slack * noise_var / variance.clamp_(min=torch.finfo(variance.dtype).tiny)
        return pulls.clamp_(1.0, MOST_PULLS).long()


def _of_repeated(posterior: RepeatingPosterior, arms: Tensor, rewards: Tensor) -> Tensor:
    """The ``rewards``, if the ``arms`` are those being repeated; others raise, or on CUDA have the reward NaN."""
    if on_cuda(arms):
        return torch.where(arms == posterior.arms, rewards, math.nan)
    if not torch.equal(arms, posterior.arms):
        raise ValueError(
            f"arms must be those that select returned, got {arms.tolist()}: an arm is pulled until its repetition ends."
        )
    return rewards
