import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.utils.sampling import sample_polytope

from bo_robust.acquisition.exclusion import WhereTrialsSucceed
from bo_robust.models import RobustGP, suggest_replicates
from bo_robust.proposals import core
from bo_robust.proposals.fitting import failure_model
from bo_robust.proposals.methods import Choice
from bo_robust.proposals.outcomes import _sentinel
from bo_robust.proposals.space import OneHotAcquisition, SearchSpace, among
from bo_robust.proposals.suggest import Data, Space, suggest

SEARCH = {"restarts": 2, "raw_samples": 32}
BOX = [[0.0, -1.0], [4.0, 1.0]]


def designs(n=12, seed=0, bounds=BOX):
    low, high = torch.tensor(bounds, dtype=torch.float64)
    return low + (high - low) * torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def f(X):
    """At most 1, at (3, 0.5)."""
    return 1.0 - (X[:, 0] - 3.0) ** 2 / 4.0 - (X[:, 1] - 0.5) ** 2


def explore(X, rounds, outcome=f, **options):
    """The designs after so many suggestions."""
    for _ in range(rounds):
        X = torch.cat([X, suggest(X, outcome(X), **options, **SEARCH).X])
    return X


@pytest.fixture
def short_walks(monkeypatch):
    """Random designs under constraints after a walk of 100 steps, not of 10,000."""

    def walk(*args, n0, **options):
        return sample_polytope(*args, n0=min(n0, 100), **options)

    monkeypatch.setattr("botorch.utils.sampling.sample_polytope", walk)


@pytest.mark.usefixtures("short_walks")
def test_what_breaks_the_constraints_is_not_to_be_improved_on():
    """The best readings lie beyond the constraint: were they to be improved on, no design would look better."""
    rng = np.random.default_rng(0)
    X = rng.uniform([20, 1], [100, 10], (14, 2))

    def f(x):
        return 60.0 - 0.02 * (x[..., 0] - 70.0) ** 2 - 0.8 * (x[..., 1] - 6.0) ** 2

    limit = {"bounds": [[20, 1], [100, 10]], "inequality_constraints": [([0, 1], [-1.0, -1.0], -60.0)]}
    for seed in range(3):
        found = suggest(X, f(X) + rng.normal(0.0, 0.5, 14), **limit, seed=seed)
        assert f(found.X.numpy())[0] > 45.0
        assert X[found.best].sum() <= 60.0


def test_what_lies_outside_the_bounds_is_not_to_be_recommended():
    """Temperatures of 40 to 120, the best of them typed ten times too large."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(40, 120, 14).astype(float), rng.random(14)], -1)
    y = 60.0 - 0.01 * (X[:, 0] - 85.0) ** 2
    best, next_best = np.argsort(-y)[:2]
    X[best, 0] *= 10.0
    assert suggest(X, y, bounds=[[40, 0], [120, 1]], q=0).best == next_best


def pending_numbers(monkeypatch):
    """The numbers of pending designs that noisy improvement gets, one for each acquisition."""
    numbers, start = [], qLogNoisyExpectedImprovement._init_baseline

    def watched(self, X_pending=None, **options):
        numbers.append(0 if X_pending is None else len(X_pending))
        return start(self, X_pending=X_pending, **options)

    monkeypatch.setattr(qLogNoisyExpectedImprovement, "_init_baseline", watched)
    return numbers


def test_noisy_improvement_gets_all_of_few_pending_designs(monkeypatch):
    numbers = pending_numbers(monkeypatch)
    suggest(designs(), f(designs()), bounds=BOX, X_pending=designs(50, seed=1), q=2, **SEARCH)
    assert numbers == [50, 51]


def test_noisy_improvement_gets_the_foremost_of_many_pending(monkeypatch):
    numbers, many = pending_numbers(monkeypatch), designs(300, seed=1)
    suggest(designs(), f(designs()), bounds=BOX, X_pending=many, q=2, **SEARCH)
    assert max(numbers) == 51
    numbers.clear()
    table = torch.cat([many, designs(5, seed=2)])
    found = suggest(designs(), f(designs()), candidates=table, X_pending=many, q=3, **SEARCH)
    assert max(numbers) <= 52
    assert not among(found.X, many).any()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_none_of_many_pending_designs_on_a_grid_is_proposed(noise):
    grid = torch.cartesian_prod(*[torch.arange(20.0, dtype=torch.float64)] * 3)  # more than are listed
    grid = grid[torch.randperm(len(grid), generator=torch.Generator().manual_seed(1))]
    Y = -((grid[:15] / 20.0 - 0.4) ** 2).sum(1)
    Y += noise * torch.randn(15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rest = grid[15:]
    near = rest[((rest - 8.0) ** 2).sum(1).argsort()[:1500]]
    space = Space(bounds=[[0.0] * 3, [19.0] * 3], discrete={i: range(20) for i in range(3)})
    assert not among(suggest(Data(grid[:15], Y, X_pending=near), space=space, q=3, **SEARCH).X, near).any()


def test_many_pending_designs_beside_conditions():
    X = designs(15, bounds=[[0.0, 0.0], [1.0, 1.0]])
    many = designs(210, seed=1, bounds=[[0.0, 0.0], [1.0, 1.0]])
    Y = -((X - 0.4) ** 2).sum(1)
    few, all_but_few = (
        suggest(X, Y, bounds=[[0.0, 0.0], [1.0, 1.0]], conditions=[1], X_pending=some, **SEARCH).X
        for some in (many[:200], many)
    )
    assert few[0, 0] == pytest.approx(float(all_but_few[0, 0]), abs=0.1)


def test_a_mixed_search_starts_around_the_best_designs_in_its_own_columns():
    space = SearchSpace.from_space(
        Space(bounds=[[0.0] * 3, [3.0, 1.0, 2.0]], categorical={0: range(4), 2: range(3)}), []
    )
    g = torch.Generator().manual_seed(0)
    X = torch.stack([torch.randint(0, 4, (30,), generator=g), torch.rand(30, generator=g), torch.arange(30) % 3], -1)
    coordinates = space.encode(X.double())

    class Sum(AcquisitionFunction):
        X_baseline = coordinates

        def forward(self, U):
            return U[..., 0, 4]

    acqf = OneHotAcquisition(Sum(model=None), {0: 4, 2: 3})
    assert torch.equal(acqf.encode(acqf.decode(coordinates)), coordinates)
    assert torch.equal(acqf.X_baseline, X.double()[X[:, 1].argsort(descending=True)[:20]])


MIXED = """
import resource, time, torch
from bo_robust import suggest
g = torch.Generator().manual_seed(0)
codes = [torch.randint(0, k, (400,), generator=g).double() for k in (4, 3)]
X = torch.stack([*codes, *torch.rand(2, 400, generator=g, dtype=torch.float64)], -1)
z = torch.tensor([0.0, 1.0, 0.3, -0.7])[X[:, 0].long()] + torch.tensor([0.0, 0.5, -0.5])[X[:, 1].long()]
z = 0.3 * (z - 4.0 * (X[:, 2] - 0.4) ** 2 + torch.sin(4.0 * X[:, 3]))
Y = (z + 0.8 * torch.randn(400, generator=g, dtype=torch.float64)).exp()
space = {"bounds": [[0.0] * 4, [3.0, 2.0, 1.0, 1.0]], "categorical": {0: range(4), 1: range(3)}}
start = time.process_time()
found = suggest(X, Y, **space)
seconds = time.process_time() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, int(found.model.outcome_scale.is_identity))
"""


@pytest.mark.slow
def test_a_learnt_scale_in_a_mixed_space_takes_seconds_and_little_memory():
    done = subprocess.run([sys.executable, "-c", MIXED], capture_output=True, text=True, check=True)
    seconds, gigabytes, identity = map(float, done.stdout.split())
    assert not identity
    assert seconds < 8.0
    assert gigabytes < 1.2


MANY = """
import resource, time, torch
from bo_robust import suggest
g = torch.Generator().manual_seed(0)
X, P = (torch.rand(n, 3, generator=g, dtype=torch.float64) for n in (15, 1713))
start = time.process_time()
suggest(X, -((X - 0.4) ** 2).sum(1), bounds=[[0.0] * 3, [1.0] * 3], X_pending=P)
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_many_pending_designs_take_seconds_and_little_memory():
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 10.0
    assert gigabytes < 1.0


def test_the_optimum_is_found_beside_an_outlier():
    def outcome(X):
        return f(X) + 50.0 * (torch.arange(len(X)) == 2)

    X = explore(designs(6), 10, outcome, bounds=BOX, num_initial=6)
    now = suggest(X, outcome(X), bounds=BOX, q=0)
    assert now.X.shape == (0, 2)
    assert now.outliers.nonzero().tolist() == [[2]]
    assert f(X)[now.best] > 0.95
    assert now.mean == pytest.approx(float(f(X)[now.best]), abs=0.05)
    assert now.mean - 0.2 < now.interval[0] < now.mean < now.interval[1] < now.mean + 0.2
    assert isinstance(now.model, RobustGP)


@pytest.mark.parametrize("method", ["robust", "gp-ucb", "tgp-ucb", "ata-gp-ucb", "he-gp-ucb", "bkb"])
def test_units_and_sense_of_the_readings_do_not_matter(method):
    X = designs(10)
    one = suggest(X, f(X), bounds=BOX, method=method, **SEARCH)
    for scale, shift in ((-1.0, 0.0), (2.0**40, 0.0), (-(2.0**-40), 0.0)):
        other = suggest(X, scale * f(X) + shift, bounds=BOX, maximize=scale > 0.0, method=method, **SEARCH)
        torch.testing.assert_close(other.X, one.X, rtol=0.0, atol=1e-9)
        assert other.mean == pytest.approx(scale * one.mean, rel=1e-9)
        ends = sorted(scale * x for x in one.interval)
        assert other.interval == pytest.approx(ends, rel=1e-9)


def test_suggestions_depend_on_seed_trial_and_data_alone():
    X = designs(10)
    state = torch.random.get_rng_state()
    one, two = (suggest(X, f(X), bounds=BOX, seed=3, **SEARCH).X for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.random.get_rng_state(), state)
    start = [suggest(X[:0], [], bounds=BOX, seed=seed, trial=t).X for seed, t in ((0, 0), (1, 0), (0, 1), (0, 0))]
    assert torch.equal(start[0], start[3])
    assert not torch.equal(start[0], start[1])
    assert not torch.equal(start[0], start[2])


def test_a_batch_is_chosen_one_after_the_other_and_keeps_away_from_designs_under_way():
    X = designs(10)
    batch = suggest(X, f(X), bounds=BOX, q=3, **SEARCH).X
    assert batch.shape == (3, 2)
    assert torch.cdist(batch, batch).fill_diagonal_(9.0).min() > 1e-3
    after = suggest(X, f(X), bounds=BOX, X_pending=batch[:1], trial=10, **SEARCH).X
    assert torch.cdist(after, batch[:1]).min() > 1e-3


def test_categories_and_steps_take_their_own_values():
    space = {
        "bounds": [[0.0, 0.0, 1.0], [1.0, 2.0, 9.0]],
        "categorical": {1: [0.0, 1.0, 2.0]},
        "discrete": {2: [1, 5, 9]},
    }
    worth = torch.tensor([0.0, 1.0, 0.3], dtype=torch.float64)

    def g(X):
        return worth[X[:, 1].long()] - (X[:, 0] - 0.4) ** 2 - (X[:, 2] - 5.0).abs() / 8.0

    X = explore(torch.empty(0, 3, dtype=torch.float64), 16, g, **space)
    assert set(X[:, 1].tolist()) <= {0.0, 1.0, 2.0}
    assert set(X[:, 2].tolist()) <= {1.0, 5.0, 9.0}
    assert X[g(X).argmax(), 1:].tolist() == [1.0, 5.0]
    assert g(X).max() > 0.98


def test_a_list_of_designs_is_evaluated_as_a_whole():
    table = designs(60, seed=1)
    X = explore(table[:0], 16, candidates=table)
    assert bool((table == X.unsqueeze(1)).all(-1).any(1).all())
    assert len(X[:7].unique(dim=0)) == 7  # the initial design: an eighth of the list
    assert float(f(X).max()) == float(f(table).max())


@pytest.mark.parametrize("listed", [True, False])
def test_an_outlier_that_is_too_good_is_measured_again(listed):
    table = designs(60, seed=1)
    space = {"candidates": table} if listed else {"bounds": BOX}
    X = table[:14]
    Y = f(X)
    Y[5] += 40.0
    now = suggest(X, Y, **space, **SEARCH)
    assert now.replicate.tolist() == [True]
    assert torch.equal(now.X, X[5:6])
    assert suggest_replicates(now.model) is not None
    now = suggest(X, Y, X_pending=X[5:6], **space, **SEARCH)  # it is under way
    assert now.replicate.tolist() == [False]
    again = suggest(torch.cat([X, X[5:6]]), torch.cat([Y, f(X[5:6])]), **space, **SEARCH)
    assert again.outliers.nonzero().flatten().tolist() == [5]
    assert again.replicate.tolist() == [False]


def test_a_batch_begins_with_what_is_measured_again():
    X = designs(14, seed=1)
    Y = f(X)
    Y[5] += 40.0
    Y[8] += 50.0
    now = suggest(X, Y, q=3, bounds=BOX, **SEARCH)
    assert now.replicate.tolist() == [True, True, False]
    assert torch.equal(now.X[:2], X[[8, 5]])
    assert not (now.X[2] == X).all(-1).any()


def test_a_setting_achieved_within_a_tolerance_is_a_second_reading():
    X = designs(14, seed=1)
    Y = f(X)
    Y[5] += 40.0
    near = X[5:6] + 1e-5
    now = suggest(torch.cat([X, near]), torch.cat([Y, f(near)]), bounds=BOX, **SEARCH)
    assert now.outliers.nonzero().flatten().tolist() == [5]
    assert now.replicate.tolist() == [False]


def test_on_a_list_no_design_is_measured_twice_where_noise_is_small():
    table = designs(40, seed=2)
    assert len(explore(table[:0], 20, candidates=table).unique(dim=0)) == 20
    X = explore(table[:0], 13, bounds=[[0.0, 0.0], [3.0, 2.0]], discrete={0: range(4), 1: range(3)})
    assert len(X[:12].unique(dim=0)) == 12  # all there are, before one comes again
    steps = {"bounds": [[0.0, 0.0], [3.0, 2.0]], "discrete": {0: range(4), 1: range(3)}}
    assert suggest(X[:10], f(X[:10]), q=4, **steps, **SEARCH).exhausted.tolist() == [False, False, True, True]


def test_designs_under_way_and_failed_ones_are_not_asked_again_on_a_list():
    table = designs(24, seed=2)
    best = f(table).argsort(descending=True)
    X = table[best[8:]]
    now = suggest(X, f(X), candidates=table, q=4, X_pending=table[best[:2]], X_failed=table[best[2:4]], **SEARCH)
    assert not (torch.cdist(now.X, table[best[:4]]) == 0.0).any()
    assert len(now.X.unique(dim=0)) == 4


def test_the_initial_design_counts_parameters_and_is_capped_by_a_list():
    def initial(**space):
        return SearchSpace.from_space(Space(**space), []).num_initial

    assert initial(bounds=[[0.0] * 3, [1.0] * 3]) == 8
    assert initial(bounds=[[0.0], [14.0]], categorical={0: range(15)}) == 4
    assert initial(candidates=torch.rand(120, 64)) == 15
    assert initial(candidates=torch.rand(10, 2)) == 4


def test_where_trials_fail_is_avoided():
    """Trials fail where the first column is beyond 2, towards which the objective rises."""
    X = designs(16)
    failed, X = X[X[:, 0] > 2.0], X[X[:, 0] <= 2.0]
    start = len(failed)
    assert start >= 4
    for _ in range(4):
        x = suggest(X, X[:, 0], bounds=BOX, X_failed=failed, **SEARCH).X
        failed, X = (torch.cat([failed, x]), X) if x[0, 0] > 2.0 else (failed, torch.cat([X, x]))
    assert (X[-3:, 0] > 1.5).any()
    assert (failed[start:, 0] < 2.6).all()


def test_a_model_of_failures_separates_them_and_lowers_the_acquisition():
    U = torch.linspace(0.0, 1.0, 11, dtype=torch.float64).unsqueeze(-1)
    model = failure_model(U[:6], U[6:])
    label = model.posterior(U).mean.squeeze(-1)
    assert bool(((label > 0.5) == (U[:, 0] > 0.55)).all())

    class Flat(AcquisitionFunction):
        def forward(self, X):
            return X.new_zeros(len(X))

    value = WhereTrialsSucceed(Flat(model), model)(U.unsqueeze(1))
    expected = -1e4 * (label - 0.5).clamp_min(0.0).square()
    torch.testing.assert_close(value, expected)


@pytest.mark.slow
def test_constraints_are_kept_and_may_be_missing():
    """The best of x + 2 z on x <= 2 is (2, 1)."""
    X = designs(8)
    for _ in range(8):
        C = (X[:, :1] - 2.0).clone()
        C[3] = math.nan
        X = torch.cat([X, suggest(X, X[:, 0] + 2.0 * X[:, 1], bounds=BOX, constraints=C, **SEARCH).X])
    now = suggest(X, X[:, 0] + 2.0 * X[:, 1], bounds=BOX, constraints=X[:, :1] - 2.0, q=0)
    assert X[now.best, 0] <= 2.01
    assert now.mean > 3.8
    nothing = suggest(X, X[:, 0], bounds=BOX, constraints=X[:, :1] + 100.0, q=0)
    assert nothing.best is None
    assert math.isnan(nothing.mean)


def test_an_outlier_in_a_constraint_or_in_one_of_two_objectives_is_flagged():
    X = designs(14)
    Y = torch.stack([f(X), -f(X) + X[:, 0]], -1)
    C = X[:, :1] - 2.0
    Y[2, 1] -= 40.0
    C[6] -= 40.0
    now = suggest(X, Y, bounds=BOX, constraints=C, maximize=[True, False], **SEARCH)
    assert now.outliers.nonzero().flatten().tolist() == [2, 6]
    assert now.best is None
    assert now.X.shape == (1, 2)


def test_two_objectives_fill_their_front():
    """Of x^2 and (x - 1)^2, both minimized, the front is 0 <= x <= 1."""
    X, options = torch.tensor([[-2.0], [-1.0], [1.5], [3.0]]).double(), {"maximize": False, "num_initial": 4}
    found = explore(X, 8, lambda X: torch.cat([X**2, (X - 1.0) ** 2], -1), bounds=[[-2.0], [3.0]], **options)[4:, 0]
    assert ((found > -0.1) & (found < 1.1)).sum() >= 6
    assert found.clamp(0.0, 1.0).sort().values.diff().max() < 0.5


def test_values_that_stand_for_failures_are_named():
    X = designs(10)
    Y = f(X)
    Y[[1, 4]] = -999.0
    with pytest.warns(UserWarning, match="-999 was read at several designs"):
        suggest(X, Y, bounds=BOX, q=0)
    good = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert _sentinel(good) is None
    assert _sentinel(torch.cat([good, good.new_tensor([900.0, 900.0])])) == 900.0
    assert _sentinel(torch.cat([good, good.new_tensor([900.0])])) is None
    assert _sentinel(torch.cat([good, good.new_tensor([50.0, 50.0])])) is None


X3 = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": None}, "either bounds .* or candidates"),
        ({"candidates": X3}, "either bounds .* or candidates"),
        ({"bounds": [[0.0, 1.0], [1.0, 1.0]]}, "lower below the upper, but column 1 has 1.0 and 1.0"),
        ({"bounds": [[0.0, 1.0], [1.0, -1.0]]}, "lower below the upper, but column 1 has 1.0 and -1.0"),
        ({"bounds": [[0.0, math.nan], [1.0, 1.0]]}, "bounds must be finite"),
        ({"bounds": [0.0, 1.0]}, r"bounds must be 2 x d numbers, got shape \(2,\)"),
        ({"bounds": None, "candidates": [[1.0, 2.0]]}, "candidates must be"),
        ({"bounds": None, "candidates": [*X3, [1.0, math.nan]]}, "candidates must be finite, but row 3 is not"),
        ({"bounds": None, "candidates": [*X3, [1.0]]}, "candidates must be numbers in rows of one length"),
        ({"bounds": None, "candidates": [[1.0, 2.0, 3.0]] * 2}, "X must be k x 3"),
        (
            {"bounds": None, "candidates": X3, "categorical": {0: [0, 2]}},
            r"have 1.0 in column 0, which categorical\[0\]",
        ),
        ({"discrete": {0: [0, 5]}}, r"discrete\[0\] has 5.0, beyond the bounds 0.0 and 4.0"),
        ({"discrete": {0: [0, 2, 2]}}, r"discrete\[0\] has 2.0, twice"),
        ({"discrete": {0: []}}, r"discrete\[0\] must be finite numbers"),
        ({"discrete": {0: 2}}, r"discrete\[0\] must be finite numbers"),
        ({"discrete": {0: [0, math.nan]}}, r"discrete\[0\] must be finite numbers"),
        ({"discrete": {2: [0, 1]}}, "discrete has column 2, but the columns are 0 to 1"),
        ({"categorical": {-1: [0, 1]}}, "categorical has column -1, but the columns are 0 to 1"),
        ({"categorical": {0: [0.5, 1, 2]}}, r"categorical\[0\] has 0.5, but categories are whole numbers"),
        ({"categorical": {0: range(5)}, "discrete": {0: range(5)}}, "column 0 is both discrete and categorical"),
        ({"fixed": {2: 0.0}}, r"fixed\[2\] must be a value of column 2"),
        ({"X": [[0.0], [1.0], [2.0]]}, "X must be k x 2"),
        ({"X": [[0.0, math.nan], *X3[1:]]}, "X must be finite, but row 0 is not"),
        ({"bounds": {"a": (0.0, 1.0)}}, "X must be k x 1 numbers"),
        ({"Y": [1.0, 2.0]}, "Y needs one row for each of the 3"),
        ({"Y": [1.0, math.nan, 2.0]}, "Y has no finite value in row 1"),
        ({"Y": [1.7e308, -1.7e308, 0.0]}, "differ by more than floating point holds"),
        ({"constraints": [[1.0]]}, "constraints need one row"),
        ({"maximize": [True, False]}, "maximize needs"),
        ({"categorical": {0: [0.0, 1.0]}}, r"X has 2.0 in column 0, which categorical\[0\] lacks; add it"),
        ({"conditions": [0], "categorical": {1: [0, 1]}}, r"X has 0.5 in column 1, which categorical\[1\] lacks"),
        ({"conditions": [0], "discrete": {1: [0, 2]}}, r"discrete\[1\] has 2.0, beyond the bounds -1.0 and 1.0"),
        ({"conditions": [1], "discrete": {1: [0, 2]}}, r"discrete\[1\] has 2.0, beyond the bounds -1.0 and 1.0"),
        ({"conditions": [0], "discrete": {2: [0, 2]}}, "discrete has column 2"),
        ({"X_pending": [[1.0]]}, "X_pending must be"),
        ({"q": -1}, "q must"),
        ({"repeats": "always"}, "repeats must be"),
        ({"X": [["a", "b"]] * 3}, "X must be numbers"),
        ({"seed": 0.5}, "seed must"),
        ({"raw_samples": 7}, "raw_samples must be .*8"),
        ({"num_initial": -1}, "num_initial must"),
        ({"method": "v-ucb", "settings": {"environment": {"points": [{"z": 0.0}]}}}, "v-ucb needs conditions"),
        ({"method": "gp-ucb", "constraints": [[0.0]] * 3}, "gp-ucb takes one objective and no constraints"),
        ({"conditions": [0, 1]}, "conditions must be some, not all"),
        ({"conditions": [1], "worst": 10}, r"worst is a share of conditions in \(0, 1\), such as 0.1 for 10 %, got 10"),
        ({"conditions": [1], "set_conditions": "no"}, "set_conditions must be true or false, got 'no'"),
        ({"conditions": [1], "fixed": {0: 0.5}}, "column 0 cannot be fixed beside conditions; give it one value in"),
        ({"conditions": [1], "fixed": {1: 0.5}}, "column 1 cannot be fixed .* leave out the rows where it has others"),
        ({"conditions": [1], "constraints": [[0.0]] * 3}, "is of one outcome, without requirements; leave others out"),
        ({"conditions": [1], "method": "knowlege-gradient"}, "unknown method .* did you mean 'knowledge-gradient'"),
        (
            {"conditions": [1], "method": "v-ucb", "settings": {"functional": "mean"}},
            "leave environment and functional",
        ),
        ({"equality_constraints": [([0, 2], [1.0, 1.0], 3.0)]}, "equality_constraints must be a list of"),
        ({"inequality_constraints": [([0], [1.0])]}, "inequality_constraints must be a list of"),
        ({"bounds": None, "candidates": X3, "equality_constraints": [([0], [1.0], 1.0)]}, "leave out those"),
        (
            {"discrete": {0: [0, 1], 1: [0, 1]}, "equality_constraints": [([0], [1.0], 3.0)]},
            "no design within the bounds",
        ),
        ({"settings": {"outlier_shar": 0.1}}, "did you mean 'outlier_share'"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        suggest(**{"X": X3, "Y": [1.0, 2.0, 0.0], "bounds": BOX} | arguments)


def test_steps_may_lie_beyond_the_bounds_by_rounding():
    steps = [0.1 * k for k in range(1, 4)]  # 0.30000000000000004
    space = Space(bounds=[[0.1], [0.3]], discrete={0: steps})
    assert SearchSpace.from_space(space, []).candidates.flatten().tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("steps", [None, [0.0, 0.1, 0.2, 0.30000000000000004]])
def test_a_reading_beyond_a_bound_by_rounding_is_within(steps):
    """A spreadsheet's .2 + .1 is 0.30000000000000004."""
    X = [[0.0], [0.1], [0.2], [0.30000000000000004], [0.15], [0.05]]
    found = suggest(X, [x[0] for x in X], bounds=[[0.0], [0.3]], discrete={0: steps} if steps else {}, q=0)
    assert found.best == 3


def test_iterators_are_read_once():
    X = [[50.0, 50.0], [20.0, 80.0], [70.0, 30.0], [40.0, 60.0]]
    sums = zip([iter([0, 1])], [iter([1.0, 1.0])], [100.0], strict=True)
    space = Space(bounds=[[0.0, 0.0], [100.0, 100.0]], equality_constraints=sums, discrete={0: map(float, range(101))})
    for _ in range(2):
        assert float(suggest(X, [1.0, 2.0, 3.0, 4.0], space=space, **SEARCH).X.sum()) == pytest.approx(100.0)


def test_a_condition_of_categories_may_be_unknown_before_readings():
    options = {"bounds": [[0.0, 1.0], [100.0, 2.0]], "conditions": [1], "categorical": {1: [1, 2]}}
    assert suggest([], [], X_pending=[[30.0, math.nan]], **options).X.shape == (1, 2)


@pytest.mark.parametrize("name", ["discrete", "categorical", "fixed"])
def test_columns_are_named_by_their_number(name):
    with pytest.raises(ValueError, match=f"{name} must give values by number"):
        Space(bounds=BOX, **{name: [1]})


def test_data_and_a_space_are_what_their_fields_are():
    X = designs()
    made = suggest(Data(X, f(X), X_pending=X[:1]), space=Space(bounds=BOX), **SEARCH).X
    assert torch.equal(made, suggest(X, f(X), bounds=BOX, X_pending=X[:1], **SEARCH).X)
    with pytest.raises(TypeError, match="no argument 'bound'; did you mean 'bounds'"):
        suggest(X, f(X), bound=BOX)
    with pytest.raises(TypeError, match="not both"):
        suggest(X, f(X), space=Space(bounds=BOX), bounds=BOX)
    with pytest.raises(TypeError, match="not both"):
        suggest(Data(X, f(X)), maximize=False, bounds=BOX)


def test_a_constraint_may_have_one_column():
    space = Space(bounds=BOX, inequality_constraints=[([1], [-1.0], 0.5)])
    assert SearchSpace.from_space(space, []).feasible(torch.tensor([[1.0, -0.6], [1.0, -0.4]])).tolist() == [
        True,
        False,
    ]


@pytest.mark.usefixtures("short_walks")
def test_sums_and_inequalities_are_kept_on_a_box_steps_and_a_finite_space():
    X = torch.tensor([[46, 16, 38], [26, 48, 26], [28, 59, 13], [54, 42, 4], [40, 0, 60], [31, 48, 21.0]])
    Y = -((X - torch.tensor([40.0, 35.0, 25.0])) ** 2).sum(-1)
    space = {"bounds": [[0.0] * 3, [100.0] * 3], "equality_constraints": [([0, 1, 2], [1.0] * 3, 100.0)]}
    space["inequality_constraints"] = [([0, 1], [-1.0, -2.0], -120.0)]
    steps = {"discrete": {i: range(101) for i in range(3)}}
    finite = {"discrete": {i: range(0, 101, 10) for i in range(3)}}
    for kind in ({}, steps, finite, {"discrete": {0: range(0, 101, 5)}}):
        for data in ((X, Y), (X[:0], [])):
            found = suggest(*data, q=2, num_initial=4, **space, **kind, **SEARCH).X
            torch.testing.assert_close(found.sum(-1), torch.full((2,), 100.0, dtype=torch.float64))
            assert bool((found[:, 0] + 2.0 * found[:, 1] <= 120.0 + 1e-3).all())
            for i, values in kind.get("discrete", {}).items():
                assert set(found[:, i].tolist()) <= set(values)
    mixed = {**space, "bounds": [[0.0] * 4, [100.0] * 3 + [1.0]], "categorical": {3: range(2)}}
    XC = torch.cat([X, torch.arange(6.0).unsqueeze(-1) % 2], -1)
    found = suggest(XC, Y, num_initial=4, **mixed, **steps, **SEARCH).X
    assert float(found[0, :3].sum()) == 100.0


@pytest.mark.parametrize("method", ["robust", "v-ucb", "knowledge-gradient"])
def test_the_design_to_use_is_good_under_bad_conditions(method):
    """On average 3 is best, but in humid air, which is one day in three, only designs below 1 are any good."""
    X = torch.tensor([[x, z] for x in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0) for z in (0.0, 0.5, 1.0)]).double()

    def outcome(X):
        return 5.0 - (X[:, 0] - 3.0).abs() - 8.0 * X[:, 1] * (X[:, 0] > 0.75)

    search = {"method": method, **SEARCH}
    box = {"bounds": [[0.0, 0.0], [4.0, 1.0]], "conditions": [1], **search}
    now = suggest(X, outcome(X), q=2, X_failed=[[4.0, 1.0]], **box)
    assert X[now.best, 0] <= 0.5
    assert outcome(X[now.best : now.best + 1])[0] == pytest.approx(now.mean, abs=0.5)
    assert set(now.X[:, 1].tolist()) <= {0.0, 0.5, 1.0}
    assert X[suggest(X, outcome(X), bounds=box["bounds"], q=0).best, 0] == 3.0
    unknown = {"X_pending": [[2.5, math.nan]], **box}
    if method == "knowledge-gradient":
        assert suggest(X, outcome(X), **unknown).X.isfinite().all()
        with pytest.raises(ValueError, match="chooses conditions: leave set_conditions true"):
            suggest(X, outcome(X), set_conditions=False, **unknown)
    else:
        alone = suggest(X, outcome(X), q=2, set_conditions=False, **unknown)
        assert bool(alone.X[:, 0].isfinite().all() & alone.X[:, 1].isnan().all())
    listed = suggest(X.flip(-1), outcome(X), candidates=[[0.2], [0.4], [3.5]], conditions=[0], **search)
    assert float(listed.X[0, 1]) in (0.2, 0.4, 3.5)
    assert suggest([], [], **box).X.isnan().tolist() == [[False, True]]
    categories = {"bounds": [[0.0, 0.0], [4.0, 2.0]], "categorical": {1: range(3)}}
    codes = torch.stack([X[:, 0], 2.0 * X[:, 1]], -1)
    assert suggest(codes, outcome(X), conditions=[1], **categories, **search).X[0, 1] in (0.0, 1.0, 2.0)


def test_a_repeated_pair_is_replaced_in_every_second_round(monkeypatch):
    """A search that repeats the first pair; the next of 8 is random, that of 9 is not."""
    X = torch.rand(8, 2, generator=torch.Generator().manual_seed(2)).double()
    monkeypatch.setattr(core, "search", lambda fitted, chosen, trial: X[:1].clone())
    box = {"bounds": [[0.0, 0.0], [1.0, 1.0]], "conditions": [1], **SEARCH}
    found = suggest(X, X.sum(-1), q=2, **box)
    assert found.random.tolist() == [True, False]
    assert "V-UCB repeated a pair of design and condition, so a random one takes its place.\n" in repr(found)
    assert f"Use row {found.best}: expected in the worst 10 % of conditions {found.mean:.6g}, 95" in repr(found)
    first, second = found.X
    assert (first[0] - X[0, 0]).abs() > 0.005
    assert first[1] in X[:, 1]
    assert torch.equal(second, X[0])
    assert torch.equal(suggest(X, X.sum(-1), method="knowledge-gradient", **box).X[0], X[0])
    listed = SearchSpace.from_space(Space(candidates=X[:4, :1]), X[:, :1])
    assert len({float(listed.initial(0, trial, X[:, :1])) for trial in range(8, 16, 2)}) == 4


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_value_at_risk_over_decades_keeps_its_sign(sign):
    """Yields of three lots: a mean less two standard deviations would be -53."""
    draws = torch.Generator().manual_seed(1)
    X = torch.cat([torch.rand(9, 2, generator=draws).double(), torch.arange(9.0).double().unsqueeze(-1) % 3.0], -1)
    Y = sign * (4.0 * torch.sin(4.0 * X[:, 0]) + 3.0 * X[:, 1] - X[:, 2]).exp()
    lots = {"bounds": [[0.0] * 3, [1.0, 1.0, 2.0]], "categorical": {2: range(3)}, "conditions": [2]}
    found = suggest(X, Y, q=0, maximize=sign > 0.0, **lots)
    assert not found.model.outcome_scale.is_identity
    assert found.interval[0] < found.mean < found.interval[1]
    assert min(sign * end for end in found.interval) > 0.0
    assert 0.5 < sign * found.mean / 71.0 < 2.0  # the truth


def test_a_category_that_is_not_seen_yet_is_none_of_the_others(monkeypatch):
    """The acquisition then gets designs alone, in one column, without the three of a condition."""
    acquire, columns = Choice.acquire, []

    def watched(self, model, pending, generator):
        columns.append(pending.shape[-1])
        return acquire(self, model, pending, generator)

    monkeypatch.setattr(Choice, "acquire", watched)
    X = torch.tensor([[x, z] for x in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0) for z in (0.0, 1.0, 2.0)])
    space = {"bounds": [[0.0, 0.0], [4.0, 2.0]], "categorical": {1: range(3)}, "conditions": [1]}
    for condition in (math.nan, 2.0):
        suggest(X, -((X[:, 0] - 3.0) ** 2), X_pending=[[2.5, condition]], **space, **SEARCH)
    assert columns == [1, 4]


@pytest.mark.parametrize("kind", ["Int64", "Float64", "bool", "mixed"])
def test_tables_of_pandas_with_columns_of_several_dtypes(kind):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3, 4, 5, 6], "b": [0.1, 0.4, 0.2, 0.9, 0.5, 0.6]})
    y = pd.Series([1.0, 2.0, 3.0, 2.5, 2.0, 1.0])
    plain = suggest(frame, y, bounds=[[0, 0], [6, 1]], **SEARCH).X
    if kind == "bool":
        frame = frame.assign(a=frame.a > 3)
        plain = suggest(frame.astype(float), y, bounds=[[0, 0], [6, 1]], **SEARCH).X
    else:
        frame = frame.assign(a=frame.a.astype("Int64")).astype({"b": "float64" if kind == "Int64" else "Float64"})
        frame = frame.astype("Float64") if kind == "Float64" else frame
    pd.testing.assert_frame_equal(suggest(frame, y, bounds=[[0, 0], [6, 1]], **SEARCH).X, plain)
    with pytest.raises(ValueError, match=r"X has '.*' in column 'a', which is no number"):
        suggest(frame.astype(str), y, bounds=[[0, 0], [6, 1]])


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"device cuda:99 was asked for, but torch .* finds"):
        suggest([[0.1]], [1.0], bounds=[[0.0], [1.0]], device="cuda:99")


WRONG = [None, -1, 1.5, math.nan, "a", b"a", 1j, {"a": 1}, {0: "a"}, {0: [None]}, [[1]], [(0, 1)], [10**400]]
WRONG += [object(), torch.tensor(1), torch.tensor([1.0, 2.0]), np.array(["a", "b"]), np.zeros((6, 2, 2)), iter([1])]
NAMES = {name for kind in (Data, Space) for name, field in kind.__dataclass_fields__.items() if field.init}
NAMES |= {"q", "trial", "seed", "num_initial", "restarts", "raw_samples", "repeats", "settings", "method"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_argument_of_the_wrong_kind_is_named(name):
    """Of wrong kinds, those that have no meaning raise ValueError, which names the argument, and nothing else does."""
    usual = {"X": X3, "Y": [1.0, 2.0, 0.0], "bounds": BOX, "num_initial": 9, **SEARCH}
    usual |= {"conditions": [1]} if name == "worst" else {"bounds": None} if name == "candidates" else {}
    for value in WRONG:
        try:
            suggest(**usual | {name: value})
        except ValueError as error:
            assert name in str(error) or "columns have names" in str(error) or "no setting" in str(error)  # noqa: PT017


def test_numbers_and_truths_of_numpy_are_numbers_and_truths():
    X = designs()
    plain = suggest(X, f(X), bounds=BOX, q=2, **SEARCH)
    kinds = {"q": 2.0, "seed": np.int64(0), "trial": np.float64(12), "maximize": np.True_}
    assert torch.equal(suggest(X, f(X), bounds=BOX, **kinds, **SEARCH).X, plain.X)
    assert torch.equal(suggest(X, f(X), bounds=BOX, q=2, maximize=torch.tensor([True]), **SEARCH).X, plain.X)
