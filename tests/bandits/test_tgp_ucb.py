"""TGP-UCB and truncated BKB written out, and BKB without a level."""

import pytest
import torch

from bo_robust.bandits import BKB, TGPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.utils.input_checks import RULES
from tests.bandits.naive import exact
from tests.bandits.problems import kernel, table

WIDTH = ConstantWidth(1.0)
LEVEL = TGPTruncation(0.5, 0.5)
EVERYTHING = 1e12  # oversampling that keeps every arm in BKB's dictionary


def heavy(T, s, device):
    f, _, uniforms = table(s, T, device)
    g = torch.Generator().manual_seed(1)
    sizes = 0.2 * torch.rand(T, s, generator=g, dtype=torch.float64) ** (-1 / 1.3)
    return f, (sizes * (2 * torch.randint(0, 2, (T, s), generator=g) - 1)).to(device), uniforms


@pytest.mark.parametrize("rule", RULES)
def test_truncated_rewards_written_out(rule, device):
    """Exact regression from scratch every round, on the truncated rewards so far; BKB with everything kept agrees."""
    f, noise, _ = heavy(40, 1, device)
    kern, noise_var = kernel(device), 0.1
    K = kern.matrix
    arms = torch.randint(0, len(K), (40,), generator=torch.Generator().manual_seed(2)).to(device)
    tgp = TGPUCB(WIDTH, LEVEL, rule)
    bkb = BKB(WIDTH, EVERYTHING, "fresh", LEVEL, rule)
    states = [algorithm.init(kern, noise_var, 1) for algorithm in (tgp, bkb)]
    kept, lost = [], 0
    for t, arm in enumerate(arms):
        y = f[0, arm] + noise[t, 0]
        for algorithm, state in zip((tgp, bkb), states, strict=True):
            info = algorithm.observe(state, arm[None], y[None], torch.full_like(y[None], 0.5))
            assert bool(info.truncated) == bool(y.abs() > LEVEL(t + 1))
        level = LEVEL(t + 1)
        beyond = bool(y.abs() > level)
        kept.append(y if not beyond else level * y.sign() if rule == "clip" else torch.zeros_like(y))
        lost += beyond
        mean, _ = exact(K, noise_var, arms[: t + 1], torch.stack(kept))
    assert 3 <= lost <= 37
    for state in states:
        torch.testing.assert_close(state.posterior.mean[0], mean, rtol=0.0, atol=1e-7)
