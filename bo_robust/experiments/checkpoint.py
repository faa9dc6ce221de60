"""Atomic file writes, and checkpoints of a run under way as safetensors.

A checkpoint holds every tensor of the algorithm's state, the traces so far and a few host numbers. It holds no random
streams, which depend on seed, trial and chunk only. Resuming gives bit-identical traces.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bo_robust.experiments.errors import RunError

__all__ = ["load_checkpoint", "save_checkpoint", "write_atomic", "write_bytes", "write_json"]


# The umask can only be read by setting it, which is safe once, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def write_atomic(path: Path, write: Callable[[Path], Any]) -> None:
    """Call ``write`` on a temporary file beside ``path``, flush it to disk and move it into place.

    ``RunError`` is raised when the disk is full or the folder cannot be written; ``path`` keeps its old content.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        # safetensors creates its files with mode 0600, which other users could not read.
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(f"cannot write {path}: {reason}. What was written before is intact.") from None


def write_bytes(content: bytes, path: Path) -> None:
    """Write bytes atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(content))


def write_json(data: dict[str, Any], path: Path) -> None:
    """Write plain data as JSON, atomically."""
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def save_checkpoint(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON-able ``meta``, atomically."""
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items() if v.numel()}
    empty = {k: [list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in tensors.items() if not v.numel()}
    header = {"meta": json.dumps(meta), "empty": json.dumps(empty)}
    write_atomic(path, lambda temporary: save_file(plain, temporary, metadata=header))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_checkpoint` wrote, or raise ``RunError`` if the file is truncated or damaged."""
    try:
        with safe_open(path, framework="pt") as handle:
            header = handle.metadata()
            tensors = {k: handle.get_tensor(k) for k in handle.keys()}  # noqa: SIM118
        for name, (shape, dtype) in json.loads(header["empty"]).items():
            tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype))
        return tensors, json.loads(header["meta"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"the checkpoint {path} is damaged ({error}). Delete it and resume again: what is finished is kept, only "
            "the algorithm under way starts anew."
        ) from None
