"""The study: ask for points, tell their values; an answer you got back is on disk."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bo_robust.study.executors import Executor
from bo_robust.study.loop import optimize
from bo_robust.study.methods import History, Method, Recommendation
from bo_robust.study.records import FAILED, Status, Trial, checked_id, checked_value
from bo_robust.study.settings import complete, whole_number
from bo_robust.study.space import Space, as_space, space_from_json
from bo_robust.study.store import Store
from bo_robust.validation import check_positive

__all__ = ["Study"]


class Study:
    """An optimisation kept in one file; make one with :meth:`create` or :meth:`open`.

    ``ask`` and ``tell`` return after what they answer is on disk. What is asked is a function of the settings, the seed
    and the trials and tells in the order of their commits: a study interrupted at any moment, by SIGKILL too, asks the
    same as one that was not, bit for bit on the same machine, versions, device and number of threads. Rewards are
    numbered in the order told.

    A trial is leased for ``lease_seconds``. If nothing was told by then, the next ``ask`` hands the same trial (id and
    x) out again; a late answer of the first worker is still taken, if it comes first. :meth:`release` ends leases at
    once, for when the workers are known to be dead.

    One writer, any number of readers. Methods may be called from several threads. (PyTorch has one stream of random
    numbers for all of them: an objective that draws from it, in a thread beside ``ask``, changes what is asked.)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        try:
            self._read_settings(store.settings)
            self._refresh()
        except BaseException:
            store.close()
            raise

    def _read_settings(self, known: Mapping[str, Any]) -> None:
        self._space = space_from_json(known["space"])
        self._fits = self._store.fits()  # those on disk
        self._method = Method(self._space, known["method"], known["settings"], known["seed"], self._fits)
        self._asking, self._reading = threading.Lock(), threading.Lock()
        self._points: list[tuple[dict[str, float], int | None]] = []  # by id: x, asked_after
        self._tells: list[tuple[int, float | None]] = []  # by seq: trial, value

    @classmethod
    def create(
        cls,
        path: str | Path,
        space: Space | Mapping[str, Any],
        method: str = "tgp-ucb",
        seed: int = 0,
        lease_seconds: float = 3600.0,
        **settings: Any,
    ) -> Study:
        """A new study, on disk when this returns.

        Args:
            path: Of its file; ``PATH-wal``, ``PATH-shm`` and ``PATH.lock`` lie beside it. On a local disk.
            space: ``{"name": (low, high) | Float | Integer}``, a ``Box`` or ``Arms``.
            method: "gp-ucb", "tgp-ucb", "ata-gp-ucb", "v-ucb", "he-gp-ucb" or "bkb".
            seed: Of everything random, >= 0.
            lease_seconds: How long a trial may take before it is handed out again, > 0.
            settings: Of the method, plain JSON; defaults and meanings in :mod:`bo_robust.study.settings`.

        Raises:
            FileExistsError: if there is a study already.
            ValueError: if a setting is unknown or out of range.
        """
        space = as_space(space)
        whole_number(0, seed=seed)
        try:
            check_positive(lease_seconds=lease_seconds)
        except (TypeError, OverflowError):
            raise ValueError(f"lease_seconds must be a finite number > 0, got {lease_seconds!r}.") from None
        complete_settings = complete(method, settings, space)
        Method(space, method, complete_settings, int(seed)).try_out()
        known = {"space": space.to_json(), "method": method, "settings": complete_settings}
        return cls(Store(path, create=known | {"seed": int(seed), "lease_seconds": float(lease_seconds)}))

    @classmethod
    def open(cls, path: str | Path, readonly: bool = False, wait: float = 0.0) -> Study:
        """A study that exists.

        Args:
            path: Of its file.
            readonly: To look at one that another process writes.
            wait: Seconds to wait for another writer to close.

        Raises:
            FileNotFoundError: if there is none.
            StudyLocked: if another writer has it.
            StudyDamaged: if the file is torn or truncated; says how many tells are readable and how to export them.
        """
        return cls(Store(path, readonly=readonly, wait=wait))

    @property
    def settings(self) -> dict[str, Any]:
        """Space, method, seed, lease and all settings of the method, plain JSON."""
        return cast(dict[str, Any], json.loads(json.dumps(self._store.settings)))

    def ask(self, n: int = 1) -> list[Trial]:
        """Points to evaluate: trials whose lease is over, oldest first, then new ones.

        Asking for n is asking n times. Points under evaluation count as such (their variance falls).

        Args:
            n: How many, >= 1.
        """
        n = whole_number(1, n=n)
        with self._asking:
            again = self._expired(self._store.leases())[:n]
            self._refresh()
            seq, first = len(self._tells), len(self._points)
            xs: list[dict[str, float]] = []
            for trial in range(first, first + n - len(again)):
                xs.append(self._method.propose(self._history(seq, trial, xs), trial))
            until = time.time() + self._store.settings["lease_seconds"]
            asked = [*again, *range(first, first + len(xs))]
            fits = {data: state for data, state in list(self._method.fits.items()) if data not in self._fits}
            with self._store.commit() as db:
                for i, x in enumerate(xs):
                    self._store.insert_trial(db, first + i, x, seq)
                db.executemany("UPDATE trials SET leased_until = ? WHERE id = ?", [(until, i) for i in asked])
                self._store.insert_fits(db, fits)
            self._fits |= fits
            self._refresh()
            return [self._trial(i) for i in asked]

    def tell(self, trial: int, value: Any) -> None:
        """The value of a trial, or ``FAILED``. The same again is a no-op.

        Args:
            trial: Its id.
            value: A number, finite and at most 1e300 in size.

        Raises:
            ValueError: if the value is another, the trial was never asked, or was told something else.
        """
        self.tell_many([(trial, value)])

    def tell_many(self, results: Sequence[tuple[int, Any]]) -> None:
        """Values of several trials in this order, in one commit: all or, on an error, none.

        Args:
            results: ``(id, value)`` as in :meth:`tell`.

        Raises:
            ValueError: as :meth:`tell`.
        """
        try:
            pairs = [(trial, value) for trial, value in results]
        except (TypeError, ValueError):
            raise ValueError(f"results are pairs (id, value) in a list, got {results!r}.") from None
        self._store.tell([(checked_id(trial), checked_value(trial, value)) for trial, value in pairs])

    def add(self, x: Mapping[str, float], value: Any) -> Trial:
        """A point evaluated elsewhere and its value, such as old data: a trial asked and told in one commit.

        Args:
            x: A point of the space (v-ucb: with its condition).
            value: As in :meth:`tell`.

        Raises:
            ValueError: if the point is not in the space, or the value is refused.
        """
        plain = self._method.checked(x)
        with self._asking:
            self._refresh()
            trial = len(self._points)
            reward = checked_value(trial, value)
            with self._store.commit() as db:
                self._store.insert_trial(db, trial, plain, None)
                self._store.insert_tell(db, trial, reward)
            self._refresh()
            return self._trial(trial)

    def release(self, trials: Sequence[int] | None = None) -> None:
        """End leases now, because the workers are dead: the next ``ask`` hands these trials out again.

        Args:
            trials: Their ids; None: all that are open.

        Raises:
            ValueError: if one is not open.
        """
        leases = self._store.leases()
        ids = list(leases) if trials is None else [checked_id(trial) for trial in trials]
        for trial in ids:
            if trial not in leases:
                raise ValueError(f"trial {trial} is not open; those open are {list(leases)}.")
        self._store.lease(ids, 0.0)

    def replay(self, trial: int) -> dict[str, float]:
        """The point of a trial computed anew, from what was on disk when it was asked: always its ``x``.

        By this version of the package: another one may fit or search differently.

        Raises:
            ValueError: if the trial was added by hand or there is none.
        """
        self._refresh()
        if not 0 <= checked_id(trial) < len(self._points) or self._points[trial][1] is None:
            raise ValueError(f"trial {trial} was not asked by the method.")
        return self._method.propose(self._history(self._points[trial][1] or 0, trial, []), trial)

    def recommend(self) -> Recommendation:
        """What to use, from all that was told: the point of the largest lower confidence bound, with its certificate.

        Of the points told, or of all arms; never the one that was luckiest. ``worst`` and ``regret_bound`` are None
        where there is no certificate: see :class:`Recommendation`.

        Raises:
            ValueError: if no value was told yet.
        """
        self._refresh()
        history = self._history(len(self._tells), len(self._points), [])
        if not history.told:
            raise ValueError("no value was told yet: there is nothing to recommend.")
        return self._method.recommend(history)

    def should_stop(self, tolerance: float) -> bool:
        """Whether the recommendation is within ``tolerance`` of optimal by its certificate.

        max_x u(x) - l(x^) <= tolerance. (Srinivas et al. 2010, Lemma 5.2, bounds the regret of another point, the x
        that maximises u, by 2 w sigma(x).) As true as the certificate's width: see ``certificate`` in
        :mod:`bo_robust.study.settings`. False where there is no certificate.

        Args:
            tolerance: In units of the rewards, > 0.

        Raises:
            ValueError: if the tolerance is no finite number > 0.
        """
        try:
            check_positive(tolerance=tolerance)
        except (TypeError, OverflowError):
            raise ValueError(f"tolerance must be a finite number > 0, got {tolerance!r}.") from None
        if all(v is None for v in self._results()):
            return False
        bound = self.recommend().regret_bound
        return bound is not None and bound <= tolerance

    def status(self) -> Status:
        """How many trials there are, and in which state."""
        leases, values = self._store.leases(), self._results()
        failed = sum(v is None for v in values)
        counts = (len(self._points), len(values) - failed, failed, len(leases), len(self._expired(leases)))
        return Status(self._store.settings["method"], *counts, self._store.recovered)

    def results(self) -> list[tuple[Trial, Any]]:
        """Trials and their values or ``FAILED``, in the order told."""
        self._refresh()
        return [(self._trial(trial), FAILED if value is None else value) for trial, value in self._tells]

    def optimize(
        self,
        objective: Callable[[dict[str, float]], float],
        rounds: int,
        executor: Executor | None = None,
        workers: int = 1,
    ) -> Recommendation:
        """Evaluate until the study holds so many results; called again after an interruption, it goes on.

        Trials open at the start are taken over: their leases are released. Results are told as they come. An objective
        that raises, or returns what ``tell`` refuses, counts as FAILED, with a warning. Trials whose workers died are
        evaluated again, one at a time; after three deaths while nothing else ran, a trial counts as FAILED. After an
        error or an interrupt what is finished is told, the rest is released, and own processes are killed.

        Args:
            objective: From the trial's ``x`` to its value.
            rounds: Results wanted, those there are and failures included.
            executor: Anything with ``submit(fn, x)`` that returns a future with ``result``, ``done`` and ``cancel``,
                such as those of ``concurrent.futures``; it is not shut down. None: this process if ``workers`` is 1,
                else :class:`~bo_robust.study.LocalProcesses`.
            workers: Trials evaluated at once, >= 1.

        Returns:
            The recommendation.

        Raises:
            RuntimeError: if a pool broke three times for one trial alone, and no worker gave a result before.
            ValueError: if a count is below 1, or in the end no value was told.
        """
        return optimize(self, objective, rounds, executor, workers)

    def close(self) -> None:
        """Close the file; what was answered is on disk already."""
        self._store.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read what was committed since."""
        with self._reading:
            for _, trial, value in self._store.tells(len(self._tells)):
                self._tells.append((trial, value))
            for _, x, asked_after in self._store.trials(len(self._points) - 1):
                self._points.append((x, asked_after))

    def _expired(self, leases: dict[int, float]) -> list[int]:
        """Open trials whose lease is over, or ends later than any could: the clock was set far back since."""
        now, seconds = time.time(), self._store.settings["lease_seconds"]
        return [trial for trial, end in leases.items() if not now < end <= now + 2.0 * seconds]

    def _results(self) -> list[float | None]:
        self._refresh()
        return [value for _, value in self._tells]

    def _history(self, seq: int, trial: int, new: list[dict[str, float]]) -> History:
        """What was known when ``trial`` was asked after ``seq`` tells; ``new``: points of trials not committed yet."""
        tells = self._tells[:seq]
        done = {i for i, _ in tells}
        pending = [x for i, (x, _) in enumerate(self._points[:trial]) if i not in done]
        told = [(self._points[i][0], value) for i, value in tells if value is not None]
        return History(told, [self._points[i][0] for i, value in tells if value is None], pending + new)

    def _trial(self, trial: int) -> Trial:
        x, asked_after = self._points[trial]
        told = -1 if asked_after is None else sum(value is not None for _, value in self._tells[:asked_after])
        return Trial(trial, dict(x), told + 1)
