import pytest
import torch

from bo_robust.bandits import BBKB, BKB, bbkb
from bo_robust.bandits.posteriors import dtc
from bo_robust.confidence import ConstantWidth
from bo_robust.utils import linalg
from tests.bandits.problems import N, kernel, run_rounds, table


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("algorithm", [BBKB(ConstantWidth(2.0), 5.0, 4.0), BKB(ConstantWidth(2.0), 2.0)])
def test_few_trials_are_a_batch(algorithm, dtype, device, monkeypatch):
    """Few trials are run one by one on a CPU; an eighth of their pulls fail."""
    f, noise, uniforms = (x.to(dtype) for x in table(3, 60, device))
    noise[torch.rand(noise.shape, generator=torch.Generator().manual_seed(1)) < 0.125] = torch.nan
    runs = []
    for few in (8, 0):
        monkeypatch.setattr(linalg, "FEW_TRIALS", few)
        runs.append(run_rounds(algorithm, kernel(device, dtype=dtype), f, noise, uniforms))
    (arms, ours), (same, theirs) = runs
    assert torch.equal(arms, same)
    tol = 1e-9 if dtype == torch.float64 else 1e-2
    for name in ("totals", "pulled", "mean", "variance"):
        got, want = (getattr(state.posterior, name) for state in (ours, theirs))
        torch.testing.assert_close(got, want, rtol=tol, atol=tol)


def test_argmax_is_exact_within_long_batches_of_a_short_list(device, monkeypatch):
    """Every choice of every trial against all arms at their present variances; the list of 4 arms is often left."""
    monkeypatch.setattr(bbkb, "SHORTLIST_SIZE", 4)
    looks, look_again = [], bbkb._look_again
    monkeypatch.setattr(bbkb, "_look_again", lambda *given: looks.append(given[1]) or look_again(*given))
    second, largest = [], bbkb.largest_bounds
    monkeypatch.setattr(bbkb, "largest_bounds", lambda *given: second.append(given[3] > 4) or largest(*given))
    f, noise, uniforms = table(6, 60, device)
    algorithm = BBKB(ConstantWidth(2.0), 5.0, 4.0)
    state = algorithm.init(kernel(device), 0.1, 6)
    everything, trials = torch.arange(N, device=device).expand(6, N), torch.arange(6, device=device)
    for eta, u in zip(noise, uniforms, strict=True):
        chosen = algorithm.select(state, u)
        if state.round:
            p = state.posterior
            bounds = p.mean + 2.0 * dtc.variance_of(p, everything, trials).sqrt()
            best = bounds.gather(1, chosen.arms.unsqueeze(1)).squeeze(1)
            assert torch.allclose(best, bounds.amax(1), rtol=0.0, atol=1e-9)
        rewards = f.gather(1, chosen.arms.unsqueeze(1)).squeeze(1) + eta
        algorithm.observe(state, chosen.arms, rewards, u)
    assert len(looks) > 10
    assert any(second)  # the arms listed anew were no proof either


def test_arms_that_were_not_chosen_teach_the_same(device):
    """``observe`` takes a short way for the very tensor that ``select`` returned, and all ways lead to one state."""
    f, noise, uniforms = table(6, 60, device)
    algorithm, short, kept = BBKB(ConstantWidth(2.0), 5.0, 4.0), 0, []
    ours, theirs = (algorithm.init(kernel(device), 0.1, 6) for _ in range(2))
    for t, (eta, u) in enumerate(zip(noise, uniforms, strict=True)):
        arms = algorithm.select(ours, u).arms
        if t % 3:
            assert torch.equal(algorithm.select(theirs, u).arms, arms)
        short += ours.chosen is not None
        kept.append((arms, arms.clone()))
        rewards = f.gather(1, arms.unsqueeze(1)).squeeze(1) + eta
        rewards[t % 6] = torch.nan
        ok = algorithm.observe(ours, arms, rewards, u).ok
        assert torch.equal(algorithm.observe(theirs, arms.clone(), rewards, u).ok, ok)
        for name in ("totals", "pulled", "mean", "variance"):
            torch.testing.assert_close(*(getattr(state.posterior, name) for state in (ours, theirs)))
        if ours.posterior.ahead is not None:
            torch.testing.assert_close(ours.posterior.ahead, theirs.posterior.ahead)
    assert short > 20
    assert all(torch.equal(*pair) for pair in kept)  # the arms returned are no view of what changes in place
