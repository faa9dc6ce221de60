"""Positive, skewed functions on a list of designs, most of them exponentials of known ones, with a noise of 5 %."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Rosenbrock
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.problems.designs import DesignProblem

CANDIDATES, NOISE = 1024, 0.05


def exponential(f: Tensor, scale: float = 1.5) -> Tensor:
    """exp(scale f), f standardized over the candidates."""
    return (scale * (f - f.mean()) / f.std()).exp()


def minimum_of(function: Any) -> Callable[[Tensor], Tensor]:
    """The exponential of minus a function of BoTorch, on the unit cube."""
    low, high = function.bounds.double()
    return lambda U: exponential(-function(low + (high - low) * U))


def goldstein_price(U: Tensor) -> Tensor:
    """1e4 over the function, plus 1."""
    x, y = (4.0 * U - 2.0).unbind(-1)
    one = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    other = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return 1e4 / (one * other) + 1.0


def reaction(U: Tensor) -> Tensor:
    """A yield by temperature, time and catalyst."""
    T, time, catalyst = 50.0 + 60.0 * U[:, 0], 1.0 + 7.0 * U[:, 1], 0.5 + 2.0 * U[:, 2]
    off = ((T - 82.0) / 22.0) ** 2 + ((time - 5.0) / 3.5) ** 2 + ((catalyst - 1.4) / 1.2) ** 2
    return 85.0 * (-off).exp()


def michalewicz(U: Tensor) -> Tensor:
    x = math.pi * U
    return exponential((x.sin() * (torch.tensor([1.0, 2.0]) * x**2 / math.pi).sin() ** 10).sum(-1), 0.75)


# Dimensions and values, by name.
SKEWED: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "exponential Branin": (2, minimum_of(Branin())),
    "exponential Hartmann-3": (3, minimum_of(Hartmann(3))),
    "exponential Ackley-2": (2, minimum_of(Ackley(2))),
    "exponential Levy-2": (2, minimum_of(Levy(2))),
    "exponential Rosenbrock-2": (2, minimum_of(Rosenbrock(2))),
    "exponential Michalewicz-2": (2, michalewicz),
    "1 / Goldstein-Price": (2, goldstein_price),
    "reaction": (3, reaction),
}


@dataclass(frozen=True)
class Skewed:
    """A function of :data:`SKEWED` on Sobol points; regret is in its standard deviations over them."""

    function: str

    def make(self) -> DesignProblem:
        d, function = SKEWED[self.function]
        candidates = SobolEngine(d, scramble=True, seed=0).draw(CANDIDATES, dtype=torch.float64)
        f = function(candidates)
        center, scale = f.mean(), f.std()

        def place(X: Tensor) -> Tensor:
            return (X.unsqueeze(-2) - candidates).square().sum(-1).argmin(-1)

        def value(X: Tensor) -> Tensor:
            return (f[place(X)] - center) / scale

        def observe(x: Tensor, uniform: float, normal: float) -> float:
            return float((f[place(x)] * math.exp(NOISE * normal) - center) / scale)

        best, notes = float((f.max() - center) / scale), f"{self.function} on {CANDIDATES} designs; noise of 5 %."
        return DesignProblem(self.function, d, candidates, value, best, observe, notes, float(center / scale))
