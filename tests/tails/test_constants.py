"""The recommendation on simulated and real rewards, pictures and the command."""

import dataclasses
import math
import runpy
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from bo_robust.experiments.problems.data import load_csv, load_npz
from bo_robust.tails import choose_constants, choose_rule, hill, moment_bound, tail_plot
from bo_robust.truncation import TGPTruncation

N = 2000


def signs(rng):
    return rng.choice([-1.0, 1.0], N)


SIMULATED = {
    "gaussian": (lambda rng: rng.standard_normal(N), False, "zero"),
    "uniform": (lambda rng: rng.random(N), False, None),  # nothing to truncate: any rule
    "t3": (lambda rng: rng.standard_t(3, N), False, "zero"),
    "symmetric Pareto 1.5": (lambda rng: signs(rng) * rng.pareto(1.5, N), True, "zero"),
    "spikes": (lambda rng: rng.standard_normal(N) + 100.0 * signs(rng) * (rng.random(N) < 1 / 500), True, "zero"),
    "Pareto 1.3 up": (lambda rng: rng.pareto(1.3, N), True, "clip"),
    "Pareto 1.3 down": (lambda rng: 3.0 - 0.1 * rng.pareto(1.3, N), True, "clip"),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_rule_on_simulated_rewards(name):
    draw, worthwhile, rule = SIMULATED[name]
    rng = np.random.default_rng(12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = [choose_constants(draw(rng), horizon=3000) for _ in range(40)]
    assert np.mean([f.worthwhile == worthwhile and rule in (None, f.rule) for f in found]) >= 0.85


def test_few_rewards_of_finite_variance_are_rarely_called_heavy():
    rng = np.random.default_rng(13)
    for draw, most in ((lambda: rng.standard_normal(100), 0.0), (lambda: rng.standard_t(3, 100), 0.2)):
        assert np.mean([choose_constants(draw()).worthwhile for _ in range(60)]) <= most


def test_constants_of_gaussian_rewards():
    y = 50.0 + 3.0 * np.random.default_rng(14).standard_normal(20_000)
    found = choose_constants(y)
    sigma = 1.0 / 0.67449  # in MADs
    assert found.centre == pytest.approx(50.0, abs=0.1)
    assert found.scale == pytest.approx(3.0 / sigma, rel=0.02)
    assert (found.alpha, found.rule, found.worthwhile) == (1.0, "zero", False)
    assert found.moment_bound == pytest.approx(2.0 * sigma**2, rel=0.05)
    assert found.noise_var == pytest.approx(sigma**2, rel=0.05)


def test_constants_of_infinite_variance():
    rng = np.random.default_rng(15)
    y = signs(rng) * rng.pareto(1.7, N)
    found = choose_constants(y, horizon=3000)
    assert found.hill == hill((y - found.centre) / found.scale, confidence=0.9)
    assert found.alpha == pytest.approx(0.5 * (0.5 * (found.hill.index + found.hill.lower) - 1.0))
    assert 0.05 < found.alpha < 0.5
    b = 2.0 * TGPTruncation(found.moment_bound, found.alpha)(1)
    assert found.noise_var == pytest.approx(np.clip((y - found.centre) / found.scale, -b, b).var(ddof=1))
    assert "infinite" in found.text
    assert "scale below 1" in found.text
    assert found.text.count("clip") == 0


def test_result_does_not_depend_on_units_or_container(device):
    y = np.random.default_rng(16).standard_t(2, 600)
    arms = np.repeat(["a", "b", "c"], 200)
    found = choose_constants(y, arms)
    other = choose_constants(pd.Series(-7.0 + 64.0 * y), pd.Series(arms, index=range(600, 1200)))
    assert other.centre == pytest.approx(64.0 * found.centre - 7.0)
    assert other.scale == pytest.approx(64.0 * found.scale)
    for name in ("alpha", "moment_bound", "noise_var"):
        assert getattr(other, name) == pytest.approx(getattr(found, name))
    numbers = torch.arange(3, device=device).repeat_interleave(200)
    assert choose_constants(torch.from_numpy(y).to(device), numbers) == found
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.alpha = 1.0


def test_arms_take_f_out_of_the_noise():
    rng = np.random.default_rng(17)
    arms = np.repeat(np.arange(5), 400)
    y = 10.0 * arms + rng.standard_normal(2000)
    with_arms, pooled = choose_constants(y, arms), choose_constants(y)
    assert with_arms.noise_var * with_arms.scale**2 == pytest.approx(1.0, rel=0.1)
    assert pooled.noise_var * pooled.scale**2 > 100.0
    # v covers f at the arm farthest from the centre, arm 0 or 4 at 20: twice the limit of 401 / scale^2
    assert with_arms.moment_bound * with_arms.scale**2 == pytest.approx(2.0 * 401.0, rel=0.1)
    assert "5 arm(s)" in with_arms.text


def test_few_rewards_of_each_arm_are_pooled_for_v():
    rng = np.random.default_rng(18)
    y = rng.standard_normal(400)
    found = choose_constants(y, np.arange(400) % 20)
    z = (y - found.centre) / found.scale
    assert found.moment_bound == pytest.approx(2.0 * moment_bound(z, 1.0, confidence=0.9).upper)


@pytest.mark.parametrize("per_arm", [40, 50, 55])
def test_one_fault_is_not_the_moment_of_its_arm(per_arm):
    """Spikes of 100 at 1 in 500: v is that of the noise and of f, whichever arm was hit."""
    rng, arms = np.random.default_rng(25), np.repeat(np.arange(20), per_arm)
    found = []
    for _ in range(10):
        y = 0.5 * np.sin(arms) + rng.standard_normal(len(arms))
        y += 100.0 * rng.choice([-1.0, 1.0], len(y)) * (rng.random(len(y)) < 1 / 500)
        found.append(choose_constants(y, arms, horizon=3000))
    assert max(f.moment_bound for f in found) < 20.0
    assert np.mean([f.worthwhile for f in found]) >= 0.7


def test_few_rewards_of_far_arms_are_pooled_around_their_medians():
    rng, arms = np.random.default_rng(26), np.repeat(np.arange(5), 50)
    y = 10.0 * arms + rng.standard_normal(250)
    found = choose_constants(y, arms)
    z = (y - found.centre) / found.scale
    medians = np.array([np.median(z[arms == a]) for a in range(5)])
    noise = 2.0 * moment_bound(z - medians[arms], 1.0, confidence=0.9).upper
    assert found.moment_bound == pytest.approx((np.abs(medians).max() + math.sqrt(noise)) ** 2)


def test_alpha_seldom_exceeds_what_has_a_moment():
    rng = np.random.default_rng(27)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = [choose_constants(signs(rng)[:1000] * rng.pareto(1.2, 1000)).alpha for _ in range(60)]
    assert np.mean(np.array(found) > 0.2) <= 0.1


def test_f_scale_enters_v_by_minkowski():
    y = np.random.default_rng(19).standard_normal(2000)
    found, wider, same = choose_constants(y), choose_constants(y, f_scale=5.0), choose_constants(y, f_scale=0.0)
    assert same.moment_bound == pytest.approx(found.moment_bound, rel=1e-3)
    expected = (5.0 / found.scale + math.sqrt(found.moment_bound)) ** 2
    assert wider.moment_bound == pytest.approx(expected, rel=1e-3)


def test_rule_is_residual_where_zeroing_would_move_a_far_arm():
    rng = np.random.default_rng(20)
    labels = np.repeat([0, 1], 500)
    z = np.where(labels == 1, 6.0, 0.0) + rng.standard_normal(1000)
    spikes = rng.random(1000) < 0.05
    z[spikes] += 200.0 * rng.choice([-1.0, 1.0], int(spikes.sum()))
    assert choose_rule(z, labels, 50.0, None) == (True, "residual")
    assert choose_rule(np.where(labels == 1, z - 6.0, z), labels, 50.0, None) == (True, "zero")
    assert choose_rule(np.where(spikes, 200.0, z), labels, 50.0, None)[1] == "clip"
    assert choose_rule(z, labels, 500.0, None) == (False, "zero")


def test_no_mean_warns():
    y = signs(np.random.default_rng(21)) * np.random.default_rng(22).pareto(0.7, N)
    with pytest.warns(UserWarning, match="no method can find"):
        found = choose_constants(y)
    assert found.alpha == 0.05
    assert "no mean" in found.text


def test_two_valued_tail_is_not_estimated():
    y = np.concatenate([np.linspace(-1.0, 1.0, 300), [10.0] * 15, [-10.0] * 15])
    found = choose_constants(y)
    assert found.hill is None
    assert found.moment is None
    assert found.alpha == 1.0
    assert "no tail to estimate" in found.text


@pytest.mark.parametrize(
    ("y", "kwargs", "message"),
    [
        (np.where(np.arange(200) == 7, math.inf, np.arange(200.0)), {}, "1 NaN or infinite"),
        (np.arange(200.0), {"arms": np.arange(200)}, "no arm has two rewards"),
        (np.arange(200.0), {"horizon": 0}, "horizon"),
        (np.arange(200.0), {"f_scale": -1.0}, "f_scale"),
    ],
)
def test_refusals(y, kwargs, message):
    with pytest.raises(ValueError, match=message):
        choose_constants(y, **kwargs)


def test_latencies_are_heavy_and_one_sided(data_dir):
    rtt = load_npz("seattle_latency", data_dir)["rtt_10ms"] / 100.0
    links = rtt[:, ~np.eye(99, dtype=bool)]
    assert hill(links, k=links.size // 100).index == pytest.approx(1.3, abs=0.1)  # as its README says
    client = -np.delete(rtt[:344, 0], 0, axis=1)
    arms = np.tile(np.arange(98), 344)
    for found in (choose_constants(client, horizon=3000), choose_constants(client, arms, horizon=3000)):
        assert found.hill.upper < 2.0
        assert found.rule == "clip"
        assert found.alpha < 0.5


def test_stock_returns_are_heavy_but_of_finite_variance_prices_are_light(data_dir):
    prices = load_csv("djia29", data_dir).iloc[:, 1:].to_numpy(dtype=np.float64)
    returns = np.diff(np.log(prices), axis=0)
    arms = np.tile(np.arange(29), len(prices))
    of_returns, of_prices = choose_constants(returns, arms[29:]), choose_constants(prices, arms)
    assert 2.0 < of_returns.hill.lower < of_returns.hill.index < 5.0
    assert of_prices.hill.index > of_returns.hill.index + 1.0
    assert not of_returns.worthwhile
    assert not of_prices.worthwhile


@pytest.mark.parametrize("size", [150, 5000])
def test_plot(tmp_path, size):
    y = np.random.default_rng(23).standard_t(2, size)
    figure = tail_plot(y, tmp_path / "tail.png", arms=np.arange(size) % 3)
    assert (tmp_path / "tail.png").read_bytes().startswith(b"\x89PNG")
    assert [axis.get_title().split()[0] for axis in figure.axes] == ["quantiles", "mean", "Hill"]
    estimates = figure.axes[2].lines[0]
    k = int(estimates.get_xdata()[-1])
    medians = pd.Series(y).groupby(np.arange(size) % 3).transform("median")
    assert estimates.get_ydata()[-1] == pytest.approx(hill(y - medians, k=k).index)


def test_plot_refuses_constant_rewards():
    with pytest.raises(ValueError, match="no scale to draw by"):
        tail_plot(np.ones(200))


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(24)
    frame = pd.DataFrame({"reward": rng.standard_t(3, 400), "arm": np.repeat(["a", "b"], 200), "gaps": np.nan})
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bo_robust.tails", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("bo_robust.tails", run_name="__main__")
    return stop.value.code


def test_command(monkeypatch, capsys, table):
    picture = table.with_name("tail.png")
    arguments = (table, "--column", "reward", "--arms", "arm", "--horizon", 500, "--plot", picture)
    assert call(monkeypatch, *arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    frame = pd.read_csv(table)
    assert printed == choose_constants(frame["reward"], frame["arm"], horizon=500).text
    assert picture.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--column", "rewards"), "has no column 'rewards'; it has reward, arm, gaps"),
        (("--column", "gaps"), "NaN"),
        (("--column", "arm"), "must be numbers"),
        (("--column", "reward", "--horizon", "0"), "horizon"),
    ],
)
def test_command_errors_are_one_line(monkeypatch, capsys, table, arguments, message):
    assert call(monkeypatch, table, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("bo_robust.tails: ")
    assert message in error
    assert error.count("\n") == 1


def test_command_without_a_file(tmp_path):
    missing = [sys.executable, "-m", "bo_robust.tails", str(tmp_path / "none.csv"), "--column", "y"]
    done = subprocess.run(missing, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "none.csv" in done.stderr
