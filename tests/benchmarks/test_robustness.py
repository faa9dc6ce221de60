"""The robustness suite: rows of finished runs, the same readings for its own methods, and the report's arithmetic."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.loops.designs import DesignsPanel
from benchmarks.methods import rcgp
from benchmarks.methods.designs import Plain
from benchmarks.problems.designs import Function
from benchmarks.robustness import summary
from benchmarks.robustness.grid import METHODS, REGIMES
from benchmarks.robustness.summary import PLAIN, SETTINGS

PANEL = DesignsPanel("branin", Function("branin"), {PLAIN: Plain()}, 1, 9, outliers=REGIMES["10% 10sd bad"])


@cache
def run(label):
    problem = PANEL.built(torch.device("cpu"))
    rows = PANEL.run_trial(problem, METHODS[label], 1)
    return rows, np.array(rows["y"]) - problem.value(torch.tensor(rows["x"], dtype=torch.float64)).numpy()


@pytest.mark.parametrize(
    ("label", "needs"),
    [
        ("RCGP", None),
        *((label, "optuna") for label in ("TPE", "GPSampler", "RobustSampler")),
        *((label, "ax") for label in ("Ax + RobustGP", "Ax")),
    ],
)
def test_every_method_gets_the_start_and_readings_of_the_plain_loop(label, needs):
    if needs:
        pytest.importorskip(needs)
    (plain, of_plain), (other, of_other) = run(PLAIN), run(label)
    assert other["x"][:6] == plain["x"][:6]
    assert of_other == pytest.approx(of_plain, abs=1e-9)
    assert min(of_plain) < -5.0  # an outlier was among them
    assert other["regret"][-1] >= 0.0


def row(method, regret, problem="levy2", regime="10% 10sd either", seed=0):
    return {
        "problem": problem,
        "regime": regime,
        "seed": seed,
        "method": method,
        "evaluations": 40,
        "regret": regret,
        "warned": None,
        "curve": [[10, 1.0], [25, regret], [40, regret]],
    }


@pytest.fixture
def summarized(capsys):
    """The lines of the report, by name."""

    def of(rows, seeds):
        summary.summarize(rows, range(seeds))
        return {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}

    return of


def made():
    """Contaminated: 1 for plain, .1 for ours, .01 with outliers known, .5 for a baseline; clean: .1 for all."""
    regrets = {"SingleTaskGP": 1.0, "known": 0.01, "RobustGP": 0.1, "RCGP": 0.5, "TPE": 2.0}
    rows = []
    for problem, seed in (("levy2", 0), ("levy2", 1), ("bump2", 0)):
        for method, regret in regrets.items():
            rows += [row(method, regret, problem, seed=seed), row(method, 0.1, problem, "clean", seed)]
    return rows


def test_the_report_is_the_arithmetic_of_its_rows(summarized):
    of_settings = [row(method, 9.0, SETTINGS[0]) for method in ("SingleTaskGP", "RobustGP", "known")]
    lines = summarized([*made(), *of_settings], 2)
    ours = lines["10% 10sd either: RobustGP against SingleTaskGP"]
    assert ours["value"] == pytest.approx(-1.0)
    assert ours["detail"]["pairs"] == 3  # without the function of settings
    share = lines["contaminated: RobustGP, share of what knowing the outliers gains"]
    assert share["value"] == pytest.approx(0.5)
    assert share["detail"]["95 %"] == [0.5, 0.5]
    assert lines["clean narrow peaks: RobustGP against SingleTaskGP"]["detail"]["pairs"] == 1
    assert lines["10% 10sd either: RCGP against SingleTaskGP"]["value"] == pytest.approx(math.log10(0.5), rel=1e-3)


def test_differences_are_paired_and_resampled_by_problem_and_seed():
    regimes = list(REGIMES)[:3]
    rows = [row("ours", 10.0 ** -(s % 2), regime=r, seed=s) for r in regimes for s in range(10)]
    rows += [row("theirs", 1.0, regime=r, seed=s) for r in regimes for s in range(10)]
    rows += [row("theirs", 5.0, "ackley2"), row("one", 1.0, regime=regimes[0])]
    table = summary.reported(rows)
    gap = summary.difference(table, "ours", "theirs")
    low, high = gap["detail"].pop("95 %")
    assert gap == {"value": pytest.approx(-0.5), "detail": {"pairs": 30, "clusters": 10}}
    reach = 1.96 * 0.5 / math.sqrt(10)  # of ten clusters, not of thirty cells
    assert (high + 0.5, -0.5 - low) == (pytest.approx(reach, abs=0.06), pytest.approx(reach, abs=0.06))
    assert summary.difference(table, "ours", "none") is None
    assert summary.difference(table, "one", "theirs")["detail"]["95 %"] == [None, None]


def test_leave_one_out_is_that_of_the_rows_left():
    torch.manual_seed(0)
    X = torch.rand(7, 2, dtype=torch.float64)
    K = torch.exp(-torch.cdist(X, X).square())
    noise, y = torch.rand(7, dtype=torch.float64) + 0.1, torch.randn(7, dtype=torch.float64)
    mean, var = rcgp.leave_one_out(K, noise, y)
    for i in range(7):
        rest = [j for j in range(7) if j != i]
        solved = torch.linalg.solve(K[rest][:, rest] + torch.diag(noise[rest]), K[rest, i])
        assert mean[i].item() == pytest.approx((solved @ y[rest]).item())
        assert var[i].item() == pytest.approx((K[i, i] - solved @ K[rest, i]).item())


def test_rcgp_minimizes_the_generalized_bayes_loss():
    """It sums w^2 s^2 + 2 d(w^2 s)/dy, s = (f - y) / sigma^2, w^2 = sigma^2 / 2 / (1 + r^2 / c^2), with the prior."""
    torch.manual_seed(1)
    X = torch.rand(6, 2, dtype=torch.float64)
    K = torch.exp(-torch.cdist(X, X).square()) + 1e-6 * torch.eye(6, dtype=torch.float64)
    y, center = 3.0 * torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    c_sq, noise_var = torch.rand(6, dtype=torch.float64) + 0.2, torch.tensor(0.3, dtype=torch.float64)
    target, noises = rcgp.reweighted(y, center, c_sq, noise_var)
    mean = (K @ torch.linalg.solve(K + torch.diag(noises), target)).requires_grad_()
    readings = y.clone().requires_grad_()
    weight_sq = 0.5 * noise_var / (1.0 + (readings - center).square() / c_sq)
    score = (mean - readings) / noise_var
    (slope,) = torch.autograd.grad((weight_sq * score).sum(), readings, create_graph=True)
    loss = (weight_sq * score.square() + 2.0 * slope).sum() + 0.5 * mean @ torch.linalg.solve(K, mean)
    (gradient,) = torch.autograd.grad(loss, mean)
    assert gradient.abs().max() < 1e-5


def test_rcgp_forgets_an_outlier_and_is_the_gp_of_its_targets():
    X = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
    Y = torch.sin(6.0 * X) + 0.05 * torch.randn(15, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clean = rcgp.rcgp(X, Y).eval().posterior(X).mean
    wild = Y.clone()
    wild[7] += 50.0
    model = rcgp.rcgp(X, wild).eval()
    center, scale = rcgp.robust_units(wild)
    other = rcgp.robust_units(Y)
    gap = (model.posterior(X).mean * scale + center) - (clean * other[1] + other[0])
    assert gap.abs().max() < 0.2
    assert model.likelihood.noise[7] > 100.0 * model.likelihood.noise.median()
