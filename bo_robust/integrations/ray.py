"""Objectives on Ray: ``study.optimize(objective, rounds, executor=RayExecutor(gpus=0.5), workers=8)``.

Call ``ray.init`` first: you choose the machine or cluster, and who may reach it. Only objectives travel. The study and
its file stay where ``optimize`` runs, so a worker or a node that dies takes no told result with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ray
from ray import exceptions

from bo_robust.executors import WorkerLost
from bo_robust.validation import check_count, check_positive

__all__ = ["RayExecutor", "RayFuture"]

LOST = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.LocalRayletDiedError,
    exceptions.OutOfMemoryError,  # Ray killed the worker before the machine ran out of memory
    exceptions.ObjectLostError,
    exceptions.TaskCancelledError,
)


class RayFuture:
    """A result on its way from a Ray worker."""

    def __init__(self, ref: Any) -> None:
        self._ref = ref

    def result(self) -> Any:
        """Wait for the result and return it.

        Raises:
            WorkerLost: if the worker or its node died in every attempt, or the task was cancelled.
            Exception: what the objective raised, of its class, with the worker's traceback in its message.
        """
        try:
            return ray.get(self._ref)
        except LOST as error:
            # Raised by the objective: its own use of Ray went wrong.
            raised = isinstance(error, exceptions.RayTaskError)
            if raised and not isinstance(error, exceptions.TaskCancelledError):
                raise
            raise WorkerLost(str(error)) from error

    def done(self) -> bool:
        """Whether ``result`` returns at once."""
        return bool(ray.wait([self._ref], timeout=0)[0])

    def cancel(self) -> None:
        """Do not start it; if it runs, interrupt it as by Ctrl-C, so that its CPUs and GPUs come free."""
        ray.cancel(self._ref)


class RayExecutor:
    """Runs objectives as Ray tasks; ``bo_robust.study.Executor`` is the protocol.

    Workers import functions of modules, so they need the module. Other functions, such as those of a script or a
    notebook, travel whole. Workers do not need bo_robust. BLAS and OpenMP have as many threads in a task as it has
    CPUs, unless OMP_NUM_THREADS says otherwise. Without a share of a GPU a task is for the CPU.

    Args:
        cpus: CPUs of one task, > 0, whole from 1 on; a fraction counts for how many tasks run at once and is not
            enforced.
        gpus: GPUs of one task, >= 0: whole, or a fraction below 1 (tasks that share a GPU share its memory).
        retries: How often Ray runs a task again whose worker died, >= 0, before the study sees a death. Objectives that
            raise are not run again.

    Raises:
        ValueError: if a number is out of range.
        RuntimeError: if ``ray.init`` was not called.
    """

    def __init__(self, cpus: float = 1.0, gpus: float = 0.0, retries: int = 0) -> None:
        check_positive(cpus=cpus)
        check_count(0, retries=retries)
        if not (0 <= gpus < 1 or (math.isfinite(gpus) and gpus == int(gpus) > 0)):
            raise ValueError(f"gpus must be at least 0 and, from 1 on, whole; got {gpus!r}.")
        if cpus > 1 and cpus != int(cpus):
            raise ValueError(f"cpus must, from 1 on, be whole; got {cpus!r}.")
        if not ray.is_initialized():
            raise RuntimeError("call ray.init before RayExecutor: it runs tasks in the Ray that you started or joined.")
        # By value, hence a lambda: workers need not import this module.
        call: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(lambda fn, x: fn(x))
        self._call = call.options(name="bo_robust objective")
        self._sent: tuple[Any, Any] | None = None  # the function and where Ray keeps it

    def submit(self, fn: Callable[[Any], Any], x: Any, /) -> RayFuture:
        """Start ``fn(x)`` where there is room; raise ``ValueError`` if the function cannot be sent to a worker."""
        if self._sent is None or self._sent[0] is not fn:  # a function is sent once, not with every point
            try:
                self._sent = (fn, ray.put(fn))
            except TypeError as error:
                raise ValueError(f"{fn!r} cannot be sent to a Ray worker: {error}") from None
        return RayFuture(self._call.remote(self._sent[1], x))
