"""Numbers as people type them."""

import pytest

from bo_robust.tables.cells import quantity, written


@pytest.mark.parametrize(
    ("cell", "value", "unit"),
    [
        ("85℃", 85.0, "°C"),
        ("８５．５％", 85.5, "%"),
        ("$4", 4.0, "$"),
        ("4.5 €/kg", 4.5, "€/kg"),
        ("~85 °C", 85.0, "°C"),
        ("ca. 85", 85.0, ""),
        ("≈ 85", 85.0, ""),
        ("4·10^-3 M", 4e-3, "M"),
        ("4 x 10^-3", 4e-3, ""),
        ("4.2×10⁻³", 4.2e-3, ""),
        ("4*10**3", 4e3, ""),
        ("4 x 10-3", 4e-3, ""),
        ("10⁵ cells", 1e5, "cells"),
        ("10 \u00b5M", 10.0, "\u03bcM"),
    ],
)
def test_a_number_in_a_text(cell, value, unit):
    number = written(cell)
    assert (number.value("."), number.unit) == (value, unit)


@pytest.mark.parametrize(
    "cell", ["2-MeTHF", "1,4-dioxane", "Cs2CO3", "10-3", "11^2", "ca.", "<5", "1e400", "5 ± 2", "6O"]
)
def test_no_number(cell):
    assert written(cell) is None


@pytest.mark.parametrize(("text", "value"), [("1,000,000", 1e6), ("1.234,5", 1234.5), ("0,5", 0.5), ("1.234", 1.234)])
def test_a_number_in_an_argument(text, value):
    assert quantity(text) == value
