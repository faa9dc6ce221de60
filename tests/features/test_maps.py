import warnings

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bo_robust.features.maps import FourierMap, NystromMap
from tests.bandits.naive import inverse_root
from tests.problems import points


def rbf(tkwargs, lengthscale=(0.5, 0.8), outputscale=None):
    base = RBFKernel(ard_num_dims=2).to(**tkwargs)
    base.lengthscale = torch.tensor(lengthscale, **tkwargs)
    if outputscale is None:
        return base
    kernel = ScaleKernel(base).to(**tkwargs)
    kernel.outputscale = torch.tensor(outputscale, **tkwargs)
    return kernel


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("outputscale", [None, 2.5])
def test_fourier_features_reproduce_the_kernel(tkwargs, half, outputscale):
    X, kernel = 3.0 * points(tkwargs, 9) - 1.0, rbf(tkwargs, (1.5, 2.0), outputscale)
    module = FourierMap(16, bounds=[[-1.0, -1.0], [2.0, 2.0]]).build(kernel, X, half)
    Phi = module(X, kernel, module.prepare(kernel, False))
    assert Phi.shape == (9, 256 if half else 512)
    fewest = module.for_evidence(X, kernel)
    assert fewest.shape == (9, 256)
    torch.testing.assert_close(fewest @ fewest.mT, Phi @ Phi.mT, atol=1e-12, rtol=0)
    torch.testing.assert_close(Phi @ Phi.mT, kernel(X).to_dense(), atol=1e-9, rtol=0)
    torch.testing.assert_close(module(X.view(3, 3, 2), kernel, None), Phi.view(3, 3, -1), atol=1e-14, rtol=0)


@pytest.mark.parametrize("symmetric", [False, True])
def test_nystrom_features_are_the_projection(tkwargs, symmetric):
    Z, X, kernel = points(tkwargs, 6), points(tkwargs, 5, seed=1), MaternKernel(2.5).to(**tkwargs)
    module = NystromMap(Z).build(kernel, X, True)
    dictionary = module.prepare(kernel, symmetric)
    Phi, K = module(X, kernel, dictionary), kernel(X, Z).to_dense()
    projection = K @ torch.linalg.solve(kernel(Z).to_dense(), K.mT)
    torch.testing.assert_close(Phi @ Phi.mT, projection, atol=1e-9, rtol=0)
    smooth = module.for_evidence(X, kernel)
    torch.testing.assert_close(smooth @ smooth.mT, projection, atol=1e-6, rtol=0)
    if symmetric:
        root = inverse_root(kernel(Z).to_dense(), "symmetric")
        torch.testing.assert_close(Phi, K @ root, atol=1e-8, rtol=0)
    assert Phi.shape == (5, 6)


def test_duplicate_inducing_points(tkwargs):
    Z, X, kernel = points(tkwargs, 4), points(tkwargs, 5, seed=1), rbf(tkwargs)
    once, twice = (NystromMap(z).build(kernel, X, False) for z in (Z, torch.cat([Z, Z])))
    grams = []
    for module in (once, twice):
        for Phi in (module(X, kernel, module.prepare(kernel, False)), module.for_evidence(X, kernel)):
            grams.append(Phi @ Phi.mT)
    for gram in grams[1:]:
        torch.testing.assert_close(gram, grams[0], atol=1e-6, rtol=0)


def test_too_few_nodes_for_the_lengthscale_warn(tkwargs):
    module = FourierMap(8).build(rbf(tkwargs), points(tkwargs, 1), False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.prepare(rbf(tkwargs, (0.5, 0.8)), False) is None
    with pytest.warns(UserWarning, match="8 nodes per dimension are too few for lengthscales"):
        module.prepare(rbf(tkwargs, (0.1, 0.8)), False)


def test_a_nystrom_map_of_a_size_takes_evenly_spaced_points(tkwargs):
    X = torch.tensor([[0.4], [0.1], [0.3], [0.1], [0.2], [0.0]], **tkwargs)
    for size, kept in ((1, [0.0]), (3, [0.0, 0.2, 0.4]), (9, [0.0, 0.1, 0.2, 0.3, 0.4])):
        chosen = NystromMap(size=size)
        points = chosen.build(RBFKernel().to(**tkwargs), X, half=False).inducing_points
        assert points[:, 0].tolist() == pytest.approx(kept)
        assert chosen.count(X) == len(kept)
    assert FourierMap(4).count(torch.zeros(3, 2, **tkwargs)) == 16


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_small_root_is_float64_in_float32(tkwargs, symmetric):
    """Points that float32 tells apart stay in the dictionary, and phi phi^T is that of float64 to float32's digits."""
    tkwargs32 = tkwargs | {"dtype": torch.float32}
    test, worst = points(tkwargs, 400, seed=99), 0.0
    for seed in range(10):
        Z = points(tkwargs, 20, seed=seed).float()
        grams, sizes = [], []
        for x, options in ((Z.double(), tkwargs), (Z, tkwargs32)):
            kernel = rbf(options, (0.3, 0.3))
            module = NystromMap(x).build(kernel, x, False)
            with torch.no_grad():
                prepared = module.prepare(kernel, symmetric)
                Phi = module(test.to(x), kernel, prepared)
            assert prepared.weights.dtype == x.dtype
            sizes.append(len(prepared.points))
            grams.append(Phi.double().square().sum(-1))
        assert sizes == [20, 20]
        worst = max(worst, float((grams[0] - grams[1]).abs().max()))
    assert worst < 2e-4
