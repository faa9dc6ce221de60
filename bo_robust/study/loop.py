"""The loop of ``Study.optimize``: keep workers busy, tell results as they come."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any

from bo_robust.study.executors import Executor, Future, InProcess, LocalProcesses, WorkerLost
from bo_robust.study.methods import Recommendation
from bo_robust.study.records import FAILED, Trial, checked_value
from bo_robust.validation import check_count

if TYPE_CHECKING:
    from bo_robust.study.study import Study

__all__ = ["optimize"]

POLL = 0.01  # seconds between looks at futures
DEATHS = 3  # workers a trial may lose before it counts as failed


def optimize(
    study: Study, objective: Callable[[dict[str, float]], float], rounds: int, executor: Executor | None, workers: int
) -> Recommendation:
    """See :meth:`bo_robust.study.Study.optimize`."""
    check_count(1, rounds=rounds, workers=workers)
    own = None
    if executor is None:
        own = executor = InProcess() if workers == 1 else LocalProcesses(workers)
    running: list[tuple[Future, Trial]] = []
    deaths: Counter[int] = Counter()
    study.release()
    try:
        while True:
            wanted = min(workers, rounds - len(study._results())) - len(running)
            if wanted > 0:
                _renew(study, [trial.id for _, trial in running])
                for trial in study.ask(wanted):
                    running.append((executor.submit(objective, trial.x), trial))
            if not running:
                return study.recommend()
            finished = [pair for pair in running if pair[0].done()]
            if not finished:
                time.sleep(POLL)
                continue
            running = [pair for pair in running if pair not in finished]
            outcomes = [(trial.id, _outcome(future, trial, deaths)) for future, trial in finished]
            study.tell_many([(trial, value) for trial, value in outcomes if value is not WorkerLost])
            study.release([trial for trial, value in outcomes if value is WorkerLost])
    finally:
        if running:  # an error or an interrupt
            for future, _ in running:
                future.cancel()
            study.release(sorted({trial.id for _, trial in running} & set(study._store.leases())))
        if own is not None:
            own.shutdown()


def _renew(study: Study, ids: list[int]) -> None:
    """Keep the leases of trials whose workers are alive from running out."""
    store, now = study._store, time.time()
    seconds, leases = store.settings["lease_seconds"], store.leases() if ids else {}
    if any(leases[i] < now + 0.5 * seconds for i in ids if i in leases):
        store.lease(ids, now + seconds)


def _outcome(future: Future, trial: Trial, deaths: Counter[int]) -> Any:
    """The value, FAILED, or the class ``WorkerLost`` if the trial is to be evaluated again."""
    try:
        value = future.result()
        checked_value(trial.id, value)
        return value
    except (WorkerLost, BrokenExecutor, CancelledError) as error:
        deaths[trial.id] += 1
        if deaths[trial.id] < DEATHS:
            return WorkerLost
        said = f"its worker died {DEATHS} times ({error!r})"
    except Exception as error:
        said = "".join(traceback.format_exception(error)).strip()
    warnings.warn(f"trial {trial.id} at {trial.x} counts as FAILED: {said}", UserWarning, stacklevel=4)
    return FAILED
