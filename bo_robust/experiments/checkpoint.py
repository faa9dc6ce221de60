"""Checkpoints of a run under way, as safetensors.

A checkpoint holds every tensor of the algorithm's state, the traces so far and a few host numbers. It holds no random
streams, which depend on seed, trial and chunk only. Resuming gives bit-identical traces.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bo_robust.experiments.storage import read_tensors, sealed, write_atomic

REMEDY = "Delete it and resume again: what is finished is kept, only the algorithm under way starts anew."


def save_checkpoint(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON-able ``meta``, atomically."""
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items() if v.numel()}
    empty = {k: [list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in tensors.items() if not v.numel()}
    metadata = sealed(plain, json.dumps({"meta": meta, "empty": empty}))
    write_atomic(path, lambda temporary: save_file(plain, temporary, metadata=metadata))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_checkpoint` wrote, or raise ``RunError`` if the file is truncated or damaged."""
    tensors, header = read_tensors(path, REMEDY)
    for name, (shape, dtype) in header["empty"].items():
        tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype))
    return tensors, header["meta"]
