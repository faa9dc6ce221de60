import torch

from benchmarks.ops.registry import OPS


def test_constants_timed_beside_others_are_those_of_the_module(fused_module):
    for op in (op for op in OPS.values() if op.also):
        assert all(getattr(fused_module(op.name), name) != value for name, value in op.also)


def test_bytes_and_operations_by_hand():
    low_rank = OPS["arm_update_low_rank"]
    shape = {"s": 1, "n": 10, "m": 4, "k": 2}
    assert low_rank.bytes(shape, torch.float64) == 8 * (10 * (4 + 2 + 1) + 10 + 40 + 16)
    assert low_rank.flops(shape) == 10 * (12 + 6) + 64
    assert OPS["arm_update_dense"].bytes({"s": 3, "n": 10, "k": 2}, torch.float32) == 4 * 3 * 10 * 8
