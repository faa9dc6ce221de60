import pytest
import torch
from botorch.optim import optimize_acqf_discrete

from bo_robust.acquisition import GPUCB
from bo_robust.bandits import TGPUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import FiniteWidth, TGPWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.models import TruncatedGP
from bo_robust.utils.covariance import SquaredExponential
from tests.problems import rbf

LENGTHSCALE, NOISE_VAR, ROUNDS = 0.25, 0.3, 40
TRUNCATION = TGPTruncation(moment_bound=1.0, alpha=0.8)
WIDTHS = {
    "theory": TGPWidth(norm_bound=1.0, moment_bound=1.0, alpha=0.8, noise_var=NOISE_VAR, delta=0.1, scale=0.1),
    "finite": FiniteWidth(num_arms=50, delta=0.1, scale=0.3),
}


def problem(tkwargs, trials, num_arms=50):
    """Arms and the rewards they would give in every round: heavy-tailed, levels matter round by round."""
    g = torch.Generator().manual_seed(0)
    arms = torch.rand(num_arms, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(ROUNDS, trials, generator=g, dtype=torch.float64)
    noise = noise / torch.rand(ROUNDS, trials, generator=g, dtype=torch.float64).clamp(min=1e-3).sqrt()
    f = torch.sin(5 * arms).sum(-1)
    return arms.to(**tkwargs), f.to(**tkwargs), noise.to(**tkwargs)


def engine(tkwargs, arms, width, trials):
    algorithm = TGPUCB(width, TRUNCATION)
    prior = ArmKernel.from_covariance(SquaredExponential(LENGTHSCALE), arms)
    return algorithm, algorithm.init(prior, NOISE_VAR, trials)


@pytest.mark.parametrize("num_arms", [50, 300])  # both layouts of the engine
@pytest.mark.parametrize("name", WIDTHS)
def test_the_botorch_loop_chooses_the_arms_of_the_engine(tkwargs, name, num_arms):
    arms, f, noise = problem(tkwargs, 1, num_arms)
    algorithm, state = engine(tkwargs, arms, WIDTHS[name], 1)
    no_draws = torch.zeros(1, **tkwargs)
    chosen, rewards, grown = [], [], None
    for t in range(1, ROUNDS + 1):
        selection = algorithm.select(state, no_draws)
        choice = int(selection.arms)
        if chosen:  # a model needs a first observation; before it all arms are equal
            X, Y = arms[chosen], torch.stack(rewards)
            model = TruncatedGP(X, Y, TRUNCATION, noise_var=NOISE_VAR, covar_module=rbf(tkwargs, LENGTHSCALE))
            grown = model if grown is None else grown.condition_on_observations(X[-1:], Y[-1:])
            for m in (model, grown):
                posterior = m.posterior(arms)
                assert torch.allclose(posterior.mean[:, 0], state.posterior.mean[0], rtol=0, atol=1e-9)
                assert torch.allclose(posterior.variance[:, 0], state.posterior.variance[0], rtol=0, atol=1e-9)
                assert float(m.information_gain) == pytest.approx(float(state.posterior.information_gain), rel=1e-9)
                acqf = GPUCB(m, WIDTHS[name])
                assert acqf.t == t
                assert float(acqf.width) == pytest.approx(float(selection.width), rel=1e-9)
                x, _ = optimize_acqf_discrete(acqf, q=1, choices=arms, unique=False)
                assert torch.equal(x[0], arms[choice]), f"round {t}"
        reward = f[choice] + noise[t - 1]
        info = algorithm.observe(state, torch.tensor([choice], device=arms.device), reward)
        chosen.append(choice)
        rewards.append(reward)
        assert bool(info.truncated) == bool(reward.abs() > TRUNCATION(t))
    last = TruncatedGP(
        arms[chosen], torch.stack(rewards), TRUNCATION, noise_var=NOISE_VAR, covar_module=rbf(tkwargs, LENGTHSCALE)
    )
    kept = ~last.truncated
    assert 3 <= int(last.truncated.sum()) <= ROUNDS - 10
    assert bool((kept & (last.rewards.abs() > TRUNCATION(1))).any())  # with b_1 for all rounds it would differ
    assert len(set(chosen)) >= 5
    assert len(set(chosen)) < ROUNDS  # arms are pulled again


@pytest.mark.parametrize("name", WIDTHS)
def test_a_batched_model_chooses_the_arms_of_all_trials(tkwargs, name):
    trials = 4
    arms, f, noise = problem(tkwargs, trials)
    algorithm, state = engine(tkwargs, arms, WIDTHS[name], trials)
    no_draws = torch.zeros(trials, **tkwargs)
    history, rewards = [], []
    for t in range(ROUNDS):
        chosen = algorithm.select(state, no_draws).arms
        if history:
            X, Y = arms[torch.stack(history, 1)], torch.stack(rewards, 1).unsqueeze(-1)
            covar_module = rbf(tkwargs, LENGTHSCALE, (trials,))
            model = TruncatedGP(X, Y, TRUNCATION, noise_var=NOISE_VAR, covar_module=covar_module)
            values = GPUCB(model, WIDTHS[name])(arms[:, None, None])  # n x s
            assert torch.equal(values.argmax(0), chosen), f"round {t + 1}"
        reward = f[chosen] + noise[t]
        algorithm.observe(state, chosen, reward)
        history.append(chosen)
        rewards.append(reward)
    assert not torch.equal(*torch.stack(history, 1)[:2])  # trials are different
