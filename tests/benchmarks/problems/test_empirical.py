import numpy as np
import pytest
import torch

from benchmarks.problems.base import Trials
from benchmarks.problems.tables import (
    centered_problem,
    correlation_kernel,
    covariance_kernel,
    paper_problem,
)
from bo_robust.utils.input_checks import check_kernel_matrix

HISTORY = np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 4.0]])
TABLE = np.array([[2.0, 4.0], [4.0, 8.0]])


def test_kernels_by_hand():
    np.testing.assert_allclose(covariance_kernel(HISTORY).numpy(), [[4.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(correlation_kernel(HISTORY).numpy(), [[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(covariance_kernel(np.array([[1.0], [3.0]])).numpy(), [[2.0]])


def test_kernels_of_few_rows_are_symmetric_and_positive_semi_definite():
    rows = np.random.default_rng(0).standard_normal((10, 40)) * np.logspace(-3, 3, 40)
    for kernel in (covariance_kernel(rows), correlation_kernel(rows)):
        assert torch.equal(kernel, kernel.T)
        check_kernel_matrix(kernel, tol=1e-14)
    np.testing.assert_allclose(correlation_kernel(rows).diagonal().numpy(), 1.0, rtol=1e-12)


def test_constant_column_is_uncorrelated():
    rows = np.column_stack([HISTORY, np.full(3, 0.1)])
    np.testing.assert_allclose(correlation_kernel(rows).numpy(), [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]], atol=1e-15)


def test_centered_problem_by_hand():
    problem = centered_problem("x", HISTORY, TABLE, Trials([0, 9], 0), notes="Data.", arm_names=("a", "b"))
    np.testing.assert_allclose(problem.f.numpy(), [[-1 / 3, 5 / 3]] * 2)  # means 3, 6 less 3.5, over 1.5
    np.testing.assert_allclose(problem.rewards.table.numpy(), (TABLE - 3.5) / 1.5)
    # scaled history: arm 1 (-2.5, -0.5, 1.5)/1.5, arm 2 (-1.5, 2.5, 0.5)/1.5
    assert problem.moment_bound == pytest.approx(8.75 / 3 / 2.25)
    assert problem.norm_bound == pytest.approx(1 / 3)  # means -1/3 and 1/3
    assert problem.noise_var == pytest.approx((8 / 3) / 2.25)
    assert problem.noise_scale == pytest.approx(4 / 1.5 / 2)
    assert problem.notes.startswith("Data.")


def test_paper_problem_by_hand():
    problem = paper_problem("x", HISTORY, TABLE, Trials([0], 0), notes="Data.")
    np.testing.assert_allclose(problem.f.numpy(), [[0.5, 1.0]])
    np.testing.assert_allclose(problem.rewards.table.numpy(), TABLE / 6)
    assert problem.moment_bound == pytest.approx(25 / 36)  # mean of 4, 16, 16, 64 over 36
    assert (problem.norm_bound, problem.noise_var, problem.alpha) == (1.0, 1.0, 1.0)
    assert "1.111" in problem.notes  # the true bound, 40 / 36
