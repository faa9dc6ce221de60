"""BBKB over arms: what its shortlist must not change."""

import torch

from bo_robust.bandits import BBKB, bbkb
from bo_robust.bandits.posteriors import dtc
from bo_robust.confidence import ConstantWidth
from tests.bandits.problems import N, kernel, table


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
