"""A single trial in NumPy, against the same trial in a batch, which plain torch plays."""

import copy

import pytest
import torch

from bo_robust.bandits.bkb import new_dictionary
from bo_robust.bandits.posteriors import dtc, dtc_single
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.random import spread

pytestmark = pytest.mark.cpu_only("the single trial in NumPy")


def kernels():
    X = torch.rand(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = X @ X.T
    K[7], K[:, 7] = 0.0, 0.0  # an arm of variance zero
    return {"smooth": ArmKernel.from_covariance(SquaredExponential(0.4), X), "rank 3": ArmKernel.from_matrix(K)}


def pair(kernel, rounds=25, noise_var=0.05):
    """The same rewards in one trial and in a batch of two."""
    g = torch.Generator().manual_seed(1)
    one, two = dtc.init(kernel, noise_var), dtc.init(kernel, noise_var, 2)
    for t in range(rounds):
        arm = torch.randint(50, (1,), generator=g) if t else torch.tensor([7])
        reward = torch.randn(1, generator=g).to(kernel.diagonal) if t != 3 else torch.tensor([torch.nan]).to(one.mean)
        assert torch.equal(dtc.count(one, arm, reward), dtc.count(two, arm.expand(2), reward.expand(2))[:1])
    return one, two


def close(one, two, names, atol):
    for name in names:
        got, want = getattr(one, name)[0], getattr(two, name)[0]
        torch.testing.assert_close(got, want, rtol=0.0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", kernels())
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-8), (torch.float32, 2e-3)])
def test_single_trial_is_a_batch_of_one(name, dtype, atol):
    kernel = kernels()[name]
    assert kernel.matrix is not None
    kernel = ArmKernel.from_matrix(kernel.matrix.to(dtype))
    one, two = pair(kernel)
    assert dtc_single.is_single(one)
    assert not dtc_single.is_single(two)
    keep = one.counts > 0
    keep[0, :40:5] = True
    dtc.rebuild(one, keep)
    dtc.rebuild(two, keep.expand(2, -1))
    same = ("mean", "variance", "information_gain", "counts", "learnt_sums", "dictionary", "effective_dimension")
    close(one, two, same, atol)
    arms, everyone = torch.arange(50).expand(2, -1), torch.arange(2)
    for arm in (3, 3, 41):
        dtc.downdate(one, torch.tensor([arm]), torch.tensor([True]))
        dtc.downdate(two, torch.tensor([arm, arm]), torch.tensor([True, True]))
        want = dtc.variance_of(two, arms, everyone)[0]
        torch.testing.assert_close(dtc.variance_of(one, arms[:1], everyone[:1])[0], want, rtol=0.0, atol=atol)
        torch.testing.assert_close(torch.from_numpy(dtc_single.present(one)[1]), want, rtol=0.0, atol=atol)
    one.present = None  # as in a copy restored within a batch
    torch.testing.assert_close(torch.from_numpy(dtc_single.present(one)[1]), want, rtol=0.0, atol=atol)


def test_dictionary_of_points_without_variance():
    """Nothing is learnt of a function that is zero where it is looked at."""
    one = dtc.init(ArmKernel.from_matrix(torch.diag(torch.tensor([0.0, 1.0], dtype=torch.float64))), 0.1)
    dtc.count(one, torch.tensor([0]), torch.ones(1, dtype=torch.float64))
    dtc.rebuild(one, torch.tensor([[True, False]]))
    assert one.mean.tolist() == [[0.0, 0.0]]
    assert one.variance.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="are empty; put at least one point"):
        dtc.rebuild(one, torch.zeros(1, 2, dtype=torch.bool))


def test_dictionary_of_one_trial_is_that_of_a_batch():
    one, two = pair(kernels()["smooth"])
    for u in torch.rand(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)):
        uniforms = spread(u, one.counts.shape[1])
        want = new_dictionary(two, 0.03, uniforms.expand(2, -1))
        assert torch.equal(new_dictionary(one, 0.03, uniforms), want[:1])
        assert 1 < int(want[0].sum()) < int((one.counts > 0).sum())


def test_near_duplicates_are_kept_as_in_a_batch():
    """Points 1e-4 apart and little noise: what is dropped shows in the mean, by 22 standard deviations once."""
    g = torch.Generator().manual_seed(1)
    X = torch.rand(40, 1, generator=g, dtype=torch.float64)
    X[20:] = X[:20] + 1e-4 * torch.rand(20, 1, generator=g, dtype=torch.float64)
    X = torch.cat([X, torch.linspace(-1.0, 2.0, 40, dtype=torch.float64).unsqueeze(1)])
    kernel, f = ArmKernel.from_covariance(SquaredExponential(1.0), X), torch.sin(7.0 * X[:, 0])
    one, two = dtc.init(kernel, 1e-8), dtc.init(kernel, 1e-8, 2)
    for arm in torch.arange(40):
        dtc.count(one, arm[None], f[arm][None])
        dtc.count(two, arm.expand(2), f[arm].expand(2))
    for posterior in (one, two):
        dtc.rebuild(posterior, posterior.counts > 0)
    assert ((one.mean[0] - two.mean[0]).abs() / two.variance[0].sqrt()).max() < 0.05
    torch.testing.assert_close(one.variance[0], two.variance[0], rtol=0.01, atol=0.0)


def test_a_copy_counts_for_itself():
    """Views of the original would write into its tensors."""
    one, _ = pair(kernels()["smooth"])
    assert one.views is not None
    before, twin = one.counts.clone(), copy.deepcopy(one)
    dtc.count(twin, torch.tensor([3]), torch.ones(1, dtype=torch.float64))
    assert torch.equal(one.counts, before)
    assert int((twin.counts - before).sum()) == 1
