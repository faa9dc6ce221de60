# %% [markdown]
# # A million arms
#
# A million designs are listed in a table (molecules, prompts, configurations), and one can be tried at a time. An
# exact GP keeps numbers for every arm and every pull; `StreamedBBKB` keeps only what was pulled and a small
# dictionary, and reads the arms in blocks, from memory, a file or a function. It looks at every arm about once per
# batch, not once a round.

# %%
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from bo_robust.bandits import StreamedBBKB
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.confidence import FiniteWidth
from bo_robust.utils.covariance import Matern

ARMS, ROUNDS = 1_000_000, 60
NOISE = 0.1
arms = torch.rand(ARMS, 3, generator=torch.Generator().manual_seed(0))  # float32: 12 MB


def truth(x):
    """What an arm at x gives, without noise."""
    return torch.sin(4 * x).sum(-1) + 0.5 * torch.cos(9 * x[..., 0])


# %% [markdown]
# ## Settings
#
# - The covariance and the noise variance are those of any GP; here they are given.
# - `width`: the practical width, that is the theorem's with its square divided by 5.
# - `oversampling` q: how generously points enter the dictionary. q = 5 was level with exact GP-UCB on abalone, q = 1
#   lost seven times as much.
# - `batch_constant` c: a batch ends when the variances of the arms it pulled add up to more than c. 0 learns after
#   every pull; 0.3 was nearly level with exact GP-UCB in regret.

# %%
algorithm = StreamedBBKB(FiniteWidth(ARMS, delta=0.1, scale=5**-0.5), oversampling=5.0, batch_constant=0.3)


def run_rounds(stream, rounds):
    """Rewards of the arms pulled, without their noise, and the state in the end."""
    random = torch.Generator().manual_seed(1)
    state = algorithm.init(Matern(2.5, 0.5), noise_var=NOISE**2, dim=3)
    values = []
    for _ in range(rounds):
        uniform = float(torch.rand((), generator=random))
        choice = algorithm.select(state, stream, uniform)
        value = float(truth(choice.location))
        reward = value + NOISE * float(torch.randn((), generator=random))
        algorithm.observe(state, choice.location, reward, uniform)
        values.append(value)
    return values, state


# %%
begin = time.process_time()
values, state = run_rounds(ArmStream.of_tensor(arms), ROUNDS)
best = float(truth(arms).max())
print(f"{ARMS:,} arms, {ROUNDS} rounds: {time.process_time() - begin:.1f} s of the processor")
print(f"best arm {best:.3f}; mean of the first ten pulls {np.mean(values[:10]):.3f}, of the last ten", end=" ")
print(f"{np.mean(values[-10:]):.3f}; random arms {float(truth(arms).mean()):.3f}")
print(f"distinct arms pulled: {state.used}; points in the dictionary: {int(state.posterior.size[0])}")

# %% [markdown]
# ## From a file, or from nowhere
#
# A `.npy` file is mapped, not loaded. A function of (start, stop) can compute arms that were never stored, or read a
# database. Both give the same choices as the table in memory.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "arms.npy"
    np.save(path, arms.numpy())
    from_file, _ = run_rounds(ArmStream.of_file(path), 10)
from_function, _ = run_rounds(ArmStream(lambda start, stop: arms[start:stop], 0, ARMS), 10)
print("the same ten pulls:", from_file == from_function == values[:10])

# %% [markdown]
# ## When something else is better
#
# Up to a few thousand arms exact `GPUCB` is hard to beat, then `MiniGPUCB`; where a few numbers per arm fit in memory
# `BBKB` is faster than this one. Measurements are on the page [many rounds, many arms](../many_rounds_and_arms.md).
# On several GPUs or machines each rank reads its own `stream.shard(rank, ranks)`.
