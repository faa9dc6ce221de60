import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.problems.base import Trials
from benchmarks.problems.tables import Abalone


@pytest.fixture
def problem(data_dir):
    return Abalone().make(Trials([0, 5], 3))


def test_f_is_the_scaled_target(problem, data_dir):
    rings = pd.read_csv(data_dir / "abalone/abalone.csv.gz")["rings"].to_numpy()
    assert problem.f.shape == (2, 4177)
    assert torch.equal(problem.f[0], problem.f[1])
    np.testing.assert_allclose(problem.f[0].numpy(), (rings - 1) / 28)
    assert (float(problem.f.min()), float(problem.f.max())) == (0.0, 1.0)
    assert int(problem.f[0].argmax()) == 480  # 29 rings
    # a random arm loses 1 - (9.934 - 1) / 28
    assert float((problem.optimum - problem.f.mean(1))[0]) == pytest.approx(0.68094, abs=1e-5)
    assert "0.681" in problem.notes


def test_features_are_standardized(problem, data_dir):
    table = pd.read_csv(data_dir / "abalone/abalone.csv.gz")
    X = problem.arms.numpy()
    assert X.shape == (4177, 8)
    np.testing.assert_allclose(X.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(0), 1.0, rtol=1e-12)
    assert len(np.unique(X[:, 0])) == 2
    assert np.array_equal(X[:, 0] < 0, table["sex"] == "I")
    length = table["length"].to_numpy()
    np.testing.assert_allclose(X[:, 1], (length - length.mean()) / length.std(), rtol=1e-10, atol=1e-12)
    # the default lengthscale is the median distance
    some = torch.randperm(4177, generator=torch.Generator().manual_seed(0))[:1500]
    assert float(torch.pdist(problem.arms[some]).median()) == pytest.approx(3.0, abs=0.1)
