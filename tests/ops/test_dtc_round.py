"""The ops of a round of BKB against the functions that they stand for."""

import pytest
import torch

from bo_robust.features.leverage import redrawn
from bo_robust.features.nystrom import dictionary_root
from bo_robust.ops.dtc_round import naive
from bo_robust.utils.covariance import SquaredExponential


@pytest.fixture(params=["naive", "fused"])
def path(request, fused_module):
    return naive if request.param == "naive" else fused_module("dtc_round")


def test_points_are_chosen_as_by_dictionary_root(path):
    """The naive path kept fewer, as its thresholds were float32: it was off by 1e-4."""
    X = torch.rand(3, 64, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X[0, 1:4], sizes = X[0, 0], torch.tensor([64, 60, 61])
    k, C = (SquaredExponential(0.05)(x, X) for x in (torch.linspace(0.1, 0.9, 50).double().unsqueeze(1), X))
    features = dictionary_root(C, torch.arange(64) < sizes.unsqueeze(1)).features(k)
    ours = k @ path.inverse_root(C, sizes, pivoting=True).mT
    torch.testing.assert_close(ours @ ours.mT, features @ features.mT, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("oversampling", [0.3, 5.0])
def test_dictionaries_are_those_of_redrawn(path, oversampling):
    """Also where a variance is NaN, which the fused path took for certain to enter."""
    u = torch.rand(4, 3, 1030, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts, variance, uniform = (6.0 * u[0] - 4.0).clamp(min=0.0).ceil(), u[1] * u[2], u[3, :, 0]
    counts[1], variance[:, ::7], noise_var = 0.0, torch.nan, torch.full_like(uniform, 0.1)
    totals, dictionary, most = torch.stack([u[2], counts]), torch.zeros_like(counts, dtype=torch.bool), torch.zeros(3)
    kept = variance, totals, totals.clone(), u[0, :, :2].contiguous(), dictionary, most.long()
    ok, points, size = path.draw_(32, oversampling, torch.tensor([3, 4, 1030]), uniform, uniform, noise_var, *kept)
    assert ok.tolist() == [True, True, False]
    assert torch.equal(dictionary, redrawn(variance / 0.1, oversampling, totals[1], uniform))
    for of_trial, first, number in zip(dictionary, points, size.tolist(), strict=True):
        assert first[:number].tolist() == of_trial.nonzero().squeeze(1)[:32].tolist()
