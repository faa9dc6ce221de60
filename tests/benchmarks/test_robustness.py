"""The robustness suite runs each cell once, gives all methods the same readings, and counts right."""

import json
import math
import warnings

import numpy as np
import pytest
import torch

from benchmarks import grid
from benchmarks.robustness import contamination, loops, rcgp, summary
from benchmarks.robustness.campaign import NAMES, campaign, cells
from benchmarks.robustness.contamination import MAIN, REGIMES, draw
from benchmarks.robustness.loops import GRID, OURS, PEERS
from benchmarks.robustness.picture import draw as draw_picture
from benchmarks.robustness.picture import gaps
from benchmarks.robustness.problems import FUNCTIONS, LAB, SETTINGS, initial_design, make_problem

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


@pytest.mark.parametrize("regime", [name for name, r in REGIMES.items() if r.kind in ("shift", "either")])
def test_shifts_have_the_share_the_size_and_the_side_of_their_name(regime):
    share, size, side = regime.split()
    draws = draw(make_problem("branin"), REGIMES[regime], 3, MANY)
    hit = draws.shift != 0.0
    assert hit.mean() == pytest.approx(float(share[:-1]) / 100, abs=0.01)
    signs = {"good": {1.0}, "bad": {-1.0}, "either": {1.0, -1.0}}[side]
    assert set(draws.shift[hit]) == {float(size[:-2]) * sign for sign in signs}
    assert (draws.shift[hit] > 0).mean() == pytest.approx(np.mean([sign > 0 for sign in signs]), abs=0.03)
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
    return ("20% cauchy", "student-t", "dead sensor", "clean")


def test_regimes_share_their_numbers_and_seeds_do_not():
    problem = make_problem("levy4")
    few, many = (draw(problem, REGIMES[name], 0, MANY) for name in ("10% 10sd either", "30% 10sd either"))
    assert (many.outlier >= few.outlier).all()
    assert (few.normal == many.normal).all()
    assert not (few.normal == draw(problem, REGIMES["clean"], 1, MANY).normal).any()


@pytest.fixture
def readings(monkeypatch):
    """What each campaign was told: points and errors by evaluation; the last list is the campaign being played."""
    told, reading = [], contamination.Draws.reading

    def spied(self, problem, x, t):
        y = reading(self, problem, x, t)
        if t == 0:
            told.append([])
        told[-1].append((tuple(x.tolist()), y - float(problem.value(x.unsqueeze(0)))))
        return y

    monkeypatch.setattr(contamination.Draws, "reading", spied)
    monkeypatch.setattr(loops, "_asked", {})
    return told


@pytest.mark.parametrize("method", [name for name in GRID if name != "plain"])
def test_every_method_gets_the_start_and_readings_of_the_plain_loop(method, readings):
    if method in ("tpe", "optuna-gp", "robust-sampler"):
        pytest.importorskip("optuna")
    if method.startswith("ax"):
        pytest.importorskip("ax")
    for name in ("plain", method):
        row = campaign(("branin", "10% 10sd bad", 1, name), budget=9)
        assert row["evaluations"] == 9
        assert row["curve"][-1] == (9, row["regret"])
    plain, other = readings
    assert len(plain) == len(other) == 9
    assert min(error for _, error in plain) < -5.0  # a fault was among them
    assert [x for x, _ in other[:6]] == [x for x, _ in plain[:6]]
    assert [error for _, error in other] == pytest.approx([error for _, error in plain], abs=1e-9)


def test_equal_models_ask_the_same_and_the_acquisition_is_maximised_once(readings, monkeypatch):
    """Without faults "known" is the plain model: it takes each next point from it, and would find the same alone."""
    asked, maximise = [], loops.optimize_acqf
    monkeypatch.setattr(loops, "optimize_acqf", lambda *args, **options: asked.append(1) or maximise(*args, **options))
    for method in ("plain", "known"):
        campaign(("branin", "clean", 0, method), budget=8)
    assert len(asked) == 2
    loops._asked.clear()
    campaign(("branin", "clean", 0, "known"), budget=8)
    assert len(asked) == 4
    assert readings[0] == readings[1] == readings[2]


def test_a_suspect_is_measured_again_in_place_of_the_acquisition(readings, monkeypatch):
    again = torch.full((1, 2), 0.25).double()
    monkeypatch.setattr(loops, "suggest_replicates", lambda model: again)
    row = campaign(("branin", "clean", 0, "diff with verify"), budget=8)
    assert row["again"] == 1
    assert [x for x, _ in readings[0][6:]] == [(0.25, 0.25)] * 2


def test_a_warning_of_many_faults_is_kept_with_its_evaluation(monkeypatch):
    def warning(X, Y, faults):
        if len(X) == 7:
            warnings.warn("RobustGP flags 3 of 7 observations as outliers.", stacklevel=2)
        return loops.fitted(loops.SingleTaskGP(X, Y))

    monkeypatch.setitem(loops.MODELS, "plain", warning)
    assert campaign(("branin", "clean", 0, "plain"), budget=8)["warned"] == 8
    assert campaign(("branin", "clean", 0, "known"), budget=8)["warned"] is None


def test_winsorised_rewards_lie_within_the_limits():
    Y = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0], [-100.0]]).double()
    assert loops.winsorised(Y).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 7.5, -4.5]
    assert torch.equal(loops.winsorised(Y[:4]), Y[:4])


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
    row = campaign((name, "10% 3sd either", 0, "plain"), budget=problem.initial + 2)
    assert 0.0 <= row["regret"] <= problem.best - values.min().item()


def test_parts_share_the_grid_seed_by_seed_and_keep_groups_whole():
    asked = (["bump2", "levy2"], ["clean", "student-t"], range(2), ["plain", "tpe"])
    whole, halves = cells(*asked), [cells(*asked, part, 2) for part in (0, 1)]
    assert len(whole) == 2 * 2 * 2 * 2
    assert sorted(halves[0] + halves[1]) == sorted(whole)
    assert [cell[2] for cell in whole] == sorted(cell[2] for cell in whole)
    assert not {cell[:3] for cell in halves[0]} & {cell[:3] for cell in halves[1]}


def test_finished_cells_are_not_played_again(tmp_path):
    path = tmp_path / "cells.jsonl"
    todo = cells(["branin", "levy2"], ["clean", "student-t"], range(2), ["plain", "tpe"])
    played = []

    def work(cell):
        played.append(cell)
        if cell[3] == "tpe" and cell[2] == 1:
            raise ZeroDivisionError("by zero")
        return {}

    first = list(grid.play(todo[:8], NAMES, work, path))
    assert played == todo[:8]
    assert len(grid.load(path)) == len(first) == 8
    with path.open("a") as file:
        file.write('{"problem": "bran')  # an interruption within a line
    rows = list(grid.play(todo, NAMES, work, path))
    assert played == todo
    assert sum("error" in row for row in rows) == 4
    assert len(grid.load(path)) == 12
    assert len(list(grid.play(todo, NAMES, work, path))) == 4  # those that failed


def row(method, regret, problem="levy2", regime="10% 10sd either", seed=0):
    return {
        "problem": problem,
        "regime": regime,
        "seed": seed,
        "method": method,
        "evaluations": 40,
        "regret": regret,
        "seconds": 8.0,
        "again": 2 if method == "diff" else 0,
        "warned": None,
        "by": "a test",
        "curve": [[10, 1.0], [25, regret], [40, regret]],
    }


def made():
    """Contaminated: 1 for plain, .1 for ours, .01 with faults known, .5 for a peer; clean: .1 for all."""
    regrets = {"plain": 1.0, "known": 0.01, "diff": 0.1, "rcgp": 0.5, "tpe": 2.0}
    rows = []
    for problem, seed in (("levy2", 0), ("levy2", 1), ("bump2", 0)):
        for method, regret in regrets.items():
            rows += [row(method, regret, problem, seed=seed), row(method, 0.1, problem, "clean", seed)]
    return rows


def test_the_report_is_the_arithmetic_of_its_rows():
    of_settings = [row(method, 9.0, SETTINGS[0]) for method in ("plain", "diff", "known")]
    lines = {line["name"]: line for line in summary.summarise([*made(), *of_settings], range(2))}
    ours = lines["10% 10sd either: diff against SingleTaskGP"]
    assert ours["value"] == pytest.approx(-1.0)
    assert ours["detail"]["pairs"] == 3  # without the function of settings
    share = lines["contaminated: diff, share of what knowing the outliers gains"]
    assert share["value"] == pytest.approx(0.5)
    assert share["detail"]["95 %"] == [0.5, 0.5]
    assert lines["clean narrow peaks: diff against SingleTaskGP"]["detail"]["pairs"] == 1
    assert lines["cost: diff"]["value"] == pytest.approx(8.0)
    assert lines["10% 10sd either: rcgp against SingleTaskGP"]["value"] == pytest.approx(math.log10(0.5))
    json.dumps(list(lines.values()))


def test_revisions_are_compared_pair_by_pair():
    earlier = [row("diff", 0.2, seed=seed) for seed in (0, 1, 5)]
    (line,) = summary.revisions(made(), earlier)
    assert line["name"] == "10% 10sd either: diff against the earlier revision"
    assert line["value"] == pytest.approx(math.log10(0.1 / 0.2))
    assert line["detail"]["pairs"] == 2


def test_the_report_counts_missing_cells():
    functions = len(FUNCTIONS) - len(SETTINGS)
    line = next(iter(summary.summarise(made(), range(2))))
    assert line["value"] == 3 * 2 * 5
    assert line["unit"] == f"of {functions * 2 * len(MAIN) * len(GRID)} cells"
    assert line["detail"]["missing"]["clean"]["diff"] == f"3 of {2 * functions}"
    assert line["detail"]["missing"]["30% 10sd either"]["plain"] == f"0 of {2 * functions}"


def test_late_warnings_of_bad_ends_are_counted():
    regime = "30% 10sd either"
    regrets = {"plain": 1.0, "known": 0.01, "diff": 0.9}
    rows = [row(method, regret, regime=regime, seed=s) for method, regret in regrets.items() for s in range(4)]
    name = "30% outliers: diff, share of what knowing them gains"
    for warned, late in ((None, 0), (20, 0), (38, 4)):
        cells = [r | {"warned": warned} for r in rows]
        line = {line["name"]: line for line in summary.summarise(cells, range(4))}[name]
        assert line["detail"]["runs that end above .5 sd"] == 4
        assert line["detail"]["of them with a warning"] == late


def test_every_faulty_regime_weighs_alike():
    """Half of the gain at one regime, all of it at the others; a seed that lacks a regime does not count."""
    faulty = [name for name, regime in contamination.REGIMES.items() if regime.kind not in ("none", "student")]
    rows = [row("diff", 0.1 if regime == faulty[0] else 0.01, regime=regime) for regime in faulty]
    rows += [
        row(method, regret, regime=regime) for regime in faulty for method, regret in (("plain", 1.0), ("known", 0.01))
    ]
    rows += [row(method, 1.0, regime=faulty[0], seed=1) for method in ("plain", "diff")] + [
        row("known", 0.001, regime=faulty[0], seed=1)
    ]
    lines = {line["name"]: line for line in summary.summarise(rows, range(2))}
    share = lines["every regime with outliers: diff, share of what knowing the outliers gains"]
    assert share["detail"]["pairs"] == len(faulty) == 7
    assert share["value"] == pytest.approx(1.0 - 0.5 / 7)
    assert lines["contaminated: diff, share of what knowing the outliers gains"]["detail"]["pairs"] == 3


def test_differences_are_paired_and_resampled_by_problem_and_seed():
    regimes = [f"r{i}" for i in range(3)]
    table = {
        "ours": {("levy2", r, s): {"regret": 10.0 ** -(s % 2)} for r in regimes for s in range(10)},
        "theirs": {("levy2", r, s): {"regret": 1.0} for r in regimes for s in range(10)}
        | {("ackley2", "r0", 0): {"regret": 5.0}},
        "one": {("levy2", "r0", 0): {"regret": 1.0}},
        "none": {},
    }
    gap = summary.difference(table, "ours", "theirs")
    assert gap.value == pytest.approx(-0.5)
    assert (gap.pairs, gap.clusters) == (30, 10)
    reach = 1.96 * 0.5 / math.sqrt(10)  # of ten clusters, not of thirty cells
    assert gap.high - gap.value == pytest.approx(reach, abs=0.06)
    assert gap.value - gap.low == pytest.approx(reach, abs=0.06)
    assert summary.difference(table, "ours", "none") is None
    assert summary.difference(table, "one", "theirs").detail()["95 %"] == [None, None]


def test_differences_of_curves_are_at_the_evaluations_of_both():
    ours, theirs = row("diff", 0.01), row("plain", 1.0) | {"curve": [[10, 1.0], [20, 1.0], [40, 1e-9]]}
    assert gaps(ours, theirs) == {10: 0.0, 40: pytest.approx(1.0)}  # the floor


def test_the_picture_is_drawn_of_what_was_played(tmp_path):
    path = tmp_path / "regret.png"
    draw_picture(made(), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_method_is_ours_or_a_baseline():
    assert {*PEERS, *OURS, "plain", "known"} == set(GRID)


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
