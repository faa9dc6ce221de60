import gpytorch
import pytest
import torch

from bo_robust.features.nystrom import dictionary_root
from bo_robust.ops import naive_ops
from bo_robust.ops.dtc_scores import dtc_scores, naive
from bo_robust.ops.dtc_scores.naive import Dictionary, Scores, form_of
from bo_robust.utils.covariance import GPyTorchCovariance, Matern, SquaredExponential

COVARIANCES = {
    "se": SquaredExponential(0.4),
    "se scaled": SquaredExponential(0.4, 2.5),
    "matern12": Matern(0.5, 0.4),
    "matern32": Matern(1.5, 0.4),
    "matern52": Matern(2.5, 0.4, 0.5),
}
every_covariance = pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES.keys())


@torch.no_grad()
def dtc_scores_direct(arms, dictionary, covariance, noise_var):
    """:func:`dtc_scores` by its definition, with all ``s x B x r`` entries of k_D in memory."""
    x = arms.to(dictionary.root.dtype)
    k = torch.stack([covariance(x, points) for points in dictionary.points])
    explained = (k @ dictionary.root.mT).square().sum(2)
    left = (k @ dictionary.factor.mT).square().sum(2)
    variance = (covariance.diagonal(x) - explained).clamp(min=0.0) + noise_var.unsqueeze(1) * left
    return Scores((k @ dictionary.weights.unsqueeze(2)).squeeze(2), variance)


def problem(B, sizes, d, covariance, device="cpu", dtype=torch.float64, seed=0):
    """B arms of the unit cube and the posteriors of ``len(sizes)`` trials, the first size[i] of M points in each."""
    g = torch.Generator().manual_seed(seed)
    arms, M = torch.rand(B, d, generator=g, dtype=torch.float64), max(sizes)
    points = torch.rand(len(sizes), M, d, generator=g, dtype=torch.float64)
    pulled = torch.rand(3 * M, d, generator=g, dtype=torch.float64)
    y = torch.randn(3 * M, 1, generator=g, dtype=torch.float64)
    root = dictionary_root(
        torch.stack([covariance(x, x) for x in points]), torch.arange(M) < torch.tensor(sizes).unsqueeze(1)
    )
    points = points.gather(1, root.order.unsqueeze(2).expand(-1, -1, d))
    noise = torch.linspace(0.1, 0.5, len(sizes), dtype=torch.float64)
    Z = torch.stack([covariance(pulled, x) for x in points]) @ root.inverse.mT
    L = torch.linalg.cholesky(Z.mT @ Z + torch.diag_embed(noise.unsqueeze(1).expand(-1, Z.shape[2])))
    F = torch.linalg.solve_triangular(L, root.inverse, upper=False)
    weights = F.mT @ torch.linalg.solve_triangular(L, Z.mT @ y, upper=False)
    kept = (points, root.inverse, F, weights.squeeze(2))
    return arms.to(device), Dictionary(*(x.to(device, dtype) for x in kept)), noise.to(device, dtype)


def assert_scores(scores, expected, tol=1e-12):
    torch.testing.assert_close(scores.mean, expected.mean, rtol=tol, atol=tol)
    torch.testing.assert_close(scores.variance, expected.variance, rtol=tol, atol=tol)
    assert (scores.variance >= 0).all()


@pytest.fixture
def small(monkeypatch):
    """Chunks and blocks so small that little problems have many."""
    monkeypatch.setattr(naive, "BLOCK", 8)
    monkeypatch.setattr(naive, "CHUNK_ENTRIES", (300, 300))


@pytest.fixture(scope="module")
def fused(fused_module):
    return fused_module("dtc_scores")


@every_covariance
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_is_the_definition(covariance, d, device, small):
    arms, dictionary, noise = problem(50, (20, 7, 33), d, covariance, device)
    if d > 1:
        assert not dictionary.root[1, 7:].any()  # ranks differ
        assert dictionary.root.shape[1] > 20
    assert_scores(
        dtc_scores(arms, dictionary, covariance, noise), dtc_scores_direct(arms, dictionary, covariance, noise), 1e-11
    )


@every_covariance
def test_float32_dictionary(covariance, device):
    arms, dictionary, noise = problem(40, (12, 9), 5, covariance, device)
    expected = dtc_scores_direct(arms, dictionary, covariance, noise)
    arms, dictionary, noise = problem(40, (12, 9), 5, covariance, device, torch.float32)
    scores = dtc_scores(arms, dictionary, covariance, noise)
    assert scores.variance.dtype == torch.float32
    assert_scores(Scores(scores.mean.double(), scores.variance.double()), expected, 1e-4)


def test_empty_dictionary_is_the_prior(device):
    noise = torch.ones(2, dtype=torch.float64, device=device)
    dictionary = Dictionary(*(noise.new_zeros(2, 0, *last) for last in [(3,), (0,), (0,), ()]))
    arms = torch.rand(5, 3, dtype=torch.float64, device=device)
    for covariance in (Matern(2.5, 0.4, 1.5), SquaredExponential(1.0, 1.5)):
        scores = dtc_scores(arms, dictionary, covariance, noise)
        assert scores.mean.tolist() == [[0.0] * 5] * 2
        assert scores.variance.tolist() == [[1.5] * 5] * 2


def test_any_covariance(device, small):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5)).to(device, torch.float64)
    kernel.outputscale, kernel.base_kernel.lengthscale = 0.5, 0.4
    arms, dictionary, noise = problem(45, (20, 12), 2, COVARIANCES["matern52"], device)
    scores = dtc_scores(arms.float(), dictionary, GPyTorchCovariance(kernel), noise)
    assert_scores(scores, dtc_scores(arms.float(), dictionary, COVARIANCES["matern52"], noise), 1e-7)


def test_every_device_can_take_the_plain_path(device):
    arms, dictionary, noise = problem(9, (4,), 2, COVARIANCES["se"], device)
    expected = dtc_scores_direct(arms, dictionary, COVARIANCES["se"], noise)
    with naive_ops():
        assert_scores(dtc_scores(arms, dictionary, COVARIANCES["se"], noise), expected)


def test_lengthscales_must_be_those_of_the_points():
    arms, dictionary, noise = problem(5, (4, 3), 2, COVARIANCES["se"])
    with pytest.raises(ValueError, match="3 lengthscales for points of 2"):
        dtc_scores(arms, dictionary, SquaredExponential((1.0, 2.0, 3.0)), noise)


@every_covariance
@pytest.mark.parametrize(("B", "sizes", "d"), [(1, (1,), 1), (16, (16, 5), 2), (33, (40, 21), 3), (20, (9, 3, 6), 8)])
def test_fused(fused, covariance, B, sizes, d, device, small, monkeypatch):
    monkeypatch.setattr(fused, "BLOCK", 16)  # several products
    arms, dictionary, noise = problem(B, sizes, d, covariance, device)
    form = form_of(covariance, dictionary.points)
    for x in (arms, arms.float()):
        scores = fused.dtc_scores(x, dictionary, form, noise)
        assert_scores(scores, dtc_scores_direct(x.double(), dictionary, covariance, noise), 1e-11)


def test_fused_reads_strided_arms_and_nothing_beside_them(fused, device):
    covariance = Matern(2.5, (0.4, 0.6, 0.5))
    arms, dictionary, noise = problem(20, (150,), 3, covariance, device)  # two blocks of full size
    around = torch.full((45, 7), torch.nan, dtype=torch.float64, device=device)
    around[3:43:2, 1:7:2] = arms
    scores = fused.dtc_scores(around[3:43:2, 1:7:2], dictionary, form_of(covariance, dictionary.points), noise)
    assert_scores(scores, dtc_scores_direct(arms, dictionary, covariance, noise), 1e-11)


def test_fused_reads_columns_beyond_32_bits(fused, device, tmp_path):
    """Columns 2^30 numbers apart, of which a sparse file keeps those that are written."""
    if device.type == "cuda":
        pytest.skip("would fill the memory of the device")
    covariance, step = Matern(2.5, 0.4), 2**30 + 5
    arms, dictionary, noise = problem(20, (9,), 3, covariance, device)
    apart = torch.from_file(str(tmp_path / "arms"), shared=True, size=2 * step + 20, dtype=torch.float32)
    apart = apart.as_strided((20, 3), (1, step)).copy_(arms)
    scores = fused.dtc_scores(apart, dictionary, form_of(covariance, dictionary.points), noise)
    assert_scores(scores, dtc_scores_direct(arms.float().double(), dictionary, covariance, noise), 1e-11)


def test_fused_at_scale(fused, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    covariance = Matern(2.5, 0.5)
    arms, dictionary, noise = problem(70_001, (301, 280), 6, covariance, device)
    scores = dtc_scores(arms, dictionary, covariance, noise)  # several chunks of each trial
    assert_scores(scores, naive.dtc_scores(arms, dictionary, covariance, noise), 1e-9)
    assert torch.equal(scores.mean, dtc_scores(arms, dictionary, covariance, noise).mean)


def test_a_subclass_is_not_evaluated_as_its_parent():
    class Rough(Matern):
        def __call__(self, X1, X2):
            return super().__call__(X1, X2).square()

    covariance = Rough(2.5, 0.4)
    args = problem(50, [5, 4], 2, covariance)
    assert_scores(dtc_scores(*args[:2], covariance, args[2]), dtc_scores_direct(*args[:2], covariance, args[2]))
