"""What torch lacks or does slowly, and the one question after the device of a tensor."""

import math
from collections.abc import Callable

import numpy as np
import torch
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
