import math

import pytest
import torch

from bo_robust.bandits import CandidateAlgorithm
from bo_robust.bandits.a_gp_ucb import AGPUCB
from bo_robust.bandits.expected_ucb import ExpectedUCB
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import ConstantWidth, SelfNormalizedWidth
from bo_robust.utils.covariance import SquaredExponential
from tests.bandits.problems import go_on

LENGTHSCALES = (0.05, 0.4, 0.15)
N, S, ROUNDS = 25, 3, 20
WIDTH = SelfNormalizedWidth(1.0, 0.3, 0.05)


def world(device):
    g = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(1).to(device)
    f = torch.sin(torch.tensor([[4.0], [9.0], [30.0]], dtype=torch.float64, device=device) * x.T)
    noise = 0.1 * torch.randn(ROUNDS, S, generator=g, dtype=torch.float64).to(device)
    return candidate_kernel([SquaredExponential(ell) for ell in LENGTHSCALES], x), f, noise


def methods(width):
    return {"mle": CandidateAlgorithm(width), "expected": ExpectedUCB(width), "a": AGPUCB(width, LENGTHSCALES)}


@pytest.mark.parametrize("name", ["mle", "expected", "a"])
def test_picks_by_loops(name, device):
    kernel, f, noise = world(device)
    algorithm = methods(WIDTH)[name]
    used = set()

    def check(state, selection):
        posterior, t = state.posterior, state.round + 1
        for i in range(S):
            evidence = posterior.evidence[i].tolist()
            w = [WIDTH(t, float(gain)) for gain in posterior.gains[i]]
            bounds = [posterior.means[i, h] + w[h] * posterior.variances[i, h].sqrt() for h in range(3)]
            if name == "expected":
                weights = [math.exp(e - max(evidence)) for e in evidence]
                bound = sum(p * b for p, b in zip(weights, bounds, strict=True)) / sum(weights)
                assert selection.candidate is None
            else:
                target = 0.4 / t**0.9
                h = evidence.index(max(evidence)) if name == "mle" else min(
                    range(3), key=lambda u: abs(LENGTHSCALES[u] - target)
                )  # fmt: skip
                bound = bounds[h]
                used.add(h)
                assert int(selection.candidate[i]) == h
                assert torch.equal(posterior.mean[i], posterior.means[i, h])
                assert float(selection.width[i]) == pytest.approx(w[h], rel=1e-12)
            assert float(bound[selection.arms[i]]) == pytest.approx(float(bound.max()), rel=1e-12)

    go_on(algorithm, algorithm.init(kernel, 0.01, S), f, noise, before=check)
    assert used == set() if name == "expected" else len(used) == 3


def test_a_gp_ucb_shrinks_by_hand():
    """theta_0 / t^0.9 of 1.0: 1, .536, .372, .287, ...; candidates of the paper's experiment (a)."""
    algorithm = AGPUCB(ConstantWidth(1.0), (0.3, 0.4, 0.5, 0.7, 1.0))
    assert [algorithm.nearest(t) for t in (1, 2, 3, 4, 50)] == [4, 2, 1, 0, 0]
    x = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(1)
    state = algorithm.init(candidate_kernel([SquaredExponential(ell) for ell in algorithm.lengthscales], x), 0.01, 2)
    arm, reward = torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.float64)
    initial, chosen = algorithm.observe_initial, algorithm.observe
    for act, active in ((initial, 4), (initial, 4), (chosen, 2), (chosen, 1)):
        act(state, arm, reward)  # a lengthscale does not shrink in an initial design
        assert state.posterior.active.double().argmax(1).tolist() == [active, active]
