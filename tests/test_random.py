"""Random streams depend on their key alone."""

import numpy as np

from bo_robust.random import stream


def test_same_key_same_numbers_and_different_keys_differ():
    first = stream(1, "reward", 7, 2).random(5)
    assert np.array_equal(first, stream(1, "reward", 7, 2).random(5))
    for other in ((2, "reward", 7, 2), (1, "problem", 7, 2), (1, "reward", 8, 2), (1, "reward", 7, 3)):
        assert not np.array_equal(first, stream(*other).random(5))


def test_streams_are_uncorrelated():
    draws = np.stack([stream(0, "reward", trial).standard_normal(4000) for trial in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 5.0 / np.sqrt(4000)
