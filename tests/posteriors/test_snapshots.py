"""A snapshot restored goes on bit for bit, in either layout, at any point of a block."""

import json

import pytest
import torch

from bo_robust.algorithms import ATAGPUCB, BBKB, BKB
from bo_robust.confidence import ConstantWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.features import FourierFeatures
from bo_robust.posteriors import whitening
from bo_robust.posteriors.arms import ArmKernel, init, observe
from bo_robust.posteriors.dictionary import NystromDictionary
from bo_robust.posteriors.snapshots import forget, restore_, snapshot
from bo_robust.truncation import NoTruncation, TGPTruncation


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("stop", [0, 1, 32, 45, 150])
def test_going_on_is_bit_identical(stop, trials, dense, device):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(120, 2, generator=g, dtype=torch.float64).to(device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), X)
    pulls = torch.randint(0, 120, (200, trials), generator=g).to(device)
    rewards = torch.randn(200, trials, generator=g, dtype=torch.float64).to(device)
    whole = init(kernel, 0.1, trials, dense=dense)
    saved = None
    for t in range(200):
        if t == stop:
            tensors, numbers = snapshot(whole)
            saved = ({k: v.clone() for k, v in tensors.items()}, numbers)
        observe(whole, pulls[t], rewards[t])
    again = init(kernel, 0.1, trials, dense=dense)
    restore_(again, *saved)
    for t in range(stop, 200):
        observe(again, pulls[t], rewards[t])
    for name in ("mean", "variance", "counts", "information_gain"):
        assert torch.equal(getattr(whole, name), getattr(again, name))


FOURIER = FourierFeatures(0.2, 14, ((0.0, 1.0),))


@pytest.mark.parametrize("root", whitening.ROOTS)
@pytest.mark.parametrize(
    "make",
    [
        lambda root: ATAGPUCB(ConstantWidth(1.0), TGPTruncation(0.02, 0.8), FOURIER, root, "zero"),
        lambda root: ATAGPUCB(ConstantWidth(1.0), NoTruncation(), FOURIER, root),
        lambda root: ATAGPUCB(ConstantWidth(1.0), TGPTruncation(0.02, 0.8), NystromDictionary(3.0, 1.3), root, "clip"),
    ],
    ids=["ata fourier", "ata without level", "ata nystrom"],
)
@pytest.mark.parametrize("reads", [True, False], ids=["reading", "branch-free"])
@pytest.mark.parametrize("stop", [1, 37])
def test_feature_states_go_on_bit_identically(stop, reads, make, root, monkeypatch, device):
    monkeypatch.setattr(whitening, "reads_data", lambda state: reads)
    algorithm, g = make(root), torch.Generator().manual_seed(0)
    X = torch.linspace(0, 1, 30, dtype=torch.float64, device=device).unsqueeze(1)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), X)
    noise = torch.tensor([0.01, 0.3, 1.0], dtype=torch.float64, device=device)
    uniforms = torch.rand(60, 3, generator=g, dtype=torch.float64).to(device)
    heavy = torch.randn(60, 3, generator=g, dtype=torch.float64) / torch.rand(60, 3, generator=g, dtype=torch.float64)
    heavy[heavy.abs() > 30] = torch.nan
    heavy = heavy.to(device)

    def play(state, start, end):
        chosen = []
        for t in range(start, end):
            arms = algorithm.select(state, uniforms[t]).arms
            algorithm.observe(state, arms, heavy[t], uniforms[t])
            chosen.append(arms)
        return chosen

    whole = algorithm.init(kernel, noise, 3)
    play(whole, 0, stop)
    forget(whole.posterior)
    tensors, numbers = snapshot(whole.posterior)
    # as a file gives them back: contiguous copies, and numbers by way of JSON
    saved = {k: v.cpu().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
    numbers = json.loads(json.dumps(numbers))
    rest = play(whole, stop, 60)
    again = algorithm.init(kernel, noise, 3)
    restore_(again.posterior, saved, numbers)
    again.round = stop
    assert all(torch.equal(a, b) for a, b in zip(rest, play(again, stop, 60), strict=True))
    for name in ("mean", "variance", "counts", "information_gain"):
        assert torch.equal(getattr(whole.posterior, name), getattr(again.posterior, name)), name


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize(
    "algorithm", [BKB(ConstantWidth(2.0), 5.0), BBKB(ConstantWidth(2.0), 5.0, 0.3)], ids=["bkb", "bbkb"]
)
def test_tensors_keep_their_layout_because_products_of_another_round_differently(algorithm, trials, device):
    """Where arms come twice, the last bit decides which one is played."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=g, dtype=torch.float64).repeat(2, 1).to(device)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.3), X)
    uniforms = torch.rand(90, trials, generator=g, dtype=torch.float64).to(device)

    def play(state, start, end):
        chosen = []
        for u in uniforms[start:end]:
            chosen.append(algorithm.select(state, u).arms)
            algorithm.observe(state, chosen[-1], X[chosen[-1], 0] + u, u)
        return chosen

    whole, layouts = algorithm.init(kernel, 0.1, trials), set()
    for stop in range(30, 60):
        play(whole, stop - 1, stop)
        forget(whole)
        tensors, numbers = snapshot(whole)
        again = algorithm.init(kernel, 0.1, trials)
        saved = {k: v.cpu().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
        restore_(again, saved, json.loads(json.dumps(numbers)))
        for name, x in snapshot(again)[0].items():
            assert torch.equal(x, tensors[name]), name
            assert x.is_contiguous() == tensors[name].is_contiguous(), name
            layouts.add(x.is_contiguous())
    assert layouts == {True, False}
    assert all(torch.equal(a, b) for a, b in zip(play(whole, 60, 90), play(again, 60, 90), strict=True))
    assert torch.equal(whole.posterior.mean, again.posterior.mean)
