import math
import re

import numpy as np
import pytest
import torch
from scipy import linalg

from benchmarks.problems.base import Trials
from benchmarks.problems.rewards import Gaussian
from benchmarks.problems.synthetic import GPDraw, ManyArms, RKHSFunction, SpikedFunction
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import stream


@pytest.mark.parametrize(("positive", "low"), [(False, -1.0), (True, 0.0)])
def test_rkhs_function_is_the_sum_of_the_paper(positive, low):
    rng = stream(11, "problem", 3)
    a, centers = rng.uniform(low, 1.0, 100), rng.integers(0, 20, 100)
    x = np.linspace(0, 1, 20)
    f = sum(a[i] * np.exp(-((x - x[centers[i]]) ** 2) / (2 * 0.2**2)) for i in range(100))
    scaled = RKHSFunction(num_arms=20, positive=positive).make(Trials([3], 11))
    np.testing.assert_allclose(scaled.f[0].numpy(), f / np.abs(f).max(), rtol=1e-10, atol=1e-12)
    assert scaled.norm_bound == 1.0
    assert scaled.moment_bound == pytest.approx(4.0)
    gram = np.exp(-((x[centers][:, None] - x[centers]) ** 2) / (2 * 0.2**2))
    norm = math.sqrt(a @ gram @ a) / np.abs(f).max()
    stated = float(re.search(r"norms of these trials are ([\d.]+)", scaled.notes).group(1))
    assert stated == pytest.approx(norm, rel=0.01)
    assert norm >= 1.0  # |f(x)| <= ||f|| sqrt(k(x, x)): B = max|f| is below the norm


def test_gp_draw_is_the_symmetric_root_times_normals():
    problem = GPDraw(num_arms=6, lengthscale=0.15).make(Trials([0, 5], 3))
    x = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(1)
    K = SquaredExponential(0.15)(x, x).numpy()
    z = np.stack([stream(3, "problem", i).standard_normal(6) for i in (0, 5)])
    np.testing.assert_allclose(problem.f.numpy(), z @ linalg.sqrtm(K).real, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("every_pull", [False, True])
def test_spiked_function(device, every_pull):
    problem = SpikedFunction(every_pull=every_pull).make(Trials(range(50), 0)).to(device, torch.float64)
    assert torch.equal(problem.f, problem.f[:1].expand_as(problem.f))
    assert float(problem.f.min()) == 0.0
    assert float(problem.f.max()) == 1.0
    points, streams = problem.rewards.points, [stream(0, "problem", i, block=1) for i in range(50)]
    assert points.tolist() == [int(rng.integers(100)) for rng in streams]
    signs = [1.0 if every_pull else float(rng.choice([-1.0, 1.0])) for rng in streams]
    plus = torch.ones(50, 1, dtype=torch.float64, device=device)
    rewards = torch.stack([problem.rewards(problem.f, torch.full_like(points, a), plus) for a in range(100)], 1)
    spiked = (rewards - problem.f).abs() > 1e-9
    assert torch.equal(spiked.sum(dim=1), torch.ones_like(points))
    torch.testing.assert_close(rewards[spiked] - problem.f[spiked], 10.0 * plus.new_tensor(signs))
    assert problem.moment_bound == 101.0


def test_many_arms_is_the_sum_over_one_set_of_arms(device):
    problem = ManyArms(num_arms=200, dim=3, lengthscale=0.4).make(Trials([4, 9], 7)).to(device, torch.float64)
    arms = stream(7, "arms", 0).random((200, 3))
    assert np.array_equal(problem.arms.cpu().numpy(), arms)
    for row, trial in enumerate([4, 9]):
        rng = stream(7, "problem", trial)
        a, centers = rng.uniform(-1.0, 1.0, 100), rng.random((100, 3))
        f = np.exp(-((arms[:, None] - centers) ** 2).sum(2) / (2 * 0.4**2)) @ a
        np.testing.assert_allclose(problem.f[row].cpu().numpy(), f / np.abs(f).max(), rtol=1e-10, atol=1e-12)
    assert (problem.kernel, problem.rewards) == (SquaredExponential(0.4), Gaussian(0.01))
    assert (problem.noise_var, problem.noise_scale) == (0.01, pytest.approx(0.1))
    assert problem.moment_bound == pytest.approx(1.01)
