import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.problems.base import Trials
from benchmarks.problems.tables import DJIA29, CMULight
from bo_robust.utils.input_checks import check_kernel_matrix


def average_over_rows(problem, device):
    """The mean reward of every arm, taking every row of the table once."""
    problem = problem.to(device, torch.float64)
    m = problem.rewards.table.shape[0]
    draws = torch.arange(m, dtype=torch.float64, device=device).unsqueeze(1)
    f = problem.f[:1].expand(m, -1)
    arms = range(problem.num_arms)
    return torch.stack([problem.rewards(f, torch.full((m,), a, device=device), draws).mean() for a in arms]).cpu()


def check(problem, device):
    torch.testing.assert_close(average_over_rows(problem, device), problem.f[0], rtol=1e-10, atol=1e-10)
    if isinstance(problem.kernel, torch.Tensor):
        assert torch.equal(problem.kernel, problem.kernel.T)
        check_kernel_matrix(problem.kernel, tol=1e-12)
        torch.testing.assert_close(problem.kernel.diagonal(), torch.ones(problem.num_arms, dtype=torch.float64))


def test_djia29(data_dir, device):
    problem = DJIA29().make(Trials(range(2), 0))
    check(problem, device)
    assert problem.f.shape == (2, 29)
    assert problem.arm_names[problem.f[0].argmax()] == "BA"
    assert problem.optimum.tolist() == pytest.approx([1.0, 1.0])
    top = 237.33  # baselines.md: B, and v = 14437.9 on the raw scale
    assert problem.moment_bound == pytest.approx(14437.9 / top**2, rel=1e-4)
    assert float(problem.rewards.table.max()) * top > top
    frame = pd.read_csv(data_dir / "djia29/djia29_adjclose.csv.gz", index_col="Date")
    assert frame["BA"].mean() == pytest.approx(237.3, abs=0.05)
    np.testing.assert_allclose(problem.f[0].numpy(), (frame.mean() / frame["BA"].mean()).to_numpy(), rtol=1e-12)
    np.testing.assert_allclose(problem.kernel.numpy(), frame.corr().to_numpy(), rtol=1e-8, atol=1e-10)


def test_djia29_centered(data_dir, device):
    problem = DJIA29(scaling="centered").make(Trials([0], 0))
    check(problem, device)
    table = problem.rewards.table
    assert float(table.flatten().quantile(0.5)) == pytest.approx(0.0, abs=1e-9)
    assert float(table.abs().flatten().quantile(0.5)) == pytest.approx(1.0, abs=1e-9)
    assert problem.arm_names[problem.f[0].argmax()] == "BA"
    assert problem.moment_bound == pytest.approx(float(table.square().mean(dim=0).max()))


def test_cmu_light(data_dir, device):
    problem = CMULight().make(Trials([4], 0))
    check(problem, device)
    assert problem.f.shape == (1, 41)
    arrays = np.load(data_dir / "cmu_light/cmu_light.npz")
    means = arrays["test"].mean(axis=0)
    assert means.max() == pytest.approx(945.54, abs=0.005)  # baselines.md: B, and v = 377421
    assert problem.moment_bound == pytest.approx(377421 / 945.54**2, rel=1e-4)
    np.testing.assert_allclose(problem.f[0].numpy(), means / means.max(), rtol=1e-12)
    np.testing.assert_allclose(problem.kernel.numpy(), np.corrcoef(arrays["train"].T.astype(float)), atol=1e-10)
    assert float(problem.arms.min()) == 0.0
    assert float(problem.arms.max()) == 1.0
    assert problem.arms.shape == (41, 2)
