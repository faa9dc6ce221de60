"""TGP-UCB and truncated BKB: the rule "residual" by hand and written out, and its limits."""

import pytest
import torch

from bo_robust.algorithms import BKB, TGPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.truncation import NoTruncation, TGPTruncation
from tests.algorithms.worlds import kernel, play, table

WIDTH = ConstantWidth(1.0)
LEVEL = TGPTruncation(0.5, 0.5)
TRUNCATED = pytest.mark.parametrize(
    "make",
    [
        lambda rule="zero", bound=None: TGPUCB(WIDTH, LEVEL, rule, bound),
        lambda rule="zero", bound=None: BKB(WIDTH, 3.0, "fresh", LEVEL, rule, bound),
    ],
    ids=["tgp-ucb", "bkb"],
)
EVERYTHING = 1e12  # oversampling that keeps every arm in BKB's dictionary


def heavy(T, s, device):
    f, _, uniforms = table(s, T, device)
    g = torch.Generator().manual_seed(1)
    sizes = 0.2 * torch.rand(T, s, generator=g, dtype=torch.float64) ** (-1 / 1.3)
    return f, (sizes * (2 * torch.randint(0, 2, (T, s), generator=g) - 1)).to(device), uniforms


@pytest.mark.parametrize("bound", [None, 0.2, 0.5])
@pytest.mark.parametrize("truncated", ["tgp-ucb", "bkb"])
def test_residual_by_hand(truncated, bound, device):
    # Two arms, k = identity, lambda = 1, b_t = t^(1/4): 1, then 1.19.
    # Reward .6 at arm 0: kept, mean .3. Reward 9: beyond the level around the reference min(.3, bound), counts as it.
    algorithm = {
        "tgp-ucb": TGPUCB(WIDTH, TGPTruncation(1.0, 1.0), "residual", bound),
        "bkb": BKB(WIDTH, EVERYTHING, "fresh", TGPTruncation(1.0, 1.0), "residual", bound),
    }[truncated]
    state = algorithm.init(ArmKernel.from_matrix(torch.eye(2, dtype=torch.float64, device=device)), 1.0, 1)
    arm, flags = torch.zeros(1, dtype=torch.long, device=device), []
    for y in (0.6, 9.0):
        reward = torch.tensor([y], dtype=torch.float64, device=device)
        flags.append(bool(algorithm.observe(state, arm, reward, torch.zeros_like(reward)).truncated))
    reference = 0.3 if bound is None else min(0.3, bound)
    assert flags == [False, True]
    assert state.posterior.mean[0].tolist() == pytest.approx([(0.6 + reference) / 3, 0.0], abs=1e-12)


@TRUNCATED
def test_a_reference_of_zero_is_tgp_ucb(make, device):
    """Bit for bit, over 80 rounds in which rewards are truncated; another reference is another play."""
    f, noise, uniforms = heavy(80, 6, device)
    zero, by_zero = play(make("zero"), kernel(device), f, noise, uniforms)
    same, by_same = play(make("residual", 0.0), kernel(device), f, noise, uniforms)
    assert torch.equal(zero, same)
    assert torch.equal(by_zero.posterior.mean, by_same.posterior.mean)
    assert not torch.equal(zero, play(make("residual", 1.0), kernel(device), f, noise, uniforms)[0])


@pytest.mark.parametrize("bound", [None, 0.4])
def test_residual_written_out(bound, device):
    """Exact regression from scratch every round, on the truncated rewards so far; BKB with everything kept agrees."""
    f, noise, _ = heavy(40, 1, device)
    kern, noise_var = kernel(device), 0.1
    K = kern.matrix
    arms = torch.randint(0, len(K), (40,), generator=torch.Generator().manual_seed(2)).to(device)
    tgp = TGPUCB(WIDTH, LEVEL, "residual", bound)
    bkb = BKB(WIDTH, EVERYTHING, "fresh", LEVEL, "residual", bound)
    states = [algorithm.init(kern, noise_var, 1) for algorithm in (tgp, bkb)]
    mean, kept, lost = torch.zeros_like(f[0]), [], 0
    for t, arm in enumerate(arms):
        y = f[0, arm] + noise[t, 0]
        for algorithm, state in zip((tgp, bkb), states, strict=True):
            algorithm.observe(state, arm[None], y[None], torch.full_like(y[None], 0.5))
        g = mean[arm] if bound is None else mean[arm].clamp(-bound, bound)
        beyond = bool((y - g).abs() > LEVEL(t + 1))
        kept.append(g if beyond else y)
        lost += beyond
        past = arms[: t + 1]
        solved = torch.linalg.solve(K[past][:, past] + noise_var * torch.eye(t + 1).to(K), torch.stack(kept))
        mean = K[:, past] @ solved
    assert 3 <= lost <= 37
    for state in states:
        torch.testing.assert_close(state.posterior.mean[0], mean, rtol=0.0, atol=1e-7)


def test_bkb_without_a_level_loses_nothing(device):
    f, noise, uniforms = heavy(30, 3, device)
    plain, _ = play(BKB(WIDTH, 3.0), kernel(device), f, noise, uniforms)
    level = BKB(WIDTH, 3.0, truncation=NoTruncation(), rule="residual")
    assert torch.equal(plain, play(level, kernel(device), f, noise, uniforms)[0])


@TRUNCATED
def test_static_mistakes(make):
    with pytest.raises(ValueError, match="reference_bound is for rule 'residual'; leave it out, or change rule 'zero'"):
        make(bound=1.0)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="reference_bound must be a finite number >= 0"):
            make("residual", bad)
