"""The posteriors of several candidate priors on the same data: one batch of Cholesky factors.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bo_robust.models.candidate_priors import Candidate, placed

__all__ = ["CandidateFactor"]


@dataclass(frozen=True, eq=False)
class CandidateFactor:
    """L L^T = K_u + lambda_u I and z = L^-1 (y - m_u) under every candidate u; points are transformed ones.

    What candidate u predicts of row i from the rows before it is y_i - L_ii z_i, with variance L_ii^2 - lambda_u.

    Attributes:
        candidates: ``h``.
        points: ``n x d``.
        L: ``h x n x n``.
        z: ``h x n``.
    """

    candidates: tuple[Candidate, ...]
    points: Tensor
    L: Tensor
    z: Tensor

    @classmethod
    def empty(cls, candidates: tuple[Candidate, ...], points: Tensor) -> CandidateFactor:
        """Of no rows; ``points`` is ``0 x d``."""
        h = len(candidates)
        return cls(candidates, points, points.new_zeros(h, 0, 0), points.new_zeros(h, 0))

    @property
    def noise(self) -> Tensor:
        """lambda, ``h x 1``."""
        return self.points.new_tensor([[c.noise_var] for c in self.candidates])

    def extended(self, X: Tensor, y: Tensor | None = None) -> CandidateFactor:
        """With rows appended, O(h n^2) each.

        Args:
            X: ``k x d``.
            y: Rewards, ``k``; None: what every candidate expects there (means stay, variances shrink).

        Raises:
            ValueError: if a kernel is not positive semi-definite on the points; the message says which.
        """
        h, n, k = len(self.candidates), self.points.shape[0], X.shape[0]
        S, noise = self._solved(X), self.noise
        K = self.kernels(X, X)
        C = K - S.mT @ S
        new, info = torch.linalg.cholesky_ex(C + torch.diag_embed(noise.expand(h, k)))
        slack = math.sqrt(torch.finfo(X.dtype).eps) * (K.diagonal(dim1=-2, dim2=-1) + noise)
        lost = new.diagonal(dim1=-2, dim2=-1).square() - noise < -slack
        bad = (info > 0) | lost.any(-1) | new.isnan().flatten(1).any(-1)
        if bool(bad.any()):
            u = int(bad.nonzero()[0])
            c = self.candidates[u]
            raise ValueError(
                f"candidate {u} ({c.name}): its kernel is not positive semi-definite on the points (or its noise_var "
                f"{c.noise_var:g} is lost in rounding); change the kernel or raise noise_var."
            )
        L, z = X.new_zeros(h, n + k, n + k), X.new_zeros(h, k)
        L[:, :n, :n], L[:, n:, :n], L[:, n:, n:] = self.L, S.mT, new
        if y is not None:
            error = y - self.means(X) - (self.z.unsqueeze(-2) @ S).squeeze(-2)
            z = torch.linalg.solve_triangular(new, error.unsqueeze(-1), upper=False).squeeze(-1)
        return CandidateFactor(self.candidates, torch.cat([self.points, X]), L, torch.cat([self.z, z], 1))

    def subset(self, members: list[int]) -> CandidateFactor:
        """Of some candidates."""
        index = torch.tensor(members, device=self.L.device)
        return replace(self, candidates=tuple(self.candidates[u] for u in members), L=self.L[index], z=self.z[index])

    def moved(self, fn: Callable[[Tensor], Tensor]) -> CandidateFactor:
        """With ``fn`` (a change of dtype or device) done to all tensors; itself if that changes nothing."""
        L = fn(self.L)
        if L is self.L:
            return self
        candidates = tuple(placed(c, fn, "") for c in self.candidates)
        return CandidateFactor(candidates, fn(self.points), L, fn(self.z))

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at points ``N x d`` on their own, ``h x N`` each."""
        S = self._solved(X)
        prior = torch.stack([c.covar_module(X, diag=True) for c in self.candidates])
        return self.means(X) + (self.z.unsqueeze(-2) @ S).squeeze(-2), prior - S.square().sum(-2)

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of f at points ``lead x q x d``, ``lead x h x q`` and ``lead x h x q x q``."""
        S = self._solved(X.reshape(-1, X.shape[-1])).unflatten(-1, X.shape[:-1]).movedim(1, -2)
        z = self.z.view(len(self.z), *(1,) * (X.ndim - 2), 1, -1)
        mean = self.means(X) + (z @ S).squeeze(-2)
        return mean.movedim(0, -2), (self.kernels(X, X) - S.mT @ S).movedim(0, -3)

    def kernels(self, X1: Tensor, X2: Tensor) -> Tensor:
        """k_u of points ``lead x q1 x d`` and ``lead x q2 x d``, ``h x lead x q1 x q2``."""
        if X1.shape[-2] == 0 or X2.shape[-2] == 0:
            batch = torch.broadcast_shapes(X1.shape[:-2], X2.shape[:-2])
            return X1.new_zeros(len(self.candidates), *batch, X1.shape[-2], X2.shape[-2])
        return torch.stack([c.covar_module(X1, X2).to_dense() for c in self.candidates])

    def means(self, X: Tensor) -> Tensor:
        """m_u of points ``lead x q x d``, ``h x lead x q``."""
        zero = 0.0 * X.sum(-1)  # with a gradient, which the prior alone has not: optimisers ask for one
        return torch.stack([zero if c.mean_module is None else zero + c.mean_module(X) for c in self.candidates])

    def _solved(self, X: Tensor) -> Tensor:
        """L^-1 k(data, X) at points ``N x d``, ``h x n x N``."""
        return torch.linalg.solve_triangular(self.L, self.kernels(self.points, X), upper=False)
