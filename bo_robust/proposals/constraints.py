"""Sums and inequalities that designs fulfil, and the design nearby that fulfils them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from bo_robust.proposals.axes import Axis
from bo_robust.proposals.inputs import Constraint

WEIGHED = 0.02  # of a sum, by which a design as it was weighed may differ; it may be measured a second time
EXACT = 1e-6  # of a constraint's largest term, up to which it counts as fulfilled


@dataclass(frozen=True)
class Constraints:
    """Sums of coefficients times columns, in the units of designs."""

    equalities: tuple[Constraint, ...] = ()  # = right-hand side
    inequalities: tuple[Constraint, ...] = ()  # >= right-hand side

    @property
    def every(self) -> tuple[Constraint, ...]:
        return self.equalities + self.inequalities

    @property
    def columns(self) -> set[int]:
        """Columns that are in a constraint."""
        return {i for columns, *_ in self.every for i in columns}

    def excess(self, x: Tensor, slack: float = EXACT) -> float:
        """By how much a design ``d`` breaks the constraints, each in units of its largest term; 0 if it does not.

        Sums may differ by ``slack``.
        """
        total = 0.0
        for constraints, equal in ((self.equalities, True), (self.inequalities, False)):
            for columns, coefficients, rhs in constraints:
                terms = x[columns] * torch.tensor(coefficients, dtype=torch.float64)
                short = (rhs - float(terms.sum())) / max(abs(rhs), float(terms.abs().amax()), 1e-300)
                total += abs(short) * (abs(short) > slack) if equal else max(short, 0.0) * (short > EXACT)
        return total

    def fulfilled(self, x: Tensor, slack: float = EXACT) -> Tensor:
        """Which designs ``k x d`` fulfil the constraints, ``k`` bool."""
        return torch.tensor([self.excess(row, slack) == 0.0 for row in x], dtype=torch.bool)

    def repaired(self, x: Tensor, axes: Sequence[Axis], fixed: Mapping[int, float]) -> Tensor:
        """The design ``d``, with values of one or two columns moved at a time until constraints hold."""
        excess = self.excess(x)
        while excess > 0.0:
            steps = self._moves(x, axes, fixed)
            moves = [*((step,) for step in steps), *combinations(steps, 2)]
            tried = [x.clone() for _ in moves]
            for moved, move in zip(tried, moves, strict=True):
                for i, value in move:
                    moved[i] = value
            best = min(tried, key=self.excess, default=x)
            if self.excess(best) >= excess:
                raise ValueError("no design on the steps of the columns was found that fulfils the constraints.")
            x, excess = best, self.excess(best)
        return x

    def _moves(self, x: Tensor, axes: Sequence[Axis], fixed: Mapping[int, float]) -> list[tuple[int, float]]:
        """Columns and values that may fulfil a constraint."""
        moves = []
        for columns, coefficients, rhs in self.every:
            short = rhs - sum(c * float(x[i]) for i, c in zip(columns, coefficients, strict=True))
            for i, c in zip(columns, coefficients, strict=True):
                if i not in fixed and c != 0.0:
                    moves += [(i, value) for value in axes[i].moves(float(x[i]), float(x[i]) + short / c)]
        return moves

    def scaled(self, axes: Sequence[Axis], device: Any) -> dict[str, Any]:
        """The constraints on coordinates of the search, as arguments of BoTorch."""
        scaled: dict[str, Any] = {}
        low = torch.tensor([axis.low for axis in axes], dtype=torch.float64)
        side = torch.tensor([axis.high - axis.low for axis in axes], dtype=torch.float64)
        for name, constraints in (("equality", self.equalities), ("inequality", self.inequalities)):
            built = []
            for columns, coefficients, rhs in constraints:
                place, factors = torch.tensor(columns), torch.tensor(coefficients, dtype=torch.float64)
                rest = rhs - float((factors * low[place]).sum())
                built.append((place.to(device), (factors * side[place]).to(device), rest))
            scaled[f"{name}_constraints"] = built or None
        return scaled
