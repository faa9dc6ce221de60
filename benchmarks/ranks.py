"""Rounds of BBKB by several processes, on one machine or on as many as there are:

    torchrun --nproc-per-node 2 -m benchmarks.ranks --arms 2000000 --rounds 40

Every rank holds its share of the arms (float32); the rewards are computed by the first, which prints seconds and the
arms pulled. These are the same for any number of ranks. Set OMP_NUM_THREADS=1 for one BLAS thread each.
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from benchmarks.common import options, report
from bo_robust.bandits import StreamedBBKB
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import stream

DIM = 6


def main() -> None:
    """One rank of however many ``torchrun`` started."""
    given = options(__doc__, arms=2_000_000, rounds=40)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    assert group is not None
    arms = torch.from_numpy(stream(0, "arms", 0).random((given.arms, DIM))).float()
    mine = ArmStream.of_tensor(arms).shard(rank, ranks)
    rng = stream(0, "reward", 0)
    noise, uniforms = 0.1 * rng.standard_normal(given.rounds), rng.random(given.rounds)
    algorithm = StreamedBBKB(FiniteWidth(given.arms, 0.1, scale=EXPLORING), 5.0, 4.0)
    state = algorithm.init(SquaredExponential(0.5), 0.01, DIM)
    picks = []
    dist.barrier()
    began = time.perf_counter()
    for t in range(given.rounds):
        pick = algorithm.select(state, mine, uniforms[t], group)
        reward = float(torch.sin(4.0 * pick.location).mean()) + noise[t]
        algorithm.observe(state, pick.location, reward, uniforms[t], group)
        picks.append(pick.arm)
    if rank == 0:
        detail = {"picks": picks, "points": state.used}
        report(
            f"BBKB, n={given.arms:g}, {given.rounds} rounds, {ranks} ranks", time.perf_counter() - began, "s", detail
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
