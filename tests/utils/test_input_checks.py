import math
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch

from bo_robust.bandits import ALGORITHMS
from bo_robust.confidence import WIDTHS, ConstantWidth, FiniteWidth
from bo_robust.confidence.truncation import TRUNCATIONS, TGPTruncation
from bo_robust.risk_measures.functionals import FUNCTIONALS, ValueAtRisk, as_functional
from bo_robust.utils.covariance import Matern, SquaredExponential
from bo_robust.utils.input_checks import Positive, check_fields, is_number


def test_what_is_a_number():
    for value in (1, 0.5, np.float64(0.5), np.float32(0.5), np.int64(3), torch.tensor(2.0), 10**300):
        assert is_number(value)
    for value in (True, np.bool_(True), None, "1", math.nan, math.inf, 10**400, [1.0], np.ones(1), torch.ones(1), 1j):
        assert not is_number(value)


def test_numpy_scalars_are_numbers():
    """They come out of every numpy reduction, and give what Python's numbers give."""
    x = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
    for kind in (np.float64, np.float32):
        half, quarter = kind(0.5), kind(0.25)  # exact in both
        assert torch.equal(Matern(2.5, half)(x, x), Matern(2.5, 0.5)(x, x))
        assert torch.equal(SquaredExponential((half,), quarter)(x, x), SquaredExponential((0.5,), 0.25)(x, x))
        assert TGPTruncation(kind(4.0), kind(1.0))(3) == TGPTruncation(4.0, 1.0)(3)
        assert ConstantWidth(half)(1) == 0.5
        assert as_functional(quarter)(x[:, 0]) == ValueAtRisk(0.25)(x[:, 0])
    assert FiniteWidth(np.int64(5), np.float64(0.1))(1) == FiniteWidth(5, 0.1)(1)


def test_no_type_of_a_setting_is_a_string():
    """A string is looked up by name, which fails for what is imported for type checkers alone."""
    for kind in (*WIDTHS.values(), *TRUNCATIONS.values(), *FUNCTIONALS.values(), *ALGORITHMS.values()):
        assert not [field.name for field in fields(kind) if isinstance(field.type, str)]


@dataclass(frozen=True)
class Postponed:
    """As a user's module has it that begins with ``from __future__ import annotations``."""

    scale: "Positive"
    level: "Positive | None" = None

    def __post_init__(self):
        check_fields(self)


def test_types_that_are_strings_are_checked():
    assert Postponed(1.0).level is None
    for wrong in ((-1.0,), (1.0, 0.0)):
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            Postponed(*wrong)
