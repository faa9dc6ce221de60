"""The loop while the study has no value: errors of the objective use up no trial."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bo_robust.study import FAILED, Study
from tests.study import objectives

LINE = {"x": (0.0, 1.0)}
FIXED = {"lengthscale": 0.2, "outputscale": 1.0, "noise_var": 0.1, "restarts": 2, "raw_samples": 8, "num_initial": 4}


@pytest.fixture
def study(tmp_path):
    with Study.create(tmp_path / "a.study", LINE, **FIXED) as made:
        yield made


def typo(x):
    return x["y"]


def counts(study):
    status = study.status()
    return status.told, status.failed, status.open, status.expired


def fails_at_first(times):
    """An objective that raises so many times, and then no more."""
    seen = []

    def objective(x):
        seen.append(x["x"])
        if len(seen) <= times:
            raise RuntimeError(f"diverged {len(seen)}")
        return objectives.peak(x)

    return objective, seen


def played_by_hand(path, failures, rounds, **settings):
    """Results of a study of which the first trials failed, each told before the next is asked."""
    with Study.create(path, LINE, **FIXED | settings) as study:
        for i in range(rounds):
            (trial,) = study.ask()
            study.tell(trial.id, FAILED if i < failures else objectives.peak(trial.x))
        return study.results()


def test_a_mistake_in_the_objective_uses_up_no_trial(study, tmp_path):
    said = (
        r"no value at any point yet \(4 in this call\); the last error is KeyError: 'y'\. Mend the objective and call "
        r"optimize again: it evaluates these points anew\. If they do fail, return FAILED there\."
    )
    for _ in range(2):
        with (
            pytest.warns(UserWarning, match="counts as FAILED") as warned,
            pytest.raises(ValueError, match=said) as error,
        ):
            study.optimize(typo, 20)
        assert len(warned) == 4
        assert isinstance(error.value.__cause__, KeyError)
        assert counts(study) == (0, 0, 4, 4)
    study.optimize(objectives.peak, 7)
    played = played_by_hand(tmp_path / "b.study", 0, 7)
    # A trial's round says how many values were told when it was chosen: its points are those of the initial design.
    assert [(t.id, t.x, value) for t, value in study.results()] == [(t.id, t.x, value) for t, value in played]


def test_an_objective_without_return_is_one_too(study):
    with (
        pytest.warns(UserWarning, match="counts as FAILED"),
        pytest.raises(ValueError, match=r"\(1 in this call\).*a finite number"),
    ):
        study.optimize(lambda x: None, 1)
    assert counts(study) == (0, 0, 1, 1)


@pytest.mark.parametrize("settings", [{}, {"num_initial": 1}], ids=["three", "one"])
def test_a_campaign_whose_first_points_fail_goes_on(tmp_path, settings):
    failures = 1 if settings else 3
    objective, _ = fails_at_first(failures)
    with Study.create(tmp_path / "a.study", LINE, **FIXED | settings) as study:
        with pytest.warns(UserWarning, match="diverged 1"):
            study.optimize(objective, 7)
        assert [value for _, value in study.results()][: failures + 1].count(FAILED) == failures
        assert study.results() == played_by_hand(tmp_path / "b.study", failures, 7, **settings)
        with pytest.warns(UserWarning, match="counts as FAILED"):
            study.optimize(typo, 8)  # there are values: a failure is one
        assert counts(study) == (7 - failures, failures + 1, 0, 0)


def test_an_interrupt_before_the_first_value_loses_nothing(study, tmp_path):
    def stops(x):
        if len(xs) == 2:
            raise KeyboardInterrupt
        xs.append(x["x"])
        raise RuntimeError

    xs = []
    with pytest.warns(UserWarning, match="counts as FAILED"), pytest.raises(KeyboardInterrupt):
        study.optimize(stops, 9)
    assert counts(study) == (0, 0, 3, 3)
    objective, seen = fails_at_first(2)
    with pytest.warns(UserWarning, match="counts as FAILED"):
        study.optimize(objective, 7)
    assert seen[:2] == xs
    played = played_by_hand(tmp_path / "b.study", 2, 7)
    assert [(t.id, t.x, value) for t, value in study.results()] == [(t.id, t.x, value) for t, value in played]


def test_failed_as_an_answer_counts(study):
    with pytest.raises(ValueError, match="all 6 trials FAILED; mend the objective, then raise `rounds`"):
        study.optimize(lambda x: FAILED, 6)
    assert counts(study) == (0, 6, 0, 0)
    calls = iter([typo, lambda x: FAILED])
    with pytest.warns(UserWarning, match="counts as FAILED"), pytest.raises(ValueError, match="all 8 trials FAILED"):
        study.optimize(lambda x: next(calls)(x), 8)
    assert study.optimize(objectives.peak, 9).x.keys() == LINE.keys()


def test_every_worker_has_a_point_and_the_others_wait_for_the_first_value(study):
    with ThreadPoolExecutor(6) as pool:
        with (
            pytest.warns(UserWarning, match="counts as FAILED"),
            pytest.raises(ValueError, match=r"\(6 in this call\)"),
        ):
            study.optimize(typo, 20, executor=pool, workers=6)
        assert counts(study) == (0, 0, 6, 6)
        asked, before = [], []

        def objective(x):
            asked.append(x["x"])
            if len(asked) == 1:
                time.sleep(0.5)
                before.append(len(asked))
            elif not before:
                raise RuntimeError
            return objectives.peak(x)

        with pytest.warns(UserWarning, match="counts as FAILED"):
            study.optimize(objective, 8, executor=pool, workers=2)
    assert before == [4]
    assert counts(study) == (5, 3, 0, 0)


def test_trials_that_wait_for_the_first_value_keep_their_leases(tmp_path):
    objective, seen = fails_at_first(3)

    def slow(x):
        time.sleep(0.15)
        return objective(x)

    with Study.create(tmp_path / "a.study", LINE, lease_seconds=0.2, **FIXED) as study:
        with pytest.warns(UserWarning, match="counts as FAILED"):
            study.optimize(slow, 5)
        assert len(set(seen)) == 5
        assert counts(study) == (2, 3, 0, 0)
