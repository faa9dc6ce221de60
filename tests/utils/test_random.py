"""Random streams depend on their key alone; one uniform spreads to many."""

import numpy as np

from bo_robust.utils.random import stream


def test_same_key_same_numbers_and_different_keys_differ():
    first = stream(1, "reward", 7, 2).random(5)
    assert np.array_equal(first, stream(1, "reward", 7, 2).random(5))
    for other in ((2, "reward", 7, 2), (1, "problem", 7, 2), (1, "reward", 8, 2), (1, "reward", 7, 3)):
        assert not np.array_equal(first, stream(*other).random(5))
