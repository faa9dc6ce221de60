"""BBKB over arms that are read in blocks: more than memory holds, other arms every round, or shared among ranks.

The choices of :mod:`.bbkb` (Calandriello et al. 2020), with nothing stored per arm but for those pulled. A pass over
all arms, O(n m^2), finds the best one and the candidates of the batch (:mod:`.candidates`); within it only these are
looked at, unless another arm might be better, which takes another pass. With a process group every rank passes over its
own arms and the best of all is agreed upon; what is known is the same on every rank.

:class:`.bbkb.BBKB` changes what it stores per arm by what changed, and is the faster one where n numbers fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from bo_robust.algorithms.bkb import new_dictionary
from bo_robust.algorithms.candidates import CANDIDATES, Candidates, check_batch_constant, choose
from bo_robust.algorithms.ranks import from_first, gathered
from bo_robust.covariance import Covariance
from bo_robust.features.leverage import check_oversampling
from bo_robust.linalg import row_argmax
from bo_robust.ops.dtc_scores import dtc_scores
from bo_robust.random import spread
from bo_robust.schedules import BKBWidth, Width
from bo_robust.states import dtc
from bo_robust.states.arms import ArmKernel
from bo_robust.states.dtc import DTCPosterior
from bo_robust.states.streams import ArmStream
from bo_robust.validation import check_count, check_finite

__all__ = ["Pick", "StreamState", "StreamedBBKB"]

# Room for pulled arms at first.
FIRST_ARMS = 64


@dataclass(frozen=True)
class Pick:
    """What to pull next.

    Attributes:
        arm: Its number in the stream.
        location: ``d``, of the dtype of the posterior.
        width: Multiplier of sigma in the confidence bound.
        bound: Its upper confidence bound; infinity in the first round.
    """

    arm: int
    location: Tensor
    width: float
    bound: float


@dataclass
class StreamState:
    """What is known after ``round`` rounds. Observing its locations, rewards and uniforms again gives it again.

    Attributes:
        posterior: Over the arms pulled so far, one trial; rows beyond ``used`` are empty.
        used: How many these are.
        round: Rounds played.
        spent: Variances, at the start of the batch, of the arms it pulled.
        arms: The stream the candidates are of; None where there are none.
        candidates: Of the present batch, ``arms`` their rows in ``table``.
        table: Number in the stream and location of each candidate, ``K x (1 + d)`` float64.
    """

    posterior: DTCPosterior
    used: int = 0
    round: int = 0
    spent: float = 0.0
    arms: ArmStream | None = None
    candidates: Candidates | None = None
    table: Tensor | None = None


@dataclass(frozen=True)
class StreamedBBKB:
    """BBKB over an :class:`~bo_robust.states.streams.ArmStream`.

    Args:
        width: Confidence width, as in :class:`.bbkb.BBKB`.
        oversampling: q >= 1, as in :class:`.bkb.BKB`.
        batch_constant: c >= 0, as in :class:`.bbkb.BBKB`.
        candidates: Arms kept from a pass, >= 1.

    Example:
        >>> algorithm = StreamedBBKB(FiniteWidth(num_arms=10**8, delta=0.1), oversampling=5.0, batch_constant=1.0)
        >>> state = algorithm.init(Matern(2.5, 0.3), noise_var=0.01, dim=6)
        >>> arms = ArmStream.of_file("arms.npy")
        >>> for uniform in torch.rand(1000).tolist():
        ...     pick = algorithm.select(state, arms, uniform)
        ...     algorithm.observe(state, pick.location, measure(pick.location), uniform)
    """

    width: Width
    oversampling: float
    batch_constant: float
    candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        check_oversampling(self.oversampling)
        check_count(1, candidates=self.candidates)
        check_batch_constant(self.batch_constant)

    def init(
        self,
        covariance: Covariance,
        noise_var: float,
        dim: int,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> StreamState:
        """State before any reward.

        Args:
            covariance: k on locations ``n x d``.
            noise_var: lambda > 0.
            dim: d >= 1.
            dtype: Of the posterior, float64 or float32, whatever that of the arms.
            device: Of everything, the arms included.

        Raises:
            ValueError: if ``noise_var`` or ``dim`` is not as described.
        """
        check_count(1, dim=dim)
        places = torch.zeros(FIRST_ARMS, dim, dtype=dtype, device=device)
        return StreamState(dtc.init(_kernel(covariance, places), noise_var))

    def select(
        self, state: StreamState, arms: ArmStream, uniform: float, group: torch.distributed.ProcessGroup | None = None
    ) -> Pick:
        """The arm of largest upper confidence bound, first of equals; a uniformly random one in the first round.

        Args:
            state: State after t - 1 rounds.
            arms: Those to choose from, other ones than the round before if need be. With a group: this rank's
                :meth:`~bo_robust.states.streams.ArmStream.shard` of them.
            uniform: Draw from [0, 1); with a group that of the first rank counts.
            group: Ranks that choose together.

        Raises:
            ValueError: if there are no arms, or they are not as the stream promises or of another dimension.
            RuntimeError: if another rank failed or cannot be reached.
        """
        posterior, like = state.posterior, state.posterior.noise_var
        uniform = float(from_first(torch.tensor(uniform, dtype=torch.float64, device=like.device), group))
        known = posterior.effective_dimension if isinstance(self.width, BKBWidth) else posterior.information_gain
        width = torch.as_tensor(self.width(state.round + 1, known, like.new_full((1,), uniform))).to(like).expand(1)
        if state.round == 0:
            best = _agreed(lambda: self._first(posterior, arms, uniform, group), posterior, group)
            return Pick(int(best[2]), best[3:].to(like), float(width), math.inf)
        if arms is not state.arms:
            state.arms, state.candidates = arms, None
        best = _agreed(lambda: self._best_candidate(state, width), posterior, group)
        if not bool(best[0] > best[1]):
            best = _agreed(lambda: self._pass(state, arms, width), posterior, group)
        return Pick(int(best[2]), best[3:].to(like), float(width), float(best[0]))

    def observe(
        self,
        state: StreamState,
        location: Tensor,
        reward: float,
        uniform: float,
        group: torch.distributed.ProcessGroup | None = None,
    ) -> bool:
        """Note the reward, shrink variances, and where a batch ends draw a dictionary and learn, in place.

        Args:
            state: State after t - 1 rounds.
            location: Of the arm pulled, ``d``; equal locations are one arm.
            reward: Of it; a NaN or infinite one is a failed pull.
            uniform: Draw from [0, 1) of this round. With a group all three are those of the first rank.
            group: As in :meth:`select`.

        Returns:
            False where the pull failed.

        Raises:
            ValueError: if the location is not ``d`` finite numbers.
            RuntimeError: if the first rank cannot be reached.
        """
        posterior, like = state.posterior, state.posterior.noise_var
        if location.shape != (_dim(posterior),):
            raise ValueError(f"location must have {_dim(posterior)} numbers, got shape {tuple(location.shape)}.")
        said = torch.tensor([float(reward), uniform], dtype=torch.float64, device=like.device)
        said = from_first(torch.cat([said, location.double().to(like.device)]), group).to(like)
        check_finite("location", said[2:])
        arm = like.new_tensor([_row_of(state, said[2:])], dtype=torch.long)
        ok = dtc.count(posterior, arm, said[:1])
        state.round += 1
        state.spent += float(posterior.variance[0, arm] * ok)
        if state.spent <= self.batch_constant and state.round > 1:
            dtc.downdate(posterior, arm, ok)
        else:
            uniforms = spread(said[1:2], posterior.counts.shape[1])
            dtc.redraw(posterior, new_dictionary(posterior, posterior.variance, self.oversampling, uniforms))
            state.spent, state.candidates = 0.0, None
        return bool(ok)

    def _first(
        self, posterior: DTCPosterior, arms: ArmStream, uniform: float, group: torch.distributed.ProcessGroup | None
    ) -> Tensor:
        """Row of a uniformly random arm of all ranks, if this rank has it."""
        like = posterior.noise_var
        mine = torch.tensor([arms.start, arms.stop], dtype=torch.float64, device=like.device)
        ranges = gathered(mine, 2, like, group)
        first, last = int(ranges[:, 0].min()), int(ranges[:, 1].max())
        number = min(first + int(uniform * (last - first)), last - 1)
        row = _nothing(posterior)
        if arms.start <= number < arms.stop:
            _, block = next(ArmStream(arms.read, number, number + 1).blocks(like))
            _check_dim(posterior, block)
            row = torch.cat([row.new_tensor([0.0, -torch.inf, number]), block[0].double()])
        return row

    def _best_candidate(self, state: StreamState, width: Tensor) -> Tensor:
        """Bound, threshold, number and location of the best of the candidates; without any a threshold of infinity."""
        row = _nothing(state.posterior)
        if state.candidates is None or state.table is None:
            row[1] = torch.inf
            return row
        table = state.table
        if len(table) == 0:
            return row

        def variance_of(rows: Tensor) -> Tensor:
            return dtc.scores_at(state.posterior, table[rows[0], 1:].to(width), ahead=True).variance

        row, bound, _ = choose(state.candidates, width, variance_of)
        return torch.cat([bound.double(), state.candidates.threshold(width).double(), table[row[0]]])

    def _pass(self, state: StreamState, arms: ArmStream, width: Tensor) -> Tensor:
        """The same of the best of all arms, with no threshold; on the way the next candidates are chosen."""
        posterior, most = state.posterior, self.candidates
        covariance, dictionary = posterior.kernel.covariance, dtc.dictionary_of(posterior)
        assert covariance is not None
        best, kept, largest = _nothing(posterior), None, width.new_zeros(())
        for start, block in arms.blocks(posterior.noise_var):
            _check_dim(posterior, block)
            scores = dtc_scores(block, dictionary, covariance, posterior.noise_var)
            sd = scores.variance.sqrt()
            bound = torch.addcmul(scores.mean, sd, width.unsqueeze(1))
            largest = torch.maximum(largest, sd.max())
            top = row_argmax(bound)
            if bool(bound[0, top] > best[0]):
                best = torch.cat([bound[0, top].double(), best[1:2], (start + top).double(), block[top[0]].double()])
            rows = bound[0].topk(min(most + 1, len(block)), sorted=False).indices
            columns = [x[0, rows].double().unsqueeze(1) for x in (bound, scores.mean, scores.variance)]
            new = torch.cat([*columns, (start + rows).double().unsqueeze(1), block[rows].double()], 1)
            kept = new if kept is None else torch.cat([kept, new])
            kept = kept[kept[:, 0].topk(min(most + 1, len(kept))).indices]
        if kept is None:  # a rank without arms
            kept = width.new_zeros(0, 4 + _dim(posterior), dtype=torch.float64)
        outside = kept[most, :1].to(width) if len(kept) > most else torch.full_like(width, -torch.inf)
        kept = kept[:most]
        kept = kept[kept[:, 3].argsort()]
        mean, variance = kept[:, 1].to(width).unsqueeze(0), kept[:, 2].to(width).unsqueeze(0)
        rows = torch.arange(len(kept), device=kept.device).unsqueeze(0)
        state.candidates = Candidates(rows, mean, variance, outside, largest.expand(1), width)
        state.table = kept[:, 3:]
        return best


def _kernel(covariance: Covariance, places: Tensor) -> ArmKernel:
    return ArmKernel(covariance.diagonal(places), covariance=covariance, arms=places)


def _dim(posterior: DTCPosterior) -> int:
    assert posterior.kernel.arms is not None
    return posterior.kernel.arms.shape[1]


def _nothing(posterior: DTCPosterior) -> Tensor:
    """The row of a rank that has no arm to offer."""
    row = posterior.noise_var.new_zeros(3 + _dim(posterior), dtype=torch.float64)
    row[:2] = -torch.inf
    return row


def _check_dim(posterior: DTCPosterior, block: Tensor) -> None:
    if block.shape[1] != _dim(posterior):
        raise ValueError(f"arms must be n x {_dim(posterior)}, got shape {tuple(block.shape)}.")


def _agreed(
    find: Callable[[], Tensor], posterior: DTCPosterior, group: torch.distributed.ProcessGroup | None
) -> Tensor:
    """The best row that any rank finds, first of equals, with the largest threshold; all fail where one does.

    Raises:
        ValueError: if no rank has an arm.
    """
    like, width = posterior.noise_var, 3 + _dim(posterior)
    try:
        row = find()
    except Exception:
        if group is not None:  # the others wait for this rank
            gathered(None, width, like, group)
        raise
    rows = gathered(row, width, like, group)
    best = rows[rows[:, 0] == rows[:, 0].max()]
    best = best[best[:, 2].argmin()].clone()
    best[1] = rows[:, 1].max()
    if best[0] == -torch.inf and best[1] < torch.inf:
        raise ValueError("there are no arms to choose from.")
    return best


def _row_of(state: StreamState, location: Tensor) -> int:
    """The row of an arm in the posterior, which gets a new one if need be."""
    posterior = state.posterior
    kernel = posterior.kernel
    assert kernel.arms is not None
    assert kernel.covariance is not None
    same = (kernel.arms[: state.used] == location).all(1).nonzero()
    if len(same):
        return int(same[0])
    if state.used == len(kernel.arms):
        kernel = _kernel(kernel.covariance, torch.cat([kernel.arms, torch.zeros_like(kernel.arms)]))
        dtc.grow(posterior, kernel)
    assert kernel.arms is not None
    assert kernel.covariance is not None
    row = state.used
    kernel.arms[row] = location
    kernel.diagonal[row] = kernel.covariance.diagonal(location.unsqueeze(0))[0]
    scores = dtc.scores_at(posterior, location.unsqueeze(0), ahead=False)
    posterior.mean[:, row], posterior.variance[:, row] = scores.mean[:, 0], scores.variance[:, 0]
    state.used += 1
    return row
