import math

import pytest
import torch

from bo_robust.bandits.elimination_algorithm import eliminations
from bo_robust.bandits.he_stable_opt import HEStableOpt
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.bandits.stable_opt import StableOpt
from bo_robust.confidence import ConstantWidth, SelfNormalizedWidth
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits.problems import go_on

DESIGNS, W, ROUNDS = 6, 4, 25


def world(device, s=3):
    g = torch.Generator().manual_seed(0)
    points = torch.rand(DESIGNS * W, 2, generator=g, dtype=torch.float64).to(device)
    noise = 0.1 * torch.randn(ROUNDS, s, generator=g, dtype=torch.float64).to(device)
    return points, torch.sin(6 * points).sum(-1), noise


@pytest.mark.parametrize("width", [ConstantWidth(1.5), SelfNormalizedWidth(1.0, 0.1, 0.05)], ids=["constant", "gain"])
def test_one_candidate_is_stable_opt(width, device):
    """Whose recommendation is the design of largest worst case among those queried."""
    points, f, noise = world(device)
    f[W] -= 1.8  # under one condition the design that is best on average is bad
    kernel = ArmKernel.from_covariance(SquaredExponential(0.3), points)
    ours, theirs = HEStableOpt(width, 0.1, 0.1, W), StableOpt(width, W)
    a, b = (one.init(kernel, 0.01, 3) for one in (ours, theirs))
    arms = go_on(ours, a, f.expand(3, -1), noise)
    assert torch.equal(arms, go_on(theirs, b, f.expand(3, -1), noise))
    assert torch.equal(a.posterior.mean, b.posterior.mean)
    assert torch.equal(ours.recommend(a), theirs.recommend(b))
    for i, best in enumerate(theirs.recommend(b).tolist()):
        mean, queried = b.posterior.mean[i].tolist(), sorted({arm // W for arm in arms[:, i].tolist()})
        assert best == max(queried, key=lambda x: min(mean[x * W : (x + 1) * W]))
    assert theirs.recommend(b).tolist() != b.posterior.mean.view(3, DESIGNS, W).mean(2).argmax(1).tolist()


def of_three_candidates(points, f):
    kernel = candidate_kernel([SquaredExponential(0.3), SquaredExponential(0.3), Matern(2.5, 0.6)], points)
    prior = torch.stack([0.0 * f, 4.0 * (points[:, 0] > 0.5), -3.0 * (points[:, 1] > 0.3)])
    algorithm = HEStableOpt(ConstantWidth(1.5), 0.1, 0.1, W)
    return algorithm, algorithm.init(kernel, 0.01, 3, prior_mean=prior)


def both_sides(terms, t):
    """|sum eta| and its limit in round ``t``, of pairs of eta and w sigma."""
    xi = 0.02 * math.log(3 * math.pi**2 * t**2 / 0.3)
    return abs(sum(e for e, _ in terms)), math.sqrt(xi * len(terms)) + sum(r for _, r in terms)


def chosen_by_loops(mean, sd, active):
    """The arm, u_t and v_t of one trial, from means and standard deviations by candidate and arm."""

    def bound(h, x, z, sign):
        return mean[h][x * W + z] + sign * 1.5 * sd[h][x * W + z]

    pairs = [(x, h) for x in range(DESIGNS) for h in active]
    x, optimist = max(pairs, key=lambda p: min(bound(p[1], p[0], z, 1.0) for z in range(W)))
    z, pessimist = min(((z, h) for z in range(W) for h in active), key=lambda p: bound(p[1], x, p[0], -1.0))
    return x * W + z, optimist, pessimist


def test_picks_and_both_tests_by_loops(device):
    points, f, noise = world(device)
    algorithm, state = of_three_candidates(points, f)
    u = torch.zeros(3, dtype=torch.float64, device=device)
    chose = [[[[], [], []] for _ in range(3)] for _ in range(2)]  # test, trial, candidate -> (eta, w sigma)
    active = [[0, 1, 2] for _ in range(3)]
    record = []
    noise[6, 1] = math.nan  # a failed pull is no test
    for t, eta in enumerate(noise, 1):
        selection = algorithm.select(state, u)
        means, sds = state.posterior.means.tolist(), state.posterior.variances.sqrt().tolist()
        rewards = f[selection.arms] + eta
        info = algorithm.observe(state, selection.arms, rewards, u)
        for i in range(3):
            arm, optimist, pessimist = chosen_by_loops(means[i], sds[i], active[i])
            chosen = selection.arms[i], selection.candidate[i], selection.lower_candidate[i]
            assert tuple(map(int, chosen)) == (arm, optimist, pessimist)
            assert (int(info.candidate[i]), int(info.lower.candidate[i])) == (optimist, pessimist)
            if not math.isfinite(rewards[i]):
                continue
            both = ((optimist, info.left, info.right), (pessimist, info.lower.left, info.lower.right))
            for test, (h, got_left, got_right) in enumerate(both):
                terms = chose[test][i][h]
                terms.append((float(rewards[i]) - means[i][h][arm], 1.5 * sds[i][h][arm]))
                left, right = both_sides(terms, t)
                assert float(got_left[i]) == pytest.approx(left, rel=1e-9, abs=1e-12)
                assert float(got_right[i]) == pytest.approx(right, rel=1e-9)
                if left > right and h in active[i] and len(active[i]) > 1:
                    active[i].remove(h)
                    record.append((i, h, t, test))
        assert state.posterior.active.tolist() == [[h in kept for h in range(3)] for kept in active]
    assert {test for *_, test in record} == {0, 1}  # each test eliminated someone
    by_round = sorted(((i, t, h) for i, h, t, _ in record))
    assert [(r["trial"], r["round"], r["candidate"]) for r in eliminations(state)] == by_round
