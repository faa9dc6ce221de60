import math

import pytest
import torch

from bo_robust.bandits import BBKB, BKB, GPUCB
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel, noise_of_trials
from bo_robust.confidence import ConstantWidth
from bo_robust.utils.covariance import SquaredExponential


def cycle_distance(a, b, n):
    apart = (a.unsqueeze(1) - b.unsqueeze(0)).abs()
    return torch.minimum(apart, n - apart).double()


def test_noise_is_one_number_or_one_per_trial():
    kernel = ArmKernel.from_matrix(torch.eye(3, dtype=torch.float64))
    assert noise_of_trials(kernel, 0.5, 2).tolist() == [0.5, 0.5]
    given = torch.tensor([0.1, 0.2], dtype=torch.float64)
    noise = noise_of_trials(kernel, given, 2)
    assert torch.equal(noise, given)
    assert noise.data_ptr() != given.data_ptr()


def test_rows_columns_and_blocks_are_entries_of_the_matrix():
    K = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = K @ K.mT
    kernel, arms, trials = ArmKernel.from_matrix(K), torch.tensor([[0, 3], [4, 4]]), torch.arange(2)
    assert torch.equal(kernel.rows(torch.tensor([3, 1])), kernel.matrix[trials, torch.tensor([3, 1])])
    for i in range(2):
        assert torch.equal(kernel.block(arms, slice(None)).mT[i], kernel.matrix[i][:, arms[i]])
        assert torch.equal(kernel.block(arms, slice(1, 4))[i], kernel.matrix[i][arms[i], 1:4])
        assert torch.equal(kernel.between(arms, arms, trials)[i], kernel.matrix[i][arms[i]][:, arms[i]])
    assert torch.equal(kernel.diagonal_of(arms, trials), kernel.diagonal.gather(1, arms))


def test_a_covariance_that_is_not_tabulated_has_the_same_entries():
    arms = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(1)
    K = SquaredExponential(0.3)(arms, arms)
    kernel = ArmKernel(K.diagonal(), covariance=SquaredExponential(0.3), arms=arms)
    some, trials = torch.tensor([[0, 3], [4, 4]]), torch.arange(2)
    torch.testing.assert_close(kernel.rows(torch.tensor([3, 1])), K[[3, 1]])
    torch.testing.assert_close(kernel.block(some, slice(None)).mT, K[:, some].movedim(0, 1))
    torch.testing.assert_close(kernel.block(some, slice(1, 4)), K[some, 1:4])
    torch.testing.assert_close(kernel.between(some, some, trials)[0], K[[0, 3]][:, [0, 3]])


@pytest.mark.parametrize("n", [40, 5000])
def test_kernel_callback(n, device):
    """Arms around a circle, known by number only: tabulated when few, asked for row by row when many."""
    asked = []

    def matrix(a, b):
        asked.append((len(a), len(b)))
        return torch.exp(-0.5 * (2.0 * torch.sin(math.pi * cycle_distance(a, b, n) / n)).square() / 0.3**2)

    kernel = ArmKernel.from_callback(matrix, torch.ones(n, dtype=torch.float64, device=device))
    assert (kernel.matrix is None) == (n > 4096)
    angles = 2.0 * math.pi * torch.arange(n, device=device, dtype=torch.float64) / n
    same = ArmKernel.from_covariance(SquaredExponential(0.3), torch.stack([angles.cos(), angles.sin()], 1))
    arms, rewards = (
        torch.tensor([[3, 17, 30, 3], [0, 39, 20, 5]], device=device),
        torch.tensor([1.0, 2.0], device=device),
    )
    for algorithm in (GPUCB(ConstantWidth(2.0)), BKB(ConstantWidth(2.0), 5.0), BBKB(ConstantWidth(2.0), 5.0, 0.5)):
        states = [algorithm.init(k, 0.1, 2) for k in (kernel, same)]
        for t in range(4):
            for state in states:
                u = torch.full((2,), 0.3, dtype=torch.float64, device=device)
                algorithm.select(state, u)
                algorithm.observe(state, arms[:, t], rewards.double() + t, u)
        for name in ("mean", "variance"):
            got, want = (getattr(state.posterior, name) for state in states)
            torch.testing.assert_close(got, want, rtol=0.0, atol=1e-9)
    assert asked


def test_a_kernel_callback_may_know_an_arm_for_certain(device):
    variance = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64, device=device)
    kernel = ArmKernel.from_callback(lambda a, b: variance[a].unsqueeze(1) * (a.unsqueeze(1) == b), variance)
    assert torch.equal(kernel.diagonal, variance)


def test_a_callback_of_many_arms_is_checked_at_use(device):
    """At construction only 256 arms of many are checked."""
    many, calls = torch.ones(5000, dtype=torch.float64, device=device), []

    def turns_bad(a, b):
        calls.append(len(a))
        values = torch.exp(-cycle_distance(a, b, 10_000))
        return values if len(calls) == 1 else values[:1]

    kernel = ArmKernel.from_callback(turns_bad, many)
    with pytest.raises(ValueError, match="must return 2 x"):
        kernel.rows(torch.tensor([4, 7], device=device))
