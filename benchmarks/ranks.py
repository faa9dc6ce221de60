"""BBKB by two processes against one: ``python -m benchmarks.ranks``, or by hand on as many machines as there are:

    torchrun --nproc-per-node 2 -m benchmarks.ranks --rank --arms 2000000 --rounds 40

Every rank holds its share of the arms (float32); the rewards are computed by the first. One BLAS thread each. Without
``--rank`` it starts the processes itself and compares: same arms, and how much sooner two are done than one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.common import ROOT, options, report, report_environment
from benchmarks.stats import LEAST, ratios
from bo_robust.bandits import StreamedBBKB
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.base import EXPLORING
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import stream

DIM = 6


def run_rounds(num_arms: int, rounds: int) -> None:
    """One rank of however many ``torchrun`` started; the first prints seconds and picks."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, group = dist.get_rank(), dist.group.WORLD
    assert group is not None
    arms = torch.from_numpy(stream(0, "arms", 0).random((num_arms, DIM))).float()
    mine = ArmStream.of_tensor(arms).shard(rank, dist.get_world_size())
    rng = stream(0, "reward", 0)
    noise, uniforms = 0.1 * rng.standard_normal(rounds), rng.random(rounds)
    algorithm = StreamedBBKB(FiniteWidth(num_arms, 0.1, scale=EXPLORING), 5.0, 4.0)
    state = algorithm.init(SquaredExponential(0.5), 0.01, DIM)
    picks = []
    dist.barrier()
    began = time.perf_counter()
    for t in range(rounds):
        pick = algorithm.select(state, mine, uniforms[t], group)
        reward = float(torch.sin(4.0 * pick.location).mean()) + noise[t]
        algorithm.observe(state, pick.location, reward, uniforms[t], group)
        picks.append(pick.arm)
    if rank == 0:
        print(json.dumps({"seconds": time.perf_counter() - began, "picks": picks, "points": state.used}), flush=True)
    dist.destroy_process_group()


def start(ranks: int, arms: int, rounds: int) -> dict[str, Any]:
    """What the first of several ranks on this machine prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "benchmarks.ranks", "--rank", "--arms", str(arms), "--rounds", str(rounds)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    out = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(out.splitlines()[-1]))


def main() -> None:
    """Compare, or with ``--rank`` be one rank."""
    given = options(__doc__, rank=False, arms=[2000, 200_000, 2_000_000], rounds=40)
    if given.rank:
        run_rounds(given.arms[0], given.rounds)
        return
    report_environment()
    for arms in given.arms:
        pairs = [[start(ranks, arms, given.rounds) for ranks in (1, 2)] for _ in range(LEAST)]
        ones, twos = zip(*pairs, strict=True)
        name = f"BBKB, n={arms:g}, {given.rounds} rounds: two processes"
        same = all(one["picks"] == two["picks"] for one, two in pairs)
        report(f"{name} pick what one does", float(same), "all picks the same", least=1.0)
        alone, together = ([done["seconds"] for done in column] for column in (ones, twos))
        detail = {"points": ones[0]["points"], "one_s": alone, "two_s": together}
        ratios(alone, together).report(f"{name} against one", detail=detail, least=1.5 if arms >= 1_000_000 else None)


if __name__ == "__main__":
    main()
