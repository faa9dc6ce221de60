"""What torch lacks or does slowly, and the one question after the device of a tensor."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bo_robust.utils.input_checks import quoted

simulated = False  # Whether tensors of a CPU take the paths of CUDA: only tests say so, `pytest --device simulated`


def on_cuda(x: Tensor) -> bool:
    """Whether ``x`` takes the paths of CUDA, where reading a number back waits for the device."""
    return x.is_cuda or simulated


# Up to so many trials are updated one by one in NumPy on a CPU. For 8 trials GP-UCB takes 0.8 of the time of a batch in
# torch (50 to 250 arms), for 12 as much; BKB over 100 arms takes as much for 8.
FEW_TRIALS = 8


def are_few(trials: Tensor) -> bool:
    """Whether trials, the rows of a tensor, are updated one by one, on a CPU."""
    return len(trials) <= FEW_TRIALS and not on_cuda(trials)


# Rows from which on the GPU that has the data of an exact GP factorizes its matrices. By an estimate that may be off by
# two a fit of RobustGP gains 2 there at 1,000, 2.9 at 1,500 and 4 at 2,000 over a CPU thread (docs/results/gpu.md).
GPU_ROWS = 1500


def gpu_for(X: Tensor, n: int) -> torch.device | None:
    """The device of the data X if matrices of n rows belong there, None for the host; only CUDA has float64."""
    return X.device if on_cuda(X) and n >= GPU_ROWS else None


def on_device(x: NDArray[Any], device: torch.device) -> Tensor:
    """A copy on a device, also where that is the CPU, or where scripts set another one by default."""
    return torch.tensor(x, device=device)


def cholesky(A: Tensor) -> tuple[Tensor, float] | None:
    """The lower factor, and the log determinant; None where rounding has made the matrix indefinite."""
    root, failed = torch.linalg.cholesky_ex(A)
    log_det = float(root.diagonal().log().sum().mul(2.0).where(failed == 0, math.nan))  # one wait for both
    return (root, log_det) if math.isfinite(log_det) else None


def device_named(name: str) -> torch.device:
    """The torch device of a name; ``ValueError`` if it is unknown or this machine lacks it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"unknown device {quoted(name)}; use cpu, cuda or cuda:0.") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {name} is not supported; use cpu or cuda.")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(f"device {name} was asked for, but torch {torch.__version__} finds {count} CUDA devices.")
    return device


def free_bytes(x: Tensor) -> int | None:
    """How many bytes the GPU of ``x`` still has for this process, those that torch keeps included; None on a CPU."""
    if not x.is_cuda:
        return None
    kept = torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
    return torch.cuda.mem_get_info(x.device)[0] + kept


def refuse_tf32(x: Tensor) -> None:
    """Raise ``ValueError`` where CUDA multiplies float32 like ``x`` with three digits: too few for a variance."""
    # Unlike torch.get_float32_matmul_precision, this can be read whichever of torch's settings the user chose.
    precision = torch.backends.cuda.matmul.fp32_precision
    if x.dtype == torch.float32 and on_cuda(x) and precision not in ("none", "ieee"):
        raise ValueError(
            f"matrix products in {precision} (torch.backends.cuda.matmul.fp32_precision) leave three digits to a "
            'posterior in float32 on CUDA; set it to "ieee", or use float64.'
        )


def entries_at_once(x: Tensor, on_cpu: int, on_gpu: int) -> int:
    """How many numbers a block of ``x``'s device holds: what fits the cache of a CPU starves a GPU with launches."""
    return on_gpu if on_cuda(x) else on_cpu


def all_numbers(mean: Tensor, variance: Tensor) -> Tensor:
    """Whether mean and variance (``s x n``) are numbers at all arms of a trial, ``s`` bool.

    NaN comes from overflow, or from rounding as large as the posterior. No reward then counts as observed.
    """
    # No sum and no product of finite numbers is infinite but by overflow: then look again.
    if not on_cuda(mean) and math.isfinite(np.vdot(mean.numpy(), variance.numpy())):
        return mean.new_ones(len(mean), dtype=torch.bool)
    total = (mean + variance).sum(1)
    return total - total == 0.0  # three launches fewer than `isfinite` takes


def row_argmax(x: Tensor) -> Tensor:
    """First index of the maximum of every row of ``x`` (``s x n``), as ``s`` long."""
    if on_cuda(x):
        return x.argmax(1)
    # NumPy's vectorized argmax, on the same memory, is 7 times faster than torch's at 64 x 1000.
    return torch.from_numpy(x.numpy().argmax(1))


def is_among(X: Tensor, others: Tensor, equal: Callable[[Tensor, Tensor], Tensor] = torch.eq) -> Tensor:
    """Whether each point ``... x d`` is one of the others, ``m x d``, whose coordinates ``equal`` compares, ``...``."""
    return equal(X.unsqueeze(-2), others).all(-1).any(-1)


def median_and_mad(y: Tensor) -> tuple[Tensor, Tensor]:
    """Median of the last axis and median absolute deviation (MAD) from it, ``... x 1`` each."""
    center = median(y)
    return center, median((y - center).abs())


def median(y: Tensor) -> Tensor:
    """Median of the last axis, ``... x 1``; of an even number the mean of the middle two (torch takes the lower)."""
    ordered, half = y.sort(-1).values, y.shape[-1] // 2
    upper = ordered[..., half : half + 1]
    return upper if y.shape[-1] % 2 else (ordered[..., half - 1 : half] + upper) / 2
