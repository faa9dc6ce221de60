import sys

import numpy as np
import pytest
import torch

from bo_robust import RobustGP
from bo_robust.models import plot_outliers
from tests.problems import fit


def test_outliers_are_drawn_against_their_limit(tmp_path):
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(20, 1, generator=draws, dtype=torch.float64)
    Y = torch.sin(4.0 * X) + 0.05 * torch.randn(20, 1, generator=draws, dtype=torch.float64)
    Y[3], Y[8] = 30.0, -20.0
    model = RobustGP(X, Y)
    assert plot_outliers(model).axes[0].lines[1].get_ydata().tolist() == [0.0] * 20  # before a fit
    figure = plot_outliers(fit(model), tmp_path / "outliers.png")
    assert (tmp_path / "outliers.png").read_bytes().startswith(b"\x89PNG")
    limit, inliers, outliers, again = figure.axes[0].lines
    np.testing.assert_array_equal(limit.get_ydata(), model.loo_zscore_limit.numpy())
    assert inliers.get_xdata().tolist() == [i for i in range(20) if i not in (3, 8)]
    assert outliers.get_xdata().tolist() == [3, 8]
    np.testing.assert_array_equal(outliers.get_ydata(), model.loo_zscore[[3, 8]].abs().numpy())
    assert again.get_xdata().tolist() == [3]


def test_matplotlib_is_asked_for(monkeypatch):
    X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        plot_outliers(RobustGP(X, X))
