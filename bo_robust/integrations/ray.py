"""Objectives on Ray: ``study.optimize(objective, rounds, executor=RayExecutor(gpus=0.5), workers=8)``.

Ray runs on one machine or on a cluster. Only objectives travel. The study, its file and its one writer stay where
``optimize`` runs, so a worker or a node that dies takes no told result with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ray
from ray import exceptions
from ray._private import ray_constants

from bo_robust.executors import WorkerLost, environment_variables
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

    If Ray is initialised already, it is used as it is and left running. Otherwise Ray is started on this machine
    without dashboard, bound to 127.0.0.1, with usage statistics off; or, with ``address``, this process joins a
    cluster. What was started or joined ends with :meth:`shutdown` or at the end of a ``with`` block. (Ray keeps its
    logs in /tmp/ray and the token its processes show each other in ~/.ray.)

    Workers import functions of modules, so they need the module. Other functions, such as those of a script or a
    notebook, travel whole. Workers do not need bo_robust. BLAS and OpenMP have as many threads in a task as it has
    CPUs, unless OMP_NUM_THREADS says otherwise. Without a share of a GPU a task is for the CPU.

    Args:
        cpus: CPUs of one task, > 0, whole from 1 on; a fraction counts for how many tasks run at once and is not
            enforced.
        gpus: GPUs of one task, >= 0: whole, or a fraction below 1 (tasks that share a GPU share its memory).
        retries: How often Ray runs a task again whose worker died, >= 0, before the study sees a death. Objectives that
            raise are not run again.
        address: "auto", "host:port" or "ray://host:port" of a cluster; None: this machine.

    Raises:
        ValueError: if a number is out of range, or this machine has fewer CPUs or GPUs than one task needs.
        ConnectionError: if there is no cluster at the address.
        RuntimeError: if this release of Ray cannot be bound to 127.0.0.1.
    """

    def __init__(self, cpus: float = 1.0, gpus: float = 0.0, retries: int = 0, address: str | None = None) -> None:
        check_positive(cpus=cpus)
        check_count(0, retries=retries)
        if not (0 <= gpus < 1 or (math.isfinite(gpus) and gpus == int(gpus) > 0)):
            raise ValueError(f"gpus must be at least 0 and, from 1 on, whole; got {gpus!r}.")
        if cpus > 1 and cpus != int(cpus):
            raise ValueError(f"cpus must, from 1 on, be whole; got {cpus!r}.")
        self._own = not ray.is_initialized()
        if self._own and address is not None:
            ray.init(address=address)
        elif self._own:
            _start()
            there = ray.cluster_resources()
            lacking = [n for n, wanted in (("CPU", cpus), ("GPU", gpus)) if there.get(n, 0.0) < wanted]
            if lacking:  # Ray would wait for them without end
                ray.shutdown()
                has = {name: there.get(name, 0.0) for name in ("CPU", "GPU")}
                raise ValueError(
                    f"a task needs cpus={cpus:g}, gpus={gpus:g}, but on this machine Ray finds {has}; ask for less, or "
                    "give the address of a cluster."
                )
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

    def shutdown(self) -> None:
        """End the Ray that this executor started, or leave the cluster it joined; running tasks end."""
        if self._own and ray.is_initialized():
            ray.shutdown()
        self._own = False

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()


def _start() -> None:
    """Start Ray on this machine, open to no other.

    Ray replaces a ``_node_ip_address`` of 127.0.0.1 by the machine's own address and then listens on all interfaces. It
    keeps 127.0.0.1 only where a constant of Ray switches clusters off, as on macOS and Windows. So that constant is set
    here.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with environment_variables({"RAY_USAGE_STATS_ENABLED": "0"}):
            ray.init(address="local", include_dashboard=False)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
    ip = ray.util.get_node_ip_address()
    if ip not in ("127.0.0.1", "::1"):
        ray.shutdown()
        raise RuntimeError(
            f"Ray {ray.__version__} listens on {ip}, not on 127.0.0.1; call ray.init yourself if that is as it should "
            "be, or install another release of Ray."
        )
