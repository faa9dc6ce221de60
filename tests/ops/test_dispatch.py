import sys
from types import SimpleNamespace

import pytest
import torch

from bo_robust import ops
from bo_robust.utils import linalg


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Also that CUDA is simulated, for which ops are forced to be naive."""
    monkeypatch.setattr(linalg, "simulated", False)
    monkeypatch.delenv("BO_ROBUST_OPS", raising=False)
    asked = (ops.triton_is_available, ops.ops_forced_naive)
    for answer in asked:
        answer.cache_clear()
    yield
    for answer in asked:
        answer.cache_clear()


@pytest.fixture
def on_cuda():
    """What the dispatch sees of a CUDA tensor."""
    return SimpleNamespace(is_cuda=True)


def test_a_cpu_tensor_never_takes_the_fused_path():
    assert not ops.use_fused(torch.zeros(1))


def test_naive_ops_rules_fused_out_and_ends(on_cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0"))
    assert ops.use_fused(on_cuda)
    with ops.naive_ops():
        assert not ops.use_fused(on_cuda)
        with ops.naive_ops():
            assert not ops.use_fused(on_cuda)
        assert not ops.use_fused(on_cuda)
    assert ops.use_fused(on_cuda)
    with pytest.raises(RuntimeError, match="stop"), ops.naive_ops():
        raise RuntimeError("stop")
    assert ops.use_fused(on_cuda)


@pytest.mark.parametrize("version", ["3.6.0", "3.10.1", "4.0.0+git123"])
def test_triton_new_enough(version, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    assert ops.triton_is_available()


def test_without_triton_or_with_an_old_one_ops_are_plain(on_cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not ops.use_fused(on_cuda)
    ops.triton_is_available.cache_clear()
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.5.1"))
    with pytest.warns(UserWarning, match=r"Triton 3.5.1 is older than 3.6: ops run in PyTorch"):
        assert not ops.use_fused(on_cuda)
