"""Acquisition functions that rule designs out: where measurements fail, and where one is under way."""

from __future__ import annotations

from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from torch import Tensor

HALFWAY = 0.5  # between the label of a success and that of a failure
# The acquisition falls by this times the squared excess of the label over HALFWAY. Where failure is sure it is 2,500
# lower, which rules the design out. A steeper fall would stop line searches at the edge.
STEEP = 1e4
ROUNDING = 1e-9  # of a coordinate in the unit cube


class WhereTrialsSucceed(AcquisitionFunction):
    """An acquisition function that falls with the probability of failure where failure is likelier than success.

    A failure tells of a constraint, of which success or failure is all that is seen (Gelbart, Snoek & Adams 2014,
    "Bayesian optimization with unknown constraints"). The wrapped values are logarithms or bounds.
    """

    def __init__(self, acqf: Any, failing: SingleTaskGP) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.failing = acqf, failing
        self.set_X_pending(None)
        if (baseline := getattr(acqf, "X_baseline", None)) is not None:
            self.X_baseline = baseline  # where BoTorch's searches start

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x 1 x d``, whose conditions, if there are some, come last."""
        designs = X[..., : self.failing.train_inputs[0].shape[-1]]
        excess = (self.failing.posterior(designs).mean.squeeze(-1).squeeze(-1) - HALFWAY).clamp_min(0.0)
        value: Tensor = self.acqf(X) - STEEP * excess.square()
        return value


class Elsewhere(AcquisitionFunction):
    """An acquisition function that rules out pending designs, so that it need not know all of them."""

    def __init__(self, acqf: Any, taken: Tensor) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.taken = acqf, taken
        self.set_X_pending(None)
        if (baseline := getattr(acqf, "X_baseline", None)) is not None:
            self.X_baseline = baseline

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x 1 x d``."""
        same = ((X - self.taken).abs() <= ROUNDING).all(-1).any(-1)
        value: Tensor = self.acqf(X) - STEEP * same
        return value
