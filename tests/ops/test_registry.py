"""What is measured: every op of the registry agrees with its plain path, and its checks notice when it does not."""

import math

import pytest
import torch

from benchmarks.ops.registry import OPS, difference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", OPS)
def test_fused_agrees_with_naive(name, dtype, fused_module, device):
    op = OPS[name]
    assert op.name == name
    assert op.verify(op.small, device, dtype) <= 1.0


@pytest.mark.parametrize("name", OPS)
def test_floors_are_positive_and_halve_with_the_dtype(name):
    op = OPS[name]
    for shape in (*op.shapes, op.small):
        assert op.flops(shape) > 0.0
        assert 0.0 < op.bytes(shape, torch.float32) < op.bytes(shape, torch.float64)


def test_bytes_and_operations_by_hand():
    low_rank = OPS["arm_update_low_rank"]
    shape = {"s": 1, "n": 10, "m": 4, "k": 2}
    assert low_rank.bytes(shape, torch.float64) == 8 * (10 * (4 + 2 + 1) + 10 + 40 + 32)
    assert low_rank.flops(shape) == 10 * (12 + 6) + 64
    assert OPS["arm_update_dense"].bytes({"s": 3, "n": 10, "k": 2}, torch.float32) == 4 * 3 * 10 * 8
    assert OPS["ucb_argmax"].bytes({"s": 3, "n": 10}, torch.float32) == 240
    assert OPS["kth_index"].bytes({"s": 3, "w": 4}, torch.float64) == 3 * 40


def test_difference():
    one = torch.ones(2, dtype=torch.float64)
    assert difference((one, one.long()), (one, one.long()), 1e-9) == 0.0
    assert difference(one + 1e-3, one, 1e-3) == pytest.approx(1.0)
    assert difference(one.long() + 1, one.long(), 1e-3) == math.inf
    assert not difference(one * math.nan, one, 1e-3) <= 1.0
    assert not difference((one, one * math.nan), (one, one), 1e-3) <= 1.0
    assert not difference(one * math.inf, one, 1e-3) <= 1.0
    assert difference(one * math.nan, one * math.nan, 1e-3) == 0.0
