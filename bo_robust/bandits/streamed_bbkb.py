"""BBKB over arms that are read in blocks: more than memory holds, other arms every round, or shared among ranks.

It chooses as :mod:`.bbkb` does with dictionaries as drawn (Calandriello et al. 2020), but stores nothing per arm except
for arms pulled. A pass over all arms, O(n m^2), finds the best one and the shortlist of the batch (:mod:`.shortlist`).
Within the batch only the shortlist is looked at, unless another arm might be better; then another pass follows. With a
process group, every rank passes over its own arms and they agree on the best of all. All ranks know the same.

:class:`.bbkb.BBKB` updates what it stores per arm by what changed. It is faster if n numbers fit in memory.
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from bo_robust.bandits.base import State
from bo_robust.bandits.bkb import new_dictionary, sparse_width
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dtc import DTCPosterior
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.bandits.ranks import best_of_ranks, from_first, gathered, no_offer
from bo_robust.bandits.shortlist import COSTS, OUTSIDE, SHORTLIST_SIZE, Shortlist, shortlist_of
from bo_robust.confidence import Width
from bo_robust.ops.dtc_scores import dtc_scores
from bo_robust.utils.covariance import Covariance
from bo_robust.utils.input_checks import Count, Nonnegative, Oversampling, check_count, check_fields, check_finite
from bo_robust.utils.linalg import all_numbers, row_argmax

FIRST_ARMS = 64  # Rows for pulled arms at first; they grow as needed


@dataclass(frozen=True)
class Selection:
    """The arm to pull next."""

    arm: int  # Number of the arm in the stream
    location: Tensor  # Location of the arm, `d`, in the dtype of the posterior
    width: float  # Multiplier of sigma in the confidence bound
    bound: float  # Upper confidence bound of the arm; infinity in the first round


@dataclass
class StreamState(State):
    """What is known after ``round`` rounds. Observing the same locations, rewards and uniforms again restores it."""

    posterior: DTCPosterior  # Posterior of one trial over the `used` arms pulled so far; rows beyond these are empty
    used: int = 0
    arms: ArmStream | None = None  # The stream that the shortlist was chosen from; None before the first choice
    shortlist: Shortlist | None = None  # Shortlist of this batch; `shortlist.arms` are rows of `table`
    table: Tensor | None = None  # Number in the stream and location of each arm listed, `K x (1 + d)` float64


@dataclass(frozen=True)
class StreamedBBKB:
    """BBKB over an :class:`.ArmStream`. Other arguments are those of :class:`.bbkb.BBKB`.

    Args:
        shortlist: Arms kept from a pass, >= 1.

    Example:
        >>> algorithm = StreamedBBKB(FiniteWidth(num_arms=10**8, delta=0.1), oversampling=5.0, batch_constant=1.0)
        >>> state = algorithm.init(Matern(2.5, 0.3), noise_var=0.01, dim=6)
        >>> arms = ArmStream.of_file("arms.npy")
        >>> for uniform in torch.rand(1000).tolist():
        ...     selection = algorithm.select(state, arms, uniform)
        ...     algorithm.observe(state, selection.location, measure(selection.location), uniform)
    """

    width: Width
    oversampling: Oversampling
    batch_constant: Nonnegative
    shortlist: Count = SHORTLIST_SIZE

    def __post_init__(self) -> None:
        check_fields(self)

    def init(
        self,
        covariance: Covariance,
        noise_var: float,
        dim: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> StreamState:
        """Make the state before any reward, for the ``covariance`` of locations in ``dim`` dimensions.

        ``dtype`` (float64 or float32) and ``device`` are those of the posterior. Arms may have the other dtype, but
        must be on the device. ``ValueError`` unless ``noise_var`` > 0 and ``dim`` >= 1.
        """
        check_count(1, dim=dim)
        places = torch.zeros(FIRST_ARMS, dim, dtype=dtype, device=device)
        return StreamState(dtc.init(_kernel(covariance, places), noise_var))

    def select(
        self, state: StreamState, arms: ArmStream, uniform: float, group: torch.distributed.ProcessGroup | None = None
    ) -> Selection:
        """Choose the arm of largest upper confidence bound, ties to the first; at first, a uniformly random one.

        ``arms`` may differ from those of the round before. If the ranks of a ``group`` choose together, ``arms`` is
        this rank's :meth:`~bo_robust.bandits.posteriors.streams.ArmStream.shard`. Of the ranks' ``uniform`` draws from
        [0, 1) the first counts.

        Raises:
            ValueError: if there are no arms, or they have another dimension or are not as the stream promises.
            RuntimeError: if another rank failed or cannot be reached.
        """
        posterior, template = state.posterior, state.posterior.noise_var
        uniform = float(from_first(torch.tensor(uniform, dtype=torch.float64, device=template.device), group))
        width = (
            torch.as_tensor(sparse_width(state, self.width, template.new_full((1,), uniform))).to(template).expand(1)
        )
        if state.round == 0:
            best = best_of_ranks(lambda: self._first(posterior, arms, uniform, group), _dim(posterior), template, group)
            return Selection(int(best[2]), best[3:].to(template), float(width), math.inf)
        # Another stream may hold other arms, so the shortlist is void.
        if arms is not state.arms:
            state.arms, state.shortlist = arms, None
        best = best_of_ranks(lambda: self._best_listed(state, width), _dim(posterior), template, group)
        # An arm that some rank did not look at may be better.
        if not bool(best[0] > best[1]):
            best = best_of_ranks(lambda: self._pass(state, arms, width), _dim(posterior), template, group)
        return Selection(int(best[2]), best[3:].to(template), float(width), float(best[0]))

    def observe(
        self,
        state: StreamState,
        location: Tensor,
        reward: float,
        uniform: float,
        group: torch.distributed.ProcessGroup | None = None,
    ) -> bool:
        """Note the reward and shrink variances; at the end of a batch, draw a dictionary and learn. In place.

        Equal locations (``d``) are one arm. A reward of NaN or infinity is a failed pull, and the result is False. In a
        group, the first rank's location, reward and ``uniform`` count.

        Raises:
            ValueError: if the location is not ``d`` finite numbers.
            RuntimeError: if the first rank cannot be reached.
        """
        posterior, template = state.posterior, state.posterior.noise_var
        if location.shape != (_dim(posterior),):
            raise ValueError(f"location must have {_dim(posterior)} numbers, got shape {tuple(location.shape)}.")
        message = torch.tensor([float(reward), uniform], dtype=torch.float64, device=template.device)
        message = from_first(torch.cat([message, location.double().to(template.device)]), group).to(template)
        check_finite("location", message[2:])
        arm = template.new_tensor([_row_of(state, message[2:])], dtype=torch.long)
        ok = dtc.count(posterior, arm, message[:1])
        state.round += 1
        if float(posterior.spent) <= self.batch_constant and state.round > 1:
            step = dtc.downdate(posterior, dtc.features_of_pulls(posterior, arm, ok))
            if state.shortlist is not None:
                state.shortlist.lower(*step)
        else:
            dtc.redraw(posterior, new_dictionary(posterior, self.oversampling, message[1:2]))
            ok = ok & all_numbers(posterior.mean, posterior.variance)
            state.shortlist = None
        return bool(ok)

    def _first(
        self, posterior: DTCPosterior, arms: ArmStream, uniform: float, group: torch.distributed.ProcessGroup | None
    ) -> Tensor:
        """Offer a uniformly random arm of all ranks, if this rank has it."""
        template = posterior.noise_var
        mine = torch.tensor([arms.start, arms.stop], dtype=torch.float64, device=template.device)
        ranges = gathered(mine, 2, template, group)
        first, last = int(ranges[:, 0].min()), int(ranges[:, 1].max())
        number = min(first + int(uniform * (last - first)), last - 1)
        row = no_offer(_dim(posterior), posterior.noise_var)
        if arms.start <= number < arms.stop:
            _, block = next(ArmStream(arms.read, number, number + 1).blocks(_dim(posterior), template))
            # Any finite bound wins: the other ranks have no offer.
            row = torch.cat([row.new_tensor([0.0, -torch.inf, number]), block[0].double()])
        return row

    def _best_listed(self, state: StreamState, width: Tensor) -> Tensor:
        """Offer the best arm listed (:mod:`.ranks`); without a shortlist the threshold is infinite."""
        row, table = no_offer(_dim(state.posterior), state.posterior.noise_var), state.table
        if state.shortlist is None or table is None:
            row[1] = torch.inf
            return row
        if len(table) == 0:
            return row
        bound = torch.addcmul(state.shortlist.mean, state.shortlist.variance.sqrt(), width.unsqueeze(1))
        place = row_argmax(bound[:, OUTSIDE:])
        best = bound[:, OUTSIDE:].gather(1, place.unsqueeze(1)).squeeze(1)
        return torch.cat([best.double(), bound[:, :OUTSIDE].amax(1).double(), table[place[0]]])

    def _pass(self, state: StreamState, arms: ArmStream, width: Tensor) -> Tensor:
        """Offer the best of all arms, with no threshold, and choose the next shortlist on the way."""
        posterior, size = state.posterior, self.shortlist
        (covariance, _), dictionary = posterior.kernel.function, dtc.dictionary_of(posterior)
        best, kept, largest = no_offer(_dim(posterior), posterior.noise_var), None, width.new_zeros(())
        for start, block in arms.blocks(_dim(posterior), posterior.noise_var):
            scores = dtc_scores(block, dictionary, covariance, posterior.noise_var)
            sd = scores.variance.sqrt()
            bound = torch.addcmul(scores.mean, sd, width.unsqueeze(1))
            largest = torch.maximum(largest, sd.max())
            top = row_argmax(bound)
            if bool(bound[0, top] > best[0]):
                best = torch.cat([bound[0, top].double(), best[1:2], (start + top).double(), block[top[0]].double()])
            # One arm more than the shortlist holds: its bound is the largest outside.
            rows = bound[0].topk(min(size + 1, len(block)), sorted=False).indices
            columns = [x[0, rows].double().unsqueeze(1) for x in (bound, scores.mean, scores.variance)]
            new = torch.cat([*columns, (start + rows).double().unsqueeze(1), block[rows].double()], 1)
            kept = new if kept is None else torch.cat([kept, new])
            kept = kept[kept[:, 0].topk(min(size + 1, len(kept))).indices]
        if kept is None:  # a rank without arms
            kept = width.new_zeros(0, 4 + _dim(posterior), dtype=torch.float64)
        outside = kept[size, :1].to(width) if len(kept) > size else torch.full_like(width, -torch.inf)
        kept = kept[:size]
        # In the order of the stream, so that ties go to the first arm.
        kept = kept[kept[:, 3].argsort()]
        mean, variance = kept[:, 1].to(width).unsqueeze(0), kept[:, 2].to(width).unsqueeze(0)
        rows = torch.arange(len(kept), device=kept.device).unsqueeze(0)
        # What the pulls of an arm cost is not asked here.
        features = dtc.features_at(posterior, kept[:, 4:].to(width))
        pulls = torch.nn.functional.pad(features, (COSTS, 0))
        # The largest standard deviation of all arms is at least that of those outside.
        state.shortlist = shortlist_of(rows, mean, variance, pulls, outside, largest.expand(1), width)
        state.table = kept[:, 3:]
        return best


def _kernel(covariance: Covariance, places: Tensor) -> ArmKernel:
    return ArmKernel(covariance.diagonal(places), covariance=covariance, arms=places)


def _dim(posterior: DTCPosterior) -> int:
    return posterior.kernel.function[1].shape[1]


def _row_of(state: StreamState, location: Tensor) -> int:
    """The row of an arm in the posterior; a new arm gets a new row."""
    posterior = state.posterior
    covariance, arms = posterior.kernel.function
    same = (arms[: state.used] == location).all(1).nonzero()
    if len(same):
        return int(same[0])
    # Twice the space each time, so that growing costs little per arm.
    if state.used == len(arms):
        dtc.grow(posterior, _kernel(covariance, torch.cat([arms, torch.zeros_like(arms)])))
        _, arms = posterior.kernel.function
    row, prior = state.used, covariance.diagonal(location.unsqueeze(0))[0]
    arms[row], posterior.kernel.diagonal[row] = location, prior
    posterior.rounding = torch.maximum(posterior.rounding, dtc.rounding_of(prior, posterior.noise_var))
    scores = dtc.scores_at(posterior, location.unsqueeze(0))
    posterior.mean[:, row], posterior.variance[:, row] = scores.mean[:, 0], scores.variance[:, 0]
    state.used += 1
    return row
