import math

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import SumMarginalLogLikelihood
from torch.quasirandom import SobolEngine

from bo_robust import RobustGP, suggest_replicates
from bo_robust.models import OutlierPrior
from bo_robust.models.robust.replication import replication_candidates
from tests.problems import fit, outliers

BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
ERROR = 10.0


def spiked(size=8.0):
    """20 observations, of which row 7 is too good by this size."""
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(20, 2, generator=draws, dtype=torch.float64)
    Y = torch.sin(4.0 * X).sum(1, keepdim=True) + 0.1 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
    Y[7] += size
    return X, Y


class TestOneModel:
    def test_the_best_candidate_is_measured_again(self):
        X, Y = spiked()
        Y[3] += 30.0
        Y[4] -= 30.0
        model = fit(RobustGP(X, Y))
        assert outliers(model) == [3, 4, 7]
        assert replication_candidates(model).tolist() == [3, 7]
        assert replication_candidates(model, maximize=False).tolist() == [4]
        assert torch.equal(suggest_replicates(model), X[3:4])
        assert torch.equal(suggest_replicates(model, maximize=False), X[4:5])

    @pytest.mark.parametrize(
        ("readings", "flagged", "confirmed", "candidates"),
        [
            ([0.1], [], [7, 20], [20, 7]),  # they agree, and a third one makes sure
            ([0.1, -0.1], [], [], []),
            ([0.1, -8.0], [7, 20], [], []),  # twice wrong
            ([-8.0], [7], [], []),
            ([-4.0], [7, 20], [], [7, 20]),  # both too good: a third one decides
            ([-4.0, -3.9], [7], [], []),  # the first is beyond the two that agree
            ([-4.0, -8.0], [7, 20], [], []),
        ],
    )
    def test_agreement_makes_inliers_and_contradiction_ends_the_question(
        self, readings, flagged, confirmed, candidates
    ):
        """``readings`` of the point of row 7, relative to its observation, which is too good by 8."""
        X, Y = spiked()
        again = Y[7] + Y.new_tensor([readings]).mT
        model = fit(RobustGP(torch.cat([X, X[7].expand(len(again), 2)]), torch.cat([Y, again])))
        assert outliers(model) == flagged
        assert model.confirmed_by_replicate.nonzero().flatten().tolist() == confirmed
        assert replication_candidates(model).tolist() == candidates
        if candidates:
            assert torch.equal(suggest_replicates(model), X[7:8])
        else:
            assert suggest_replicates(model) is None

    def test_an_observation_far_above_equal_ones_is_measured_again(self):
        X, _ = spiked()
        Y = torch.tensor([9.0, 0.3, 0.5, *([0.0] * 17)], dtype=torch.float64)
        for readings, flagged, asked in (([], [0], True), ([0.0], [0], False), ([9.0], [], False)):
            again = X[:1].expand(len(readings), 2)
            model = fit(RobustGP(torch.cat([X, again]), torch.cat([Y, Y.new_tensor(readings)]).unsqueeze(-1)))
            assert outliers(model) == flagged
            x = suggest_replicates(model)
            assert torch.equal(x, X[:1]) if asked else x is None

    def test_no_more_is_replicated_than_outliers_are_expected(self):
        """One of 21 observations was contradicted."""
        X, Y = spiked()
        X, Y = torch.cat([X, X[7:8]]), torch.cat([Y, Y[7:8] - 8.0])
        Y[3] += 30.0
        model = fit(RobustGP(X, Y))
        assert replication_candidates(model).tolist() == [3]
        assert torch.equal(suggest_replicates(model), X[3:4])
        model.outlier_prior = OutlierPrior(share=0.04)
        assert suggest_replicates(model) is None

    def test_a_batch_has_several_and_passes_over_pending_points(self):
        X, Y = spiked()
        Y[3] += 30.0
        model = fit(RobustGP(X, Y))
        assert torch.equal(suggest_replicates(model, q=2), X[[3, 7]])
        assert torch.equal(suggest_replicates(model, q=5), X[[3, 7]])
        assert torch.equal(suggest_replicates(model, X_pending=X[[0, 3]] * (1.0 + 1e-15)), X[7:8])
        assert suggest_replicates(model, q=2, X_pending=X[[3, 7]]) is None

    def test_an_outlier_on_the_bad_side_contradicts_nothing(self):
        X, Y = spiked()
        X, Y = torch.cat([X, X[4:5]]), torch.cat([Y, Y[4:5] - 30.0])
        model = fit(RobustGP(X, Y))
        assert outliers(model) == [7, 20]
        assert torch.equal(suggest_replicates(model), X[7:8])

    def test_other_models_have_no_candidates(self):
        X, Y = spiked()
        assert suggest_replicates(SingleTaskGP(X, Y)) is None
        assert suggest_replicates(ModelListGP(SingleTaskGP(X, Y))) is None


def constrained(X):
    """Large x + z is good where x^2 + z^2 <= 1/2: the best is 1, at (1/2, 1/2)."""
    return torch.stack([X.sum(-1), X.square().sum(-1) - 0.5], -1)


def loop(X, Y, made, rounds=4):
    """The fitted list and its data after the rounds, each at the replicate or at the best of the acquisition."""
    objective, constraints = GenericMCObjective(lambda Z, X=None: Z[..., 0]), [lambda Z: Z[..., 1]]
    for t in range(rounds + 1):
        torch.manual_seed(t)
        models = ModelListGP(*(make(X, Y[:, i : i + 1]) for i, make in enumerate(made)))
        fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
        if t == rounds:
            return models, X
        x = suggest_replicates(models)
        if x is None:
            acquisition = qLogNoisyExpectedImprovement(models, X, objective=objective, constraints=constraints)
            x, _ = optimize_acqf(acquisition, BOX, q=1, num_restarts=2, raw_samples=32)
        X, Y = torch.cat([X, x]), torch.cat([Y, constrained(x)])


def recommendable_means(models, X):
    """Means ``n x 2``, -inf in rows that are not to be recommended; a constraint wants small values."""
    with torch.no_grad():
        mean = models.posterior(X).mean
    for model in models.models:
        if isinstance(model, RobustGP):
            mean = mean.where(model.recommendable(model.maximize is not None).unsqueeze(-1), -math.inf)
    return mean


# Which row has an error in its objective or its constraint, and how large it is.
ERRORS = {
    "infeasible looks best": lambda y, cost: (y.argmax(), 1, -ERROR),
    "best looks infeasible": lambda y, cost: (y.where(cost <= 0.0, -math.inf).argmax(), 1, ERROR),
    "mediocre looks best": lambda y, cost: ((y - 0.4).abs().argmin(), 0, ERROR),
}


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_objective_or_constraint_does_not_decide(error):
    X = SobolEngine(2, scramble=True, seed=0).draw(24, dtype=torch.float64)
    Y = constrained(X) + 0.02 * torch.randn(24, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row, outcome, size = ERRORS[error](*constrained(X).unbind(-1))
    Y[row, outcome] += size
    best = []
    for made in ((RobustGP, lambda X, Y: RobustGP(X, Y, maximize=None)), (SingleTaskGP, SingleTaskGP)):
        models, points = loop(X, Y, made)
        objective, cost = recommendable_means(models, points).unbind(-1)
        row = objective.where(cost <= 0.0, -math.inf).argmax()
        best.append(constrained(points[row]).tolist())
    (ours, our_cost), (theirs, their_cost) = best
    assert ours > 0.97
    assert our_cost < 0.01
    assert theirs < 0.9 or their_cost > 0.5


def test_a_list_is_asked_as_its_models_were_made():
    X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
    Y = torch.sin(3.0 * X)
    high, low = Y.clone(), Y.clone()
    high[3] += ERROR
    low[7] -= ERROR

    def suggested(**sides):
        models = ModelListGP(
            SingleTaskGP(X, Y), *(RobustGP(X, {"high": high, "low": low}[n], maximize=m) for n, m in sides.items())
        )
        fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
        with pytest.raises(ValueError, match="give maximize to each RobustGP of the list"):
            suggest_replicates(models, maximize=True)
        return suggest_replicates(models)

    assert torch.equal(suggested(high=True, low=False), X[3:4])
    assert torch.equal(suggested(high=None, low=False), X[7:8])
    assert suggested(high=False, low=True) is None
    assert suggested(high=None, low=None) is None


@pytest.mark.parametrize("off", [0.0, 1e-5, 5e-4, 5e-3])
def test_settings_achieved_within_a_tolerance_are_replicates(off):
    """Settings come off by up to so much; an outlier is read again once or twice, not in every round."""
    torch.manual_seed(0)
    X = torch.rand(12, 2, dtype=torch.float64)
    Y = torch.sin(4.0 * X).sum(-1, keepdim=True)
    Y[4] += 30.0
    asked = 0
    for _ in range(5):
        x = suggest_replicates(fit(RobustGP(X, Y)))
        asked += x is not None
        x = torch.rand(1, 2, dtype=torch.float64) if x is None else x
        x = (x + off * (2.0 * torch.rand_like(x) - 1.0)).clamp(0.0, 1.0)
        X, Y = torch.cat([X, x]), torch.cat([Y, torch.sin(4.0 * x).sum(-1, keepdim=True)])
    assert 1 <= asked <= 2


def test_of_a_finite_space_only_its_points_are_suggested():
    X, Y = spiked()
    model = fit(RobustGP(X, Y))
    assert torch.equal(suggest_replicates(model, candidates=X), X[7:8])
    assert suggest_replicates(model, candidates=X[:7]) is None


def test_a_failed_reading_that_better_ones_outvote_uses_up_no_replicate():
    """It was no candidate that a replicate contradicted; another candidate is measured again."""
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(15, 2, generator=draws, dtype=torch.float64)
    Y = 60.0 + 8.0 * (5.0 * X[:, :1]).sin() + 0.5 * torch.randn(15, 1, generator=draws, dtype=torch.float64)
    X = torch.cat([X, torch.tensor([[0.4, 0.6]]).double().expand(4, 2), torch.tensor([[0.9, 0.1]]).double()])
    Y = torch.cat([Y, torch.tensor([[67.0], [150.0], [150.5], [149.5], [260.0]]).double()])
    model = fit(RobustGP(X, Y))
    assert outliers(model) == [15, 19]
    assert torch.equal(suggest_replicates(model), X[19:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("shift", "at_best"), [(-90.0, True), (-60.0, False), (60.0, False)])
def test_of_three_readings_of_every_point_the_failed_one_is_flagged(seed, shift, at_best):
    draws = torch.Generator().manual_seed(seed)
    X = torch.rand(10, 2, generator=draws, dtype=torch.float64)
    f = 100.0 * (-8.0 * (X - X[0]).square().sum(1, keepdim=True)).exp()
    Y = f.repeat_interleave(3, 0) + 2.0 * torch.randn(30, 1, generator=draws, dtype=torch.float64)
    failed = 1 if at_best else 3 + 7 * seed
    Y[failed] += shift
    assert outliers(fit(RobustGP(X.repeat_interleave(3, 0), Y))) == [failed]
