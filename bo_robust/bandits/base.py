"""The base of every finite-arm algorithm: its state, its round and its start.

A round is ``selection = algorithm.select(state, uniform)``, then rewards, then
``algorithm.observe(state, selection.arms, rewards, uniform)``. ``select`` is pure; ``observe`` updates the state in
place. All trials advance together and nothing returns to the host.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel, ArmPosterior
from bo_robust.utils.input_checks import check_fields, check_schedule


class PosteriorOverArms(Protocol):
    """The part of a posterior over arms that rules and the runner read."""

    @property
    def mean(self) -> Tensor: ...  # Posterior mean mu_t of every arm, `s x n`
    @property
    def variance(self) -> Tensor: ...  # Posterior variance sigma_t^2 of f at every arm, without noise, `s x n`
    @property
    def counts(self) -> Tensor: ...  # How many rewards of each arm were learnt from, `s x n`
    @property
    def noise_var(self) -> Tensor: ...  # Noise variance lambda, `s`
    @property
    def information_gain(self) -> Tensor: ...  # Realized information gain 1/2 log det(I + K_t / lambda), `s`


@dataclass
class State:
    """The posterior of all trials after ``round`` rounds: an ``ArmPosterior`` unless the algorithm keeps another."""

    posterior: Any
    round: int = 0


KindOfState = TypeVar("KindOfState", bound=State)


def checked_state(state: State, kind: type[KindOfState], posterior: type = ArmPosterior) -> KindOfState:
    """The state; ``TypeError`` unless it is of the ``kind`` that ``init`` makes, around a ``posterior`` of its kind."""
    if isinstance(state, kind) and isinstance(state.posterior, posterior):
        return state
    kind_given = type(state).__name__ + (f" of a {type(state.posterior).__name__}" if isinstance(state, State) else "")
    raise TypeError(
        f"state must be the {kind.__name__} of a {posterior.__name__} that init of this algorithm made and observe "
        f"changes in place, got {kind_given}."
    )


@dataclass(frozen=True)
class Selection:
    """The arms to pull next."""

    arms: Tensor  # One arm per trial, `s` long
    # Multiplier of sigma in the confidence interval, a number or `s`; None if the rule has no interval
    width: Tensor | float | None = None


def uniform_arms(uniform: Tensor, num_arms: int) -> Tensor:
    """Arms, ``s`` long, from draws of [0, 1)."""
    # uniform * num_arms can round up to num_arms.
    return (uniform * num_arms).long().clamp_(max=num_arms - 1)


@dataclass(frozen=True)
class Info:
    """What happened to the rewards of a round."""

    # Whether the reward was finite and the posterior still is, `s` bool. A reward of NaN or infinity is a failed pull,
    # which is ignored.
    ok: Tensor
    # Whether truncation removed or clipped the reward, `s` bool; None for methods that never truncate
    truncated: Tensor | None = None


class ArmAlgorithm(ABC):
    """Base of the finite-arm algorithms; subclasses are frozen dataclasses of their settings.

    ``benchmarks`` reads the class attributes to know how to run an algorithm.
    """

    # Whether it chooses among the candidate priors of a problem, and cannot be run without them
    over_candidates: ClassVar[bool] = False
    # What is recorded besides the traces: "dictionary" (the posterior has `size` and `effective_dimension`) or
    # "eliminations" (the state has `failures`)
    records: ClassVar[frozenset[str]] = frozenset()
    # Whether all past rewards are truncated anew each round, so that a truncated one may come back
    truncates_anew: ClassVar[bool] = False
    # Whether its choice ignores all pulls and rewards. No other algorithm should lose to a baseline.
    is_baseline: ClassVar[bool] = False
    # Whether rounds can be captured in a CUDA graph (:mod:`bo_robust.bandits.captured`); a subclass says so anew
    capturable: ClassVar[bool] = False
    # False for a regression on features of the arms, whose prior mean is zero
    takes_prior_mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless every width and level is a schedule, and other fields are in their range."""
        check_fields(self)
        for name, example in (("width", "ConstantWidth(2.0)"), ("truncation", "TGPTruncation(4.0, 1.0)")):
            if hasattr(self, name):
                value = getattr(self, name)
                for schedule in value if isinstance(value, tuple) else (value,):
                    check_schedule(name, example, schedule)

    def init(
        self,
        kernel: ArmKernel,
        noise_var: float | Tensor,
        trials: int = 1,
        *,
        prior_mean: Tensor | None = None,
        rounds: int | None = None,
    ) -> State:
        """Make the state before any reward.

        Arguments and errors are those of ``init`` of the posterior, such as :func:`.posteriors.arms.init`. Raises
        ``ValueError`` also if the algorithm does not fit its arms, or a regression on features is given a prior mean.
        """
        if prior_mean is not None and not self.takes_prior_mean:
            raise ValueError(f"{type(self).__name__} has prior mean zero: subtract prior_mean from the rewards.")
        return self.start(self.prior(kernel, noise_var, trials, prior_mean=prior_mean, rounds=rounds))

    def prior(self, kernel: ArmKernel, noise_var: float | Tensor, trials: int, **options: Any) -> Any:
        """Make the posterior of no rewards; ``options`` are ``prior_mean`` and ``rounds``."""
        return arm_states.init(kernel, noise_var, trials, **options)

    def start(self, posterior: Any) -> State:
        """Make the state around a fresh posterior; ``ValueError`` if the algorithm does not fit its arms."""
        return State(posterior)

    @abstractmethod
    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose one arm per trial; ``uniform`` holds this round's draws from [0, 1), ``s``, one stream per trial."""

    def observe(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from the ``rewards`` (``s``) of the ``arms`` pulled (``s`` long), in place.

        NaN or infinity is a failed pull. ``uniform`` holds the draws given to :meth:`select`; a rule that learns at
        random raises ``ValueError`` without it.
        """
        ok = arm_states.observe(checked_state(state, State).posterior, arms, rewards)
        state.round += 1
        return Info(ok)

    def observe_initial(self, state: State, arms: Tensor, rewards: Tensor, uniform: Tensor | None = None) -> Info:
        """Learn from a round of an initial design, which this rule did not choose; by default as :meth:`observe`."""
        return self.observe(state, arms, rewards, uniform)
