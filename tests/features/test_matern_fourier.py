"""Fourier features of the Matérn covariance: measured errors, no guarantee."""

import dataclasses
import json
import math

import pytest
import torch

from bo_robust.features import MaternFourierFeatures

UNIT = (0.0, 1.0)
NUS = (0.5, 1.5, 2.5)


def points(n, dim, device):
    return torch.rand(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)


def gram(features, X):
    phi = features(X)
    return phi @ phi.mT


MEASURED = {  # the table of the docstring, lengthscale 0.2
    0.5: {(1, 16): 1.1e-1, (1, 32): 6.4e-2, (1, 128): 1.9e-2, (2, 32): 7.4e-2, (3, 16): 1.4e-1},
    1.5: {(1, 16): 1.6e-2, (1, 32): 3.3e-3, (1, 128): 1.0e-4, (2, 32): 4.3e-3, (3, 16): 2.4e-2},
    2.5: {(1, 16): 4.8e-3, (1, 32): 3.9e-4, (1, 128): 1.4e-6, (2, 32): 5.6e-4, (3, 16): 7.6e-3},
}


@pytest.mark.parametrize("nu", NUS)
def test_measured_errors_of_the_docstring(nu):
    for (dim, nodes), error in MEASURED[nu].items():
        got = MaternFourierFeatures(0.2, nodes, (UNIT,) * dim, nu=nu).sup_error()
        assert got == pytest.approx(error, rel=0.06), (dim, nodes)


@pytest.mark.parametrize("nu", NUS)
@pytest.mark.parametrize(("dim", "nodes"), [(1, 12), (1, 13), (2, 6), (3, 5)])
@pytest.mark.parametrize("half", [False, True])
def test_sup_error_is_that_of_all_differences(nu, dim, nodes, half, device):
    bounds = ((0.0, 1.0), (-2.0, 0.0), (3.0, 3.5))[:dim]
    features = MaternFourierFeatures((0.3, 0.8, 0.45)[:dim], nodes, bounds, 1.7, half, nu=nu)
    grids = [torch.linspace(lo, hi, 9, dtype=torch.float64, device=device) for lo, hi in bounds]
    X = torch.cartesian_prod(*grids).reshape(-1, dim)
    brute = (features.covariance(X, X) - gram(features, X)).abs().max()
    assert features.sup_error(9) == pytest.approx(float(brute), rel=1e-6)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("dim", "nodes"), [(1, 1), (1, 8), (2, 5), (3, 4)])
def test_row_norms_and_counts(dim, nodes, half, device):
    features = MaternFourierFeatures(0.3, nodes, (UNIT,) * dim, outputscale=2.5, half=half, nu=1.5)
    phi = features(points(9, dim, device))
    torch.testing.assert_close(phi.square().sum(-1), phi.new_full((9,), 2.5), rtol=1e-13, atol=0)
    assert features.num_frequencies == nodes**dim
    assert features.num_features == phi.shape[-1] == 2 * (math.ceil(nodes**dim / 2) if half else nodes**dim)


@pytest.mark.parametrize("nu", NUS)
def test_another_box_is_the_unit_box_rescaled(nu, device):
    U = points(15, 2, device)
    lower, side = U.new_tensor([-3.0, 100.0]), U.new_tensor([4.0, 0.5])
    there = MaternFourierFeatures((1.2, 0.4), 7, ((-3.0, 1.0), (100.0, 100.5)), nu=nu)
    here = MaternFourierFeatures((0.3, 0.8), 7, (UNIT, UNIT), nu=nu)
    torch.testing.assert_close(there(lower + side * U), here(U), rtol=0, atol=1e-11)
    phi = here(U.float())
    assert (phi.dtype, phi.device) == (torch.float32, U.device)
    torch.testing.assert_close(phi, here(U).float(), rtol=0, atol=1e-5)


def test_json_round_trip():
    features = MaternFourierFeatures(0.3, 5, (UNIT,), nu=2.5)
    assert MaternFourierFeatures(**json.loads(json.dumps(dataclasses.asdict(features)))) == features
