import pytest
import torch

from bo_robust.bandits.bkb import BKB
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import BKBWidth, ConstantWidth
from bo_robust.features.leverage import redrawn, theory_oversampling
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import spread
from tests.bandits import naive
from tests.bandits.problems import places, run_rounds

WIDTH = ConstantWidth(2.0)


def square_kernel(n, device):
    return ArmKernel.from_covariance(SquaredExponential(0.3), places(n, 2, seed=5, device=device))


def draws(T, s, device):
    """Noise of standard deviation 0.2 and uniforms, ``T x s``."""
    g = torch.Generator().manual_seed(0)
    noise = 0.2 * torch.randn(T, s, generator=g, dtype=torch.float64)
    return noise.to(device), torch.rand(T, s, generator=g, dtype=torch.float64).to(device)


def values(kernel, s):
    return (torch.sin(5.0 * kernel.arms[:, 0]) * torch.cos(3.0 * kernel.arms[:, 1])).expand(s, -1)


def test_picks_are_those_of_algorithm_1(device):
    """Every past point on its own, copies and all, symmetric roots, everything from scratch each round."""
    n, T, q, noise_var = 40, 60, 2.0, 0.1
    kernel = square_kernel(n, device)
    K = kernel.matrix
    f, (noise, uniforms) = values(kernel, 1), draws(T, 1, device)
    chosen, state = run_rounds(BKB(WIDTH, q), kernel, f, noise, uniforms, noise_var)
    past, y = [], []
    mean, variance = torch.zeros(n).to(K), K.diagonal().clone()
    for t in range(T):
        bound = mean + 2.0 * variance.sqrt()
        arm = int(bound.argmax()) if t else int(uniforms[0, 0] * n)
        assert int(chosen[t]) == arm
        past.append(arm)
        y.append(f[:, arm] + noise[t])
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
    f, (noise, uniforms) = unit_norm_functions(kernel, s, device), draws(T, s, device)
    algorithm = BKB(BKBWidth(1.0, 0.2, noise_var, delta, epsilon), q)
    exact, held = arm_states.init(kernel, noise_var, s), torch.ones(s, dtype=torch.bool, device=device)

    def after(state, arms, rewards, info):
        nonlocal held
        arm_states.observe(exact, arms, rewards)
        posterior = state.posterior
        ratio = posterior.variance / exact.variance
        held &= ((ratio <= alpha) & (ratio >= 1.0 / alpha)).all(1)
        d_eff = (exact.counts * exact.variance).sum(1) / noise_var
        bound = 3.0 * (1.0 + 1.0 / noise_var) * alpha * q * d_eff
        held &= posterior.size - 1 <= bound  # the paper's first dictionary has one point always
        w = torch.as_tensor(algorithm.select(state, uniforms[0]).width, device=device)
        reach = posterior.variance.sqrt() * w.reshape(-1, 1)
        held &= ((f - posterior.mean).abs() <= reach).all(1)

    _, state = run_rounds(algorithm, kernel, f, noise, uniforms, noise_var, after=after)
    assert float(held.double().mean()) >= 1.0 - delta
    pulled = (state.posterior.counts > 0).sum(1)
    if noise_var < 1.0:
        assert torch.equal(state.posterior.size, pulled)
    else:
        assert float(state.posterior.size.double().mean()) < 0.25 * float(pulled.double().mean())
        most = 3.0 * (1.0 + 1.0 / noise_var) * alpha * q * T / noise_var
        assert most < 0.3 * T  # keeping every point would break the bound


def test_persistent_redraw_is_a_rebuild_with_its_dictionary(device):
    """Rank-one updates between changes of the dictionary, of trials that change at different rounds."""
    T, s, noise_var, q = 60, 4, 0.1, 3.0
    kernel = square_kernel(30, device)
    noise, uniforms = draws(T, s, device)
    first = spread(uniforms[0], 30)
    before = kernel.diagonal.expand(s, -1)
    last, changes = None, torch.zeros(s, dtype=torch.long, device=device)

    def compare(state, *_):
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

    run_rounds(BKB(WIDTH, q, "persistent"), kernel, values(kernel, s), noise, uniforms, noise_var, after=compare)
    assert int(changes.min()) > 5
    assert int(changes.max()) < T - 10
