"""Pictures of tails."""

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust import RobustGP
from bo_robust.tails import plot_outliers


def test_outliers_are_drawn_against_their_level(tmp_path):
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(20, 1, generator=draws, dtype=torch.float64)
    Y = torch.sin(4.0 * X) + 0.05 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
    Y[3], Y[8] = 30.0, -20.0
    model = RobustGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    figure = plot_outliers(model, tmp_path / "outliers.png")
    assert (tmp_path / "outliers.png").stat().st_size > 1000
    limit, believed, others, suspects = figure.axes[0].lines
    np.testing.assert_array_equal(limit.get_ydata(), model.surprise_limit.numpy())
    assert believed.get_xdata().tolist() == [i for i in range(20) if i not in (3, 8)]
    assert others.get_xdata().tolist() == [3, 8]
    np.testing.assert_array_equal(others.get_ydata(), model.surprise[[3, 8]].abs().numpy())
    assert suspects.get_xdata().tolist() == [3]
    assert plot_outliers(model, maximize=False).axes[0].lines[3].get_xdata().tolist() == [8]


def test_before_a_fit_nothing_is_surprising():
    X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
    lines = plot_outliers(RobustGP(X, X)).axes[0].lines
    assert lines[1].get_ydata().tolist() == [0.0] * 5
    assert len(lines[2].get_xdata()) == len(lines[3].get_xdata()) == 0


def test_another_model_is_refused():
    X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(TypeError, match="draws a RobustGP, got SingleTaskGP"):
        plot_outliers(SingleTaskGP(X, X))
