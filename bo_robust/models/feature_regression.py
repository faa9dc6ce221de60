"""Bayesian linear regression on p features: weights ~ N(0, I), y = phi^T weights + N(0, noise_var).

With V = Phi^T Phi + noise_var I the weights given the data are N(V^-1 Phi^T y, noise_var V^-1).

V, its factor and the sums over observations are float64 whatever the dtype of the features. In float32, noise_var is
lost beside sums over n observations as soon as n eps reaches it; the variance where there are no data is lost with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor


class WeightPosterior(NamedTuple):
    """The weights given the data, N(mean, noise_var V^-1), with what an update needs.

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
        """The weights after further observations, differentiable in them.

        Features are ``... x n x p`` and rewards ``... x n``; rewards with more dimensions share one root.
        """
        Phi, y = Phi.double(), y.double()
        information = self.information + torch.einsum("...np,...n->...p", Phi, y)
        return gaussian_weights(self.precision + Phi.mT @ Phi, information, self.noise_var)


def gaussian_weights(precision: Tensor, information: Tensor, noise_var: Tensor) -> WeightPosterior:
    """The posterior of mean V^-1 information; mean and the Cholesky root of V^-1 are in the dtype of ``noise_var``."""
    L = psd_safe_cholesky(precision)
    eye = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    root = torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
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


def gain_of_precision(precision: Tensor, noise_var: Tensor) -> Tensor:
    """1/2 logdet(I + Phi Phi^T / noise_var) = 1/2 logdet(V / noise_var), in nats, ``...``."""
    return psd_safe_cholesky(precision / noise_var).diagonal(dim1=-2, dim2=-1).log().sum(-1).to(noise_var)
