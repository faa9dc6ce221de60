"""With its matrices on a device the search decides as on the host; here the device is the CPU."""

import pickle

import numpy as np
import pytest
import torch

from bo_robust import RobustGP
from bo_robust.models.marginal_likelihood import Prior
from bo_robust.models.reward_units import Units
from bo_robust.models.robust.conditioned_gp import ConditionedGP
from bo_robust.models.robust.device_gp import DeviceGP
from bo_robust.utils import linalg
from tests.problems import fit, outliers, rand, rewards

N, CPU, DOUBLE = 48, torch.device("cpu"), {"dtype": torch.float64}


def pair(device, inliers, noise=0.3):
    """The GP of the host and that of a device, and the observations."""
    draws, n = np.random.default_rng(3), len(inliers)
    A, y = draws.normal(size=(n, n // 2)), draws.normal(size=n)
    prior = Prior(draws.normal(size=n), A @ A.T, np.full(n, noise), log_density=-4.0)
    given = prior, y, np.array(inliers, dtype=bool), Units(0.4, 2.5)
    return ConditionedGP(*given), DeviceGP(device, *given), y


def assert_alike(host, there, y):
    alike, rows = np.diag(np.ones(len(y) - 1), 1) > 0.0, np.flatnonzero(host.inliers)[1::2]
    assert there.log_evidence == pytest.approx(host.log_evidence, rel=1e-10)
    assert there.gain(rows, np.eye(len(rows))) == pytest.approx(host.gain(rows, np.eye(len(rows))))
    for of in (lambda gp: gp.loo_residuals(), lambda gp: gp.residuals_without(alike), lambda gp: gp.exchange_gains(y)):
        np.testing.assert_allclose(of(there), of(host), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("inliers", [[1] * 9, [1, 0, 1, 1, 0, 0, 1, 1, 1]])
def test_all_that_a_gp_says_is_what_the_host_says(inliers, device):
    with torch.device("meta"):  # as scripts set "cuda" by default
        host, there, y = pair(device, inliers)
        for row in (0, 3, 3, 7, 1):
            assert_alike(host, there, y)
            host.move(row)
            there.move(row)
        assert_alike(host.with_rows([0, 7])[0], there.with_rows([0, 7])[0], y)
        assert_alike(host, there, y)  # the copy shares nothing that it changes


def test_without_a_cholesky_factor(device):
    host, there, _ = pair(device, [1] * 8 + [0], noise=-1.0)
    assert there.log_evidence == pytest.approx(host.log_evidence)
    assert host.log_evidence < -1e9
    np.testing.assert_allclose(there.weights, host.weights)
    assert there.gain(np.arange(2), np.eye(2)) == host.gain(np.arange(2), np.eye(2)) == -np.inf


def kinds():
    X, batches = rand(DOUBLE, N, 2), torch.arange(N) % 3
    Y = rewards(X, noise=0.05)
    wrong = Y.index_add(0, torch.tensor([4, 20, 33]), torch.tensor([[6.0], [-5.0], [9.0]], **DOUBLE))
    bump = Y + 6.0 * (-((X - 0.5) ** 2).sum(1, keepdim=True) / 0.01).exp()
    return {
        "clean": (X, Y, {}),
        "replicates": (torch.cat([X, X[:6]]), torch.cat([wrong, wrong[:6]]), {}),
        "local deviation": (X, bump, {}),
        "skewed": (X, wrong.exp(), {"outcome_limits": (0.0, None)}),
        "batches": (X, wrong + batches[:, None], {"batch": batches.tolist()}),
        "limits": (X.float(), wrong.float(), {"outcome_limits": (-3.0, 4.0)}),
        "known noise": (X, wrong, {"train_Yvar": torch.full_like(Y, 0.01)}),
    }


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
@pytest.mark.parametrize("kind", kinds())
def test_a_fit_decides_as_on_the_host(kind, simulated, monkeypatch):
    X, Y, options = kinds()[kind]
    host = fit(RobustGP(X, Y, **options))
    monkeypatch.setattr(linalg, "GPU_ROWS", 10)
    monkeypatch.delattr(ConditionedGP, "_sweep")  # no GP of the host is left
    device = fit(RobustGP(X, Y, **options))
    assert (outliers(device), device.outcome_scale) == (outliers(host), host.outcome_scale)
    assert device.detection.log_evidence == pytest.approx(host.detection.log_evidence, rel=1e-8)
    torch.testing.assert_close(device.loo_zscore, host.loo_zscore, rtol=1e-4, atol=1e-5)
    assert "batch" in options or outliers(pickle.loads(pickle.dumps(device))) == outliers(host)


def test_few_rows_and_those_of_a_cpu_stay_on_the_host(simulated, monkeypatch):
    X = torch.zeros(2, 1)
    assert [linalg.gpu_for(X, linalg.GPU_ROWS - less) for less in (0, 1)] == [CPU, None]
    monkeypatch.undo()
    assert linalg.gpu_for(X, 10**6) is None
