"""The posteriors by their definitions, from scratch and one trial at a time: what the fast ones are compared with."""

import torch

from bo_robust.confidence.truncation import RULES


def exact(K, noise_var, pulls, rewards, prior_mean=0.0):
    """Mean and variance of all arms by one dense solve, over distinct arms with averaged rewards."""
    arms, inverse, counts = torch.unique(pulls, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(arms)).to(K).index_add_(0, inverse, rewards)
    Kd, noise = K[arms], torch.diag(noise_var / counts.to(K.dtype))
    L = torch.linalg.cholesky(Kd[:, arms] + noise)
    prior = torch.full((K.shape[0],), float(prior_mean)).to(K)
    V = torch.linalg.solve_triangular(L, Kd, upper=False)
    target = (sums / counts - prior[arms]).unsqueeze(1)
    mean = prior + (V.T @ torch.linalg.solve_triangular(L, target, upper=False)).squeeze(1)
    return mean, K.diagonal() - V.square().sum(0)


def nystrom(K, dictionary):
    """The papers' features of all arms, (K_D^(1/2))^+ k_D(x), ``n x M``."""
    values, vectors = torch.linalg.eigh(K[dictionary][:, dictionary])
    kept = values > 1e-12 * values[-1]
    return K[:, dictionary] @ (vectors[:, kept] * values[kept].rsqrt()) @ vectors[:, kept].T


def dtc(K, dictionary, arms, rewards, noise_var):
    """BKB's mean and variance of all arms (times lambda), with one row of features per reward."""
    z = nystrom(K, dictionary)
    Z = z[arms]
    V = Z.T @ Z + noise_var * torch.eye(Z.shape[1]).to(K)
    mean = z @ torch.linalg.solve(V, Z.T @ rewards)
    return mean, K.diagonal() - (z * torch.linalg.solve(V, Z.T @ Z @ z.T).T).sum(1)


def inverse_root(V, root):
    """R with R^T R = V^{-1}: "symmetric" or "cholesky"."""
    if root == "cholesky":
        return torch.linalg.inv(torch.linalg.cholesky(V))
    d, E = torch.linalg.eigh(V)
    return (E * d.rsqrt().unsqueeze(-2)) @ E.mT


def truncated(phi, arms, rewards, noise_var, level, root, rule="zero"):
    """ATA-GP-UCB's Algorithm 2 for features ``n x p``: mean and variance (without residual) of all arms.

    Also returns |u y| / level of every direction and reward.
    """
    Phi = phi[arms]
    R = inverse_root(Phi.T @ Phi + noise_var * torch.eye(Phi.shape[1]).to(Phi), root)
    products = R @ Phi.T * rewards
    beyond = RULES[rule] * level * products.sign()
    r = torch.where(products.abs() <= level, products, beyond).sum(1)
    white = phi @ R.T
    return white @ r, noise_var * white.square().sum(1), products.abs() / level
