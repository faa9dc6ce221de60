"""The posterior of the weights of a Bayesian linear regression in features, in float64.

V = Phi^T Phi + lambda I for features Phi (``n x p``) and noise variance lambda.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor


class WeightPosterior(NamedTuple):
    """Weights of prior N(0, I) given the data, N(mean, noise_var V^-1), with what an update needs.

    Attributes:
        noise_var: lambda, without dimensions.
        precision: V, ``... x p x p``, float64.
        information: V mean, ``... x p``, float64.
        root: R with R^T R = V^-1, ``... x p x p``.
        mean: ``... x p``.
    """

    noise_var: Tensor
    precision: Tensor
    information: Tensor
    root: Tensor
    mean: Tensor

    def predict(self, Phi: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``... x n`` and S ``... x n x p``, where S S^T is the covariance, at features ``... x n x p``."""
        # einsum multiplies by one matrix whatever the t-batch; matmul would copy that of a batch for every fantasy.
        mean = torch.einsum("...np,...p->...n", Phi, self.mean)
        return mean, self.noise_var.sqrt() * torch.einsum("...np,...rp->...nr", Phi, self.root)

    def observe(self, Phi: Tensor, y: Tensor) -> WeightPosterior:
        """The weights after residuals ``... x n`` at features ``... x n x p``, differentiable in both."""
        Phi, y = Phi.double(), y.double()
        information = self.information + torch.einsum("...np,...n->...p", Phi, y)
        return gaussian_weights(self.precision + Phi.mT @ Phi, information, self.noise_var)


def cholesky_root(V: Tensor) -> Tensor:
    """R = L^-1 with L L^T = V, so that R^T R = V^-1, ``... x p x p``."""
    eye = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device).expand_as(V)
    return torch.linalg.solve_triangular(psd_safe_cholesky(V), eye, upper=False)


def gaussian_weights(precision: Tensor, information: Tensor, noise_var: Tensor) -> WeightPosterior:
    """The posterior of mean V^-1 information; mean and the Cholesky root of V^-1 are in the dtype of ``noise_var``."""
    root = cholesky_root(precision)
    mean = torch.einsum("...rp,...r->...p", root, torch.einsum("...rp,...p->...r", root, information))
    return WeightPosterior(noise_var, precision, information, root.to(noise_var), mean.to(noise_var))


def precision_matrix(Phi: Tensor, noise_var: Tensor) -> Tensor:
    """V = Phi^T Phi + noise_var I, ``... x p x p`` float64, from features ``... x n x p``."""
    Phi, noise_var = Phi.double(), noise_var.double()
    return Phi.mT @ Phi + torch.diag_embed(noise_var.expand(Phi.shape[-1]))


def log_evidence(Phi: Tensor, y: Tensor, noise_var: Tensor) -> Tensor:
    """log N(y; 0, Phi Phi^T + noise_var I), ``...``, from Phi ``... x n x p`` and y ``... x n``; O(n p^2) through V."""
    dtype, (n, p) = Phi.dtype, Phi.shape[-2:]
    Phi, y, noise_var = Phi.double(), y.double(), noise_var.double()
    L = psd_safe_cholesky(precision_matrix(Phi, noise_var))
    # Woodbury's identity for the inverse, Sylvester's for the determinant.
    explained = torch.linalg.solve_triangular(L, Phi.mT @ y.unsqueeze(-1), upper=False).squeeze(-1)
    quadratic = (y.square().sum(-1) - explained.square().sum(-1)) / noise_var
    logdet = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (n - p) * noise_var.log()
    return (-0.5 * (quadratic + logdet + n * math.log(2.0 * math.pi))).to(dtype)
