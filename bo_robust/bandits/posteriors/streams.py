"""Arms that come in blocks: more arms than memory holds, or the share of one of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bo_robust.utils.input_checks import check_count, check_finite, check_tensor

BLOCK = 65_536


@dataclass(frozen=True)
class ArmStream:
    """n arms, read block by block, any number of times.

    Attributes:
        read: Returns arms ``start`` (included) to ``stop`` (not included), ``(stop - start) x d``, float32 or float64,
            the same every time.
        start: First arm of this stream.
        stop: Last arm + 1.
        block: Arms read at once.
    """

    read: Callable[[int, int], Tensor]
    start: int
    stop: int
    block: int = BLOCK

    def __post_init__(self) -> None:
        check_count(0, start=self.start)
        check_count(1, block=self.block)
        if not isinstance(self.stop, int) or self.stop < self.start:
            raise ValueError(f"stop must be an int >= start = {self.start}, got {self.stop!r}.")

    @classmethod
    def of_tensor(cls, arms: Tensor, block: int = BLOCK) -> ArmStream:
        """Rows of ``n x d``: in memory, on a GPU, or mapped from a file (``torch.from_file``)."""
        check_tensor("arms", arms, floating=False)
        if arms.ndim != 2 or arms.shape[0] == 0:
            raise ValueError(f"arms must be n x d with n >= 1, got shape {tuple(arms.shape)}.")
        return cls(lambda start, stop: arms[start:stop], 0, arms.shape[0], block)

    @classmethod
    def of_file(cls, path: Path | str, block: int = BLOCK, device: torch.device | str = "cpu") -> ArmStream:
        """Rows of the ``n x d`` array of a .npy file, which is mapped, not loaded, and never unpickled.

        Raises ``ValueError`` if it holds no matrix of float32 or float64.
        """
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim != 2 or array.shape[0] == 0 or array.dtype not in (np.float32, np.float64):
            raise ValueError(f"{path} must hold an n x d array of float32 or float64, got {array.dtype} {array.shape}.")
        return cls(lambda a, b: torch.from_numpy(np.array(array[a:b])).to(device), 0, array.shape[0], block)

    def __len__(self) -> int:
        """Arms of this stream."""
        return self.stop - self.start

    def shard(self, rank: int, ranks: int) -> ArmStream:
        """The contiguous share of arms of one of several ranks; shares differ by at most one arm."""
        check_count(1, ranks=ranks)
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be in 0..{ranks - 1}, got {rank!r}.")
        cuts = [self.start + len(self) * i // ranks for i in (rank, rank + 1)]
        return replace(self, start=cuts[0], stop=cuts[1])

    def blocks(self, dim: int, template: Tensor) -> Iterator[tuple[int, Tensor]]:
        """First arm and arms of every block, which must have ``dim`` columns and be on the device of ``template``.

        Raises ``ValueError`` if a block is not as ``read`` promises, or not finite.
        """
        for start in range(self.start, self.stop, self.block):
            stop = min(start + self.block, self.stop)
            arms, name = self.read(start, stop), f"the block of arms {start}..{stop - 1}"
            if arms.shape != (stop - start, dim):
                raise ValueError(f"{name} must be {stop - start} x {dim}, got shape {tuple(arms.shape)}.")
            if arms.dtype not in (torch.float32, torch.float64):
                raise ValueError(f"{name} must be float32 or float64, got {arms.dtype}; convert it.")
            if arms.device != template.device:
                raise ValueError(f"{name} is on {arms.device}, the posterior on {template.device}; move one.")
            check_finite(name, arms)
            yield start, arms
