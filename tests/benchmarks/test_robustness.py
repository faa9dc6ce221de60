"""The robustness suite plays one game with all methods, does not play it twice, and counts right."""

import importlib.util
import json
import math

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP

from benchmarks import grid
from benchmarks.robustness import contamination, loop, rcgp, samplers, student_t, summary
from benchmarks.robustness.contamination import REGIMES, draw
from benchmarks.robustness.grid import NAMES, cells
from benchmarks.robustness.models import METHODS, OURS, PEERS
from benchmarks.robustness.picture import curve
from benchmarks.robustness.picture import draw as draw_picture
from benchmarks.robustness.problems import FUNCTIONS, LAB, TUNING, diverging, initial_design, make_problem
from benchmarks.robustness.split import half_of

MANY = 20_000


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_are_in_standard_deviations_and_have_their_best_value(name):
    problem = make_problem(name)
    sample = torch.rand(20_000, problem.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = problem.value(sample)
    assert abs(values.mean()) < 0.1
    assert values.std().item() == pytest.approx(1.0, abs=0.1)
    assert problem.value(problem.optimisers).numpy() == pytest.approx(problem.best, abs=1e-4)
    assert values.max() <= problem.best
    assert problem.budget == 20 * problem.d


@pytest.mark.parametrize("regime", [name for name, r in REGIMES.items() if r.kind == "shift"])
def test_shifts_have_the_share_the_size_and_the_side_of_their_name(regime):
    share, size, side = regime.split()
    draws = draw(make_problem("branin"), REGIMES[regime], 3, MANY)
    hit = draws.shift != 0.0
    assert hit.mean() == pytest.approx(float(share[:-1]) / 100, abs=0.01)
    assert set(draws.shift[hit]) == {float(size[:-2]) * (1 if side == "good" else -1)}
    assert (hit == draws.outlier).all()


def test_other_regimes_have_their_laws():
    problem = make_problem("branin")
    cauchy, student, dead, none = (draw(problem, REGIMES[name], 3, MANY) for name in _others())
    assert cauchy.outlier.mean() == pytest.approx(0.2, abs=0.01)
    assert np.median(np.abs(cauchy.shift[cauchy.outlier])) == pytest.approx(1.0, abs=0.05)  # a Cauchy's scale
    assert not cauchy.shift[~cauchy.outlier].any()
    quartile = 0.816497 * contamination.STUDENT_SCALE  # of Student-t(2)
    assert np.median(np.abs(student.shift)) == pytest.approx(quartile, rel=0.03)
    assert not student.normal.any()
    stuck = dead.stuck[dead.outlier]
    assert dead.outlier.mean() == pytest.approx(0.15, abs=0.01)
    assert len(set(stuck)) == 1
    assert np.isnan(dead.stuck[~dead.outlier]).all()
    assert not none.outlier.any()
    assert not none.shift.any()
    assert none.normal.std() == pytest.approx(1.0, abs=0.02)


def _others():
    return ("20% cauchy", "student-t", "dead sensor", "none")


def test_regimes_share_their_numbers_and_seeds_do_not():
    problem = make_problem("levy4")
    few, many = (draw(problem, REGIMES[name], 0) for name in ("10% 3sd good", "20% 3sd good"))
    assert (many.outlier >= few.outlier).all()
    assert (few.normal == many.normal).all()
    assert not (few.normal == draw(problem, REGIMES["none"], 1).normal).any()


def test_diverged_runs_are_equal_terrible_and_away_from_the_optimum():
    plain = make_problem("branin")
    problem = diverging(plain, 0)
    X = torch.rand(5000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = problem.value(X)
    bad = values < -9.9
    assert bad.double().mean().item() == pytest.approx(0.2, abs=0.03)
    assert values[bad].unique().numel() == 1
    assert torch.equal(values[~bad], plain.value(X)[~bad])
    assert problem.value(problem.optimisers).max().item() == pytest.approx(problem.best, abs=1e-4)
    assert problem.read(X[bad][0], 0.3, 5.0) == values[bad][0]


def test_every_method_meets_the_same_readings(monkeypatch):
    told = {}
    reading = contamination.Draws.reading

    def spied(self, problem, x, t):
        y = reading(self, problem, x, t)
        told[method][t] = (x.tolist(), y - float(problem.value(x.unsqueeze(0))))
        return y

    monkeypatch.setattr(contamination.Draws, "reading", spied)
    methods = ["plain", "known", "winsorised-both", "rcgp"]
    if importlib.util.find_spec("optuna") is not None:
        methods.append("tpe")
    for method in methods:
        told[method] = {}
        loop.campaign(("branin", "20% 10sd bad", 1, method), budget=10)
    plain = told["plain"]
    assert len(plain) == 10
    assert min(error for _, error in plain.values()) < -5.0  # an outlier was among them
    for method in methods[1:]:
        assert [told[method][t][0] for t in range(6)] == [plain[t][0] for t in range(6)]
        assert [told[method][t][1] for t in range(10)] == pytest.approx([plain[t][1] for t in range(10)], abs=1e-9)


def test_a_campaign_repeats_itself_and_ends_at_its_last_recommendation():
    cell = ("levy2", "10% 3sd good", 0, "plain")
    first, second = (loop.campaign(cell, budget=9) for _ in range(2))
    assert first["curve"] == second["curve"]
    assert first["curve"][0][0] == 6
    assert first["regret"] == first["curve"][-1][1] >= 0.0
    assert first["evaluations"] == 9


def test_measuring_again_takes_the_place_of_the_acquisition(monkeypatch):
    seen = []
    reading = contamination.Draws.reading
    monkeypatch.setattr(
        contamination.Draws, "reading", lambda self, p, x, t: (seen.append(x), reading(self, p, x, t))[1]
    )
    again = loop.METHODS["plain"]
    monkeypatch.setitem(loop.METHODS, "plain", type(again)(again.make, lambda model: torch.full((1, 2), 0.25).double()))
    row = loop.campaign(("branin", "none", 0, "plain"), budget=8)
    assert row["verifying"] == 2
    assert [x.tolist() for x in seen[6:]] == [[0.25, 0.25]] * 2


def test_the_next_point_is_inside_the_cube_and_no_worse_than_the_raw_points():
    problem = make_problem("branin")
    X = initial_design(problem, 0)
    model = SingleTaskGP(X, problem.value(X).unsqueeze(-1)).eval()
    best = X[problem.value(X).argmax()]
    x = loop.cheap(model, X, best, problem, seed=0)
    assert x.shape == (1, 2)
    assert ((x >= 0.0) & (x <= 1.0)).all()
    assert torch.equal(x, loop.cheap(model, X, best, problem, seed=0))
    acquisition = loop.LogExpectedImprovement(model, model.posterior(X).mean.max().detach())
    raw = torch.rand(500, 1, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert acquisition(x) >= acquisition(raw).max() - 0.05


@pytest.mark.parametrize("name", list(LAB))
def test_tables_are_read_row_by_row(name, data_dir, monkeypatch):
    monkeypatch.setenv("BO_ROBUST_DATA", str(data_dir))
    problem = make_problem(name)
    values = problem.value(problem.candidates)
    assert values.std().item() == pytest.approx(1.0)
    assert values.max().item() == problem.best
    assert torch.equal(problem.optimisers, problem.candidates[values.argmax()].unsqueeze(0))
    readings = [problem.read(problem.candidates[0], u, 9.0) for u in np.linspace(0, 0.999, 60)]
    assert np.mean(sorted(set(readings))) == pytest.approx(values[0].item())
    start = initial_design(problem, 0)
    assert len({tuple(x) for x in start.tolist()}) == problem.initial
    row = loop.campaign((name, "10% 3sd good", 0, "plain"), budget=problem.initial + 2)
    assert 0.0 <= row["regret"] <= problem.best - values.min().item()


@pytest.mark.parametrize("name", TUNING)
def test_tables_of_tuning_hold_runs_that_diverged(name):
    problem = make_problem(name)
    assert len(problem.candidates) == 256
    values = problem.value(problem.candidates)
    assert values.min() < -5.0  # those that diverged, while sd is that of the others
    assert problem.best < 5.0


def test_finished_cells_are_not_played_again(tmp_path):
    path = tmp_path / "cells.jsonl"
    regimes = ["none", "10% 3sd good", "diverged"]
    todo = cells(["branin", "alkox"], regimes, range(2), ["plain", "tpe"], "cheap")
    assert len(todo) == 2 * 2 * (3 + 2)  # no region of a table diverges
    played = []

    def work(cell):
        played.append(cell)
        if cell[3] == "tpe" and cell[2] == 1:
            raise ZeroDivisionError("by zero")
        return {}

    first = list(grid.play(todo[:10], NAMES, work, path))
    assert played == todo[:10]
    assert len(grid.load(path)) == len(first) == 10
    with path.open("a") as file:
        file.write('{"problem": "bran')  # an interruption within a line
    rows = list(grid.play(todo, NAMES, work, path))
    assert played == todo
    assert sum("error" in row for row in rows) == 5
    assert len(grid.load(path)) == 15
    assert len(list(grid.play(todo, NAMES, work, path))) == 5  # those that failed
    assert len(list(grid.play([(*todo[0][:4], "qlognei")], NAMES, work, path))) == 1


def row(method, regret, problem="levy2", regime="10% 3sd good", seed=0):
    return {
        "problem": problem,
        "regime": regime,
        "seed": seed,
        "method": method,
        "acquisition": "cheap",
        "evaluations": 40,
        "regret": regret,
        "seconds": 8.0,
        "fitting": 4.0,
        "verifying": 2 if method == "robust" else 0,
        "curve": [[6, 1.0], [23, regret]],
    }


def made():
    """Regrets of 1 and .1 for plain, a tenth of it for the robust, and a peer chosen on the other half."""
    rows = []
    for seed in (0, 1):
        for regime, size in (("10% 3sd good", 1.0), ("none", 0.1)):
            shrink = 0.1 if regime != "none" else 1.0
            rows += [
                row("plain", size, seed=seed, regime=regime),
                row("robust", shrink * size, seed=seed, regime=regime),
            ]
            rows += [row("rcgp", 0.5 * size, seed=seed, regime=regime), row("tpe", 1e-9, seed=seed, regime=regime)]
    for method, regret in (("plain", 1.0), ("rcgp", 0.01), ("tpe", 0.5)):
        rows.append(row(method, regret, "branin", seed=100))
    return rows


def test_the_report_is_the_arithmetic_of_its_rows():
    lines = {line["name"]: line for line in summary.summarise([*made(), row("plain", 9.0, "branin")], "cheap")}
    assert "best peer: rcgp" in lines  # by the half that chooses, though tpe is lower in the other
    ours = lines["contaminated: robust against plain"]
    assert ours["value"] == pytest.approx(-1.0)
    assert ours["detail"]["pairs"] == 2
    assert ours["detail"]["95 %"] == [-1.0, -1.0]
    assert ours["met"] is True
    assert lines["contaminated: robust against rcgp"]["value"] == pytest.approx(math.log10(0.2))
    assert lines["contaminated: robust against rcgp"]["met"] is True
    assert lines["none: robust against plain"]["value"] == pytest.approx(0.0)
    assert lines["none: robust against plain"]["met"] is True
    assert lines["contaminated: tpe"]["detail"]["mean log10"] == -3.0  # the floor
    assert lines["contaminated: plain"]["value"] == 1.0  # branin with a seed of the report is in neither half
    assert lines["cost: robust"]["value"] == pytest.approx(0.2)
    assert lines["cost: robust"]["detail"]["readings to verify, a campaign"] == {"10% 3sd good": 2.0, "none": 2.0}
    json.dumps(list(lines.values()))


def test_differences_are_paired_and_resampled_by_problem_and_seed():
    ours = {("levy2", f"r{i}", s): {"regret": 10.0 ** -(s % 2)} for i in range(3) for s in range(10)}
    theirs = {key: {"regret": 1.0} for key in ours} | {("ackley2", "r0", 0): {"regret": 5.0}}
    gap = summary.difference(ours, theirs)
    assert gap.mean == pytest.approx(-0.5)
    assert (gap.pairs, gap.clusters) == (30, 10)
    reach = 1.96 * 0.5 / math.sqrt(10)  # of ten clusters, not of thirty cells
    assert gap.high - gap.mean == pytest.approx(reach, abs=0.06)
    assert gap.mean - gap.low == pytest.approx(reach, abs=0.06)
    assert summary.difference(ours, {}) is None
    assert summary.difference(ours, {("levy2", "r0", 0): {"regret": 1.0}}).detail()["95 %"] == [None, None]


def test_a_claim_not_reached_is_not_met():
    rows = [row("plain", 1.0, seed=s) for s in range(3)] + [row("robust", 0.9, seed=s) for s in range(3)]
    lines = {line["name"]: line for line in summary.summarise(rows, "cheap")}
    assert lines["contaminated: robust against plain"]["met"] is False


def test_halves_are_disjoint():
    assert half_of(row("plain", 1.0, "levy2", seed=0)) == "report"
    assert half_of(row("plain", 1.0, "branin", seed=100)) == "choose"
    assert half_of(row("plain", 1.0, "branin", seed=0)) is None
    assert half_of(row("plain", 1.0, "levy2", seed=100)) is None
    assert half_of(row("plain", 1.0, "alkox", seed=0)) == "report"


def test_curves_step_where_the_recommendation_changes():
    steps = curve(row("plain", 0.01))
    assert steps[0] == 0.0
    assert steps[-1] == -2.0
    assert steps[49] == 0.0  # 22 of 40 evaluations: 49 % of the 34 after the initial design
    assert steps[50] == -2.0


def test_the_picture_is_drawn_of_what_was_played(tmp_path):
    path = tmp_path / "regret.png"
    draw_picture(made(), "cheap", path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_student_t_peer_goes_on_where_it_was():
    """A call with one more point starts from the posterior of the last one, and soon agrees with a long first call."""
    X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
    Y = torch.sin(6.0 * X)
    Y[5] += 20.0
    torch.manual_seed(0)
    gp = student_t.StudentTGP()
    gp(X[:11], Y[:11])
    centre, scale = rcgp.robust_units(Y)
    mean = gp(X, Y).posterior(X).mean.detach() * scale + centre
    error = (mean - torch.sin(6.0 * X)).abs()
    assert error.median() < 0.2
    assert error[5] < 2.0


def test_tables_are_measured_row_after_row():
    candidates = torch.tensor([[0.0], [0.5], [1.0]]).double()
    assert loop.unmeasured(candidates, candidates[[1]]).tolist() == [[0.0], [1.0]]
    assert torch.equal(loop.unmeasured(candidates, candidates), candidates)


def test_every_peer_has_a_name_of_its_own():
    assert set(PEERS) | {*OURS, "known"} == set(METHODS) | set(samplers.SAMPLERS)
    assert not set(METHODS) & set(samplers.SAMPLERS)


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


def test_rcgp_minimises_the_generalised_bayes_loss():
    """It sums w^2 s^2 + 2 d(w^2 s)/dy, s = (f - y) / sigma^2, w^2 = sigma^2 / 2 / (1 + r^2 / c^2), with the prior."""
    torch.manual_seed(1)
    X = torch.rand(6, 2, dtype=torch.float64)
    K = torch.exp(-torch.cdist(X, X).square()) + 1e-6 * torch.eye(6, dtype=torch.float64)
    y, centre = 3.0 * torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    c_sq, noise_var = torch.rand(6, dtype=torch.float64) + 0.2, torch.tensor(0.3, dtype=torch.float64)
    target, noises = rcgp.reweighted(y, centre, c_sq, noise_var)
    mean = (K @ torch.linalg.solve(K + torch.diag(noises), target)).requires_grad_()
    readings = y.clone().requires_grad_()
    weight_sq = 0.5 * noise_var / (1.0 + (readings - centre).square() / c_sq)
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
    centre, scale = rcgp.robust_units(wild)
    other = rcgp.robust_units(Y)
    gap = (model.posterior(X).mean * scale + centre) - (clean * other[1] + other[0])
    assert gap.abs().max() < 0.2
    assert model.likelihood.noise[7] > 100.0 * model.likelihood.noise.median()


def test_units_survive_equal_readings():
    assert rcgp.robust_units(torch.ones(5, 1).double()) == (1.0, 1.0)
    assert rcgp.robust_units(torch.tensor([[0.0], [0.0], [0.0], [2.0]]).double())[1] == 1.0
