import pytest
import torch

from bo_robust.bandits.posteriors import whitening
from bo_robust.bandits.posteriors.whitening import FeatureTable
from bo_robust.features import FourierFeatures
from tests.bandits.naive import inverse_root
from tests.bandits.problems import line


def fourier(n=30, nodes=16):
    return FourierFeatures(0.2, nodes, ((0.0, 1.0),))(line(n, "cpu"))


def directions(Phi, counts, noise_var, root):
    """R Phi^T, ``s x p x n``, from the definition."""
    V = Phi.mT @ (counts.unsqueeze(2) * Phi) + noise_var[:, None, None] * torch.eye(Phi.shape[-1]).to(Phi)
    return inverse_root(V, root) @ Phi.mT


def table_of(Phi, root):
    return FeatureTable.compressed(Phi) if root == "symmetric" else FeatureTable(Phi)


def pull(white, arms, ok):
    whitening.count(white, arms, ok)
    whitening.update(white, arms, ok)


def run_rounds(white, T, seed=0, spread=None):
    """T random rounds, some of them failed; yields after each."""
    g = torch.Generator().manual_seed(seed)
    s, n = white.counts.shape
    device = white.counts.device
    for _ in range(T):
        arms = torch.randint(0, spread or n, (s,), generator=g).to(device)
        ok = (torch.rand(s, generator=g) < 0.9).to(device)
        pull(white, arms, ok)
        yield arms, ok


def test_compression_keeps_the_features_and_drops_nothing_else(device):
    Phi = fourier(100, 32).to(device)
    table = FeatureTable.compressed(Phi)
    k = table.coordinates.shape[1]
    assert k < 30 < Phi.shape[1]
    assert table.axes.shape == (64, k)
    torch.testing.assert_close(table.features, Phi, rtol=0, atol=1e-9)
    torch.testing.assert_close(table.axes.mT @ table.axes, torch.eye(k).to(Phi), rtol=0, atol=1e-13)
    assert FeatureTable(Phi).features is Phi
    assert FeatureTable.compressed(Phi.float()).axes.dtype == torch.float32


@pytest.mark.parametrize("root", whitening.ROOTS)
def test_no_drift_in_1000_rounds(reads, root, device):
    Phi = fourier(40).to(device)
    noise = torch.tensor([0.01, 1.0], dtype=torch.float64, device=device)
    white = whitening.init(table_of(Phi, root), noise, root)
    worst, counts = 0.0, torch.zeros(2, 40, dtype=torch.float64, device=device)
    for t, (arms, ok) in enumerate(run_rounds(white, 1000, spread=12)):
        counts[torch.arange(2), arms] += ok.double()
        if t % 97 == 0 or t > 995:
            U = directions(Phi, counts, noise, root)
            error = (white.directions(white.white) - U).abs().amax((1, 2)) / U.abs().amax((1, 2))
            worst = max(worst, float(error.max()))
            variance = noise.unsqueeze(1) * U.square().sum(1)
            torch.testing.assert_close(white.variance(white.squares()), variance, rtol=1e-6, atol=0)
    assert white.rounds == 1000
    assert worst < (1e-6 if root == "symmetric" and reads else 1e-10)
