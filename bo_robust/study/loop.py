"""The loop of ``Study.optimize``: it keeps workers busy and tells results as they come."""

import textwrap
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bo_robust.executors import Executor, Future, InProcess, LocalProcesses, WorkerLost
from bo_robust.study.policy import Recommendation
from bo_robust.study.records import FAILED, Trial, checked_value
from bo_robust.study.space import Point
from bo_robust.validation import check_count, quoted

if TYPE_CHECKING:
    from bo_robust.study.study import Study

POLL = 0.01  # seconds between looks at futures
DEATHS = 3  # a trial counts as failed when so many workers died while it ran alone


def optimize(
    study: "Study", objective: Callable[[Point], float], rounds: int, executor: Executor | None, workers: int
) -> Recommendation:
    """See :meth:`bo_robust.study.Study.optimize`."""
    if not callable(objective):
        raise TypeError(f"objective must be a function of a point, got {quoted(objective)}.")
    if not (executor is None or callable(getattr(executor, "submit", None))):
        raise TypeError(f"executor must have submit(fn, x), as those of concurrent.futures, got {quoted(executor)}.")
    check_count(1, rounds=rounds, workers=workers)
    rounds, workers = int(rounds), int(workers)
    own: InProcess | LocalProcesses | None = None
    if executor is None:
        executor = own = InProcess() if workers == 1 else LocalProcesses(workers)
    loop = _Loop(study, objective, executor, workers)
    study.release()
    try:
        while True:
            loop.submit(rounds, workers)
            if not loop.running:
                loop.check_answered()
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
    status = study.status()
    if not status.told:
        raise ValueError(
            f"all {status.failed} trials FAILED; mend the objective, then raise `rounds`, or start a new file."
        )
    return study.recommend()


class _Loop:
    """The trials that are out, and what their workers make of them.

    A worker that dies may take others with it, because a process pool breaks as a whole. So every lost trial is a
    suspect. Suspects run again one at a time, and only the deaths of a trial that ran alone count against it.

    Errors before the first value may come from a mistake in the objective, which would use up the trials. So they are
    told together with the first value. Without one they are not told, and the next call asks the same points.
    """

    def __init__(self, study: "Study", objective: Callable[[Point], float], executor: Executor, workers: int) -> None:
        self.study, self.objective, self.executor = study, objective, executor
        settings = study.settings
        self.lease_seconds = settings["lease_seconds"]
        # So many errors before the first value are a mistake in the objective. The initial design needs no values, and
        # no worker waits before one of them. One error alone is none: a run may diverge.
        self.most_errors = max(settings["settings"]["num_initial"], workers, 2)
        self.answered = study.status().told > 0  # whether the objective gave a value, or FAILED, ever
        self.trials: dict[int, Trial] = {}  # asked, neither told nor released
        self.running: dict[int, Future] = {}
        self.untold: dict[int, Any] = {}  # results of trials that are not told yet
        self.deaths: Counter[int] = Counter()  # by trial: deaths of workers while it ran alone
        self.alone = False  # whether one trial runs alone
        self.answers = 0  # how often a worker returned or raised something
        self.renewed = 0.0  # when the leases were renewed last
        self.last_error: Exception | None = None  # why a trial FAILED

    def submit(self, rounds: int, workers: int) -> None:
        """Start as many trials as there is room for."""
        suspects = [trial for i, trial in self.trials.items() if i not in self.running and i not in self.untold]
        if suspects:
            if self.running:
                return
            self.alone = True
            # The one with fewest deaths first: results of innocent trials come soon.
            self._start(min(suspects, key=lambda trial: self.deaths[trial.id]))
            return
        if len(self.running) >= workers:
            return
        status = self.study.status()
        most = rounds - status.told - status.failed
        if not self.answered:
            most = min(most, self.most_errors)
        room = min(workers - len(self.running), most - len(self.trials))
        if room > 0:
            self._renew()
            asked = self.study.ask(room)
            self.trials |= {trial.id: trial for trial in asked}
            self.alone = room == 1 and not self.running
            for trial in asked:
                self._start(trial)

    def collect(self) -> bool:
        """Tell the finished trials; return whether there were any."""
        finished = [i for i, future in self.running.items() if future.done()]
        # `Study.renew` writes only when half of a lease is over; an eighth is often enough not to miss that.
        if not finished and time.monotonic() - self.renewed > self.lease_seconds / 8:
            self._renew()
        outcomes: dict[int, Any] = {}
        for i in finished:
            with suppress(_Lost):
                outcomes[i] = self._outcome(i)
        for i in finished:
            del self.running[i]
        self._tell(outcomes)
        return bool(finished)

    def check_answered(self) -> None:
        """Raise ``ValueError`` if the objective raised at every point."""
        if self.untold:
            error = textwrap.shorten(f"{type(self.last_error).__name__}: {self.last_error}", 200, placeholder="...")
            raise ValueError(
                f"the objective gave no value at any point yet ({len(self.untold)} in this call); the last error is "
                f"{error.rstrip('.')}. Mend the objective and call optimize again: it evaluates these points anew. If "
                "they do fail, return FAILED there."
            ) from self.last_error

    def give_up(self) -> None:
        """After an error or an interrupt, tell the finished trials, cancel and release the others."""
        outcomes: dict[int, Any] = {}
        for i, future in self.running.items():
            with suppress(BaseException):  # the interrupt that brought us here may be in the future, too
                if future.done():
                    outcomes[i] = self._outcome(i)
                    continue
            with suppress(BaseException):
                future.cancel()
        self._tell(outcomes)
        for i in sorted(self.trials):
            with suppress(ValueError):  # another thread told it
                self.study.release([i])

    def _start(self, trial: Trial) -> None:
        self.running[trial.id] = self.executor.submit(self.objective, trial.x)

    def _renew(self) -> None:
        self.study.renew(list(self.trials))
        self.renewed = time.monotonic()

    def _tell(self, outcomes: dict[int, Any]) -> None:
        self.untold |= outcomes
        if not self.untold or not self.answered:
            return
        try:
            self.study.tell_many(list(self.untold.items()))
        except ValueError:  # another thread told one of them something else: the first stands, the others count
            for i, value in self.untold.items():
                try:
                    self.study.tell(i, value)
                except ValueError as error:
                    warnings.warn(str(error), UserWarning, stacklevel=5)
        for i in self.untold:
            del self.trials[i]
        self.untold.clear()

    def _outcome(self, i: int) -> Any:
        """The value or FAILED; raises ``_Lost`` if the trial must be evaluated again."""
        trial = self.trials[i]
        try:
            value = self.running[i].result()
            self.answers += 1
            checked_value(value, i)
            self.answered = True
            return value
        except (WorkerLost, BrokenExecutor, CancelledError) as error:
            if self._raised(error, self.running[i]):
                self.answers += 1
                return self._failed(trial, error)
            self.deaths[i] += self.alone
            if self.deaths[i] < DEATHS:
                raise _Lost from None
            reason = f"its worker died {DEATHS} times while nothing else ran ({error!r})"
            if not self.answers and not isinstance(error, WorkerLost):  # the pool broke, for whatever reason
                raise RuntimeError(
                    f"no worker gave a result, and trial {i} at {trial.x}: {reason}. Processes need an objective "
                    'defined in a module and a script with `if __name__ == "__main__":` (not standard input). If it is '
                    f"this point that kills its worker, study.tell({i}, FAILED) and call optimize again."
                ) from error
            return self._failed(trial, error, reason)
        except Exception as error:
            self.answers += 1
            return self._failed(trial, error)

    def _failed(self, trial: Trial, error: Exception, reason: str | None = None) -> Any:
        self.last_error = error
        reason = reason or "".join(traceback.format_exception(error)).strip()
        warnings.warn(f"trial {trial.id} at {trial.x} counts as FAILED: {reason}", UserWarning, stacklevel=6)
        return FAILED

    def _raised(self, error: Exception, future: Any) -> bool:
        """Whether the objective itself raised this error, for example because its own pool broke."""
        if isinstance(error, WorkerLost):
            return False
        # concurrent.futures gives this cause to what the function itself raised in another process.
        if isinstance(self.executor, InProcess) or type(error.__cause__).__name__ == "_RemoteTraceback":
            return True
        # A CancelledError from a future that was not cancelled came out of the objective.
        return isinstance(error, CancelledError) and hasattr(future, "cancelled") and not future.cancelled()


class _Lost(Exception):
    """A worker died."""
