"""A BoTorch loop on a continuous problem with rewards of infinite variance: TruncatedFeatureGP against SingleTaskGP."""

import math
import warnings

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import RBFKernel
from torch.quasirandom import SobolEngine

from benchmarks.problems.rewards import SymmetricPareto
from bo_robust import GPUCB, FourierMap, TruncatedFeatureGP
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.truncation import ATAFourierTruncation
from bo_robust.utils.random import stream
from tests.problems import fit

START, ROUNDS, SEEDS, NODES, LENGTHSCALE = 8, 30, 24, 12, 0.25
NOISE = SymmetricPareto(1.5, 0.574)  # median absolute value that of N(0, 0.25)
CENTERS = torch.tensor([[0.75, 0.7], [0.2, 0.3], [0.25, 0.8], [0.75, 0.2]], dtype=torch.float64)
HEIGHTS = torch.tensor([1.5, 1.0, -1.0, -1.0], dtype=torch.float64)
MAX_F = 1.287521  # over 2^15 Sobol points; no value is larger in absolute value


def f(X):
    """Four bumps of the unit square, sd 0.58."""
    return (HEIGHTS * torch.exp(-0.5 * ((X.unsqueeze(-2) - CENTERS) / LENGTHSCALE).square().sum(-1))).sum(-1)


class Fitted:
    """SingleTaskGP as it comes: standardized rewards, hyperparameters by MLE, here every fifth round."""

    def __init__(self):
        self.calls, self.kept = 0, {}

    def __call__(self, X, Y):
        if self.calls % 5 == 0:
            model = fit(SingleTaskGP(X, Y))
            self.kept = {"covar_module": model.covar_module, "likelihood": model.likelihood}
        self.calls += 1
        return SingleTaskGP(X, Y, **self.kept)


def truncated(X, Y):
    """ATA at the theorem's level, with the lengthscale of the bumps and the variance of the bulk of the noise."""
    kernel = RBFKernel().double()
    kernel.lengthscale = LENGTHSCALE
    alpha = NOISE.default_alpha
    level = ATAFourierTruncation(NOISE.moment_bound(alpha, MAX_F), alpha, 0.1, START + ROUNDS, NODES**2)
    return TruncatedFeatureGP(X, Y, FourierMap(NODES), level, noise_var=0.25, covar_module=kernel)


def run_rounds(model, seed):
    """Average regret of one loop: GP-UCB at one width for both models, the same start and the same noise."""
    width = FiniteWidth(2000, 0.1, scale=5**-0.5)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    eta = torch.from_numpy(NOISE.draw(stream(seed, "reward", 0), START + ROUNDS))
    X = SobolEngine(2, scramble=True, seed=seed).draw(START, dtype=torch.float64)
    Y = f(X).unsqueeze(-1) + eta[:START]
    for t in range(START, START + ROUNDS):
        options = {"maxiter": 20, "seed": 1000 * seed + t}
        acquisition = GPUCB(model(X, Y), width, t=t + 1)
        x, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=2, raw_samples=32, options=options)
        X, Y = torch.cat([X, x]), torch.cat([Y, f(x).unsqueeze(-1) + eta[t]])
    return MAX_F - float(f(X[START:]).mean())


def regrets(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.tensor([run_rounds(model(), seed) for seed in (*range(SEEDS), *range(100, 100 + SEEDS))])


@pytest.mark.slow
def test_truncated_feature_gp_beats_single_task_gp():
    """Forty-eight paired loops: median average regret 0.72 against 0.93, 39 won (2026-11-21).

    Rounding decides some trials, so machines differ: another won 35. The test of the mean log ratio allows for it.
    SingleTaskGP here is what a user gets: a fit by MLE, which follows the outliers. With the hyperparameters of
    `truncated` fixed in both, 30 rounds are too few for truncation to show: FeatureGP without it is level
    (benchmarks/results/continuous.json).
    """
    ratio = (regrets(lambda: truncated) / regrets(Fitted)).log()
    assert float(ratio.median()) < math.log(0.95)
    assert float(ratio.mean()) < -2 * float(ratio.std()) / len(ratio) ** 0.5  # one-sided, p = 0.03
