"""BBKB where a dictionary saves nothing: the exact posterior, in one trial and in a batch, and back again."""

import pytest
import torch

from bo_robust.algorithms.bbkb import BBKB
from bo_robust.confidence import ConstantWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.posteriors import arms as arm_states
from bo_robust.posteriors import dtc_exact
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.posteriors.snapshots import restore_, snapshot

NOISE_VAR = 0.05


def world(device, n=120, lengthscale=0.03):
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(device)
    return ArmKernel.from_covariance(SquaredExponential(lengthscale), X), torch.sin(9.0 * X[:, 0])


def play(algorithm, kernel, f, draws, after=None, state=None):
    """Picks ``T x s`` and the last state, from uniform numbers ``T x s``, which are the noise too."""
    state = algorithm.init(kernel, NOISE_VAR, draws.shape[1]) if state is None else state
    picks = []
    for u in draws:
        arms = algorithm.select(state, u).arms
        rewards = torch.where(u < 0.05, torch.nan, f[arms] + u - 0.5)
        algorithm.observe(state, arms, rewards, u)
        picks.append(arms)
        if after is not None:
            after(state, arms, rewards)
    return torch.stack(picks), state


def uniforms(T, s, device, seed=0):
    return torch.rand(T, s, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


@pytest.mark.parametrize("batch_constant", [0.0, 1.5])
def test_bounds_are_exact_and_means_wait_for_the_end_of_a_batch(batch_constant, device):
    kernel, f = world(device)
    exact, ends, seen = arm_states.init(kernel, NOISE_VAR), [0], []

    def after(state, arms, rewards):
        arm_states.observe(exact, arms, rewards)
        if state.whole.number:
            seen.append(state.round)
            now = dtc_exact.present(state.posterior, state.whole)
            torch.testing.assert_close(now.variance, exact.variance, rtol=0.0, atol=1e-9)
            if not bool(state.spent):
                ends.append(state.round)
                torch.testing.assert_close(state.posterior.mean, exact.mean, rtol=0.0, atol=1e-9)
                torch.testing.assert_close(state.posterior.variance, exact.variance, rtol=0.0, atol=1e-9)
                assert torch.equal(state.posterior.dictionary, state.posterior.counts > 0)

    play(BBKB(ConstantWidth(20.0), 5.0, batch_constant), kernel, f, uniforms(150, 1, device), after)
    assert len(seen) > 80
    assert len(ends) > 20
    assert (len(ends) < len(seen) / 2) == (batch_constant > 0.0)


def test_a_batch_is_its_single_trials(device):
    """Trials become whole at different rounds, and pull within batches while others end theirs."""
    kernel, f = world(device)
    algorithm, draws = BBKB(ConstantWidth(20.0), 2.0, 1.5), uniforms(100, 3, device)
    numbers = set()
    picks, state = play(algorithm, kernel, f, draws, lambda state, *_: numbers.add(state.whole.number))
    assert numbers >= {0, 2, 3}
    for i in range(3):
        alone, single = play(algorithm, kernel, f, draws[:, i : i + 1])
        assert torch.equal(alone[:, 0], picks[:, i])
        torch.testing.assert_close(single.posterior.mean[0], state.posterior.mean[i], rtol=0.0, atol=1e-9)


def test_a_dictionary_that_saves_is_taken_again(device):
    """On few arms variances fall, and after many rounds fewer than half of the arms are drawn."""
    kernel, f = world(device, n=40, lengthscale=0.5)
    numbers = []
    _, state = play(BBKB(ConstantWidth(20.0), 1.0, 0.3), kernel, f, uniforms(400, 1, device),
                    lambda state, *_: numbers.append(state.whole.number))  # fmt: skip
    assert numbers[-1] == 0
    assert 1 in numbers
    assert int(state.posterior.size) < 20


def test_it_goes_on_from_a_snapshot(device):
    kernel, f = world(device)
    algorithm, draws = BBKB(ConstantWidth(20.0), 5.0, 1.5), uniforms(100, 1, device)
    _, state = play(algorithm, kernel, f, draws[:63])
    assert state.whole.number == 1
    tensors, numbers = snapshot(state)
    copy = algorithm.init(kernel, NOISE_VAR)
    restore_(copy, {name: x.clone() for name, x in tensors.items()}, numbers)
    on, _ = play(algorithm, kernel, f, draws[63:], state=state)
    again, _ = play(algorithm, kernel, f, draws[63:], state=copy)
    assert torch.equal(on, again)
