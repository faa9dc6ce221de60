import math

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks.problems.base import Trials
from benchmarks.problems.sensors import IntelLab, UnknownKernelTemperature
from benchmarks.problems.unknown_hyperparameters import (
    UnknownDecomposition,
    UnknownLengthscale,
    UnknownMean,
    UnknownPeriod,
)
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.input_checks import check_kernel_matrix


def test_lengthscale():
    problem = UnknownLengthscale().make(Trials(range(2), 0))
    x = np.linspace(0, 1, 201)
    np.testing.assert_allclose(problem.f[1].numpy(), 0.6 * x + stats.norm.pdf(x, 0.2, 0.08) / 8, rtol=1e-12)
    fine = UnknownLengthscale(num_arms=1001).make(Trials([0], 0))
    assert float(fine.optimum) == pytest.approx(0.7452, abs=5e-5)  # at 0.206, as published
    assert int(fine.f.argmax()) == 206
    candidates = problem.candidates
    assert candidates.lengthscales == (0.3, 0.4, 0.5, 0.7, 1.0)
    assert candidates.names[0] == "l = 0.3"
    assert candidates.true is None
    assert torch.equal(problem.kernel, SquaredExponential(0.3)(problem.arms, problem.arms))
    assert torch.equal(candidates.kernels[3], SquaredExponential(0.7)(problem.arms, problem.arms))
    assert (problem.noise_scale, problem.rewards.noise_var) == (0.1, problem.noise_var)
    assert problem.noise_var == pytest.approx(0.01)
    # B covers what the noise lets see of the norm under the shortest
    K, f = problem.kernel.numpy(), problem.f[0].numpy()
    seen = math.sqrt(f @ np.linalg.solve(K + 0.01 * np.eye(201), f))
    assert f"is {seen:.3g}, " in problem.notes
    assert seen < problem.norm_bound
    matern = UnknownLengthscale(kernel="matern52", lengthscales=[1, 0.5], num_arms=9).make(Trials([0], 0))
    assert torch.equal(matern.kernel, Matern(2.5, 0.5)(matern.arms, matern.arms))


def test_period():
    problem = UnknownPeriod(num_arms=1121).make(Trials([0], 0))  # steps of 1/560: borders and crests are points
    f, x = problem.f[0], problem.arms[:, 0]
    assert float(x[-1]) == 2.0
    torch.testing.assert_close(f[:560], f[560:1120], rtol=0, atol=1e-11)
    # no jump: steps are at most the steepest slope, 1.5 * 8 pi, and the borders are zeros of the waves
    assert float(f.diff().abs().max()) <= 1.5 * 8 * math.pi / 560
    assert float(f[[0, 280, 400, 560]].abs().max()) == pytest.approx(0.0, abs=1e-11)
    # one wave in each piece: crests a quarter or three quarters of 1/4, 1/4, 3/14, 2/7 after its start
    for place, height in ((3 / 16, 1.0), (5 / 16, 1.5), (1 / 2 + 9 / 56, 1.2), (5 / 7 + 1 / 14, 0.8)):
        assert float(f[round(place * 560)]) == pytest.approx(height, rel=1e-9)
    candidates = UnknownPeriod().make(Trials(range(2), 0)).candidates
    assert candidates.names == ("period 1", "period 0.25", "period 0.2143", "period 0.2857")
    assert candidates.true == (0, 0)
    K = candidates.kernels
    # points 0 and 25 of 201 are 1/4 apart: sin^2(pi / 4) = 1/2 under period 1, a whole period under 1/4
    assert float(K[0, 0, 25]) == pytest.approx(math.exp(-1 / 0.09), rel=1e-9)
    assert float(K[1, 0, 25]) == pytest.approx(1.0, rel=1e-12)
    assert torch.equal(UnknownPeriod().make(Trials([0], 0)).kernel, K[0])
    # points 0 and 1 are .01 apart
    of = ((1, 0.3), (1 / 4, 2), (3 / 14, 2), (2 / 7, 3))
    by_hand = [math.exp(-2 * (math.sin(math.pi * 0.01 / p) / ell) ** 2) for p, ell in of]
    assert K[:, 0, 1].tolist() == pytest.approx(by_hand, rel=1e-9)


def test_decomposition():
    problem = UnknownDecomposition().make(Trials([0], 0))
    f, X = problem.f[0].view(11, 11, 11), problem.arms
    assert float(problem.optimum) == pytest.approx(3.437432, abs=1e-6)
    assert float(f[8, 8, 4]) == float(problem.optimum)
    assert float(f[3, 3, 0]) == pytest.approx(2.276359, abs=1e-6)
    assert torch.equal(f, f[:, :, :1].expand_as(f))  # x3 has no part
    normal = stats.multivariate_normal([0.8, 0.8], [[0.02, 0.015], [0.015, 0.02]])
    decoys = np.exp(-((X[:, :2].numpy() - 0.3) ** 2) / 0.02).sum(1) / (0.2 * math.pi)
    expected = (normal.pdf(X[:, :2].numpy()) + 2.5 * decoys) / 3.5
    np.testing.assert_allclose(problem.f[0].numpy(), expected, rtol=1e-10, atol=1e-14)
    K, names = problem.candidates.kernels, problem.candidates.names
    assert names == ("(1)(2)(3)", "(1,2)(3)", "(1)(2,3)", "(2)(1,3)")
    assert problem.candidates.true == (1,)
    assert torch.equal(problem.kernel, K[1])
    torch.testing.assert_close(K.diagonal(dim1=1, dim2=2), torch.ones_like(K[:, 0]), rtol=0, atol=1e-12)
    # (0, 0, 0) and (.1, .1, 0): e = exp(-1/2) per axis moved, e^2 for two in one group
    e, j = math.exp(-0.5), 11 * 11 + 11
    by_hand = [(2 * e + 1) / 3, (e * e + 1) / 2, (e + e) / 2, (e + e) / 2]
    assert K[:, 0, j].tolist() == pytest.approx(by_hand, rel=1e-9)
    # f is in the RKHS of the true one on this grid, within B; far outside that of the additive one
    f = problem.f[0]
    norms = [float((f @ torch.linalg.solve(k + 1e-6 * torch.eye(len(f)).double(), f)).sqrt()) for k in K[:2]]
    assert norms[1] < problem.norm_bound < 0.01 * norms[0]


def test_mean():
    trials = 3000
    problem = UnknownMean(num_arms=101, outputscale=0.0625).make(Trials(range(trials), 0))
    candidates, true = problem.candidates, np.array(problem.candidates.true)
    assert candidates.kernels is None
    assert candidates.names[0] == "hill 1"
    assert candidates.names[10] == "none"
    means = candidates.prior_means
    centers = torch.arange(5, 101, 10)
    for u in range(11):
        heights = [3.0 if i == u else 1.0 for i in range(10)]
        assert means[u, centers].tolist() == pytest.approx(heights, rel=1e-9)
        assert means[u, centers - 5].tolist() == [0.0] * 10  # flat between hills
    assert float(means[10, 7]) == pytest.approx(0.5 * (1 + math.cos(math.pi / 2)), rel=1e-9)  # .02 from a top: half
    assert stats.chisquare(np.bincount(true, minlength=11)).pvalue > 1e-3
    assert torch.equal(problem.prior_mean, means[true])
    rest = problem.f - problem.prior_mean
    K = SquaredExponential(0.1, 0.0625)(problem.arms, problem.arms)
    assert torch.equal(problem.kernel, K)
    # mean and covariance of 3000 draws: errors of sd .25 / sqrt(3000) and .0625 sqrt(2 / 3000)
    assert float(rest.mean(0).abs().max()) < 5 * 0.25 / math.sqrt(trials)
    assert float((rest.T @ rest / trials - K).abs().max()) < 5 * 0.0625 * math.sqrt(2 / trials)
    assert problem.norm_bound is None


def test_temperature(data_dir):
    problem = UnknownKernelTemperature().make(Trials([2], 1))
    plain = IntelLab().make(Trials([2], 1))
    assert torch.equal(problem.f, plain.f)
    assert torch.equal(problem.kernel, plain.kernel)
    K, names = problem.candidates.kernels, problem.candidates.names
    assert names == ("empirical", *(f"SE, {n} sensors" for n in (2, 5, 20)), "Matern 5/2, 5 sensors")
    assert torch.equal(K[0], plain.kernel)
    scale = float(plain.kernel.diagonal().mean())
    assert float(K[2, 10, 15]) == pytest.approx(scale * math.exp(-0.5), rel=1e-9)
    assert problem.candidates.true is None
    for k in K:
        check_kernel_matrix(k)
    # what the notes say of neighbors
    past = np.load(data_dir / "intel_lab/intel_lab_30min.npz")["temperature_train"].astype(np.float64)
    alike = np.corrcoef(past - past.mean(1, keepdims=True), rowvar=False)
    shown = [np.diag(alike, lag).mean() for lag in (1, 5, 10)]
    assert shown == pytest.approx([0.77, 0.24, -0.05], abs=0.005)
