"""The search for the largest acquisition."""

import math

import torch
from botorch.acquisition import AcquisitionFunction

from bo_robust.methods import create_method
from bo_robust.study.search import maximise, maximise_among
from bo_robust.study.settings import CommonSettings
from bo_robust.study.space import Box


def test_all_of_finitely_many_points_are_looked_at_and_a_smooth_maximum_of_one_is_left_out():
    """The values are BoTorch's to the bit."""
    X = torch.linspace(0, 1, 5000, dtype=torch.float64).unsqueeze(-1)
    method = create_method("robust", {})
    told = X[::700]
    torch.manual_seed(0)
    acqf = method.acquisition(method.model(told, torch.sin(9 * told)))
    smooth_maximum, calls = acqf._q_reduction, []

    def counted(values, **options):
        calls.append(values.shape[-1])
        return smooth_maximum(values, **options)

    acqf._q_reduction = counted
    with torch.no_grad():
        values = torch.cat([acqf(chunk) for chunk in X.unsqueeze(-2).split(100)])
    assert calls == [1] * 50
    row = int(values.argmax())
    assert maximise_among(acqf, [{"x": math.sqrt(x)} for x in X[:, 0].tolist()], X) == (
        {"x": math.sqrt(float(X[row]))},
        float(values[row]),
    )
    assert len(calls) == 50


class Slopeless(AcquisitionFunction):
    """Values are right, slopes are not numbers, as beside rewards of 1e30."""

    def forward(self, X):
        x = X[:, 0, 0]
        return torch.where(x >= 0.0, -(x - 0.3).square(), (-1.0 - x).sqrt())


def test_where_slopes_overflow_the_best_start_is_taken():
    settings = CommonSettings(raw_samples=128)
    best, value = maximise(Slopeless(None), Box({"x": (0.0, 1.0)}), settings, 0, None)
    assert abs(best["x"] - 0.3) < 1 / 128
    assert value == -((best["x"] - 0.3) ** 2)
