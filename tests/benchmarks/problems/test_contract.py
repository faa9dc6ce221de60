"""What every problem keeps: draws have the declared shape, range and seed."""

import math
from pathlib import Path

import pytest
import torch

from benchmarks.problems.base import Trials
from benchmarks.problems.conditions.portfolio import Portfolio
from benchmarks.problems.conditions.synthetic import Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne
from benchmarks.problems.designs import FUNCTIONS, LAB, Function, Laboratory, OwnTable
from benchmarks.problems.pairs import Ball, Conditions
from benchmarks.problems.rewards import ParetoRewards
from benchmarks.problems.sensors import IntelLab, MetrLAWeek, UnknownKernelTemperature
from benchmarks.problems.skewed import SKEWED, Skewed
from benchmarks.problems.synthetic import GPDraw, HardInstance, ManyArms, RKHSFunction, SpikedFunction
from benchmarks.problems.tables import DJIA29, Abalone, CMULight
from benchmarks.problems.unknown_hyperparameters import (
    UnknownDecomposition,
    UnknownLengthscale,
    UnknownMean,
    UnknownPeriod,
)
from bo_robust.utils.random import stream

READ = (Abalone, CMULight, DJIA29, IntelLab, MetrLAWeek, Portfolio, UnknownKernelTemperature)
OVER_ARMS = [Ball(), Conditions(), GPDraw(num_arms=60), HardInstance(), ManyArms(), RKHSFunction(), SpikedFunction()]
OVER_ARMS += [UnknownDecomposition(per_axis=4), UnknownLengthscale(), UnknownMean(), UnknownPeriod()]
OVER_ARMS += [Abalone(), CMULight(), DJIA29(), DJIA29(scaling="centered"), IntelLab(), MetrLAWeek()]
OVER_ARMS += [UnknownKernelTemperature()]
OVER_CONDITIONS = [
    kind(z=z) for kind in (Branin, GoldsteinPrice, Hartmann3OneTwo, Hartmann3TwoOne) for z in ("discrete", "continuous")
] + [Portfolio()]
OVER_DESIGNS = [*map(Function, FUNCTIONS), *map(Laboratory, LAB), *map(Skewed, SKEWED)]


@pytest.fixture
def has_data(request):
    """Skip where the data of a problem are absent."""

    def check(problem):
        if isinstance(problem, READ) or getattr(problem, "table", "suzuki") != "suzuki":
            request.getfixturevalue("data_dir")
        return problem

    return check


@pytest.mark.parametrize("kind", OVER_ARMS, ids=str)
def test_over_arms(kind, has_data, device):
    """A trial alone is that among others, bit for bit; other seeds are other problems; all is finite in float32."""
    kind = has_data(kind)
    alone, among = (kind.make(Trials(trials, 4)).to(device, torch.float64) for trials in ([7], range(16)))
    n = among.num_arms
    assert among.f.shape == (16, n)
    assert torch.equal(alone.f[0], among.f[7])
    assert among.value.shape == among.f.shape
    assert bool((among.optimum >= among.value.amax(1)).all())
    for constant in ("noise_var", "norm_bound", "moment_bound", "alpha", "noise_scale", "arm_names"):
        assert getattr(alone, constant) == getattr(among, constant), constant
    draws = torch.from_numpy(among.rewards.draw(stream(4, "reward", 7), 16)).to(device)
    arms = torch.arange(16, device=device) % n
    for t in range(16):
        together = among.rewards(among.f, arms[t].expand(16), draws[t].expand(16, -1))
        assert torch.equal(together[7:8], alone.rewards(alone.f, arms[t : t + 1], draws[t : t + 1]))
    assert among.notes
    single = among.to(device, torch.float32)
    y = single.rewards(single.f, arms, draws.float())
    assert (y.shape, y.dtype, y.device.type) == ((16,), torch.float32, device.type)
    assert bool(torch.isfinite(y).all())
    if (priors := single.candidates) is not None:
        parts = [x for x in (priors.kernels, priors.prior_means) if x is not None]
        assert {(x.shape[0], x.shape[-1], x.dtype, x.device.type) for x in parts} == {
            (len(priors.names), n, torch.float32, device.type)
        }
    if not torch.equal(among.f[0], among.f[1]):
        assert not torch.equal(among.f, kind.make(Trials(range(16), 5)).f.to(device))


@pytest.mark.parametrize("kind", OVER_CONDITIONS, ids=str)
def test_over_conditions(kind, has_data, device):
    problem = has_data(kind).make(device)
    d = problem.dim_x + problem.dim_z
    assert (problem.x_bounds.shape, problem.z_bounds.shape) == ((2, problem.dim_x), (2, problem.dim_z))
    X = torch.rand(2, 5, d, generator=torch.Generator().manual_seed(0)).to(problem.x_bounds)
    y = problem.f(X)
    assert (y.shape, y.dtype, y.device.type) == ((2, 5), torch.float64, device.type)
    torch.testing.assert_close(problem.f(X[1, 3]), y[1, 3])
    assert bool(torch.isfinite(y).all())
    z = problem.points
    if z is None:
        z = problem.environment.sample(8, torch.Generator(device).manual_seed(0))
        assert bool(torch.isfinite(problem.environment.log_prob(z)).all())
    else:
        assert float(problem.probabilities.sum()) == pytest.approx(1.0)
    assert z.shape[1:] == (problem.dim_z,)
    assert bool(((z >= problem.z_bounds[0]) & (z <= problem.z_bounds[1])).all())
    assert problem.notes


@pytest.mark.parametrize("kind", OVER_DESIGNS, ids=str)
def test_over_designs(kind, has_data):
    """f is in its standard deviations and at most ``best``; an initial design is of its seed, of rows that differ."""
    problem = has_data(kind).make()
    draws = torch.rand(5000, problem.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points = draws if problem.candidates is None else problem.candidates
    values = problem.value(points)
    assert abs(float(values.mean())) < 0.15
    assert float(values.std()) == pytest.approx(1.0, abs=0.15)
    assert float(values.max()) <= problem.best + 1e-12
    assert math.isfinite(problem.observe(points[0], 0.5, 2.0))
    first, again, other = (problem.initial_design(8, seed) for seed in (0, 0, 1))
    assert first.shape == (8, problem.d)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len({tuple(x) for x in first.tolist()}) == 8
    assert torch.equal(problem.nearest(points[3]), points[3])
    assert problem.notes


REFUSED = [
    (lambda: RKHSFunction(noise=ParetoRewards()), "positive=True"),
    (lambda: RKHSFunction(kernel="rbf"), "kernel must be one of"),
    *((lambda name=name: RKHSFunction(**{name: 0}), name) for name in ("lengthscale", "num_arms", "noise_var")),
    (lambda: RKHSFunction(alpha=1.2), "alpha must be in"),
    (lambda: SpikedFunction(num_arms=1), "num_arms must be at least 2"),
    (lambda: SpikedFunction(magnitude=0.0), "magnitude"),
    *((lambda name=name: ManyArms(**{name: 0}), name) for name in ("num_arms", "dim", "lengthscale")),
    (lambda: HardInstance(peaks=0), "peaks"),
    (lambda: HardInstance(peaks=400), r"peaks=400 .* fewer peaks"),
    (lambda: HardInstance(gap=2.0, v=1.0), "smaller gap"),
    (lambda: UnknownLengthscale(lengthscales=[]), "at least one number"),
    (lambda: UnknownLengthscale(lengthscales=[0.5, 0.5]), "all different"),
    (lambda: UnknownLengthscale(norm_bound=-1.0), "norm_bound"),
    (lambda: UnknownDecomposition(per_axis=1), "per_axis"),
    (lambda: UnknownMean(outputscale=2.0), "<= 1"),
    (lambda: UnknownMean(hill=3.0), "0 < hill < tallest"),
    (lambda: Ball(ManyArms(num_arms=20)), "even points of the line"),
    (lambda: Conditions(Branin(z="continuous")), "Z finite"),
]


@pytest.mark.parametrize(("kind", "message"), REFUSED)
def test_what_no_problem_can_have_is_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        kind().make(Trials([0], 4))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Function("branni"), "did you mean 'branin'"),
        (Function("branin", noise_sd=0.0), "noise_sd"),
        (Laboratory("suzuky"), "did you mean 'suzuki'"),
        (OwnTable(Path("nowhere.csv"), "y"), "nowhere.csv"),
    ],
)
def test_what_no_designs_can_have_is_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        kind.make()


def test_notes_say_what_a_standard_error_covers(data_dir):
    for kind in (IntelLab(), MetrLAWeek()):
        assert "not new days" in kind.make(Trials([0], 0)).notes
    for kind in (CMULight(), DJIA29()):
        assert "All trials share one f" in kind.make(Trials([0], 0)).notes
