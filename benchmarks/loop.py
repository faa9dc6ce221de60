"""The loop that every benchmark of finite arms runs: select, reward, observe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bo_robust.bandits import ArmAlgorithm
from bo_robust.bandits.base import State
from bo_robust.bandits.captured import captured_rounds
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.ops.cuda_graphs import cuda_graph
from bo_robust.utils.random import stream

__all__ = ["Reward", "Round", "additive", "blocks", "noise_and_uniforms", "rounds", "run_rounds", "timed"]

Reward = Callable[[int, Tensor], Tensor]
"""The rewards of round t = 0, 1, ... at the arms of all trials."""


class Round(NamedTuple):
    """A round that was run: arms and rewards of every trial."""

    arms: Tensor
    rewards: Tensor


def additive(f: Tensor, noise: Tensor) -> Reward:
    """f (``s x n``) at the arms, plus the noise of the round (``T x s``)."""
    rows, only = noise.unbind(0), f[0]
    if len(f) == 1:  # a trial of a thousand arms runs a round in the time of some ten calls
        return lambda t, arms: only.index_select(0, arms) + rows[t]
    return lambda t, arms: f.gather(1, arms.unsqueeze(1)).squeeze(1) + rows[t]


def rounds(algorithm: ArmAlgorithm, state: State, reward: Reward, uniforms: Tensor) -> Iterator[Round]:
    """Run a round for each row of ``uniforms`` (``T x s``), the algorithm's random numbers; in inference mode."""
    for t, uniform in enumerate(uniforms.unbind(0)):
        arms = algorithm.select(state, uniform).arms
        rewards = reward(t, arms)
        algorithm.observe(state, arms, rewards, uniform)
        yield Round(arms, rewards)


def timed(run: Iterator[Round]) -> Iterator[tuple[float, Round]]:
    """Each round after its CPU seconds."""
    while True:
        began = time.process_time()
        one = next(run, None)
        if one is None:
            return
        yield time.process_time() - began, one


def blocks(
    algorithm: ArmAlgorithm,
    kernel: ArmKernel,
    noise_var: float,
    f: Tensor,
    noise: Tensor,
    uniforms: Tensor | None = None,
) -> Iterator[Tensor]:
    """The arms pulled in one or more rounds, ``K x s``, with f ``s x n`` and noise ``T x s``.

    Uniforms are 0 for who does not draw. On CUDA blocks of rounds are captured, whatever the version of torch.
    """
    uniforms = torch.zeros_like(noise) if uniforms is None else uniforms
    state = algorithm.init(kernel, noise_var, len(f), rounds=len(noise))
    if not f.is_cuda:
        yield from (one.arms.unsqueeze(0) for one in rounds(algorithm, state, additive(f, noise), uniforms))
        return

    def one_round(eta: Tensor, uniform: Tensor) -> dict[str, Tensor | float]:
        (one,) = rounds(algorithm, state, additive(f, eta.unsqueeze(0)), uniform.unsqueeze(0))
        return {"arms": one.arms}

    captured, t = captured_rounds(algorithm, state, one_round, cuda_graph), 0
    while t < len(noise):
        ran = captured.run(noise[t:], uniforms[t:]) if captured else None
        K, arms = (1, one_round(noise[t], uniforms[t])["arms"]) if ran is None else (ran[0], ran[1]["arms"])
        yield torch.as_tensor(arms).clone().view(K, -1)
        t += K


def run_rounds(*workload: Any) -> Tensor:
    """The arms of all rounds, ``T x s``; arguments are those of :func:`blocks`."""
    with torch.inference_mode():
        return torch.cat(list(blocks(*workload)))


def noise_and_uniforms(seed: int, rounds: int, noise_var: float) -> tuple[Tensor, Tensor]:
    """Gaussian noise and uniform draws of every round of one trial, ``T x 1`` each."""
    rng = stream(seed, "reward", 0)
    noise = torch.from_numpy(math.sqrt(noise_var) * rng.standard_normal(rounds))
    return noise.unsqueeze(1), torch.from_numpy(rng.random(rounds)).unsqueeze(1)
