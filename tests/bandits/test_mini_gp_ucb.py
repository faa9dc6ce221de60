import math

import pytest
import torch

from bo_robust.bandits.mini_gp_ucb import MiniGPUCB
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.ops.arm_update import cpu, naive
from tests.bandits.problems import draw_from_prior, go_on, kernel


def problem(n, s, T, device):
    """f of the prior (s x n), noise and uniforms (T x s)."""
    return draw_from_prior(kernel("cpu", n).matrix, s, T, 0.3, device)


def value(x, device):
    return torch.tensor([x], dtype=torch.float64, device=device)


def test_selects_by_hand_and_keeps_the_arm(device):
    # K = I, lambda = 1, C = 2, w = 1. Arm 0 (first of equals) 3 times; rewards of mean 0: bound sqrt(1/4) < 1. Arm 1
    # 3 times; mean reward 2: mean 2 * 3/4 = 1.5, bound 2 > 1: arm 1 again, 12 times.
    algorithm = MiniGPUCB(ConstantWidth(1.0), 2.0)
    state = algorithm.init(ArmKernel.from_matrix(torch.eye(3, dtype=torch.float64, device=device)), 1.0)
    chosen = []
    for t in range(18):
        selection = algorithm.select(state, value(0.5, device))
        assert selection.width == 1.0
        chosen.append(int(selection.arms))
        y = (1.0, 0.0, -1.0)[t % 3] if chosen[-1] == 0 else (1.0, 2.0, 3.0)[t % 3]
        algorithm.observe(state, selection.arms, value(y, device))
    assert chosen == [0] * 3 + [1] * 15
    assert state.posterior.counts.tolist() == [[3.0, 15.0, 0.0]]
    assert state.posterior.mean.tolist()[0] == pytest.approx([0.0, 2.0 * 15 / 16, 0.0])


def test_failed_pulls_count_as_pulls_and_teach_nothing(device):
    # 3 pulls, of which one fails: mean 2 * 1.5 / 3 = 1, sigma^2 = 1/3, so 9 pulls; these all fail, so 9 again
    algorithm, nan = MiniGPUCB(ConstantWidth(1.0), 2.0), math.nan
    state = algorithm.init(ArmKernel.from_matrix(torch.ones(1, 1, dtype=torch.float64, device=device)), 1.0)
    arm, posterior = torch.zeros(1, dtype=torch.long, device=device), state.posterior
    ok = [bool(algorithm.observe(state, arm, value(y, device)).ok) for y in (1.0, nan, 2.0)]
    assert ok == [True, False, True]
    assert (float(posterior.counts), float(posterior.mean)) == pytest.approx((2.0, 1.0))
    before = posterior.mean.clone(), posterior.variance.clone(), posterior.information_gain.clone()
    for y in [nan, math.inf, -math.inf] * 3:
        assert not algorithm.observe(state, arm, value(y, device)).ok.any()
    assert state.left.tolist() == [0]
    after = posterior.mean, posterior.variance, posterior.information_gain
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    for y in range(9):
        assert float(posterior.counts) == 2.0
        algorithm.observe(state, arm, value(float(y), device))
    assert float(posterior.counts) == 11.0
    assert float(posterior.mean) == pytest.approx((3.0 + 36.0) / 12.0)


@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("path", ["own", "naive"])
def test_posterior_is_that_of_every_reward_by_itself(n, path, device, monkeypatch):
    """After each repetition, against the arm engine given its rewards one by one; and C bounds every sigma's fall."""
    if path == "naive":
        monkeypatch.setattr(arm_states.arm_update, "update_", naive.update_)
    factor = 1.3
    algorithm, (f, noise, uniforms) = MiniGPUCB(FiniteWidth(n, 0.1), factor), problem(n, 1, 400, device)
    noise[torch.arange(5, 400, 17)] = math.nan
    state, exact = algorithm.init(kernel(device, n), 0.1), arm_states.init(kernel(device, n), 0.1)
    waiting, lengths = [], []
    for eta, u in zip(noise, uniforms, strict=True):
        arm = algorithm.select(state, u).arms
        before = state.posterior.variance.clone()
        y = f[:, arm[0]] + eta
        algorithm.observe(state, arm, y)
        waiting.append((arm, y))
        if int(state.left) == 0:
            for a, r in waiting:
                arm_states.observe(exact, a, r)
            if len(waiting) > 1:
                assert bool((state.posterior.variance >= before / factor**2 - 1e-9).all())
            lengths.append(len(waiting))
            waiting = []
            assert torch.equal(state.posterior.counts, exact.counts)
    assert max(lengths) > 20
    for name in ("mean", "variance", "information_gain"):
        ours, theirs = getattr(state.posterior, name), getattr(exact, name)
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.cpu_only("the round on a CPU takes in the trials that are due alone")
def test_trials_under_way_neither_change_nor_pay(monkeypatch):
    taken, real = [], cpu._condition_
    monkeypatch.setattr(cpu, "_condition_", lambda b, trial, *args: taken.append(trial) or real(b, trial, *args))
    n, s = 300, 5
    algorithm, (f, noise, uniforms) = MiniGPUCB(FiniteWidth(n, 0.1), 1.4), problem(n, s, 300, "cpu")
    state, mixed = algorithm.init(kernel("cpu", n), 0.1, s), 0
    for eta, u in zip(noise, uniforms, strict=True):
        posterior = state.posterior
        before = posterior.mean.clone(), posterior.variance.clone()
        taken.clear()
        go_on(algorithm, state, f, eta.unsqueeze(0), u.unsqueeze(0))
        ended = state.left == 0
        for a, b in zip(before, (posterior.mean, posterior.variance), strict=True):
            assert ((a == b).all(1) == ~ended).all()
        if ended.any() and not ended.all():
            assert taken == ended.nonzero().squeeze(1).tolist()
            mixed += 1
    assert mixed > 50
