"""What is measured: the floors of the ops, and the check that fused and plain results agree."""

import math

import pytest
import torch

from benchmarks.ops.registry import OPS, difference


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


def test_difference():
    one = torch.ones(2, dtype=torch.float64)
    assert difference((one, one.long()), (one, one.long()), 1e-9) == 0.0
    assert difference(one + 1e-3, one, 1e-3) == pytest.approx(1.0)
    assert difference(one.long() + 1, one.long(), 1e-3) == math.inf
    assert not difference(one * math.nan, one, 1e-3) <= 1.0
    assert not difference((one, one * math.nan), (one, one), 1e-3) <= 1.0
    assert not difference(one * math.inf, one, 1e-3) <= 1.0
    assert difference(one * math.nan, one * math.nan, 1e-3) == 0.0
