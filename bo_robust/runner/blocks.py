"""A run in blocks of trials on an executor: workers play, this process stores.

A block is some trials of one algorithm of one panel, by default all. Random numbers depend on the seed, the trial and
the round only, but batched algebra may round otherwise for another number of trials: the traces are bit for bit those
of a local run where a block is all trials, else up to rounding (in float32, where that decides between arms, other
arms). Finished blocks lie in ``blocks/`` of the folder until their part is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import Progress, TaskID
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bo_robust.runner import results
from bo_robust.runner.build import build_problem
from bo_robust.runner.checkpoint import write_bytes
from bo_robust.runner.config import RunConfig
from bo_robust.runner.dispatch import answer, common, play_jobs
from bo_robust.runner.errors import RunError
from bo_robust.runner.guards import memory_errors
from bo_robust.runner.parts import Game, Part, join_parts, write_part
from bo_robust.runner.provenance import find_device
from bo_robust.study.executors import Executor

__all__ = ["Block", "blocks_of", "play_block", "play_blocks"]


@dataclass(frozen=True)
class Block:
    """Trials ``first`` to ``stop - 1`` of algorithm ``algorithm`` of panel ``panel``, by number."""

    panel: int
    algorithm: int
    first: int
    stop: int

    def path(self, folder: Path) -> Path:
        """Where it is stored."""
        return folder / "blocks" / "{:02d}-{:02d}-{:06d}-{:06d}.safetensors".format(*dataclasses.astuple(self))


def blocks_of(i: int, j: int, trials: int, size: int | None) -> list[Block]:
    """The blocks of a part, of ``size`` trials each, the last of the rest; of all trials if None."""
    size = trials if size is None else size
    return [Block(i, j, first, min(trials, first + size)) for first in range(0, trials, size)]


def play_block(text: str) -> tuple[str, bytes]:
    """What a worker does: play the block of a job (:func:`bo_robust.runner.dispatch.answer`)."""
    return answer(text, _play)


def play_blocks(
    folder: Path,
    info: dict[str, Any],
    config: RunConfig,
    todo: Sequence[tuple[int, int]],
    data_dir: Path | None,
    executor: Executor,
    force: bool,
    progress: Progress,
    task: TaskID,
) -> None:
    """Play what is missing of some parts, and write them.

    Args:
        folder: Of the run; this process holds its lock and is the only one that writes to it.
        info: Its ``run.json``; ``block``, if there, is the number of trials of a block.
        config: Its configuration.
        todo: Numbers of panel and algorithm.
        data_dir: Folder of data sets, the same on every machine.
        executor: Where to play.
        force: Accept workers of other versions.
        progress: Shows what is finished and what failed.
        task: Of it, counted in rounds of trials.

    Raises:
        RunError: when a block cannot be played or stored; those that were finished are kept.
    """
    size = info.get("block")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise RunError(f"{folder / 'run.json'}: block must be a number of trials, at least 1, got {size!r}.")
    shared = common(info["device"], data_dir, force)
    blocks: dict[tuple[int, int], list[Block]] = {}
    jobs: dict[Block, tuple[str, dict[str, Any]]] = {}

    def join(i: int, j: int) -> None:
        of = blocks[i, j]
        if all(block.path(folder).exists() for block in of):
            parts = [_load(block, folder, info) for block in of]
            whole = join_parts(parts)
            if len({part.facts["notes"] for part in parts}) > 1:  # they tell of trials
                trials = range(config.panels[i].trials)
                whole.facts["notes"] = build_problem(config.panels[i], trials, data_dir, torch.device("cpu")).notes
            write_part(results.part_path(folder, i, j), whole)
            for block in of:
                block.path(folder).unlink()

    def count(block: Block) -> None:
        panel = config.panels[block.panel]
        said = f"{panel.name} · {panel.algorithms[block.algorithm].label}"
        progress.update(task, description=said, advance=panel.horizon * (block.stop - block.first))

    def arrived(block: Block, content: bytes) -> None:
        write_bytes(content, block.path(folder))
        count(block)
        join(block.panel, block.algorithm)

    for i, j in todo:
        panel = config.panels[i]
        plain = RunConfig(config.name, (panel,)).to_dict()  # all that a worker needs of the configuration
        blocks[i, j] = blocks_of(i, j, panel.trials, size)
        for block in blocks[i, j]:
            if block.path(folder).exists():
                count(block)
                continue
            label, trials = panel.algorithms[j].label, [block.first, block.stop]
            name = f"{label!r} of panel {panel.name!r}, trials {block.first} to {block.stop - 1}"
            mine = {"digest": info["config_digest"], "config": plain, "panel": i, "algorithm": j, "trials": trials}
            jobs[block] = (name, shared | mine)
        join(i, j)
    play_jobs(executor, play_block, jobs, arrived, progress.console)
    with contextlib.suppress(OSError):  # not there
        (folder / "blocks").rmdir()


def _play(job: dict[str, Any]) -> bytes:
    """The block of a job as a safetensors file: final intervals, the traces as parquet, and in its header the rest."""
    panel = RunConfig.from_dict(job["config"]).panels[0]
    trials = range(*job["trials"])
    device, data = find_device(job["device"]), job["data_dir"]
    with memory_errors(panel):
        problem = build_problem(panel, trials, None if data is None else Path(data), device)
        game = Game(panel, job["algorithm"], problem, trials)
        began = time.perf_counter()
        game.play()
        part = game.part(time.perf_counter() - began)
    table = np.frombuffer(results.parquet_bytes(part.frame), dtype=np.uint8)
    tensors = part.final | {"traces": torch.from_numpy(table.copy())}
    block = [job["panel"], job["algorithm"], *job["trials"]]
    meta = {"digest": job["digest"], "block": block, "checksum": _checksum(tensors)}
    meta |= {"covered": part.covered, "facts": part.facts}
    return save(tensors, metadata={"meta": json.dumps(meta, allow_nan=False)})


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    found = 0
    for name in sorted(tensors):
        found = zlib.crc32(tensors[name].contiguous().view(torch.uint8).numpy().tobytes(), found)
    return found


def _load(block: Block, folder: Path, info: dict[str, Any]) -> Part:
    path = block.path(folder)
    try:
        with safe_open(path, framework="pt") as handle:
            meta = json.loads(handle.metadata()["meta"])
            tensors = {name: handle.get_tensor(name) for name in ("mean", "reach", "f", "traces")}
        if meta["digest"] != info["config_digest"] or meta["block"] != list(dataclasses.astuple(block)):
            raise ValueError("it is of another run or block")
        if meta["checksum"] != _checksum(tensors):
            raise ValueError("its content does not fit its checksum")
        frame = pd.read_parquet(io.BytesIO(tensors.pop("traces").numpy().tobytes()))
        return Part(frame, tensors, meta["covered"], meta["facts"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"the block {path} is damaged ({error}). Delete it and resume again: it is played again, the others are "
            "kept."
        ) from None
