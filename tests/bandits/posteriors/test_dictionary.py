import pytest
import torch

from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.features.leverage import draw_dictionary, keep_probability
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import spread
from tests.bandits.naive import nystrom

N = 24


def kernel_of(device, lengthscale=0.15, n=N):
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64).to(device)
    return ArmKernel.from_covariance(SquaredExponential(lengthscale), X)


@pytest.mark.parametrize("batched", [False, True], ids=["one matrix", "a matrix per trial"])
def test_features_are_the_papers(batched, device):
    kernel = kernel_of(device)
    if batched:
        kernel = ArmKernel.from_matrix(torch.stack([kernel_of(device, ell).matrix for ell in (0.15, 0.1, 0.2)]))
    g = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 3, (3, N), generator=g).double().to(device)
    variance = torch.rand(3, N, generator=g, dtype=torch.float64).to(device)
    uniform = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64, device=device)
    table = NystromDictionary(0.7).draw(kernel, variance, counts, uniform)
    keep = draw_dictionary(keep_probability(variance, 0.7, counts), spread(uniform, N))
    assert len({int(k) for k in keep.sum(1)}) > 1  # dictionaries of several sizes, so that some are padded
    assert not bool(keep[counts == 0].any())
    for i in range(3):
        K = kernel.matrix[i] if batched else kernel.matrix
        members = keep[i].nonzero().squeeze(1)
        phi = nystrom(K, members)
        residual = (K.diagonal() - phi.square().sum(1)).clamp(min=0.0)
        features = table.features[i]
        torch.testing.assert_close(features[:, : len(members)], phi, rtol=0, atol=1e-7)
        assert not features[:, len(members) :].any()
        torch.testing.assert_close(table.residual[i], residual, rtol=0, atol=1e-9)
        assert float(table.residual[i, members].max()) < 1e-9


def test_without_copies_every_arm_is_drawn_once(device):
    counts = torch.full((1, N), 50.0, dtype=torch.float64, device=device)
    given = torch.full_like(counts, 0.2), counts, torch.tensor([0.5], dtype=torch.float64, device=device)
    all_, some = (
        NystromDictionary(1.0, copies=copies).draw(kernel_of(device), *given).size for copies in (True, False)
    )
    assert all_.item() == N  # kept with probability 1 - .8^50
    once = draw_dictionary(keep_probability(given[0], 1.0, torch.ones_like(counts)), spread(given[2], N))
    assert some.item() == int(once.sum()) < N / 2
