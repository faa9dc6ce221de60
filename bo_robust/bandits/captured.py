"""Rounds on CUDA as one graph: a block of them is captured once and replayed until the horizon.

An eager round is dozens of launches, each longer than its work where arms are few; a replay is one launch for a whole
block. The block is as long as that of the posterior (:mod:`bo_robust.ops.arm_update`), so that the number of pending
rows in each of its rounds never changes. What ends a block runs eagerly between replays.

- Numbers that differ by round, such as widths, are read from memory (:mod:`bo_robust.utils.round_numbers`).
- Draws come in, and results go out, through tensors that stay where they are. Parts of the state that a round
  replaces by new tensors are copied back to the old ones at the end of a block.
- Sizes of the state must be those of the block before: a state that grows is run eagerly until it stays the same.

Who can be captured says so (:func:`is_capturable`); for all others rounds stay eager, and a warning says why, once.
A capture that fails runs nothing, so the state is as before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, State
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel
from bo_robust.confidence.base import needs_of
from bo_robust.ops import reason_of
from bo_robust.ops.cuda_graphs import Capture, can_capture, cuda_graph, warn_once
from bo_robust.utils.round_numbers import RoundNumbers, is_capturable

Column: TypeAlias = Tensor | float
Round: TypeAlias = Callable[..., Mapping[str, Column]]
_refused: set[tuple[str, torch.device, str]] = set()  # rounds of these sizes, of which a capture has failed

NUMBERS = 8  # room for as many numbers of the host in a round, and for each width that a candidate has of its own


def captured_rounds(
    algorithm: ArmAlgorithm, state: State, one_round: Round, capture: Capture | None = None
) -> CapturedRounds | None:
    """A way to run whole blocks of rounds of this state; None on a CPU, and where :func:`why_not` says so.

    ``one_round`` runs a round on its inputs, tensors of the device, and returns what is to be known of it: tensors of
    one shape that no later round writes to, or numbers that are the same in every round. ``capture`` is
    :func:`cuda_graph` by default, on a torch that survives its failures.
    """
    device = state.posterior.mean.device
    if capture is None and not can_capture("Rounds", device):
        return None
    reason = why_not(algorithm, state)
    if reason is not None:
        warn_once(f"Rounds of {type(algorithm).__name__}", reason)
        return None
    numbers = NUMBERS * max(1, len(_widths(algorithm)))
    return CapturedRounds(type(algorithm).__name__, state, one_round, capture or cuda_graph, numbers)


def _widths(algorithm: ArmAlgorithm) -> tuple[Any, ...]:
    width = getattr(algorithm, "width", ())
    return width if isinstance(width, tuple) else (width,)


def why_not(algorithm: ArmAlgorithm, state: State) -> str | None:
    """Why rounds cannot be captured, in a few words; None if they can."""
    if not is_capturable(algorithm):
        return "they read the device, or what they do depends on the round"
    widths = [width for width in _widths(algorithm) if needs_of(width)]  # others are called between replays
    functionals = [algorithm.functional] if hasattr(algorithm, "functional") else []
    kernel = getattr(getattr(state.posterior, "flat", state.posterior), "kernel", None)
    covariances = [kernel.covariance] if kernel and kernel.matrix is None else []  # a matrix is not evaluated anew
    for called in (*widths, *functionals, *covariances):
        if not is_capturable(called):
            return f"{type(called).__name__} does not say that it can be captured"
    if not getattr(state.posterior, "has_blocks", False):
        return f"a {type(state.posterior).__name__} has no blocks of equal rounds here"
    return None


class CapturedRounds:
    """Blocks of rounds of one state, which others may change in between; see :func:`captured_rounds`."""

    def __init__(self, name: str, state: State, one_round: Round, capture: Capture, numbers: int) -> None:
        self._name, self._state, self._round, self._capture = name, state, one_round, capture
        self._room, self._failed = numbers, False
        self._shapes: list[Any] = []  # of the last block
        self._replay: Callable[[], None] | None = None
        self._kept: _Kept | None = None
        self._inputs: list[Tensor] = []
        self._outputs: Mapping[str, Column] = {}

    @torch.no_grad()
    def run(self, *inputs: Tensor) -> tuple[int, Mapping[str, Column]] | None:
        """Run a block of K rounds; None where an eager round is due.

        ``inputs`` have a row for each round to come. The result is K and what the rounds return, ``K x ...`` each; it
        stays until the next call.
        """
        sizes = () if self._failed else self._state.posterior.begin_block()
        if not sizes or len(inputs[0]) < sizes[0]:
            return None
        K, shapes = sizes[0], [sizes, *(x.shape for _, _, x in _parts(self._state) if isinstance(x, Tensor))]
        if shapes != self._shapes:  # the first block of its kind is eager: kernels compile, and who grows goes on
            self._shapes, self._replay = shapes, None
            self._kept, self._inputs, self._outputs = None, [], {}  # nor the memory of a state that has grown
            return None
        if self._replay is None and not self._record(K, inputs):
            return None
        assert self._replay is not None
        assert self._kept is not None
        self._kept.settle(self._state)
        for target, given in zip(self._inputs, inputs, strict=True):
            target.copy_(given[:K])
        self._numbers.fill(self._state.round)
        # What a block may turn out to have no space for is repeated, round by round.
        overflowed = getattr(self._state.posterior, "overflowed", None)
        before = [(x, x.clone()) for _, _, x in _parts(self._state) if overflowed and isinstance(x, Tensor)]
        self._replay()
        if overflowed and overflowed():
            for x, old in before:
                x.copy_(old)
            return None
        self._kept.advance()
        return K, self._outputs

    def _record(self, K: int, inputs: tuple[Tensor, ...]) -> bool:
        """Capture K rounds, which runs nothing; False if that failed."""
        device = inputs[0].device
        refused = self._name, device, str(self._shapes)
        if refused in _refused:  # each failure keeps the memory of its graph (pytorch/pytorch#190308)
            self._failed = True
            return False
        self._inputs = [x[:K].clone() for x in inputs]
        self._numbers = RoundNumbers(K * self._room, self._state.round, device)
        self._kept = kept = _Kept(self._state)

        def work() -> None:
            with self._numbers.captured():
                rows = [self._round(*(x[i] for x in self._inputs)) for i in range(K)]
            self._outputs = {name: _stacked([row[name] for row in rows]) for name in rows[0]}
            kept.settle(self._state)

        try:
            self._replay = self._capture(device, work)
        except RuntimeError as error:
            self._failed = True
            _refused.add(refused)
            warn_once(f"Rounds of {self._name}", reason_of(error))
            return False
        finally:  # an interruption, too, leaves the state as it was
            kept.rewind()
        return True


class _Kept:
    """The parts of a state as they are now: which tensors, in which memory, and which numbers."""

    def __init__(self, state: Any) -> None:
        self._parts = list(_parts(state))
        self._steps: list[tuple[Any, str, int]] = []

    def settle(self, state: Any) -> None:
        """Copy tensors that were replaced since to the memory of those kept, which take their place again."""
        for (owner, name, kept), (_, _, now) in zip(self._parts, list(_parts(state)), strict=True):
            if isinstance(kept, Tensor) and now is not kept:
                kept.copy_(now)
            if kept is not now and not isinstance(kept, int):
                object.__setattr__(owner, name, kept)  # a frozen part, too

    def rewind(self) -> None:
        """Put everything back that a capture replaced, and remember by how much numbers grew."""
        self._steps = []
        for owner, name, kept in self._parts:
            if isinstance(kept, int) and (step := getattr(owner, name) - kept):
                self._steps.append((owner, name, step))
            object.__setattr__(owner, name, kept)

    def advance(self) -> None:
        """Let the numbers grow as in the capture."""
        for owner, name, step in self._steps:
            setattr(owner, name, getattr(owner, name) + step)


def _parts(of: Any) -> Iterator[tuple[Any, str, Any]]:
    """Owner, name and value of every tensor, number and group of such in a state, without its prior."""
    for field in dataclasses.fields(of):
        value = getattr(of, field.name)
        if isinstance(value, bool | ArmKernel):
            continue
        if isinstance(value, Tensor | int):
            yield of, field.name, value
        elif dataclasses.is_dataclass(value):
            yield of, field.name, value
            yield from _parts(value)


def _stacked(values: list[Column]) -> Column:
    """The values of all rounds, ``K x ...``; a number is the same in all of them."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    return torch.stack(tensors) if tensors else values[0]
