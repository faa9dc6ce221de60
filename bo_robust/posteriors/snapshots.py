"""Save a state, or its posterior, as plain tensors and numbers, and go on from it bit for bit.

Any state made of dataclasses of tensors, numbers and None is saved whole, except for prior kernels. Of an
:class:`~bo_robust.posteriors.arms.ArmPosterior`, also inside a state, only what is in use is saved. Its prior
covariance rows are evaluated again from the kernel. A GPyTorch kernel too large to tabulate may round differently when
evaluated for one arm or for several; then the continuation agrees to rounding only.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from bo_robust.posteriors.arm_kernel import ArmKernel
from bo_robust.posteriors.arms import ArmPosterior, zeros_like_shape

TENSORS = ("mean", "variance", "counts", "information_gain", "slots", "filled", "block_filled", "root_ready")


def forget(posterior: Any) -> None:
    """Drop what is derived and never saved, so that a state goes on exactly as its restored copy does."""
    if isinstance(posterior, ArmPosterior):
        posterior.scratch.clear()
    elif dataclasses.is_dataclass(posterior) and not isinstance(posterior, ArmKernel):
        for field in dataclasses.fields(posterior):
            if field.metadata.get("derived"):
                setattr(posterior, field.name, None)
            else:
                forget(getattr(posterior, field.name))


def snapshot(posterior: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (views of the state: save or clone them before the next round) and JSON-able numbers."""
    forget(posterior)
    return _pack(posterior, "")


def restore_(posterior: Any, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    """Put a snapshot into a state or posterior fresh from its ``init`` with the same arguments."""
    forget(posterior)
    _unpack_(posterior, "", tensors, numbers, getattr(posterior, "posterior", posterior).mean)


def _pack_arms(posterior: ArmPosterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    b = posterior.buffers
    m = b.num_rows
    tensors = {name: getattr(b, name) for name in TENSORS}
    tensors["pending"] = b.pending[:, : b.num_pending]
    if b.dense:
        tensors["rows"] = b.rows
    else:
        tensors |= {
            "row_arm": b.row_arm[:, :m],
            "row_counts": b.row_counts[:, :m],
            "root": b.root[:, :m, :m],
        }
    numbers = {
        "num_pending": b.num_pending,
        "num_rows": m,
        "row_budget": posterior.row_budget,
        "row_capacity": b.rows.shape[1],
        "block": b.pending.shape[1],
    }
    return tensors, numbers


def _unpack_arms_(posterior: ArmPosterior, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    b = posterior.buffers
    trials, n = b.mean.shape
    m, capacity = numbers["num_rows"], numbers["row_capacity"]
    for name in TENSORS:
        getattr(b, name).copy_(tensors[name])
    b.pending = zeros_like_shape((trials, numbers["block"], n), b.mean)
    b.pending[:, : numbers["num_pending"]] = tensors["pending"].to(b.mean)
    if b.dense:
        b.rows.copy_(tensors["rows"])
    else:
        b.rows = zeros_like_shape((trials, capacity, n), b.mean)
        b.row_counts = zeros_like_shape((trials, capacity), b.mean)
        b.root = zeros_like_shape((trials, capacity, capacity), b.mean)
        b.row_arm = torch.zeros(trials, capacity, dtype=torch.long, device=b.mean.device)
        b.row_arm[:, :m] = tensors["row_arm"].to(b.row_arm)
        b.row_counts[:, :m] = tensors["row_counts"].to(b.mean)
        b.root[:, :m, :m] = tensors["root"].to(b.mean)
        for i, filled in enumerate(b.filled.tolist()):
            trial = torch.tensor([i], device=b.mean.device)
            for j in range(filled):
                b.rows[i, j] = posterior.kernel.rows(b.row_arm[i, j : j + 1], trial)[0]
    b.num_pending, b.num_rows, posterior.row_budget = numbers["num_pending"], m, numbers["row_budget"]
    posterior.scratch.clear()


def _pack(state: Any, prefix: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if isinstance(state, ArmPosterior):
        arms = _pack_arms(state)
        return {prefix + k: v for k, v in arms[0].items()}, {prefix + k: v for k, v in arms[1].items()}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        name, value = prefix + field.name, getattr(state, field.name)
        if isinstance(value, Tensor):
            tensors[name] = value
            # Products of another layout round differently, and ties show it.
            expanded = any(size > 1 and not step for size, step in zip(value.shape, value.stride(), strict=True))
            if not (expanded or value.is_contiguous()):
                numbers[f"{name}.stride"] = list(value.stride())
        elif isinstance(value, ArmKernel):
            continue
        elif dataclasses.is_dataclass(value):
            inner = _pack(value, f"{name}.")
            tensors |= inner[0]
            numbers |= inner[1]
        elif isinstance(value, int | float):
            numbers[name] = value
    return tensors, numbers


def _unpack_(state: Any, prefix: str, tensors: dict[str, Tensor], numbers: dict[str, Any], like: Tensor) -> None:
    """Restore in place, frozen dataclasses (feature tables) included: nobody else holds the state yet."""
    if isinstance(state, ArmPosterior):
        mine = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        _unpack_arms_(state, mine, {k.removeprefix(prefix): v for k, v in numbers.items() if k.startswith(prefix)})
        return
    for field in dataclasses.fields(state):
        name, value = prefix + field.name, getattr(state, field.name)
        if isinstance(value, ArmKernel):
            continue
        if dataclasses.is_dataclass(value):
            _unpack_(value, f"{name}.", tensors, numbers, like)
        elif name in tensors:
            saved = tensors[name].to(like.device)
            stride = numbers.get(f"{name}.stride", torch.empty(saved.shape, device="meta").stride())
            object.__setattr__(state, field.name, saved.new_empty_strided(saved.shape, stride).copy_(saved))
        elif name in numbers:
            object.__setattr__(state, field.name, numbers[name])
        elif isinstance(value, Tensor):  # None when it was saved
            object.__setattr__(state, field.name, None)
