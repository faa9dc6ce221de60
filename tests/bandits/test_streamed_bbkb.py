import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from bo_robust.bandits.bbkb import BBKB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.bandits.streamed_bbkb import StreamedBBKB
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits.problems import places

N, NOISE_VAR = 1500, 0.01
WIDTH = FiniteWidth(N, 0.1, scale=0.45)


def draws(T, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(T, dtype=torch.float64, generator=g).tolist(), torch.randn(T, dtype=torch.float64, generator=g)


def value(location):
    return float(torch.sin(6.0 * location.double()).sum())


def run_rounds(algorithm, state, stream, uniforms, noise, each=lambda t, state, choice: None):
    """Numbers of the arms pulled; ``stream`` may be a function of the round."""
    chosen = []
    for t, uniform in enumerate(uniforms):
        choice = algorithm.select(state, stream(t) if callable(stream) else stream, uniform)
        each(t, state, choice)
        algorithm.observe(state, choice.location, value(choice.location) + 0.1 * float(noise[t]), uniform)
        chosen.append(choice.arm)
    return chosen


@pytest.mark.parametrize("block", [400, 5000])
@pytest.mark.parametrize("shortlist", [20, 5000])
def test_picks_are_those_of_bbkb(block, shortlist, device, monkeypatch):
    """With a dictionary of all pulled arms (whose draws are per row, not per arm) both know the same."""
    X, k = places(N, 2, device=device), SquaredExponential(0.2)
    uniforms, noise = draws(120)
    streamed = StreamedBBKB(WIDTH, 1e6, 1.0, shortlist)
    state = streamed.init(k, NOISE_VAR, 2, device=device)
    got = run_rounds(streamed, state, ArmStream.of_tensor(X, block), uniforms, noise)
    stored = BBKB(WIDTH, 1e6, 1.0)
    other, want = stored.init(ArmKernel.from_covariance(k, X), NOISE_VAR), []
    for t, uniform in enumerate(uniforms):
        u = torch.tensor([uniform], dtype=torch.float64, device=device)
        arm = stored.select(other, u).arms
        y = torch.sin(6.0 * X[arm]).sum(1) + 0.1 * noise[t].to(device)
        stored.observe(other, arm, y, u)
        want.append(int(arm))
    assert got == want
    assert state.round == 120
    assert state.used == len(set(want))


def test_argmax_is_exact_within_a_batch(device):
    """Every choice against all arms scored with what is known at that moment; batches are long, shortlist short."""
    X, k = places(N, 2, device=device), Matern(2.5, 0.3)
    uniforms, noise = draws(150)
    algorithm = StreamedBBKB(WIDTH, 5.0, 3.0, shortlist=30)
    state, ahead = algorithm.init(k, NOISE_VAR, 2, device=device), 0

    def check(t, state, choice):
        nonlocal ahead
        if t == 0:
            return
        p = state.posterior
        ahead += p.ahead is not None
        kD = k(X, p.kernel.arms[p.points[0]])
        rest = (1.0 - (kD @ p.root[0].T).square().sum(1)).clamp(min=0)
        z = kD @ p.factor[0].T
        variance = rest + NOISE_VAR * (z * (z if p.ahead is None else z @ p.ahead[0])).sum(1)
        bound = kD @ p.weights[0] + choice.width * variance.sqrt()
        assert float(bound.max()) == pytest.approx(choice.bound, abs=1e-9)
        assert float(bound[choice.arm]) == pytest.approx(choice.bound, abs=1e-9)
        assert torch.equal(choice.location, X[choice.arm])

    run_rounds(algorithm, state, ArmStream.of_tensor(X, 700), uniforms, noise, check)
    assert ahead > 75


def test_other_arms_every_round(device):
    """The paper's relaxation: a new set of arms a round; each choice is the best of that round's."""
    uniforms, noise = draws(60)
    algorithm = StreamedBBKB(ConstantWidth(2.0), 5.0, 0.5)
    state = algorithm.init(SquaredExponential(0.3), NOISE_VAR, 2, device=device)
    sets = [places(50 + 7 * (t % 5), 2, seed=t, device=device) for t in range(60)]
    values = []
    run_rounds(
        algorithm,
        state,
        lambda t: ArmStream.of_tensor(sets[t]),
        uniforms,
        noise,
        lambda t, state, choice: values.append(value(choice.location) - max(value(x) for x in sets[t])),
    )
    assert all(v <= 0.0 for v in values)
    assert sum(values[30:]) > 0.25 * sum(values[:30])  # regret falls to less than a quarter
    assert state.used > 20


def test_equal_locations_are_one_arm_and_the_table_grows(device):
    uniforms, noise = draws(150)
    X = places(300, 3, device=device)
    algorithm = StreamedBBKB(ConstantWidth(30.0), 5.0, 0.5)  # goes everywhere
    state = algorithm.init(Matern(1.5, 0.2), NOISE_VAR, 3, device=device)
    chosen = run_rounds(algorithm, state, ArmStream.of_tensor(X), uniforms, noise)
    assert state.used == len(set(chosen)) > 64  # more than there was room for at first
    assert float(state.posterior.counts.sum()) == 150.0
    again = algorithm.init(Matern(1.5, 0.2), NOISE_VAR, 3, device=device)
    for t, (arm, uniform) in enumerate(zip(chosen, uniforms, strict=True)):  # observing again restores the state
        algorithm.observe(again, X[arm], value(X[arm]) + 0.1 * float(noise[t]), uniform)
    torch.testing.assert_close(again.posterior.mean, state.posterior.mean)
    torch.testing.assert_close(again.posterior.variance, state.posterior.variance)


def test_single_precision_arms_and_files(tmp_path, device):
    """float32 arms on disk, float64 algebra: the arms that the same numbers choose in memory as float64."""
    X = places(N, 2, device=device).float()
    np.save(tmp_path / "arms.npy", X.cpu().numpy())
    uniforms, noise = draws(60)
    algorithm = StreamedBBKB(WIDTH, 5.0, 1.0)
    results = []
    for stream in (ArmStream.of_file(tmp_path / "arms.npy", 600, device), ArmStream.of_tensor(X.double(), 600)):
        state = algorithm.init(Matern(2.5, 0.3), NOISE_VAR, 2, device=device)
        results.append(run_rounds(algorithm, state, stream, uniforms, noise))
        assert state.posterior.mean.dtype == torch.float64
    assert results[0] == results[1]


def test_bad_streams_are_refused_and_change_nothing(device):
    good = places(20, 2, device=device)
    algorithm = StreamedBBKB(WIDTH, 5.0, 1.0)

    def started():
        state = algorithm.init(Matern(2.5, 0.3), 0.1, 2, device=device)
        choice = algorithm.select(state, ArmStream.of_tensor(good), 0.5)
        algorithm.observe(state, choice.location, 1.0, 0.5)
        return state

    def changing(start, stop):
        return good[start:stop] if start < 10 else torch.cat([good, good], 1)[start:stop]

    nan = good.clone()
    nan[13] = math.nan
    for stream, message in (
        (ArmStream(changing, 0, 20, 10), "arms 10..19 must be 10 x 2"),
        (ArmStream(lambda a, b: good[a : b - 1], 0, 20, 10), "arms 0..9 must be 10 x 2"),
        (ArmStream(lambda a, b: good[a:b].long(), 0, 20, 10), "float32 or float64"),
        (ArmStream.of_tensor(nan, 10), "arms 10..19 has 2 NaN"),
        (ArmStream.of_tensor(good[:, :1]), "20 x 2"),
    ):
        state = started()
        with pytest.raises(ValueError, match=message):
            algorithm.select(state, stream, 0.5)
        assert algorithm.select(state, ArmStream.of_tensor(good), 0.5).arm < 20  # nothing is lost
    nothing = ArmStream(lambda a, b: good[a:b], 5, 5)
    for state in (algorithm.init(Matern(2.5, 0.3), 0.1, 2, device=device), started()):
        with pytest.raises(ValueError, match="no arms"):
            algorithm.select(state, nothing, 0.5)
    with pytest.raises(ValueError, match="1 x 3"):
        algorithm.select(algorithm.init(Matern(2.5, 0.3), 0.1, 3, device=device), ArmStream.of_tensor(good), 0.5)
    state = started()
    with pytest.raises(ValueError, match="2 numbers"):
        algorithm.observe(state, good[0, :1], 1.0, 0.5)
    with pytest.raises(ValueError, match="NaN"):
        algorithm.observe(state, nan[13], 1.0, 0.5)


SCRIPT = """
import json, os, sys, datetime
import torch, torch.distributed as dist
torch.set_num_threads(1)
from bo_robust.bandits.streamed_bbkb import StreamedBBKB
from bo_robust.utils.covariance import Matern
from bo_robust.confidence import FiniteWidth
from bo_robust.bandits.posteriors.streams import ArmStream
rank, ranks, store, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks,
                        timeout=datetime.timedelta(seconds=60))
X = torch.rand(1500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
if what == "nan" and rank == 1:
    X[1200] = float("nan")
g = torch.Generator().manual_seed(1 + (rank if what == "own" else 0))
T = 80
uniforms, noise = torch.rand(T, dtype=torch.float64, generator=g), torch.randn(T, dtype=torch.float64, generator=g)
algorithm = StreamedBBKB(FiniteWidth(1500, 0.1, scale=0.45), 5.0, 1.0, shortlist=50)
state = algorithm.init(Matern(2.5, 0.3), 0.01, 2)
arms, chosen = ArmStream.of_tensor(X, 500).shard(rank, ranks), []
for t in range(T):
    if what == "die" and rank == 1 and t == 20:
        os._exit(3)  # a death, not an exit: on the way out gloo may abort the process with a code of its own
    if what == "asym" and rank == 1 and t % 3 == 0:
        arms = ArmStream.of_tensor(X, 500).shard(rank, ranks)  # the same arms, which this rank has to look at anew
    choice = algorithm.select(state, arms, float(uniforms[t]), dist.group.WORLD)
    y = float(torch.sin(6.0 * choice.location).sum()) + 0.1 * float(noise[t])
    algorithm.observe(state, choice.location, y, float(uniforms[t]), dist.group.WORLD)
    chosen.append(choice.arm)
print(json.dumps(chosen))
dist.destroy_process_group()
"""


def run_ranks(tmp_path, ranks, what):
    """Exit codes, outputs and errors of all ranks."""
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT)
    store = tmp_path / f"store_{ranks}_{what}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, str(script), str(r), str(ranks), str(store), what], **pipes)
        for r in range(ranks)
    ]
    try:
        outputs = [p.communicate(timeout=90) for p in processes]
    finally:
        for p in processes:
            p.kill()
    return [p.returncode for p in processes], [o for o, _ in outputs], [e for _, e in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["own", "asym"])
def test_two_ranks_choose_as_one(tmp_path, what):
    """Also where they were given uniforms and rewards of their own, of which those of the first count, or one of them
    has no shortlist when the other has."""
    uniforms, noise = draws(80)
    algorithm = StreamedBBKB(WIDTH, 5.0, 1.0, shortlist=50)
    state = algorithm.init(Matern(2.5, 0.3), NOISE_VAR, 2)
    want = run_rounds(algorithm, state, ArmStream.of_tensor(places(N, 2), 500), uniforms, noise)
    codes, outputs, errors = run_ranks(tmp_path, 2, what)
    assert codes == [0, 0], errors
    assert [json.loads(o.splitlines()[-1]) for o in outputs] == [want, want]


@pytest.mark.slow
def test_a_rank_that_fails_says_so_and_stops_the_other(tmp_path):
    codes, _, errors = run_ranks(tmp_path, 2, "nan")
    assert all(codes), codes  # gloo may abort the process on the way out
    assert "arms 750..1249 has 2 NaN" in errors[1]
    assert "rank 0 stops: rank(s) [1] failed" in errors[0]


def test_more_ranks_than_arms():
    stream = ArmStream.of_tensor(places(3, 2))
    assert [len(stream.shard(i, 5)) for i in range(5)] == [0, 1, 0, 1, 1]
    algorithm = StreamedBBKB(WIDTH, 5.0, 1.0)
    state = algorithm.init(Matern(2.5, 0.3), NOISE_VAR, 2)
    choice = algorithm.select(state, stream, 0.5)
    algorithm.observe(state, choice.location, 1.0, 0.5)
    empty = algorithm._pass(state, stream.shard(0, 5), torch.ones(1, dtype=torch.float64))
    assert float(empty[0]) == -math.inf
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1"):
        stream.shard(2, 2)
