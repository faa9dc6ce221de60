"""Rounds of an algorithm whose choice ignores all rewards, a chunk at once.

Such a baseline needs no posterior. Its recommendations, the arm of largest posterior mean after every round, follow for
a whole chunk from a few matrix products: 5 times as fast as round by round on ``configs/bkb/many_arms.yaml``. Small
problems, whose covariance is kept densely, are run round by round.

Let D be the m arms pulled before the chunk, N their numbers of pulls and C the covariance given those rewards. Then

    C[A, :] = K[A, :] - K_AD G K_D,   mean = G ybar K_D,   G = (K_DD + lambda N^-1)^-1,

and with L L^T = C_AA + lambda I for the arms A of the chunk in order, the mean after j of its rewards y is
mean + sum_{i <= j} p_i z_i, where the p_i are the rows of L^-1 C[A, :] and z = L^-1 (y - mean[A]).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.bandits import ArmAlgorithm, State
from bo_robust.bandits.posteriors.arms import ArmPosterior
from bo_robust.experiments.problems import Problem
from bo_robust.utils.linalg import on_cuda, row_argmax

if TYPE_CHECKING:
    from bo_robust.experiments.loop_arms import Traces


def ignores_rewards(algorithm: ArmAlgorithm, state: State) -> bool:
    """Whether the rounds of this state can be run a chunk at once, and are faster so."""
    posterior = state.posterior
    single = isinstance(posterior, ArmPosterior) and not posterior.dense and not on_cuda(posterior.mean)
    return algorithm.is_baseline and single


def run_random(
    algorithm: ArmAlgorithm,
    problem: Problem,
    state: State,
    draws: Tensor,
    uniforms: Tensor,
    traces: Traces,
    design: Tensor,
) -> None:
    """Run a chunk and write its rows of the traces; of the state, which is that of no reward, nothing changes.

    Arguments are as in :func:`bo_robust.experiments.loop_arms.run_round`, with a first axis of rounds.
    """
    begin, end = traces.rounds, traces.rounds + len(draws)
    for i, t in enumerate(range(begin, end)):
        traces.arms[t] = design[t] if t < len(design) else algorithm.select(state, uniforms[i]).arms
        traces.rewards[t] = problem.rewards(problem.f, traces.arms[t].long(), draws[i])
    traces.ok[begin:end] = traces.rewards[begin:end].isfinite()
    for trial in range(traces.arms.shape[1]):
        ok = traces.ok[:end, trial]
        # Failed pulls are ignored: the mean after one is that before it.
        observed = ok[begin:].cumsum(0)
        arms, rewards = traces.arms[:end, trial].long()[ok], traces.rewards[:end, trial][ok]
        best = _best_arms(state.posterior, trial, arms, rewards, len(arms) - int(observed[-1]))
        traces.recommended[begin:end, trial] = best[observed].int()
    traces.rounds = end


def _best_arms(prior: ArmPosterior, trial: int, arms: Tensor, rewards: Tensor, first: int) -> Tensor:
    """The arms of largest mean after ``first``, ``first + 1``, ... of the rewards of a trial."""
    kernel, noise_var, mean = prior.kernel, prior.noise_var[trial], prior.mean[trial]
    trials = torch.full_like(arms, trial)
    C = kernel.rows(arms[first:], trials[first:])
    chunk = arms[first:]
    if first:
        D, place, N = arms[:first].unique(return_inverse=True, return_counts=True)
        ybar = rewards.new_zeros(len(D)).index_add_(0, place, rewards[:first]) / N
        K = kernel.rows(D, trials[: len(D)])
        S = (N / noise_var).sqrt().unsqueeze(1)  # G = S (I + S K_DD S)^-1 S
        root = psd_safe_cholesky(torch.eye(len(D)).to(K) + S * K[:, D] * S.mT)
        mean = mean + (S * torch.cholesky_solve(S * (ybar - mean[D]).unsqueeze(1), root)).squeeze(1) @ K
        C = C.addmm_((S * torch.cholesky_solve(S * C[:, D].mT, root)).mT, K, alpha=-1.0)
    L = psd_safe_cholesky(C[:, chunk] + noise_var * torch.eye(len(chunk)).to(C))
    z = torch.linalg.solve_triangular(L, (rewards[first:] - mean[chunk]).unsqueeze(1), upper=False)
    steps = torch.linalg.solve_triangular(L, C, upper=False).mul_(z)
    return row_argmax(torch.cat([mean.unsqueeze(0), steps]).cumsum_(0))
