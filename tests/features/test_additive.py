"""Features of a sum of covariances over groups of dimensions."""

import pytest
import torch

from bo_robust.features import AdditiveFourierFeatures, FourierFeatures, MaternFourierFeatures

UNIT = (0.0, 1.0)
PAIR = FourierFeatures((0.5, 0.8), 8, (UNIT, UNIT), outputscale=0.75)
ONE = FourierFeatures(0.4, 10, ((-1.0, 2.0),), outputscale=0.25, half=True)
ROUGH = MaternFourierFeatures(0.4, 64, (UNIT,), nu=2.5)


def points(device):
    U = torch.rand(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    return torch.stack([U[:, 0], U[:, 1], 3 * U[:, 2] - 1, U[:, 3]], dim=1)


def test_sum_of_covariances(device):
    X = points(device)
    features = AdditiveFourierFeatures((PAIR, ONE, ROUGH), ((3, 0), (2,), (0,)))
    phi = features(X)
    assert features.num_features == phi.shape[-1] == 2 * 64 + 10 + 128
    assert features.num_frequencies == 64 + 10 + 64
    exact = PAIR.covariance(X[:, [3, 0]], X[:, [3, 0]]) + ONE.covariance(X[:, 2:3], X[:, 2:3])
    exact = exact + ROUGH.covariance(X[:, :1], X[:, :1])
    assert float((phi @ phi.mT - exact).abs().max()) <= features.sup_error()
    torch.testing.assert_close(phi.square().sum(-1), phi.new_full((20,), 2.0), rtol=1e-13, atol=0)
    torch.testing.assert_close(features(X.reshape(4, 5, 4)), phi.reshape(4, 5, -1))
    assert features(X.float()).dtype == torch.float32


def test_errors_add_up():
    features = AdditiveFourierFeatures([PAIR, ONE], [[0, 1], [2]])
    assert features == AdditiveFourierFeatures((PAIR, ONE), ((0, 1), (2,)))
    assert features.error_bound() == pytest.approx(PAIR.error_bound() + ONE.error_bound())
    assert features.sup_error(51) == pytest.approx(PAIR.sup_error(51) + ONE.sup_error(51))
    with pytest.raises(ValueError, match="MaternFourierFeatures has no error bound; use sup_error"):
        AdditiveFourierFeatures((PAIR, ROUGH), ((0, 1), (2,))).error_bound()


@pytest.mark.parametrize(
    ("blocks", "groups", "match"),
    [
        ((), (), "one group per block"),
        ((PAIR, ONE), ((0, 1),), "one group per block"),
        ((ONE,), ((),), "distinct columns"),
        ((PAIR,), ((1, 1),), "distinct columns"),
        ((ONE,), ((-1,),), "distinct columns"),
        ((PAIR,), ((0,),), "1 column.* block 2 dimension"),
    ],
)
def test_bad_groups(blocks, groups, match):
    with pytest.raises(ValueError, match=match):
        AdditiveFourierFeatures(blocks, groups)


def test_bad_points(device):
    features = AdditiveFourierFeatures((PAIR, ONE), ((3, 0), (2,)))
    with pytest.raises(ValueError, match="d > 3"):
        features(points(device)[:, :3])
    with pytest.raises(ValueError, match="widen `bounds`"):
        features(points(device) + 0.5)
