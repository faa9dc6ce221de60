import torch

from bo_robust.bandits.posteriors.arm_kernel import ArmKernel, noise_of_trials
from bo_robust.utils.covariance import SquaredExponential


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
