"""The exact GP posteriors of h candidate priors on the same n points, as one batch of Cholesky factors.

Let L L^T = K_u + lambda_u I and z = L^-1 (y - m_u). Before candidate u saw y_i, its prediction of row i was y_i - L_ii
z_i, with variance L_ii^2 - lambda_u of f. So one factor holds every prediction of a sequential run, and with them the
log marginal likelihood and the information gain.

Where arms are finite, :mod:`bo_robust.posteriors.candidates` gives the same numbers at a cost per round that does not
grow with the rounds.

Axes: ``h`` candidates, ``n`` rows of data, ``k`` new rows, ``N`` points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def log_density(square: Tensor, variance: Tensor) -> Tensor:
    """log N(y; mu, variance) in nats, from ``square`` = (y - mu)^2 / variance. Both arguments are overwritten."""
    return square.add_(variance.mul_(2.0 * math.pi).log_()).mul_(-0.5)


@dataclass(frozen=True)
class Predictions:
    """What every candidate predicted of ``k`` rows, each before its reward was seen; ``h x k`` each."""

    mean: Tensor  # mu_{i-1}(x_i)
    sd: Tensor  # sigma_{i-1}(x_i), of f
    gain: Tensor  # 1/2 log(1 + sigma_{i-1}^2(x_i) / lambda), in nats
    log_density: Tensor  # log N(y_i; mu_{i-1}(x_i), sigma_{i-1}^2(x_i) + lambda), in nats


@dataclass(frozen=True, eq=False)
class CandidateFactor:
    """L and z of every candidate; immutable."""

    noise_var: Tensor  # lambda, `h x 1`
    L: Tensor  # `h x n x n`
    z: Tensor  # `h x n`

    @classmethod
    def empty(cls, noise_var: Tensor) -> CandidateFactor:
        """The factor of no rows; ``noise_var`` is ``h x 1``."""
        h = len(noise_var)
        return cls(noise_var, noise_var.new_zeros(h, 0, 0), noise_var.new_zeros(h, 0))

    def solved(self, cross: Tensor) -> Tensor:
        """S = L^-1 k(data, X), ``h x n x N``, from ``cross`` = k(data, X)."""
        return torch.linalg.solve_triangular(self.L, cross, upper=False)

    def raised(self, S: Tensor) -> Tensor:
        """What the data add to the prior mean at N points, ``h x ... x N``, from their S, ``h x ... x n x N``."""
        z = self.z.view(len(self.z), *(1,) * (S.ndim - 3), 1, -1)
        return (z @ S).squeeze(-2)

    def extended(self, cross: Tensor, within: Tensor, error: Tensor | None, names: Sequence[str]) -> CandidateFactor:
        """A new factor with k more rows, O(h k n^2).

        ``cross`` is k(data, X) of the new points (``h x n x k``), ``within`` is k(X, X) (``h x k x k``), and ``error``
        is y - m_u(X) (``h x k``). With ``error`` None the rewards are what each candidate expects: means stay and
        variances shrink. Raises ``ValueError`` with a name of ``names`` if that candidate's kernel is not positive
        semi-definite on the points.
        """
        S = self.solved(cross)
        h, n, k = S.shape
        C = within - S.mT @ S if n else within.clone()  # of many first points every copy counts
        C.diagonal(dim1=-2, dim2=-1).add_(self.noise_var)
        new, info = torch.linalg.cholesky_ex(C)
        # A pivot below lambda means a negative variance of f. Half the digits are allowed to rounding.
        slack = math.sqrt(torch.finfo(C.dtype).eps) * (within.diagonal(dim1=-2, dim2=-1) + self.noise_var)
        pivots = new.diagonal(dim1=-2, dim2=-1)  # a number that is none anywhere makes the pivot of its row none
        bad = (info > 0) | ~(pivots.square() - self.noise_var >= -slack).all(-1)
        if bool(bad.any()):
            u = int(bad.nonzero()[0])
            raise ValueError(
                f"{names[u]}: its kernel is not positive semi-definite on the points (or its noise_var "
                f"{float(self.noise_var[u]):g} is lost in rounding); change the kernel or raise noise_var."
            )
        L, z = new, C.new_zeros(h, k)
        if n:
            L = C.new_zeros(h, n + k, n + k)
            L[:, :n, :n], L[:, n:, :n], L[:, n:, n:] = self.L, S.mT, new
        if error is not None:
            error = error - self.raised(S)
            z = torch.linalg.solve_triangular(new, error.unsqueeze(-1), upper=False).squeeze(-1)
        return CandidateFactor(self.noise_var, L, torch.cat([self.z, z], 1))

    def predictions(self, y: Tensor) -> Predictions:
        """What was predicted of the last k rows, whose rewards are ``y`` (``k``); in float64, on the host."""
        first = self.L.shape[1] - len(y)
        L, z, y, noise = (
            x.detach().double().cpu()
            for x in (self.L.diagonal(dim1=-2, dim2=-1)[:, first:], self.z[:, first:], y, self.noise_var)
        )
        total = L.square()
        sd, gain = (total - noise).clamp_min(0.0).sqrt(), 0.5 * (total / noise).log()
        return Predictions(y - L * z, sd, gain, log_density(z.square(), total))

    def subset(self, members: list[int]) -> CandidateFactor:
        """The factor of some candidates."""
        index = torch.tensor(members, device=self.L.device)
        return CandidateFactor(self.noise_var[index], self.L[index], self.z[index])
