"""BKB: the paper's algorithm written out, and its guarantees over many runs."""

import pytest
import torch

from bo_robust.bandits.bkb import BKB, REDRAWS
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import BKBWidth, ConstantWidth
from bo_robust.features.leverage import redrawn, theory_oversampling
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import spread
from tests.bandits import naive

REDRAW = pytest.mark.parametrize("redraw", REDRAWS)
WIDTH = ConstantWidth(2.0)


def square_kernel(n, device, lengthscale=0.3):
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return ArmKernel.from_covariance(SquaredExponential(lengthscale), X.to(device))


def draws(T, s, device, seed=0):
    """Standard normal noise and uniforms, ``T x s``."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(T, s, generator=g, dtype=torch.float64)
    return noise.to(device), torch.rand(T, s, generator=g, dtype=torch.float64).to(device)


def values(kernel):
    return torch.sin(5.0 * kernel.arms[:, 0]) * torch.cos(3.0 * kernel.arms[:, 1])


def run_rounds(algorithm, kernel, noise_var, rewards, uniforms, after=None):
    """Picks ``T x s`` and the last state; ``rewards(t, arms)``; ``after(t, state, arms, y)`` sees every round."""
    T, s = uniforms.shape
    state, chosen = algorithm.init(kernel, noise_var, s), []
    for t in range(T):
        arms = algorithm.select(state, uniforms[t]).arms
        y = rewards(t, arms)
        algorithm.observe(state, arms, y, uniforms[t])
        chosen.append(arms)
        if after is not None:
            after(t, state, arms, y)
    return torch.stack(chosen), state


def noisy(kernel, noise, sd=0.2):
    f = values(kernel)
    return lambda t, arms: f[arms] + sd * noise[t]


# The definition ---------------------------------------------------------------------------------------------


def test_picks_are_those_of_algorithm_1(device):
    """Every past point on its own, copies and all, symmetric roots, everything from scratch each round."""
    n, T, q, noise_var = 40, 60, 2.0, 0.1
    kernel = square_kernel(n, device)
    K = kernel.matrix
    noise, uniforms = draws(T, 1, device)
    rewards = noisy(kernel, noise)
    chosen, state = run_rounds(BKB(WIDTH, q), kernel, noise_var, rewards, uniforms)
    past, y = [], []
    mean, variance = torch.zeros(n).to(K), K.diagonal().clone()
    for t in range(T):
        bound = mean + 2.0 * variance.sqrt()
        arm = int(bound.argmax()) if t else int(uniforms[0, 0] * n)
        assert int(chosen[t]) == arm
        past.append(arm)
        y.append(rewards(t, torch.tensor([arm], device=device)))
        # c copies enter on their own, so that the arm is in with 1 - (1 - p)^c
        p = (q * variance / noise_var).clamp(max=1.0)
        count = torch.bincount(torch.tensor(past, device=device), minlength=n)
        inside = spread(uniforms[t], n)[0] < 1.0 - (1.0 - p) ** count
        D = inside.nonzero().squeeze(1)
        assert len(D)
        mean, variance = naive.dtc(K, D, past, torch.cat(y), noise_var)
        variance = variance.clamp(min=0.0)
    torch.testing.assert_close(state.posterior.mean[0], mean, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(state.posterior.variance[0], variance, rtol=0.0, atol=1e-8)
    assert len(set(past)) > len(D) > 3  # some were left out


# Guarantees -------------------------------------------------------------------------------------------------


def worst_ratios(algorithm, kernel, noise_var, f, sd, T, s, device, seed=0):
    """Over all rounds of s runs: largest and smallest variance over the exact one, largest |D| over its bound per q
    alpha, largest |f - mean| over width times sigma (``s`` each), and the last state."""
    noise, uniforms = draws(T, s, device, seed)
    exact = arm_states.init(kernel, noise_var, s)
    trials = torch.arange(s, device=device)
    high, low = torch.ones(s).to(noise), torch.ones(s).to(noise)
    size, error = torch.zeros(s).to(noise), torch.zeros(s).to(noise)

    def rewards(t, arms):
        return f[trials, arms] + sd * noise[t]

    def after(t, state, arms, y):
        nonlocal high, low, size, error
        arm_states.observe(exact, arms, y)
        posterior = state.posterior
        ratio = posterior.variance / exact.variance
        high, low = torch.maximum(high, ratio.amax(1)), torch.minimum(low, ratio.amin(1))
        d_eff = (exact.counts * exact.variance).sum(1) / noise_var
        bound = 3.0 * (1.0 + 1.0 / noise_var) * d_eff
        size = torch.maximum(size, (posterior.size - 1) / bound)  # the paper's first dictionary has one point always
        w = algorithm.select(state, uniforms[t]).width
        reach = posterior.variance.sqrt() * (w.unsqueeze(1) if isinstance(w, torch.Tensor) else w)
        error = torch.maximum(error, ((f - posterior.mean).abs() / reach).amax(1))

    _, state = run_rounds(algorithm, kernel, noise_var, rewards, uniforms, after)
    return high, low, size, error, state


def unit_norm_functions(kernel, s, device):
    """f of RKHS norm 1 per trial, ``s x n``."""
    n = kernel.num_arms
    a = torch.randn(s, n, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(device)
    f = a @ kernel.matrix
    return f / (f * a).sum(1, keepdim=True).sqrt()


@pytest.mark.parametrize("noise_var", [0.05, 20_000.0], ids=["every point kept", "few points kept"])
def test_theorem_over_200_runs(noise_var, device):
    """sigma^2 / alpha <= sigma~^2 <= alpha sigma^2, |S| <= 3 (1 + kappa^2 / lambda) alpha q d_eff, and coverage, at all
    rounds and arms in 1 - delta of the runs.

    At theory q keeps every point unless lambda is in the thousands, where the bound on |S| is below t and any
    dictionary would do for the variances: at small T one parameter cannot try both halves.
    """
    n, T, s, delta, epsilon = 30, 25, 200, 0.1, 0.5
    q, alpha = theory_oversampling(T, delta, epsilon), 3.0
    kernel = square_kernel(n, device)
    f = unit_norm_functions(kernel, s, device)
    algorithm = BKB(BKBWidth(1.0, 0.2, noise_var, delta, epsilon), q)
    high, low, size, error, state = worst_ratios(algorithm, kernel, noise_var, f, 0.2, T, s, device)
    held = (high <= alpha) & (low >= 1.0 / alpha) & (size <= alpha * q) & (error <= 1.0)
    assert float(held.double().mean()) >= 1.0 - delta
    pulled = (state.posterior.counts > 0).sum(1)
    if noise_var < 1.0:
        assert torch.equal(state.posterior.size, pulled)
    else:
        assert float(state.posterior.size.double().mean()) < 0.25 * float(pulled.double().mean())
        most = 3.0 * (1.0 + 1.0 / noise_var) * alpha * q * T / noise_var
        assert most < 0.3 * T  # keeping every point would break the bound


# Trials, redraws, seeds -------------------------------------------------------------------------------------


def test_persistent_redraw_is_a_rebuild_with_its_dictionary(device):
    """Rank-one updates between changes of the dictionary, of trials that change at different rounds."""
    T, s, noise_var, q = 60, 4, 0.1, 3.0
    kernel = square_kernel(30, device)
    noise, uniforms = draws(T, s, device)
    first = spread(uniforms[0], 30)
    before = kernel.diagonal.expand(s, -1)
    last, changes = None, torch.zeros(s, dtype=torch.long, device=device)

    def compare(t, state, arms, y):
        nonlocal before, last, changes
        posterior = state.posterior
        assert torch.equal(state.uniforms, first)
        assert torch.equal(state.posterior.dictionary, redrawn(before / noise_var, q, posterior.counts, first))
        fresh = dtc.init(kernel, noise_var, s)
        fresh.totals = posterior.totals.clone()
        dtc.rebuild(fresh, state.posterior.dictionary)
        torch.testing.assert_close(posterior.mean, fresh.mean, rtol=0.0, atol=1e-9)
        torch.testing.assert_close(posterior.variance, fresh.variance, rtol=0.0, atol=1e-9)
        assert torch.equal(posterior.size, fresh.size)
        if last is not None:
            changes += (state.posterior.dictionary != last).any(1)
        before, last = posterior.variance.clone(), state.posterior.dictionary.clone()

    run_rounds(BKB(WIDTH, q, "persistent"), kernel, noise_var, noisy(kernel, noise), uniforms, compare)
    assert int(changes.min()) > 5
    assert int(changes.max()) < T - 10
