import math

import pytest
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models import SingleTaskGP
from scipy import stats

from bo_robust.bandits import (
    BKB,
    GPUCB,
    IRGPUCB,
    TGPUCB,
    ExpectedImprovement,
    ProbabilityOfImprovement,
    PureMean,
    PureVariance,
    RandomArm,
)
from bo_robust.bandits.baselines import incumbent, log_expected_improvement
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomizedWidth, information_gain
from bo_robust.confidence.truncation import RULES, TGPTruncation
from tests.bandits.naive import exact
from tests.bandits.problems import N, draw_from_prior, kernel, run_rounds, table


@pytest.mark.parametrize("rule", RULES)
def test_truncated_rewards_written_out(rule, device):
    """Exact regression from scratch every round, on the truncated rewards so far; BKB with everything kept agrees."""
    (f, _, _), g = table(1, 40, device), torch.Generator().manual_seed(1)
    sizes = 0.2 * torch.rand(40, generator=g, dtype=torch.float64) ** (-1 / 1.3)
    noise = (sizes * (2 * torch.randint(0, 2, (40,), generator=g) - 1)).to(device)
    kern, noise_var = kernel(device), 0.1
    K = kern.matrix
    arms = torch.randint(0, len(K), (40,), generator=torch.Generator().manual_seed(2)).to(device)
    width, level_of = ConstantWidth(1.0), TGPTruncation(0.5, 0.5)
    algorithms = TGPUCB(width, level_of, rule), BKB(width, 1e12, "fresh", level_of, rule)
    states = [algorithm.init(kern, noise_var, 1) for algorithm in algorithms]
    kept, lost = [], 0
    for t, arm in enumerate(arms):
        y = f[0, arm] + noise[t]
        for algorithm, state in zip(algorithms, states, strict=True):
            info = algorithm.observe(state, arm[None], y[None], torch.full_like(y[None], 0.5))
            assert bool(info.truncated) == bool(y.abs() > level_of(t + 1))
        level = level_of(t + 1)
        beyond = bool(y.abs() > level)
        kept.append(RULES[rule] * level * y.sign() if beyond else y)
        lost += beyond
        mean, _ = exact(K, noise_var, arms[: t + 1], torch.stack(kept))
    assert 3 <= lost <= 37
    for state in states:
        torch.testing.assert_close(state.posterior.mean[0], mean, rtol=0.0, atol=1e-7)


def test_irgp_width_is_that_of_the_uniforms(device):
    """Whose law is tested with the widths."""
    width, u = RandomizedWidth(N), torch.tensor([0.1, 0.9], dtype=torch.float64, device=device)
    algorithm = IRGPUCB(width)
    assert torch.equal(algorithm.select(algorithm.init(kernel(device), 0.1, 2), u).width, width(1, uniform=u))


def test_expected_improvement_by_definition():
    z = torch.tensor([-3.0, -1.0, -0.999, 0.0, 2.0, 10.0], dtype=torch.float64)
    expected = torch.tensor(
        [math.log(stats.norm.pdf(v) + v * stats.norm.cdf(v)) for v in z.tolist()], dtype=torch.float64
    )
    torch.testing.assert_close(log_expected_improvement(z), expected, rtol=1e-10, atol=1e-12)
    # far below: log EI ~ log phi(z) - 2 log|z|, still finite and ordered
    far = torch.tensor([-1e3, -50.0, -30.0], dtype=torch.float64)
    out = log_expected_improvement(far)
    asymptote = -0.5 * far.square() - 0.5 * math.log(2 * math.pi) - 2 * far.abs().log()
    torch.testing.assert_close(out, asymptote, rtol=1e-2, atol=0)
    assert out[0] < out[1] < out[2]


def test_expected_improvement_picks_what_botorch_picks(device):
    kern = kernel(device)
    f, noise, uniforms = table(1, 12, device)
    chosen, state = run_rounds(RandomArm(), kern, f, noise, uniforms)
    rewards = f[0, chosen[:, 0]] + noise[:, 0]
    X = torch.linspace(0, 1, N, dtype=torch.float64, device=device).unsqueeze(1)
    model = SingleTaskGP(X[chosen[:, 0]], rewards.unsqueeze(1), torch.full((12, 1), 0.1).to(X), outcome_transform=None)
    model.covar_module.lengthscale = 0.2
    model.mean_module.constant.data.zero_()
    model.eval()
    best = model.posterior(X[chosen[:, 0]]).mean.max()
    theirs = LogExpectedImprovement(model, best_f=best)(X.unsqueeze(1))
    assert float(incumbent(state.posterior)) == pytest.approx(float(best), rel=1e-6)
    assert int(ExpectedImprovement().select(state, uniforms[0]).arms) == int(theirs.argmax())


def test_probability_of_improvement_by_hand(device):
    # mean (1, .9, 0), sigma (.1, .3, 1), incumbent 1, margin .1: z = -1, -2/3, -1.1
    algorithm = ProbabilityOfImprovement(0.1)
    state = algorithm.init(ArmKernel.from_matrix(torch.eye(3, dtype=torch.float64, device=device)), 1.0)
    buffers = state.posterior
    buffers.mean.copy_(torch.tensor([[1.0, 0.9, 0.0]]))
    buffers.variance.copy_(torch.tensor([[0.01, 0.09, 1.0]]))
    buffers.counts[0, 0] = 1.0
    assert algorithm.select(state, torch.zeros(1)).arms.tolist() == [1]


def test_pure_variance_is_greedy_experimental_design(device):
    f, noise, uniforms = table(1, 30, device)
    chosen, state = run_rounds(PureVariance(), kernel(device), f, noise, uniforms)
    gains, greedy = information_gain.greedy(kernel("cpu").matrix, 0.1, 30)
    assert float(state.posterior.information_gain) == pytest.approx(float(gains[-1]), rel=1e-9)
    assert chosen[:5, 0].cpu().tolist() == greedy[:5].tolist()


def test_pure_mean_starts_at_random_until_a_reward_came(device):
    algorithm = PureMean()
    state = algorithm.init(kernel(device), 0.1, 2)
    u = torch.tensor([0.5, 0.99], dtype=torch.float64, device=device)
    assert algorithm.select(state, u).arms.tolist() == [20, 39]
    arms = torch.tensor([3, 30], device=device)
    algorithm.observe(state, arms, torch.tensor([float("nan"), 2.0], dtype=torch.float64, device=device))
    assert algorithm.select(state, u).arms.tolist() == [20, 30]  # the first pull of trial 0 failed


def test_random_arms_are_uniform(device):
    algorithm = RandomArm()
    state = algorithm.init(kernel(device), 0.1, 8_000)
    u = torch.rand(8_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    counts = algorithm.select(state, u).arms.bincount(minlength=N).cpu().numpy()
    assert stats.chisquare(counts).pvalue > 1e-3


def test_gp_ucb_confidence_covers_a_gp_draw(device):
    """Theorem 1's event: with probability 1 - delta every interval holds in every round. 400 draws, delta .1."""
    trials, T, noise_var = 400, 30, 0.05
    kern = kernel(device)
    f, noise, _ = draw_from_prior(kern.matrix, trials, T, math.sqrt(noise_var), device)
    held = torch.ones(trials, dtype=torch.bool, device=device)

    def check(state, selection):
        posterior = state.posterior
        held.logical_and_(((f - posterior.mean).abs() <= selection.width * posterior.variance.sqrt() + 1e-7).all(1))

    run_rounds(GPUCB(FiniteWidth(N, 0.1)), kern, f, noise, noise_var=noise_var, before=check)
    assert float(held.double().mean()) >= 0.9
