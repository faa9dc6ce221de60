"""Formulas that columns of rounded numbers keep in all rows but one or two: sums, products and quotients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

BROKEN = 2  # rows that may break a formula
POWERS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)  # of factors in a product
ROUNDED = 0.8  # units of the last digit by which a rounded number may differ from a fit


class Formula(NamedTuple):
    """A constant plus columns times factors; or, where there are powers, times powers of columns."""

    constant: float
    factors: tuple[float, ...] = ()
    powers: tuple[float, ...] = ()

    def __call__(self, A: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            if self.powers:
                return self.constant * (A ** np.array(self.powers)).prod(1)
            return self.constant + A @ np.array(self.factors)

    def written(self, names: Sequence[str]) -> str:
        """Such as "1.8 * T + 32" or "volume / flow"."""
        if not self.powers:
            terms = [
                (f, "" if abs(f) == 1.0 else f"{abs(f):.9g} * ", n) for f, n in zip(self.factors, names, strict=True)
            ]
            terms += [(self.constant, f"{abs(self.constant):.9g}", "")] if self.constant else []
            return " ".join(f"{'-' if f < 0.0 else '+'} {number}{n}" for f, number, n in terms).removeprefix("+ ")
        named = [(p, n if abs(p) == 1.0 else f"{n}^{abs(p):g}") for p, n in zip(self.powers, names, strict=True)]
        over = [n for p, n in named if p > 0.0]
        over = over if over and self.constant == 1.0 else [f"{self.constant:.9g}", *over]
        return " / ".join([" * ".join(over), *(n for p, n in named if p < 0.0)])

    def says_nothing(self, A: np.ndarray, unit: np.ndarray) -> bool:
        """Whether a column has no part in it, or it is the sum of a mixture, which is kept as such."""
        parts = np.abs(self.factors) * np.ptp(A, axis=0) > np.median(unit) if self.factors else np.ones(1)
        return not parts.all() or (not self.powers and all(factor == -1.0 for factor in self.factors))


def decimals(values: np.ndarray) -> np.ndarray:
    """How many decimals each number has, at most nine."""
    needed = np.full(len(values), 9)
    for k in reversed(range(9)):
        scaled = np.nan_to_num(values) * 10.0**k
        needed[np.abs(scaled - scaled.round()) <= np.maximum(1e-6, 1e-12 * np.abs(scaled))] = k
    return needed


def last_digit(values: np.ndarray) -> np.ndarray:
    """The unit of the last digit of each number, in a column of so many decimals or so many digits."""
    needed = decimals(values)
    size = np.where(np.isfinite(values) & (values != 0.0), np.abs(values), 1.0)
    before = np.floor(np.log10(size) + 1e-12) + 1.0
    return np.maximum(10.0 ** -float(needed.max()), 10.0 ** (before - (before + needed).max()))


def fit(
    y: np.ndarray, table: np.ndarray, unit: np.ndarray, sets: np.ndarray, powers: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least squares of a column on each set of others, without the rows that break them most, left out one by one.

    Returns constant and factors (of logarithms, for products), the rows kept, and how many are left out; -1 where no
    formula fits.
    """
    allowed = ROUNDED * unit
    if powers:
        y, table, allowed = np.log(y), np.log(np.where(table > 0.0, table, 1.0)), allowed / y
    table = np.where(np.isfinite(table), table, 0.0)
    center, scale = table.mean(0), np.maximum(table.std(0), 1e-300)
    X = np.concatenate([np.ones((len(sets), len(y), 1)), ((table - center) / scale)[:, sets].transpose(1, 0, 2)], -1)
    X, z = X / allowed[:, None], (y - y.mean()) / allowed
    kept, found, factors = np.ones(X.shape[:2], dtype=bool), np.full(len(sets), -1), np.zeros(X[:, 0].shape)
    final = kept.copy()
    for broken in range(BROKEN + 1):
        Z = X * kept[..., None]
        G = Z.transpose(0, 2, 1) @ Z
        P = np.linalg.inv(G + 1e-13 * np.trace(G, axis1=1, axis2=2)[:, None, None] * np.eye(G.shape[-1]))
        b = (P @ (Z.transpose(0, 2, 1) @ z)[..., None])[..., 0]
        errors = z - (X @ b[..., None])[..., 0]
        new = (found < 0) & (np.where(kept, np.abs(errors), 0.0).max(1) <= 1.0)
        found[new], factors[new], final[new] = broken, b[new], kept[new]
        gain = errors**2 / np.maximum(1.0 - ((Z @ P) * Z).sum(-1), 1e-6)
        kept[np.arange(len(sets)), np.where(kept, gain, -1.0).argmax(1)] = False
    slopes = factors[:, 1:] / scale[sets]
    constant = y.mean() + factors[:, 0] - (slopes * center[sets]).sum(1)
    return np.concatenate([constant[:, None], slopes], 1), final, found


def shortest(y: np.ndarray, A: np.ndarray, unit: np.ndarray, factors: np.ndarray, powers: bool) -> Formula | None:
    """The formula with the shortest numbers that fits about as well as ``factors``; None where none does."""
    exponents = tuple(min(POWERS, key=lambda p: abs(p - slope)) for slope in factors[1:]) if powers else ()
    through_0 = np.linalg.lstsq(A / unit[:, None], y / unit, rcond=None)[0]
    slopes = [np.ones(0)] if powers else [through_0, factors[1:]]
    off = 0.0 if powers else float(np.abs((y - Formula(factors[0], tuple(factors[1:]))(A)) / unit).max())
    for place, limit, k in product(range(len(slopes)), (1.2 * off + 1e-6, ROUNDED), range(1, 10)):
        rounded = tuple(float(f"{slope:.{k}g}") for slope in slopes[place])
        rest = y / Formula(1.0, powers=exponents)(A) if powers else y - Formula(0.0, rounded)(A)
        middle = float(rest.min() + rest.max()) / 2.0
        more = [float(f"{middle:.{j}g}") for j in range(1, 10)] if powers or place else []
        for constant in (1.0 if powers else 0.0, *more):
            formula = Formula(constant, rounded, exponents)
            if (np.abs(y - formula(A)) <= limit * unit).all():
                return formula
    return None
