"""The study: ask for points, tell their values."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bo_robust.executors import Executor
from bo_robust.methods import DEFAULT
from bo_robust.specs import quoted
from bo_robust.study.loop import optimize
from bo_robust.study.policy import History, Policy, Recommendation
from bo_robust.study.records import FAILED, Status, Trial, checked_id, checked_ids, checked_value
from bo_robust.study.settings import complete
from bo_robust.study.space import Point, Space, as_space, space_from_json
from bo_robust.study.store import Store
from bo_robust.validation import check_count, check_positive


class Study:
    """An optimisation kept in one file; make one with :meth:`create` or :meth:`open`.

    ``ask`` and ``tell`` return when their answer is on disk. What is asked depends only on the settings, the seed, and
    the trials and tells in the order of their commits. So a study that is interrupted at any moment, even by SIGKILL,
    asks the same as one that is not: bit for bit on the same machine, with the same versions, device and number of
    threads.

    A trial is leased for ``lease_seconds``. If nothing was told by then, the next ``ask`` hands the same trial out
    again, with its id and x. A late answer of the first worker still counts if it comes first. :meth:`release` ends
    leases at once, :meth:`renew` extends them.

    Several threads, and several processes that opened the file, may call its methods: every call is one transaction.
    (PyTorch has one stream of random numbers for all threads: an objective that draws from it, in a thread beside
    ``ask``, changes what is asked.)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking, self._reading = threading.Lock(), threading.Lock()
        self._points: list[tuple[Point, int | None]] = []  # x and asked_after, by id
        self._tells: list[tuple[int, float | None]] = []  # trial and value, in the order of the commits
        self._observed: list[Point] = []  # x by id, with the condition told where it is not the one asked
        try:
            space = space_from_json(store.settings["space"])
            settings = complete(store.settings["method"], store.settings["settings"], space)
            self._policy = Policy(space, settings, store.settings["seed"])
            self._refresh()
        except BaseException:
            store.close()
            raise

    @classmethod
    def create(
        cls,
        path: str | Path,
        space: Space | Mapping[str, Any],
        method: str = DEFAULT,
        seed: int = 0,
        lease_seconds: float = 3600.0,
        **settings: Any,
    ) -> Study:
        """Make a new study, which is on disk when this returns.

        Args:
            path: Its file. SQLite's ``PATH-journal`` lies beside it during a commit.
            space: ``{"name": (low, high) | Float | Integer | Categorical}``, a ``Box`` or ``Arms``. ``(1, 5)`` is a
                Float; whole numbers are ``Integer(1, 5)``.
            method: A name in :data:`bo_robust.methods.METHODS`.
            seed: Seed of everything random, >= 0.
            lease_seconds: How long a trial may take before it is handed out again, > 0.
            settings: Settings, plain JSON: see :mod:`bo_robust.methods` and :mod:`bo_robust.study.settings`.

        Raises:
            FileExistsError: if there is a study, or another database, already.
            OSError: if the path is no file, or cannot be written.
            StudyDamaged: if there is a file that is no database.
            ValueError: if a setting is unknown or out of range.
        """
        space = as_space(space)
        check_count(0, seed=seed)
        check_positive(lease_seconds=lease_seconds)
        complete_settings = complete(method, settings, space)
        Policy(space, complete_settings, int(seed)).try_out()
        known = {"space": space.to_json(), "method": method, "settings": complete_settings.to_json()}
        return cls(Store(path, create=known | {"seed": int(seed), "lease_seconds": float(lease_seconds)}))

    @classmethod
    def open(cls, path: str | Path, readonly: bool = False) -> Study:
        """Open a study that exists; other processes may have it open too.

        Args:
            path: Its file.
            readonly: Whether to look at it only.

        Raises:
            OSError: if the file is missing (``FileNotFoundError``), no file, or cannot be read or written.
            StudyDamaged: if the file is torn or changed, or was written by another version.
            ValueError: if the file has several names (hard links).
        """
        return cls(Store(path, readonly=readonly))

    @property
    def settings(self) -> dict[str, Any]:
        """Space, method, seed, lease and all settings of the method, plain JSON."""
        return cast(dict[str, Any], json.loads(json.dumps(self._store.settings)))

    def ask(self, n: int = 1) -> list[Trial]:
        """Return ``n`` points to evaluate: first trials whose lease is over, the oldest first, then new ones.

        Asking for n is asking n times. The variance at points under evaluation falls, so that others are asked.
        """
        check_count(1, n=n)
        n = int(n)
        with self._asking:
            while True:
                again = dict(list(self._expired(self._store.leases()).items())[:n])
                self._refresh()
                seq, known = len(self._tells), len(self._points)
                xs: list[Point] = []
                for trial in range(known, known + n - len(again)):
                    xs.append(self._policy.propose(self._history(seq, trial, xs), trial))
                until = time.time() + self._store.settings["lease_seconds"]
                if self._store.ask(known, xs, seq, again, until):
                    break  # else another process asked meanwhile
            self._refresh()
            return [self._trial(i) for i in [*again, *range(known, known + len(xs))]]

    def tell(self, trial: int, value: Any, condition: Mapping[str, Any] | None = None) -> None:
        """Tell the value of the trial of this id: a finite number of at most 1e300 in size, or ``FAILED``.

        ``condition`` is for methods that choose conditions: the one observed, ``{"name": number}``, where it is not the
        one asked. It may be any within the range of the environment's points, column by column. The model then has the
        value there, and so has the trial's ``x``.

        Telling the same again does nothing. Raises ``ValueError`` for any other value (constraints and several
        objectives are for Ax) or condition, or if the trial was never asked or was told something else.
        """
        self.tell_many([(trial, value, condition)])

    def tell_many(self, results: Sequence[tuple[Any, ...]]) -> None:
        """Tell ``(id, value)`` or ``(id, value, condition)`` of several trials in one commit.

        All of them are told or, on an error of :meth:`tell`, none.
        """
        try:
            told = [_result(*result) for result in results]
        except TypeError:
            raise ValueError(
                f"results are pairs (id, value), or (id, value, condition), in a list, got {quoted(results)}."
            ) from None
        rows = [(checked_id(trial), checked_value(value, trial), condition) for trial, value, condition in told]
        self._store.tell([(trial, value, self._unasked(trial, condition)) for trial, value, condition in rows])

    def add(self, x: Mapping[str, Any], value: Any) -> Trial:
        """Add a point that was evaluated elsewhere, such as old data: a trial asked and told in one commit.

        The point includes its condition where the method chooses one: any that :meth:`tell` takes. Raises
        ``ValueError`` if it is not in the space, or if :meth:`tell` would refuse the value.
        """
        trial = self._store.add(self._policy.checked(x), checked_value(value))
        self._refresh()
        return self._trial(trial)

    def renew(self, trials: Sequence[int]) -> None:
        """Lease trials for another ``lease_seconds`` from now, because their workers are alive.

        Nothing is written while all of these leases have half of their time left. Trials that are not open are passed
        over.
        """
        leases, seconds, now = self._store.leases(), self._store.settings["lease_seconds"], time.time()
        ids = [trial for trial in checked_ids(trials) if trial in leases]
        if any(not 0.5 * seconds <= leases[trial] - now <= seconds for trial in ids):
            self._store.lease(ids, now + seconds)

    def release(self, trials: Sequence[int] | None = None) -> None:
        """End leases now, because the workers are dead: the next ``ask`` hands these trials out again.

        ``trials`` are their ids; None stands for all open trials. Raises ``ValueError`` if one is not open.
        """
        leases = self._store.leases()
        ids = list(leases) if trials is None else checked_ids(trials)
        for trial in ids:
            if trial not in leases:
                raise ValueError(f"trial {trial} is not open; those open are {list(leases)}.")
        self._store.lease(ids, 0.0)

    def replay(self, trial: int) -> Point:
        """Compute the point of a trial anew, from what was on disk when it was asked: the result is its ``x``.

        (It is the ``x`` asked, where :meth:`tell` gave another condition.)

        Another version of the package may fit or search differently, and so find another point. Raises ``ValueError``
        if the trial was added by hand or there is none.
        """
        self._refresh()
        if not 0 <= checked_id(trial) < len(self._points) or self._points[trial][1] is None:
            raise ValueError(f"trial {trial} was not asked by the method.")
        return self._policy.propose(self._history(self._points[trial][1] or 0, trial, []), trial)

    def recommend(self) -> Recommendation:
        """Recommend the point of the largest lower confidence bound, with its certificate, from all that was told.

        It is one of the points told, or of all arms, and not the one that was luckiest. See :class:`Recommendation`.
        Raises ``ValueError`` if no value was told yet.
        """
        self._refresh()
        return self._policy.recommend(self._history(len(self._tells), len(self._points), []))

    def set_aside(self) -> list[tuple[Trial, float]]:
        """Return trials whose values the model does not see as they are, and these values, in the order told.

        They are those not believed, or truncated. The list is empty where the method sees all, or no value was told.
        """
        self._refresh()
        told = [(trial, value) for trial, value in self._tells if value is not None]
        rows = self._policy.set_aside(self._history(len(self._tells), len(self._points), [])) if told else []
        return [(self._trial(told[row][0]), told[row][1]) for row in rows]

    def should_stop(self, tolerance: float) -> bool:
        """Whether the recommendation x^ is within ``tolerance`` of optimal by its certificate.

        That is, whether max_x u(x) - l(x^) <= tolerance, which is > 0 and in units of the rewards. (Srinivas et al.
        2010, Lemma 5.2, bounds the regret of another point, the x that maximises u, by 2 w sigma(x).) The answer is as
        reliable as the certificate's width: see ``certificate`` in :mod:`bo_robust.study.settings`. It is False where
        there is no certificate.
        """
        check_positive(tolerance=tolerance)
        if all(v is None for v in self._results()):
            return False
        bound = self.recommend().regret_bound
        return bound is not None and bound <= tolerance

    def status(self) -> Status:
        """Count the trials in each state."""
        leases, values = self._store.leases(), self._results()
        failed = sum(v is None for v in values)
        counts = (len(self._points), len(values) - failed, failed, len(leases), len(self._expired(leases)))
        return Status(self._store.settings["method"], *counts)

    def results(self) -> list[tuple[Trial, Any]]:
        """Return trials and their values or ``FAILED``, in the order told."""
        self._refresh()
        return [(self._trial(trial), FAILED if value is None else value) for trial, value in self._tells]

    def optimize(
        self,
        objective: Callable[[Point], float],
        rounds: int,
        executor: Executor | None = None,
        workers: int = 1,
    ) -> Recommendation:
        """Evaluate until the study holds ``rounds`` results, then recommend; called after an interruption, it goes on.

        Trials that are open at the start are taken over: their leases are released. (So let one process at a time call
        this: a second one would evaluate the trials of the first again.) Results are told as they come. An
        objective that raises, or returns what ``tell`` refuses, counts as FAILED, with a warning. Trials whose workers
        died are evaluated again, one at a time; after three deaths while nothing else ran, a trial counts as FAILED.
        After an error or an interrupt, finished trials are told, the others are released, and the processes that this
        call started are killed.

        While a study has no value, such failures are told only when the first value comes, or FAILED that the objective
        returned. If the first points of this call all fail, it stops with an error, and they are asked again by the
        next call. These are ``num_initial`` points, ``workers`` if that is more, and at least two.

        Args:
            objective: Maps the trial's ``x`` to its value.
            rounds: Results wanted, including failures and those that are there already.
            executor: Anything with ``submit(fn, x)`` that returns a future with ``result``, ``done`` and ``cancel``,
                such as those of ``concurrent.futures``; it is not shut down. None: this process if ``workers`` is 1,
                else :class:`~bo_robust.study.LocalProcesses`.
            workers: Trials evaluated at once, >= 1.

        Raises:
            RuntimeError: if a pool broke three times for one trial alone, and no worker gave a result before.
            ValueError: if a count is below 1, if the first points all fail, or if in the end no value was told.
        """
        return optimize(self, objective, rounds, executor, workers)

    def backup(self, path: str | Path) -> None:
        """Copy the study, as it stands on disk now, into a new file; this works beside a writer.

        Raises ``FileExistsError`` if the file exists, another ``OSError`` if it cannot be made, and ``StudyDamaged`` if
        this study was damaged since it was opened.
        """
        self._store.backup(path)

    def close(self) -> None:
        """Close the file; what was answered is on disk already."""
        self._store.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read what was committed since the last call."""
        with self._reading:
            tells = self._store.tells(len(self._tells))
            for _, x, asked_after in self._store.trials(len(self._points) - 1):  # read later, so of all tells
                self._points.append((x, asked_after))
                self._observed.append(x)
            for _, trial, value, condition in tells:
                self._tells.append((trial, value))
                if condition is not None:
                    self._observed[trial] = self._observed[trial] | condition

    def _expired(self, leases: dict[int, float]) -> dict[int, float]:
        """The leases that are over, or end later than any lease can (because the clock was set far back)."""
        now, seconds = time.time(), self._store.settings["lease_seconds"]
        return {trial: end for trial, end in leases.items() if not now < end <= now + 2.0 * seconds}

    def _results(self) -> list[float | None]:
        self._refresh()
        return [value for _, value in self._tells]

    def _history(self, seq: int, trial: int, new: list[Point]) -> History:
        """What was known when a trial was asked, after ``seq`` tells.

        Open trials of smaller ids are pending, and so are the uncommitted ``new`` points of the same call.
        """
        tells = self._tells[:seq]
        done = {i for i, _ in tells}
        pending = [x for i, (x, _) in enumerate(self._points[:trial]) if i not in done]
        told = [(self._observed[i], value) for i, value in tells if value is not None]
        failed = [self._observed[i] for i, value in tells if value is None]
        elsewhere = [self._points[i][0] for i, _ in tells if self._points[i][0] != self._observed[i]]
        return History(told, failed, pending + new, elsewhere)

    def _unasked(self, trial: int, condition: Mapping[str, Any] | None) -> Point | None:
        """An observed condition as stored; None where it is the one asked."""
        if condition is None:
            return None
        observed = self._policy.condition(condition)
        self._refresh()
        asked = self._points[trial][0] if trial < len(self._points) else {}  # the store refuses an unknown trial
        return None if observed.items() <= asked.items() else observed

    def _trial(self, trial: int) -> Trial:
        x, asked_after = self._observed[trial], self._points[trial][1]
        told = -1 if asked_after is None else sum(value is not None for _, value in self._tells[:asked_after])
        first = self._observed.index(x)
        return Trial(trial, dict(x), told + 1, None if first == trial else first)


def _result(trial: Any, value: Any, condition: Any = None) -> tuple[Any, Any, Any]:
    return trial, value, condition
