"""Candidates drawn from the posterior of the hyperparameters of BoTorch's ``SingleTaskGP``, after the rewards.

A fit takes one point of that posterior for the truth. After few rewards it is wide, often with several modes. Here the
prior is carried to the posterior in steps (sequential Monte Carlo; Del Moral, Doucet & Jasra 2006): particles are drawn
from the prior, and the exponent of the evidence grows from 0 to 1. After each step particles are drawn again by their
weights. Then they move by elliptical slice sampling (Murray, Adams & MacKay 2010), which leaves the present posterior
as it is and has no constant to set. So modes have the weights that they deserve, wherever one starts.

The logarithms of the lengthscales and of the noise variance are normal a priori: these are BoTorch's priors. The mean
is constant and standard normal, as in BoTorch's ``SaasFullyBayesianSingleTaskGP``. The evidence integrates it out.

Axes: ``k`` particles or draws, ``n`` rows, ``d`` inputs.
"""

import math
from collections.abc import Callable

import torch
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from bo_robust.models.candidate_gps import units
from bo_robust.models.candidate_priors import Candidate
from bo_robust.random import stream
from bo_robust.validation import check_count

NUM_DRAWS = 16
PARTICLES = 64  # at least; draws are some of them
MOVES = 4  # after each step of the exponent
MOST = 100  # rows that the evidence sees: it takes O(n^3), 3 seconds in all at 100
# BoTorch's priors of log lengthscale (plus log(d) / 2) and log noise variance: mean and standard deviation.
LENGTHSCALE, NOISE = (math.sqrt(2.0), math.sqrt(3.0)), (-4.0, 1.0)
SHORTEST, LEAST_NOISE = 0.025, 1e-4  # and its bounds


def draw_hyperparameters(X: Tensor, y: Tensor, num: int = NUM_DRAWS, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Lengthscales ``k x d``, noise variance and mean ``k`` each: equally likely draws from their posterior.

    ``X`` are points ``n x d`` of the unit box, ``y`` standardised rewards ``n``, n >= 0. Of more than 100 rows, 100
    random ones are seen. The same data and seed give the same draws.
    """
    check_count(1, num=num)
    rows = torch.from_numpy(stream(0, "draws", len(X)).permutation(len(X))[:MOST]).to(X.device)
    X, y = X.detach().double()[rows], y.detach().double()[rows]
    d = X.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    evidence = _Evidence(X, y)
    theta = draw_sobol_normal_samples(d + 1, max(PARTICLES, num), X.device, X.dtype, seed=seed)
    value, power = evidence(theta), 0.0
    while power < 1.0:
        step = _step(value, 1.0 - power)
        weights = (step * value).softmax(0)
        power = 1.0 if step == 1.0 - power else power + step
        # Systematic: a particle of weight w comes floor(k w) or floor(k w) + 1 times.
        places = (torch.arange(len(theta), dtype=X.dtype) + torch.rand(1, generator=generator)).to(X) / len(theta)
        rows = torch.searchsorted(weights.cumsum(0), places).clamp_max(len(theta) - 1)
        theta, value = theta[rows], value[rows]
        for _ in range(MOVES):
            theta, value = _moved(theta, value, power, evidence, generator)
    theta = theta[torch.randperm(len(theta), generator=generator)[:num].to(theta.device)]
    lengthscale, noise_var = evidence.hyperparameters(theta)
    center, variance = evidence.mean(theta)
    # One draw of the mean in each of k equally likely intervals: fewer than k of them would do the same by luck.
    levels = (torch.randperm(num, generator=generator) + 0.5).to(X) / num
    return lengthscale, noise_var, center + variance.sqrt() * torch.special.ndtri(levels)


def posterior_candidates(X: Tensor, Y: Tensor, num: int = NUM_DRAWS, seed: int = 0) -> list[Candidate]:
    """Draw candidates for standardised rewards from their posterior, all equally likely.

    Args:
        X: Points ``n x d`` of the unit box.
        Y: Rewards ``n x 1``, in any units.
        num: How many.
        seed: As for :func:`draw_hyperparameters`.
    """
    y = Y[:, 0].detach().double()
    center, scale = units(y)
    made = []
    for lengthscale, noise_var, constant in zip(*draw_hyperparameters(X, (y - center) / scale, num, seed), strict=True):
        kernel, mean = RBFKernel(ard_num_dims=X.shape[-1]).to(y), ConstantMean().to(y)
        kernel.lengthscale = lengthscale
        mean.constant.data.copy_(constant)
        made.append(Candidate(kernel, float(noise_var), mean))
    return made


class _Evidence:
    """Log evidence of standardised rewards, with a standard normal mean, at particles ``k x (d + 1)``.

    Particles are standard normal a priori.
    """

    def __init__(self, X: Tensor, y: Tensor) -> None:
        n, d = X.shape
        self._squares = (X.unsqueeze(1) - X).square().reshape(n * n, d).mT
        self._rows = torch.stack([y, torch.ones_like(y)], -1)
        self._loc = X.new_tensor([LENGTHSCALE[0] + 0.5 * math.log(d)] * d + [NOISE[0]])
        self._scale = X.new_tensor([LENGTHSCALE[1]] * d + [NOISE[1]])
        self._n = n

    def hyperparameters(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Lengthscales ``k x d`` and noise variance ``k``."""
        values = (self._loc + self._scale * theta).exp()
        return values[:, :-1], values[:, -1]

    def _products(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """A^T C^-1 A, ``k x 2 x 2``, of the columns A = (y, 1) and log det C, ``k``, with C = K + noise."""
        lengthscale, noise_var = self.hyperparameters(theta)
        K = (-0.5 * lengthscale.pow(-2.0) @ self._squares).exp().view(len(theta), self._n, self._n)
        K.diagonal(dim1=-2, dim2=-1).add_(noise_var.unsqueeze(-1))
        L, _ = torch.linalg.cholesky_ex(K)
        S = torch.linalg.solve_triangular(L, self._rows.expand(len(K), -1, -1), upper=False)
        return S.mT @ S, 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def mean(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the constant mean after the rewards, ``k`` each."""
        products, _ = self._products(theta)
        variance = 1.0 / (1.0 + products[:, 1, 1])
        return variance * products[:, 0, 1], variance

    def __call__(self, theta: Tensor) -> Tensor:
        """Log evidence ``k``; -inf beyond BoTorch's bounds, within which the matrix has a factor."""
        products, log_det = self._products(theta)
        precision = 1.0 + products[:, 1, 1]
        square = products[:, 0, 0] - products[:, 0, 1].square() / precision
        value = -0.5 * (square + log_det + precision.log() + self._n * math.log(2.0 * math.pi))
        lengthscale, noise_var = self.hyperparameters(theta)
        inside = (lengthscale >= SHORTEST).all(-1) & (noise_var >= LEAST_NOISE)
        return value.masked_fill(~inside, -math.inf)


def _step(value: Tensor, left: float) -> float:
    """How far the exponent grows: as far as half of the particles count, at most by what is left of it."""

    def counting(step: float) -> float:
        return float(1.0 / (step * value).softmax(0).square().sum())

    enough = 0.5 * float(value.isfinite().sum())
    if counting(left) >= enough:
        return left
    low, high = 0.0, left
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if counting(middle) >= enough else (low, middle)
    return high


def _moved(
    theta: Tensor, value: Tensor, power: float, evidence: Callable[[Tensor], Tensor], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """One elliptical slice step of every particle under prior times evidence^power."""

    def uniform() -> Tensor:
        return torch.rand(len(theta), generator=generator, dtype=theta.dtype).to(theta)

    other = torch.randn(theta.shape, generator=generator, dtype=theta.dtype).to(theta)
    limit = power * value + uniform().log()
    angle = 2.0 * math.pi * uniform()
    low, high = angle - 2.0 * math.pi, angle
    new, new_value = theta.clone(), value.clone()
    left = torch.arange(len(theta), device=theta.device)
    while len(left):
        at = angle[left].unsqueeze(-1)
        proposed = at.cos() * theta[left] + at.sin() * other[left]
        found = evidence(proposed)
        good = power * found > limit[left]
        new[left[good]], new_value[left[good]] = proposed[good], found[good]
        left = left[~good]
        low, high = angle.where(angle < 0, low), angle.where(angle >= 0, high)  # of those that moved, no matter
        angle = low + uniform() * (high - low)
    return new, new_value
