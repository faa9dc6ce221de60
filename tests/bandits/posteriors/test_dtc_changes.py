import pytest
import torch

from bo_robust.bandits.posteriors import dtc
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.bandits.problems import places

pytestmark = pytest.mark.cpu_only("on CUDA every dictionary is rebuilt")


@pytest.fixture(autouse=True)
def _change(monkeypatch):
    monkeypatch.setattr(dtc, "LEAST_WORK", 0)  # over so few arms a rebuild is always the faster


def walk(kernel, noise_var, s, rounds, device, seed=0, size=20, flips=2, subset=False):
    """Rounds of random pulls, some failed, and dictionaries of about ``size`` arms of which ``flips`` change.

    Yields the posterior and the dictionaries; ``posterior.changes`` says whether a trial was rebuilt.
    """
    g, n = torch.Generator().manual_seed(seed), kernel.num_arms
    posterior = dtc.init(kernel, noise_var, s)
    keep = torch.rand(s, n, generator=g) < size / n
    keep[:, 0] = True
    for t in range(rounds):
        arms = torch.randint(n, (s,), generator=g)
        rewards = torch.randn(s, generator=g, dtype=torch.float64)
        rewards[torch.rand(s, generator=g) < 0.1] = torch.nan
        dtc.count(posterior, arms.to(device), rewards.to(device))
        trials = None
        if subset and t:
            trials = torch.randperm(s, generator=g)[: 1 + int(torch.randint(s, (), generator=g))]
        for i in range(s) if trials is None else trials.tolist():
            keep[i, torch.randint(n, (flips,), generator=g)] ^= True
            keep[i, 0] = True
        chosen = keep if trials is None else keep[trials]
        dtc.redraw(posterior, chosen.to(device), None if trials is None else trials.to(device))
        yield t, posterior, keep.to(device)


def fresh(posterior, keep):
    new = dtc.init(posterior.kernel, posterior.noise_var, len(keep))
    new.totals = posterior.learnt.clone()
    dtc.rebuild(new, keep)
    return new


def check(posterior, keep, tol=1e-9):
    want = fresh(posterior, keep)
    torch.testing.assert_close(posterior.mean, want.mean, rtol=0.0, atol=tol * max(1.0, float(want.mean.abs().max())))
    torch.testing.assert_close(posterior.variance, want.variance, rtol=0.0, atol=tol)
    n = torch.arange(keep.shape[1], device=keep.device).expand(keep.shape)
    trials = torch.arange(len(keep), device=keep.device)
    if posterior.ahead is None:
        torch.testing.assert_close(dtc.variance_of(posterior, n, trials), want.variance, rtol=0.0, atol=tol)
    k = posterior.kernel.between(n, posterior.points, trials)
    torch.testing.assert_close(
        (k @ posterior.weights.unsqueeze(2)).squeeze(2), posterior.mean, rtol=0.0, atol=10.0 * tol
    )
    assert torch.equal(posterior.dictionary, keep)


@pytest.mark.parametrize("per_trial", [False, True])
@pytest.mark.parametrize("subset", [False, True], ids=["all trials", "some trials"])
def test_changes_are_a_rebuild(per_trial, subset, device):
    X, s = places(80, 2, device=device), 3
    if per_trial:
        kernel = ArmKernel.from_matrix(torch.stack([Matern(1.5, 0.2 + 0.1 * i)(X, X) * (1.0 + i) for i in range(s)]))
    else:
        kernel = ArmKernel.from_covariance(Matern(1.5, 0.3), X)
    noise_var = torch.tensor([0.01, 0.3, 2.0], dtype=torch.float64, device=device)
    changed = 0
    for _, posterior, keep in walk(kernel, noise_var, s, 70, device, size=30, subset=subset):
        changed += int((posterior.changes > 0).any())
        check(posterior, keep)
        assert torch.allclose(posterior.information_gain, posterior.information_gain.clamp(min=0.0))
    assert changed > 35


def test_points_that_others_span(device):
    """A smooth covariance on a line: most points of the dictionary are spanned by others, and come in when these leave.

    Points nearly spanned are left to a rebuild. A change takes for spanned what has less than some 1e-12 left, where a
    rebuild keeps it: hence the tolerance.
    """
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), places(60, 1, device=device))
    for _, posterior, keep in walk(kernel, 0.01, 2, 80, device, size=40, flips=1):
        check(posterior, keep, tol=1e-5)
        rank = (posterior.root.diagonal(dim1=1, dim2=2) > 0).sum(1)
        assert bool((rank < posterior.size).all())


@pytest.mark.parametrize(("dtype", "noise_var"), [(torch.float64, 1e-8), (torch.float32, 1e-2)])
def test_where_changes_would_lose_digits_everything_is_rebuilt(dtype, noise_var, device):
    kernel = ArmKernel.from_covariance(Matern(1.5, 0.3), places(40, 2, device=device).to(dtype))
    posterior = dtc.init(kernel, noise_var)
    keep = torch.ones(1, 40, dtype=torch.bool, device=device)
    for arm in (3, 7, 3):
        dtc.count(posterior, torch.tensor([arm], device=device), torch.ones(1, dtype=dtype, device=device))
        dtc.redraw(posterior, keep)
        assert int(posterior.changes) == 0
        assert torch.equal(posterior.mean, fresh(posterior, keep).mean)


def test_small_noise(device):
    """At the smallest noise variance that changes serve they agree with a rebuild to 1e-5."""
    kernel = ArmKernel.from_covariance(Matern(1.5, 0.3), places(60, 2, device=device))
    for _, posterior, keep in walk(kernel, 3e-6, 1, 80, device, size=30):
        want = fresh(posterior, keep)
        torch.testing.assert_close(posterior.mean, want.mean, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(posterior.variance, want.variance, rtol=1e-5, atol=1e-8)
    assert int(posterior.changes) > 0


def test_variance_that_rounding_made_negative(device):
    """from_matrix lets k(x, x) be as low as -1e-8; such an arm never keeps others out."""
    X = places(40, 2, device=device)
    K = Matern(1.5, 0.3)(X, X)
    K[7], K[:, 7], K[7, 7] = 0.0, 0.0, -1e-12
    kernel = ArmKernel.from_matrix(K)
    posterior, keep = dtc.init(kernel, 0.1), torch.ones(1, 40, dtype=torch.bool, device=device)
    keep[0, 30:] = False
    dtc.rebuild(posterior, keep)
    dtc.count(posterior, torch.tensor([35], device=device), torch.ones(1, dtype=K.dtype, device=device))
    keep[0, 35] = True
    dtc.redraw(posterior, keep)
    assert int(posterior.changes) > 0
    torch.testing.assert_close(posterior.variance, fresh(posterior, keep).variance, rtol=0.0, atol=1e-11)


def test_an_interrupted_change_is_made_good(device):
    """A covariance that fails half way, then works again: nothing is learnt twice."""
    X, fail = places(5000, 2, device=device), [False]

    class Failing(Matern):
        def __call__(self, X1, X2):
            if fail[0] and X1.shape[-2] * X2.shape[-2] > 5000:
                raise RuntimeError("stopped")
            return super().__call__(X1, X2)

    kernel = ArmKernel.from_covariance(Failing(1.5, 0.3), X)
    posterior, keep = dtc.init(kernel, 0.1), torch.zeros(1, 5000, dtype=torch.bool, device=device)
    keep[0, :30] = True
    dtc.rebuild(posterior, keep)
    dtc.count(posterior, torch.tensor([3], device=device), torch.ones(1, dtype=torch.float64, device=device))
    fail[0] = True
    with pytest.raises(RuntimeError, match="stopped"):
        dtc.redraw(posterior, keep)
    fail[0] = False
    dtc.redraw(posterior, keep)
    check(posterior, keep)
