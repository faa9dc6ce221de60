"""Two other ways to bound a value at risk over draws of hyperparameters, for ``benchmarks.value_at_risk_settings``.

V-UCB with ``candidates: posterior`` plays the bound of the mixture, mean and standard deviation over all draws. These
maximise the mean of the draws' bounds, or the largest bound among the draws within two nats of the likeliest. All
choose the condition from the mixture.
"""

from dataclasses import dataclass

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.experiments.conditions.base import Proposal, Round
from bo_robust.experiments.conditions.methods import VUCB
from bo_robust.models import CandidateEnsemble, marginal_moments

WITHIN = 2.0  # nats


class DrawnBounds(AcquisitionFunction):
    """The mean of the bounds of all draws of a ``bound``, or the largest of the likely ones."""

    def __init__(self, bound: ValueAtRiskUCB, largest: bool) -> None:
        ensemble: CandidateEnsemble = bound.model.ensemble
        super().__init__(ensemble)
        self.bound, self.largest = bound, largest
        self.weights = ensemble.weights
        self.likely = ensemble.evidence >= ensemble.evidence.amax() - WITHIN

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        environment = self.bound.environment
        mean, variance = marginal_moments(self.model, environment.points(X.squeeze(-2)))  # lead x h x w
        upper = self.bound.functional(mean + self.bound.width * variance.sqrt(), environment.probabilities)
        return upper[..., self.likely].amax(-1) if self.largest else upper @ self.weights


@dataclass(frozen=True, kw_only=True)
class DrawnVUCB(VUCB):
    """V-UCB over draws by the mean of their bounds, or by the largest."""

    largest: bool = False
    __hash__ = object.__hash__

    def propose(self, now: Round) -> Proposal:
        bound = self.bound(now)
        x, _ = self.maximised(DrawnBounds(bound, self.largest), now.problem.x_bounds)
        with torch.no_grad():
            top = float(bound(x.unsqueeze(0)).max())
        return Proposal(self.choose(bound, x, now).point[0], top)
