"""Algorithms of a run side by side, in processes that write one checkpoint and one part for each.

Random numbers depend on the seed, the trial and the round only, so that the traces are those of a run in one process,
bit for bit. Seconds are not: processes share the machine.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import cast

import torch

from bo_robust.runner.errors import RunError
from bo_robust.study.executors import _prepare_worker

__all__ = ["play_parts"]


def play_parts(
    folder: Path,
    todo: Sequence[tuple[int, int]],
    data_dir: Path | None,
    workers: int,
    finished: Callable[[int, int], None],
) -> None:
    """Play algorithms of panels in processes of this machine, each with as many threads as this one.

    If one fails, or on an interrupt, the others are ended; what they saved is gone on from by ``bo-robust resume``.
    They end with this process, however it ends.

    Args:
        folder: Of the run; this process holds its lock.
        todo: Numbers of panel and algorithm.
        data_dir: Folder of data sets.
        workers: Processes at a time, >= 1.
        finished: Called with panel and algorithm when a part is written.

    Raises:
        RunError: when a part cannot be played, or its process died.
    """
    waiting = list(todo)
    context = multiprocessing.get_context("spawn")
    started: list[tuple[Connection, multiprocessing.process.BaseProcess]] = []
    running: dict[Connection, tuple[int, int]] = {}
    try:
        for _ in range(min(workers, len(todo))):
            ours, theirs = context.Pipe()
            arguments = (folder, data_dir, torch.get_num_threads(), theirs)
            process = context.Process(target=_play, args=arguments, daemon=True)
            process.start()
            theirs.close()
            started.append((ours, process))
            _give(ours, waiting, running)
        while running:
            for ours in cast(list[Connection], wait(list(running))):
                part = running.pop(ours)
                try:
                    said = ours.recv_bytes().decode()
                except (EOFError, ConnectionError):
                    said = (
                        f"the process that played algorithm {part[1] + 1} of panel {part[0] + 1} died; "
                        f"`bo-robust resume {folder}` goes on from its last checkpoint."
                    )
                if said:
                    raise RunError(said)
                finished(*part)
                if waiting:
                    _give(ours, waiting, running)
    finally:
        for _, child in started:
            child.terminate()
        for ours, child in started:
            child.join()
            ours.close()


def _give(process: Connection, waiting: list[tuple[int, int]], running: dict[Connection, tuple[int, int]]) -> None:
    """Send the next part to a process."""
    running[process] = part = waiting.pop(0)
    with contextlib.suppress(ConnectionError):  # it died: said when its answer is read
        process.send_bytes(json.dumps(part).encode())


def _play(folder: Path, data_dir: Path | None, threads: int, parent: Connection) -> None:
    """Play the parts that are sent, answer each with what went wrong, or nothing."""
    from bo_robust.runner.run import play_part

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal's processes; the parent ends these
    _prepare_worker(threads)
    while True:
        i, j = json.loads(parent.recv_bytes())
        try:
            play_part(folder, i, j, data_dir)
            said = ""
        except RunError as error:
            said = str(error)
        parent.send_bytes(said.encode())
