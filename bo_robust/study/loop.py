"""The loop of ``Study.optimize``: keep workers busy, tell results as they come."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bo_robust.study.executors import Executor, Future, InProcess, LocalProcesses, WorkerLost
from bo_robust.study.methods import Recommendation
from bo_robust.study.records import FAILED, Trial, checked_value
from bo_robust.study.settings import whole_number

if TYPE_CHECKING:
    from bo_robust.study.study import Study

__all__ = ["optimize"]

POLL = 0.01  # seconds between looks at futures
DEATHS = 3  # workers a trial may lose while it runs alone before it counts as failed


def optimize(
    study: Study, objective: Callable[[dict[str, float]], float], rounds: int, executor: Executor | None, workers: int
) -> Recommendation:
    """See :meth:`bo_robust.study.Study.optimize`."""
    rounds, workers = whole_number(1, rounds=rounds), whole_number(1, workers=workers)
    own: Any = None
    if executor is None:
        own = executor = InProcess() if workers == 1 else LocalProcesses(workers)
    loop = _Loop(study, objective, executor)
    study.release()
    try:
        while True:
            loop.submit(rounds, workers)
            if not loop.trials:
                break
            if not loop.collect():
                time.sleep(POLL)
    except BaseException:
        try:
            loop.give_up()
        finally:
            if own is not None:
                own.shutdown(wait=False)
        raise
    if own is not None:
        own.shutdown()
    return study.recommend()


class _Loop:
    """The trials that are out, and what their workers make of them.

    A worker that dies may take others with it (a process pool breaks as a whole), so every trial that was lost is a
    suspect: suspects run again one at a time, and only deaths of a trial that ran alone count against it.
    """

    def __init__(self, study: Study, objective: Callable[[dict[str, float]], float], executor: Executor) -> None:
        self.study, self.objective, self.executor = study, objective, executor
        self.trials: dict[int, Trial] = {}  # asked and neither told nor released
        self.running: dict[int, Future] = {}
        self.deaths: Counter[int] = Counter()
        self.alone = False  # what runs is one suspect
        self.results = 0
        self.renewed = 0.0

    def submit(self, rounds: int, workers: int) -> None:
        """Start what there is room for."""
        suspects = [trial for trial in self.trials.values() if trial.id not in self.running]
        if suspects:
            if self.running:
                return
            self.alone = True
            self._start(min(suspects, key=lambda trial: self.deaths[trial.id]))  # results of others come soon
            return
        room = min(workers, rounds - len(self.study._results())) - len(self.trials)
        if room > 0:
            self._renew()
            asked = self.study.ask(room)
            self.trials |= {trial.id: trial for trial in asked}
            self.alone = room == 1 and not self.running
            for trial in asked:
                self._start(trial)

    def collect(self) -> bool:
        """Tell what is finished; whether anything was."""
        finished = [i for i, future in self.running.items() if future.done()]
        if not finished and time.monotonic() - self.renewed > self.study._store.settings["lease_seconds"] / 8:
            self._renew()
        outcomes: dict[int, Any] = {}
        for i in finished:
            with suppress(_Lost):
                outcomes[i] = self._outcome(i)
        for i in finished:
            del self.running[i]
        self._tell(outcomes)
        return bool(finished)

    def give_up(self) -> None:
        """After an error or an interrupt: tell what is finished, drop and release the rest."""
        outcomes: dict[int, Any] = {}
        for i, future in self.running.items():
            with suppress(BaseException):  # the interrupt that brought us here may be in the future, too
                if future.done():
                    outcomes[i] = self._outcome(i)
                    continue
            with suppress(BaseException):
                future.cancel()
        self._tell(outcomes)
        self.study.release(sorted(set(self.trials) & set(self.study._store.leases())))

    def _start(self, trial: Trial) -> None:
        self.running[trial.id] = self.executor.submit(self.objective, trial.x)

    def _renew(self) -> None:
        """Keep the leases of trials that are out from running out."""
        store, now = self.study._store, time.time()
        seconds, leases = store.settings["lease_seconds"], store.leases() if self.trials else {}
        if any(not 0.5 * seconds <= leases[i] - now <= seconds for i in self.trials if i in leases):
            store.lease(list(self.trials), now + seconds)
        self.renewed = time.monotonic()

    def _tell(self, outcomes: dict[int, Any]) -> None:
        if not outcomes:
            return
        try:
            self.study.tell_many(list(outcomes.items()))
        except ValueError:  # another thread told one of them something else: the first stands, the others count
            for i, value in outcomes.items():
                try:
                    self.study.tell(i, value)
                except ValueError as error:
                    warnings.warn(str(error), UserWarning, stacklevel=4)
        for i in outcomes:
            del self.trials[i]

    def _outcome(self, i: int) -> Any:
        """The value or FAILED; raises ``_Lost`` if the trial is to be evaluated again."""
        trial = self.trials[i]
        try:
            value = self.running[i].result()
            self.results += 1
            checked_value(i, value)
            return value
        except (WorkerLost, BrokenExecutor, CancelledError) as error:
            if self._raised(error, self.running[i]):
                self.results += 1
                return self._failed(trial, "".join(traceback.format_exception(error)).strip())
            self.deaths[i] += self.alone
            if self.deaths[i] < DEATHS:
                raise _Lost from None
            said = f"its worker died {DEATHS} times while nothing else ran ({error!r})"
            if not self.results and not isinstance(error, WorkerLost):  # the pool broke, for whatever reason
                raise RuntimeError(
                    f"no worker gave a result, and trial {i} at {trial.x}: {said}. Processes need an objective defined "
                    'in a module and a script with `if __name__ == "__main__":` (not standard input). If it is this '
                    f"point that kills its worker, study.tell({i}, FAILED) and call optimize again."
                ) from error
            return self._failed(trial, said)
        except Exception as error:
            self.results += 1
            return self._failed(trial, "".join(traceback.format_exception(error)).strip())

    def _failed(self, trial: Trial, said: str) -> Any:
        warnings.warn(f"trial {trial.id} at {trial.x} counts as FAILED: {said}", UserWarning, stacklevel=6)
        return FAILED

    def _raised(self, error: Exception, future: Any) -> bool:
        """Whether it was the objective that raised this: its own pool broke, say."""
        if isinstance(error, WorkerLost):
            return False
        if isinstance(self.executor, InProcess) or type(error.__cause__).__name__ == "_RemoteTraceback":
            return True
        return isinstance(error, CancelledError) and hasattr(future, "cancelled") and not future.cancelled()


class _Lost(Exception):
    """A worker died."""
