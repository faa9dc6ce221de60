"""V-UCB in a study: faults on the good side, which are readings under one condition."""

import math

import pytest

from bo_robust.study import Study

CONDITIONS = {"points": [{"z": z} for z in (0.0, 0.5, 1.0)]}
FAULTY = {"x": 0.5, "z": 0.5}


def f(x):
    return math.sin(5.0 * x["x"]) * (1.0 - x["z"]) + 0.5 * x["x"] * x["z"]


def told(path, faulty, fault, sign=1.0):
    """A study of f on a grid, with a fault added to one reading."""
    settings = {"num_initial": 1, "restarts": 2, "raw_samples": 32, "minimize": sign < 0.0}
    study = Study.create(path, {"x": (0.0, 1.0)}, "v-ucb", environment=CONDITIONS, **settings)
    for x in ({"x": i / 6, "z": z} for i in range(7) for z in (0.0, 0.5, 1.0)):
        study.add(x, sign * (f(x) + fault * (x == faulty)))
    assert [trial.x for trial, _ in study.set_aside()] == [faulty]
    return study


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_suspect_is_measured_again_under_its_condition_and_refuted(tmp_path, sign):
    with told(tmp_path / "a", FAULTY, 10.0, sign) as study:
        assert study.recommend().regret_bound is None  # the best there is may have been set aside
        first, second = study.ask(2)
        assert first.x == FAULTY
        assert second.x != FAULTY  # it is on its way
        study.tell(first.id, sign * f(FAULTY))
        found = study.recommend()
        assert 0.0 < found.regret_bound < 1.0
        assert sign * found.worst > 0.0
        assert study.ask()[0].x != FAULTY


def test_a_suspect_that_is_confirmed_is_believed(tmp_path):
    with told(tmp_path / "a", FAULTY, 10.0) as study:
        for _ in range(2):
            (trial,) = study.ask()
            assert trial.x == FAULTY
            study.tell(trial.id, f(FAULTY) + 10.0)
        assert study.set_aside() == []


def test_a_suspect_whose_condition_did_not_come_again_is_left_alone(tmp_path):
    """It may never come again."""
    with told(tmp_path / "a", FAULTY, 10.0) as study:
        (trial,) = study.ask()
        elsewhere = FAULTY | {"z": 0.6}
        study.tell(trial.id, f(elsewhere), {"z": 0.6})
        assert [trial.x for trial, _ in study.set_aside()] == [FAULTY]
        assert study.ask()[0].x != FAULTY
        assert study.recommend().regret_bound is None


def test_a_fault_among_the_readings_believed_leaves_the_certificate(tmp_path):
    """It is better than the recommended value at risk, as most readings under a good condition are."""
    with told(tmp_path / "a", {"x": 1.0, "z": 0.0}, 1.5) as study:
        found = study.recommend()
        ((_, fault),) = study.set_aside()
        assert found.value < fault < max(value for _, value in study.results())
        assert 0.0 < found.regret_bound < 1.0
        assert study.ask()[0].x != {"x": 1.0, "z": 0.0}
