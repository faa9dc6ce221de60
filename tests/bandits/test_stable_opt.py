import torch

from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.stable_opt import StableOpt
from bo_robust.confidence import ConstantWidth
from bo_robust.utils.covariance import SquaredExponential


def test_picks_max_min_then_min(device):
    """The choice recomputed from the posterior with plain loops; the design of largest worst case is recommended."""
    designs, w, rounds = 6, 4, 15
    g = torch.Generator().manual_seed(0)
    points = torch.rand(designs * w, 2, generator=g, dtype=torch.float64).to(device)
    f = torch.sin(6 * points).sum(-1)
    algorithm = StableOpt(ConstantWidth(1.5), w)
    state = algorithm.init(ArmKernel.from_covariance(SquaredExponential(0.3), points), 0.01, 2)
    u = torch.zeros(2, dtype=torch.float64, device=device)
    noise = 0.1 * torch.randn(rounds, 2, generator=g, dtype=torch.float64).to(device)
    queried = [set(), set()]
    for t in range(rounds):
        arms = algorithm.select(state, u).arms
        mean, sd = state.posterior.mean, state.posterior.variance.sqrt()
        for i in range(2):
            upper = (mean + 1.5 * sd)[i].tolist()
            lower = (mean - 1.5 * sd)[i].tolist()
            x = max(range(designs), key=lambda x: min(upper[x * w : (x + 1) * w]))
            z = min(range(w), key=lambda z: lower[x * w + z])
            assert int(arms[i]) == x * w + z
            queried[i].add(x)
        algorithm.observe(state, arms, f[arms] + noise[t])
    for i, best in enumerate(algorithm.recommend(state).tolist()):
        mean = state.posterior.mean[i].tolist()
        assert best == max(sorted(queried[i]), key=lambda x: min(mean[x * w : (x + 1) * w]))
