"""Shards: what one job of a run left, one file each.

A shard is some trials of one algorithm of one panel, by default all of them; in value-at-risk runs it is one repetition
of one method. Random numbers depend on the seed, the trial and the round only. Batched algebra, however, may round
differently for another number of trials. Traces are therefore bit-identical only to those of runs with the same
shards; others agree up to rounding, which may decide between arms in float32.
"""

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save
from torch import Tensor

from bo_robust.experiments.errors import RunError
from bo_robust.experiments.records import join_eliminations
from bo_robust.experiments.storage import read_tensors, sealed

# How to join the metadata of the shards of one algorithm; other metadata are the same in all shards.
JOINED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "seconds": sum,
    "covered": min,
    "eliminations": join_eliminations,
}


class ShardKey(NamedTuple):
    """Trials ``first`` to ``stop - 1`` of one entry (algorithm or method) of one panel, both by number."""

    panel: int
    entry: int
    first: int
    stop: int

    def path(self, folder: Path) -> Path:
        """Where the shard is stored."""
        return folder / "shards" / self._name

    def checkpoint(self, folder: Path) -> Path:
        """Where the state of a job under way is saved."""
        return folder / "checkpoints" / self._name

    @property
    def _name(self) -> str:
        return "{:02d}-{:02d}-{:06d}-{:06d}.safetensors".format(*self)


@dataclass(frozen=True)
class Shard:
    """What one job left."""

    frame: pd.DataFrame  # Traces in long format, one row per trial and round
    # In runs over arms `mean`, `reach` (width times sigma) and `f`, `n` each, of the worst-covered trial after the last
    # round; else empty
    final: dict[str, Tensor]
    # Plain data (:meth:`bo_robust.experiments.arm_run.ArmRun.shard`,
    # :func:`bo_robust.experiments.value_at_risk.job.play_shard`)
    metadata: dict[str, Any]


def keys_of(panels: Iterable[Any], size: int | None) -> list[ShardKey]:
    """The shards of all panels, in the order they are played; ``size`` as in :meth:`PanelConfig.shards`."""
    return [
        ShardKey(i, j, first, stop)
        for i, panel in enumerate(panels)
        for first, stop in panel.shards(size)
        for j in range(len(panel.entries))
    ]


def shard_bytes(shard: Shard, key: ShardKey, digest: str) -> bytes:
    """The content of a shard's file; ``digest`` is that of the run's configuration."""
    table = np.frombuffer(parquet_bytes(shard.frame), dtype=np.uint8)
    tensors = shard.final | {"traces": torch.from_numpy(table.copy())}  # torch warns of read-only arrays
    header = json.dumps({"digest": digest, "key": list(key), "metadata": shard.metadata}, allow_nan=False)
    return save(tensors, metadata=sealed(tensors, header))


def load_shard(folder: Path, key: ShardKey, digest: str) -> Shard:
    """Read a shard, or raise ``RunError`` if it is missing, damaged, or belongs to another run or place."""
    path = key.path(folder)
    remedy = f"Delete it and run `bo-robust resume {folder}`: it is played again, the others are kept."
    tensors, header = read_tensors(path, remedy)
    if header["digest"] != digest or header["key"] != list(key):
        raise RunError(f"{path} is of another run or shard. {remedy}")
    frame = pd.read_parquet(io.BytesIO(tensors.pop("traces").numpy().tobytes()))
    return Shard(frame, tensors, dict(header["metadata"]))


def join_shards(shards: Sequence[Shard]) -> Shard:
    """One shard of all trials, from shards of consecutive trials in order."""
    if len(shards) == 1:
        return shards[0]
    first = shards[0].metadata
    joined = {key: join([shard.metadata[key] for shard in shards]) for key, join in JOINED.items() if key in first}
    final: dict[str, Tensor] = {}
    if "covered" in first:
        final = min(shards, key=lambda shard: shard.metadata["covered"]).final  # the first of equals
    return Shard(pd.concat([shard.frame for shard in shards], ignore_index=True), final, first | joined)


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """A parquet file of a table."""
    table = io.BytesIO()
    frame.to_parquet(table, index=False, compression="zstd")
    return table.getvalue()
