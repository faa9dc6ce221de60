"""How many points the dictionaries of a block of rounds have space for, which the host decides before the block."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bo_robust.ops.dtc_scores.naive import CHUNK_ENTRIES
from bo_robust.utils.linalg import on_cuda

# Rounds of a block, and points that may come in it at first. More than the most slots take a Triton program too long.
BLOCK, SPARE, FEWEST, MOST = 32, 8, 32, 256


@dataclass
class Slotted:
    """The part of a posterior that says how many slots its dictionaries have."""

    mean: Tensor = field(init=False)
    dictionary: Tensor = field(init=False)
    slots: int = field(default=0, kw_only=True)  # R; 0, if sizes are those of the dictionaries
    least: int = field(default=0, kw_only=True)  # Slots of blocks to come, at least
    most: Tensor | None = field(default=None, kw_only=True)  # Points of the largest dictionary of this block, `s` long

    @property
    def has_blocks(self) -> bool:
        """Whether there are blocks of equal rounds."""
        return on_cuda(self.mean)

    def begin_block(self) -> tuple[int, ...]:
        """The number of rounds of a block, and of slots; none if they are too many. The host waits for the sizes."""
        (s, n), sizes = self.dictionary.shape, self.dictionary.sum(1)
        self.most, needed = torch.zeros_like(sizes), int(sizes.max()) + SPARE
        slots = max(self.least, FEWEST, 1 << (needed - 1).bit_length())
        if slots > MOST or s * n * slots > CHUNK_ENTRIES[1]:
            self.slots = 0
            return ()
        self.slots = self.least = slots
        return BLOCK, slots

    def overflowed(self) -> bool:
        """Whether a dictionary had more points than slots since the block began; the next has twice as many, if any."""
        assert self.most is not None
        over = int(self.most.max()) > self.slots
        self.least = max(self.least, self.slots << over)
        return over
