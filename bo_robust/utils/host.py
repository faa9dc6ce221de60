"""What runs on the host, whatever torch's default device is."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def on_host(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with tensors on the CPU where no device is given: scripts set others by default."""

    @wraps(function)
    def on_cpu(*args: P.args, **options: P.kwargs) -> R:
        # The mode costs time at every call of torch.
        with nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
            return function(*args, **options)

    return on_cpu
