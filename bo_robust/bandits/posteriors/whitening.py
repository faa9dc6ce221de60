"""Whitened features Y = R Phi^T of every arm, where R is a root of V^{-1} (R^T R = V^{-1}).

V = sum_a c_a phi_a phi_a^T + lambda I for pull counts c. A feature-space posterior needs nothing but Y. Its columns
have squared norm phi^T V^{-1} phi = sigma^2 / lambda. Its rows are the directions u_i in which ATA-GP-UCB truncates
(Ray Chowdhury & Gopalan 2019, Algorithm 2). Any coefficients r give a mean Y^T r.

There are two roots.

- "symmetric" is the paper's V^{-1/2}. Features are first written as Phi = Z B^T with orthonormal axes B (``p x k``),
  where k is the numerical rank. Then V^{-1/2} Phi^T = B (Z^T C Z + lambda I)^{-1/2} Z^T needs only a k x k root
  (:mod:`bo_robust.ops.inverse_root`). ``white`` is (Z^T C Z + lambda I)^{-1/2} Z^T, and ``axes`` is B.
- "cholesky" is L^{-1} with V = L L^T. By L_new = L chol(I + u u^T), u = L^{-1} phi, an update is one cumulative sum
  along the features, O(p n). ``axes`` is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.ops.inverse_root import newton_schulz
from bo_robust.utils.linalg import on_cuda

ROOTS = ("symmetric", "cholesky")
RANK_TOLERANCE = 1e-10  # Share of the largest below which singular values are not kept
CHOLESKY_REFRESH = 256  # Rounds after which a Cholesky root is computed anew (rounding of the updates grows slowly)


@dataclass(frozen=True)
class FeatureTable:
    """Features of every arm, compressed: phi_a = axes z_a."""

    coordinates: Tensor  # Z, `n x k` or one per trial `s x n x k`
    # B with orthonormal columns, `p x k` or `s x p x k` (rows of absent features zero); None for identity
    axes: Tensor | None = None
    # k(x, x) - ||phi(x)||^2 >= 0 of every arm, `n` or `s x n`; None where the features have all the variance (Fourier
    # features)
    residual: Tensor | None = None
    # Arms in the dictionary of every trial, m_t of the paper, `s` or one; None where the features are no dictionary's
    size: Tensor | None = None

    @classmethod
    def compressed(cls, features: Tensor) -> FeatureTable:
        """Compress features ``n x p`` to their numerical rank, by a singular value decomposition."""
        U, S, Vh = torch.linalg.svd(features.double(), full_matrices=False)
        k = max(1, int(S.gt(RANK_TOLERANCE * S[0]).sum()))
        # contiguous, because products of another layout round differently
        return cls((U[:, :k] * S[:k]).contiguous().to(features), Vh[:k].mT.contiguous().to(features))

    @property
    def features(self) -> Tensor:
        """Phi, ``... n x p``."""
        return self.coordinates if self.axes is None else self.coordinates @ self.axes.mT


@dataclass
class Whitening:
    """Whitened features of s trials; :func:`count` and :func:`update` change them in place."""

    table: FeatureTable  # The features
    root: str  # "symmetric" or "cholesky"
    noise_var: Tensor  # lambda, `s`
    counts: Tensor  # Number of rewards per arm, `s x n`
    white: Tensor  # Y, `s x k x n`, in the coordinates of `axes`
    rounds: int = 0  # Rounds observed
    # For V^{-1/2} on CUDA, not set on a CPU. lambda^{1/2} I of every trial, `s x k x k`
    ridge: Tensor | None = None
    # Smallest and largest lambda, and largest ||z||^2: they bound the eigenvalues of V, and set the number of steps
    bounds: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def axes(self) -> Tensor | None:
        """From coordinates of ``white`` to feature directions, ``p x k`` or ``s x p x k``; None for identity."""
        return None if self.root == "cholesky" else self.table.axes

    def most_rounds(self, more: int = 0) -> int:
        """A number that is not below the rounds and some ``more``, and seldom changes: 256, 512, 1024, ..."""
        most = 256
        while most < self.rounds + more:
            most *= 2
        return most

    def refreshes_within(self, rounds: int) -> bool:
        """Whether a Cholesky root is computed anew in one of so many rounds to come."""
        return self.root == "cholesky" and self.rounds % CHOLESKY_REFRESH + rounds >= CHOLESKY_REFRESH

    def squares(self) -> Tensor:
        """||y_a||^2 of every arm, ``s x n``: no u_ia^2 is larger."""
        return self.white.square().sum(1)

    def variance(self, squares: Tensor) -> Tensor:
        """sigma_t^2 of f at every arm (without noise), ``s x n``: lambda ||y_a||^2, plus the residual."""
        variance = squares * self.noise_var.unsqueeze(1)
        return variance if self.table.residual is None else variance.add_(self.table.residual)

    def columns(self, arms: Tensor) -> Tensor:
        """y_a of one arm per trial (``s``, long), ``s x k x 1``."""
        return self.white.gather(2, arms.view(-1, 1, 1).expand(-1, self.white.shape[1], 1))

    def directions(self, white: Tensor) -> Tensor:
        """Columns of U = R Phi^T, ``s x p x c``, from columns of ``white``, ``s x k x c``."""
        return white if self.axes is None else self.axes @ white

    def in_coordinates(self, r: Tensor) -> Tensor:
        """B^T r, ``s x k``, of numbers per direction, ``s x p``."""
        return r if self.axes is None else (r.unsqueeze(1) @ self.axes).squeeze(1)


def init(table: FeatureTable, noise_var: Tensor, root: str) -> Whitening:
    """Whitened features without rewards: V = lambda I.

    ``table`` fixes dtype and device, ``noise_var`` (``s``) is lambda > 0, and ``root`` is "symmetric" or "cholesky".
    """
    counts = noise_var.new_zeros(noise_var.shape[0], table.coordinates.shape[-2])
    whitening = Whitening(table, root, noise_var, counts, white=counts)
    replace_features(whitening, table)
    return whitening


def replace_features(whitening: Whitening, table: FeatureTable) -> None:
    """Go on with other features of the same arms (those of a new dictionary), in place; counts stay."""
    whitening.table = table
    if not reads_data(whitening):
        norms = torch.einsum("...nk,...nk->...n", table.coordinates, table.coordinates)
        whitening.bounds = (float(whitening.noise_var.min()), float(whitening.noise_var.max()), float(norms.max()))
        k = table.coordinates.shape[-1]
        whitening.ridge = torch.diag_embed(whitening.noise_var.sqrt().unsqueeze(1).expand(-1, k))
    recompute(whitening)


def count(whitening: Whitening, arms: Tensor, ok: Tensor) -> None:
    """Count one more reward at ``arms`` (``s``, long) in the trials that are ``ok`` (``s`` bool), in place.

    Y is stale until :func:`update` or :func:`replace_features`.
    """
    whitening.counts.scatter_add_(1, arms.unsqueeze(1), ok.to(whitening.counts).unsqueeze(1))
    whitening.rounds += 1


def update(whitening: Whitening, arms: Tensor, ok: Tensor) -> None:
    """Bring Y up to date in place with the last :func:`count`, whose arguments these are."""
    if whitening.root == "cholesky":
        if whitening.rounds % CHOLESKY_REFRESH == 0:
            recompute(whitening)
        else:
            update_cholesky_(whitening.white, whitening.columns(arms).squeeze(2) * ok.unsqueeze(1))
    else:
        recompute(whitening)


def recompute(whitening: Whitening) -> None:
    """Compute everything from the counts alone, in place."""
    if whitening.root == "cholesky":
        features = whitening.table.features
        # V >= lambda I, so this succeeds; asking whether it did would wait for a GPU.
        factor = torch.linalg.cholesky_ex(_gram(features, whitening.counts, whitening.noise_var))[0]
        columns = features.mT.expand(factor.shape[0], -1, -1)
        whitening.white = torch.linalg.solve_triangular(factor, columns, upper=False).contiguous()
        return
    Z = whitening.table.coordinates
    if reads_data(whitening):
        values, vectors = torch.linalg.eigh(_gram(Z, whitening.counts, whitening.noise_var))
        root = (vectors * values.rsqrt().unsqueeze(1)) @ vectors.mT
    else:
        assert whitening.ridge is not None
        smallest, largest, longest = whitening.bounds
        A = torch.cat([whitening.counts.sqrt().unsqueeze(2) * Z, whitening.ridge], 1)
        Q = newton_schulz(A, smallest, largest + whitening.most_rounds() * longest)
        root = Q[:, Z.shape[-2] :] / whitening.ridge[:, :1, :1]
    whitening.white = root @ Z.mT


def reads_data(whitening: Whitening) -> bool:
    """Whether to take the path that reads numbers on the host: only on a CPU, where this does not wait.

    There a round of ATA-GP-UCB is 1.8 to 2.8 times as fast for it (20 trials of 100 arms in one dimension, 10 of 41 in
    two, Fourier features of 32 and 16 nodes per dimension, after 300 to 8,000 rounds).
    """
    return not on_cuda(whitening.counts)


def _gram(features: Tensor, counts: Tensor, noise_var: Tensor) -> Tensor:
    """V = Phi^T C Phi + lambda I, ``s x k x k``."""
    V = features.mT @ (counts.unsqueeze(2) * features)
    V.diagonal(dim1=1, dim2=2).add_(noise_var.unsqueeze(1))
    return V


def update_cholesky_(white: Tensor, u: Tensor) -> None:
    """L^{-1} Phi^T after V <- V + phi phi^T, in place, with u = L^{-1} phi (``s x p``).

    chol(I + u u^T)^{-1} Y, row by row: with s_i = 1 + u_1^2 + ... + u_i^2 and S_i = u_1 Y_1 + ... + u_i Y_i,
    Y_i <- sqrt(s_i / s_{i-1}) Y_i - u_i S_i / sqrt(s_i s_{i-1}).
    """
    sums = torch.cumsum(u.unsqueeze(2) * white, 1)
    after = torch.cumsum(u.square(), 1).add_(1.0)
    before = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], 1)
    white.mul_((after / before).sqrt().unsqueeze(2))
    white.addcmul_(sums, (u * (after * before).rsqrt()).unsqueeze(2), value=-1.0)
