"""What the trials of a round maximise and the recommendation goes by, with one face for all models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bo_robust.acquisition import GPUCB, EliminationUCB, ValueAtRiskUCB
from bo_robust.environments import FiniteEnvironment
from bo_robust.models import CandidateEnsemble, marginal_moments

__all__ = ["Candidates", "Conditions", "OneGP", "Posterior"]


class Posterior(Protocol):
    """A model of one round and its widths.

    Attributes:
        truncated_top: The largest reward that was truncated, as models see rewards; -inf if none was.
        largest: The largest size of a reward that was not.
    """

    truncated_top: float
    largest: float

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> Any:
        """What the next trial maximises."""

    def upper(self) -> AcquisitionFunction:
        """The upper confidence bound of the certificate."""

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, lower and upper confidence bound at designs ``n x d``, ``n`` each."""


@dataclass
class OneGP:
    """A GP: gp-ucb, tgp-ucb, ata-gp-ucb, bkb."""

    model: Any
    width: Any
    certificate: Any
    truncated_top: float
    largest: float

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> GPUCB:
        return GPUCB(self.model, self.width, X_pending=pending, generator=generator)

    def upper(self) -> GPUCB:
        return GPUCB(self.model, self.certificate)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = marginal_moments(self.model, X)
        reach = self.upper().width * variance.sqrt()
        return mean, mean - reach, mean + reach


@dataclass
class Candidates:
    """Candidates under elimination: he-gp-ucb."""

    model: CandidateEnsemble
    largest: float
    truncated_top: float = -math.inf

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> EliminationUCB:
        return EliminationUCB(self.model, X_pending=pending)

    def upper(self) -> EliminationUCB:
        return EliminationUCB(self.model)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        mean, variance = model.moments(X)
        reach = model.widths.unsqueeze(-1) * variance.sqrt()
        return mean[model.leader], (mean - reach)[model.alive].amin(0), (mean + reach)[model.alive].amax(0)


@dataclass
class Conditions:
    """A GP on designs and conditions: v-ucb."""

    model: Any
    environment: FiniteEnvironment
    risk_level: float
    width: Any
    certificate: Any
    largest: float
    truncated_top: float = -math.inf

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> ValueAtRiskUCB:
        given = (self.model, self.environment, self.risk_level, self.width)
        return ValueAtRiskUCB(*given, X_pending=pending, generator=generator)

    def upper(self) -> ValueAtRiskUCB:
        return ValueAtRiskUCB(self.model, self.environment, self.risk_level, self.certificate)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        acqf = self.upper()
        lower, upper = acqf.bounds_at(X)
        F, p = acqf.functional, self.environment.probabilities
        return F(0.5 * (lower + upper), p), F.lower_bound(lower, upper, p), F.upper_bound(lower, upper, p)
