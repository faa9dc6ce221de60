"""What all hosts share, on models as BoTorch has them."""

import pytest
import torch
from botorch.models import SingleTaskGP

from bo_robust import RobustGP
from bo_robust.proposals.sided_model import SidedModel, recommendable, replicates
from tests.problems import fit


def readings(*wrong, n=20):
    """A slope, with readings that are too good by 30."""
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = X.sum(1, keepdim=True)
    Y[list(wrong)] += 30.0
    return X, Y


@pytest.fixture(scope="module")
def both():
    """Two objectives at the same designs, of which reading 3 is wrong in both, and 7 in the second."""
    found = []
    for wrong in ((3,), (3, 7)):
        X, Y = readings(*wrong)
        found.append(SidedModel(fit(RobustGP(X, Y)), maximize=True, X=X))
    return found


def rows(points, X):
    return [int((point == X).all(-1).nonzero()[0]) for point in points]


@pytest.mark.parametrize("finite", [True, False])
def test_each_point_is_asked_for_once_whatever_objectives_want_it(both, finite):
    X = both[0].X
    assert sorted(rows(replicates(both, finite), X)) == [3, 7]
    assert rows(replicates(both, finite, X_pending=X[3:4]), X) == [7]
    assert list(replicates(both, finite, X_pending=X[[3, 7]])) == []


def test_a_minimizer_asks_for_nothing_that_is_too_large(both):
    assert not list(replicates([SidedModel(each.model, False, each.X) for each in both]))


def test_a_point_is_out_if_one_outcome_has_no_reliable_reading_there(both):
    X = both[0].X
    assert (~recommendable(both[:1], X)).nonzero().flatten().tolist() == [3]
    assert (~recommendable(both, X)).nonzero().flatten().tolist() == [3, 7]
    assert recommendable([], X).all()


def test_a_second_reading_that_is_right_lets_the_point_in():
    X, Y = readings(3)
    again = torch.cat([X, X[3:4]]), torch.cat([Y, Y[3:4] - 30.0])
    sided = SidedModel(fit(RobustGP(*again)), maximize=True, X=again[0])
    assert sided.verdict.flagged.nonzero().flatten().tolist() == [3]
    assert recommendable([sided], X).all()


def test_a_model_that_says_nothing_of_its_readings():
    X, Y = readings()
    sided = SidedModel(fit(SingleTaskGP(X, Y)), maximize=True, X=X)
    assert not (sided.verdict.flagged | sided.verdict.held).any()
    assert recommendable([sided], X).all()
    assert not list(replicates([sided]))
    torch.testing.assert_close(sided.predict(X).mean, sided.model.posterior(X).mean.squeeze(-1))


def test_before_a_fit_nothing_is_flagged_or_asked_for():
    X, Y = readings(3)
    sided = SidedModel(RobustGP(X, Y).eval(), maximize=True, X=X)
    assert sided.verdict.reliable.all()
    assert not list(replicates([sided]))
    assert sided.predict(X).mean.shape == (20,)
