"""The exact GPs of several candidate priors on the same data, as one batch of Cholesky factors.

Let L L^T = K_u + lambda_u I and z = L^-1 (y - m_u). Before candidate u saw y_i, its prediction of row i was y_i - L_ii
z_i, with variance L_ii^2 - lambda_u of f. So one factor holds every prediction of a sequential run, and with them the
log marginal likelihood and the information gain.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points. Points have passed the input
transform.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from bo_robust.confidence.elimination import log_density
from bo_robust.models.candidate_priors import Candidate, moved, same
from bo_robust.models.exact_moments import MIN_VARIANCE
from bo_robust.utils.covariance import shape_of, squared_distances
from bo_robust.utils.linalg import entries_at_once

BLOCK = (4096, 65_536)  # points evaluated at once on a CPU and a GPU; bounds memory to h x n x BLOCK numbers


@dataclass(frozen=True)
class Predictions:
    """What every candidate predicted of each row before its reward was seen, ``n x h`` each, in float64 on the host.

    They are in the units that candidates see: of standardized rewards, where rewards are standardized.
    """

    error: Tensor  # y_i - mu_{i-1}(x_i)
    mean: Tensor  # mu_{i-1}(x_i)
    sd: Tensor  # sigma_{i-1}(x_i), of f
    gain: Tensor  # 1/2 log(1 + sigma_{i-1}^2(x_i) / lambda), in nats
    log_density: Tensor  # log N(y_i; mu_{i-1}(x_i), sigma_{i-1}^2(x_i) + lambda), in nats


@dataclass(frozen=True, eq=False)
class CandidateGPs:
    """The candidates, ``n x d`` points and the factor of these; methods that add rows return a new object.

    Candidates and factor see rewards as (y - center) / scale. Means and variances are in the units of y.
    """

    candidates: tuple[Candidate, ...]
    points: Tensor
    L: Tensor  # `h x n x n`
    z: Tensor  # `h x n`
    evidence: Tensor  # log marginal likelihood of the rewards, `h`, in nats
    center: float = 0.0
    scale: float = 1.0

    @classmethod
    def empty(cls, candidates: list[Candidate], points: Tensor) -> CandidateGPs:
        """Copies of the candidates in the dtype and on the device of ``points``, ``0 x d``, without rows."""

        def place(x: Tensor) -> Tensor:
            return x.to(points.device, points.dtype if x.is_floating_point() else None)

        everyone = tuple(moved(c, place, f"candidate {u}") for u, c in enumerate(candidates))
        h = len(everyone)
        evidence = points.new_zeros(h, dtype=torch.float64)
        return cls(everyone, points, points.new_zeros(h, 0, 0), points.new_zeros(h, 0), evidence)

    @cached_property
    def noise_var(self) -> Tensor:
        """lambda_u, ``h x 1``."""
        return self.points.new_tensor([[c.noise_var] for c in self.candidates])

    def conditioned(self, X: Tensor, y: Tensor, center: float, scale: float) -> CandidateGPs:
        """New GPs with ``k x d`` points appended and the rewards ``y`` of all rows, ``n + k``, O(h k n^2).

        Raises ``ValueError`` if a kernel is not positive semi-definite on the points.
        """
        grown = replace(self, points=torch.cat([self.points, X]), L=self._extended(X), center=center, scale=scale)
        error = (y - center) / scale - grown.means(grown.points)
        z = torch.linalg.solve_triangular(grown.L, error.unsqueeze(-1), upper=False).squeeze(-1)
        grown = replace(grown, z=z)
        return replace(grown, evidence=grown.predictions(y).log_density.sum(0).to(z.device))

    def hallucinated(self, X: Tensor) -> CandidateGPs:
        """New GPs that observed each candidate's own means at ``k x d`` points: means stay, variances shrink."""
        z = torch.cat([self.z, self.z.new_zeros(len(self.z), len(X))], 1)
        return replace(self, points=torch.cat([self.points, X]), L=self._extended(X), z=z)

    def _extended(self, X: Tensor) -> Tensor:
        """L with the rows of ``k x d`` more points."""
        S, within = self._solved(X), self.kernels(X, X)
        h, n, k = S.shape
        C = within - S.mT @ S if n else within.clone()  # of many first points every copy counts
        C.diagonal(dim1=-2, dim2=-1).add_(self.noise_var)
        new, info = torch.linalg.cholesky_ex(C)
        # A pivot below lambda means a negative variance of f. Half the digits are allowed to rounding.
        slack = math.sqrt(torch.finfo(C.dtype).eps) * (within.diagonal(dim1=-2, dim2=-1) + self.noise_var)
        pivots = new.diagonal(dim1=-2, dim2=-1)
        bad = (info > 0) | ~(pivots.square() - self.noise_var >= -slack).all(-1)  # NaN is bad, too
        if bool(bad.any()):
            u = int(bad.nonzero()[0])
            name = self.candidates[u].name
            raise ValueError(
                f"candidate {u} ({name}): its kernel is not positive semi-definite on the points (or its noise_var "
                f"{float(self.noise_var[u]):g} is lost in rounding); change the kernel or raise noise_var."
            )
        if not n:
            return new
        L = C.new_zeros(h, n + k, n + k)
        L[:, :n, :n], L[:, n:, :n], L[:, n:, n:] = self.L, S.mT, new
        return L

    def subset(self, members: list[int]) -> CandidateGPs:
        candidates = tuple(self.candidates[u] for u in members)
        L, z, evidence = (x[members] for x in (self.L, self.z, self.evidence))
        return replace(self, candidates=candidates, L=L, z=z, evidence=evidence)

    def moved(self, fn: Callable[[Tensor], Tensor]) -> CandidateGPs:
        """All tensors passed through ``fn``, a change of dtype or device."""
        candidates = tuple(moved(c, fn, "") for c in self.candidates)
        points, L, z, evidence = map(fn, (self.points, self.L, self.z, self.evidence))
        return replace(self, candidates=candidates, points=points, L=L, z=z, evidence=evidence)

    def predictions(self, y: Tensor) -> Predictions:
        """What was predicted of every row with a reward; these are ``y``, ``n``."""
        diagonal, z = (x[:, : len(y)].mT for x in (self.L.diagonal(dim1=-2, dim2=-1), self.z))
        parts = (diagonal, z, y.unsqueeze(1), self.noise_var.mT)
        L, z, y, noise = (x.detach().double().cpu() for x in parts)
        error, total = L * z, L.square()
        sd, gain = (total - noise).clamp_min(0.0).sqrt(), 0.5 * (total / noise).log()
        return Predictions(error, (y - self.center) / self.scale - error, sd, gain, log_density(z.square(), total))

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (>= 1e-12) of f at each point of ``lead x q x d`` on its own, ``lead x h x q`` each."""
        parts = [self._marginal(x) for x in X.reshape(-1, X.shape[-1]).split(entries_at_once(X, *BLOCK))]
        mean, variance = (torch.cat(x, 1).reshape(-1, *X.shape[:-1]).movedim(0, -2) for x in zip(*parts, strict=True))
        return mean * self.scale + self.center, variance.clamp_min(MIN_VARIANCE) * self.scale**2

    def _marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`marginal` at ``N x d``, ``h x N`` each, as candidates see f."""
        S = self._solved(X)
        if self._families is None:
            prior = torch.stack([c.covar_module(X, diag=True) for c in self.candidates])
        else:
            prior = torch.cat([scale for _, scale, _ in self._families]).unsqueeze(-1)
        return self.means(X) + (self.z.unsqueeze(1) @ S).squeeze(1), prior - S.square().sum(-2)

    def mean(self, X: Tensor) -> Tensor:
        """Mean of f at points ``lead x q x d``, ``lead x h x q``."""
        S = self._solved_at(X)
        z = self.z.view(len(self.z), *(1,) * (S.ndim - 3), 1, -1)
        return (self.means(X) + (z @ S).squeeze(-2)).movedim(0, -2) * self.scale + self.center

    def covariance(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of f between points ``lead x q1 x d`` and ``lead x q2 x d``, ``lead x h x q1 x q2``."""
        explained = self._solved_at(X1).mT @ self._solved_at(X2)
        return (self.kernels(X1, X2) - explained).movedim(0, -3) * self.scale**2

    def _solved_at(self, X: Tensor) -> Tensor:
        """S at points ``lead x q x d``, ``h x lead x n x q``."""
        return self._solved(X.reshape(-1, X.shape[-1])).unflatten(-1, X.shape[:-1]).movedim(1, -2)

    def _solved(self, X: Tensor) -> Tensor:
        """S = L^-1 k(data, X) at points ``N x d``, ``h x n x N``."""
        return torch.linalg.solve_triangular(self.L, self.kernels(self.points, X), upper=False)

    def means(self, X: Tensor) -> Tensor:
        """m_u at points ``lead x q x d``, ``h x lead x q``."""
        zero = 0.0 * X.sum(-1)  # with a gradient, which the prior alone has not: optimizers ask for one
        return torch.stack([zero if c.mean_module is None else zero + c.mean_module(X) for c in self.candidates])

    def kernels(self, X1: Tensor, X2: Tensor) -> Tensor:
        """k_u between points ``lead x q1 x d`` and ``lead x q2 x d``, ``h x lead x q1 x q2``."""
        if X1.shape[-2] == 0 or X2.shape[-2] == 0:  # before any data; kernels need not accept zero points
            batch = torch.broadcast_shapes(X1.shape[:-2], X2.shape[:-2])
            return X1.new_zeros(len(self.candidates), *batch, X1.shape[-2], X2.shape[-2])
        if self._families is None:
            return torch.stack([c.covar_module(X1, X2).to_dense() for c in self.candidates])
        center = X1.detach().flatten(0, -2)[0]  # squares of large coordinates would round their differences away
        X1, X2, families = X1 - center, X2 - center, []
        for shape, scale, lengthscale in self._families:
            lengthscale = lengthscale.view(len(scale), *(1,) * (max(X1.ndim, X2.ndim) - 1), -1)
            if lengthscale.shape[-1] == 1:  # distances that all share
                square = squared_distances(X1, X2) / lengthscale.square()
            else:
                square = squared_distances(X1 / lengthscale, X2 / lengthscale)
            families.append(scale.view(-1, *(1,) * (square.ndim - 1)) * shape(square))
        return torch.cat(families)

    @cached_property
    def _families(self) -> list[tuple[Callable[[Tensor], Tensor], Tensor, Tensor]] | None:
        """Neighbors of one family (shape, output scales, lengthscales), 1.7 to 3.2 times faster at once; else None."""
        groups: list[tuple[Callable[[Tensor], Tensor], list[Tensor], list[Tensor]]] = []
        for kernel in (c.covar_module for c in self.candidates):
            shape = shape_of(kernel)
            if shape is None:
                return None
            if not groups or groups[-1][0] is not shape.radial.of or groups[-1][2][0].shape != shape.lengthscale.shape:
                groups.append((shape.radial.of, [], []))
            groups[-1][1].append(shape.outputscale)
            groups[-1][2].append(shape.lengthscale)
        return [(of, torch.stack(scales), torch.stack(lengths)) for of, scales, lengths in groups]

    @torch.no_grad()
    def check(self) -> None:
        """Raise ``ValueError`` unless candidates fit points of ``d`` columns; warn of candidates that are the same."""
        d = self.points.shape[-1]
        probe = SobolEngine(d, scramble=True, seed=0).draw(4).to(self.points)
        shown: list[Tensor] = []
        for v, c in enumerate(self.candidates):
            columns = [m.active_dims for m in c.covar_module.modules() if getattr(m, "active_dims", None) is not None]
            try:
                if any(int(numbers.max()) >= d for numbers in columns):  # on CUDA an assertion, which ends the process
                    raise IndexError
                mean = 0.0 * probe[:, 0] if c.mean_module is None else c.mean_module(probe)
                k = c.covar_module(probe[:3], probe).to_dense()  # GPyTorch would compare as many points, and so wait
                shown.append(torch.cat([k.flatten(), mean]))
                fits = k.shape == (3, 4) and mean.shape == (4,)
            except (RuntimeError, IndexError):
                fits = False
            if not fits:
                raise ValueError(
                    f"candidate {v} ({c.name}) does not fit points of {d} columns: give it lengthscales and columns of "
                    "these, one output and no batch shape."
                )
        values = torch.stack(shown).tolist()  # read back at once
        for (u, one), (v, other) in combinations(enumerate(self.candidates), 2):
            if values[u] == values[v] and same(one, other):
                warnings.warn(
                    f"candidates {u} ({one.name}) and {v} ({other.name}) are the same (kernel, prior mean and noise "
                    "variance): keep one of them; the other costs time and widens the test.",
                    UserWarning,
                    stacklevel=4,  # past the wrapper of no_grad and the model's __init__
                )
