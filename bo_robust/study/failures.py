"""Where trials fail: values that stand for it, a model of failures, and an acquisition that keeps away from there.

A failure says nothing about f. So it is no reward, but tells of a constraint: success or failure is all that is seen of
it (Gelbart, Snoek & Adams 2014, "Bayesian optimization with unknown constraints"; section 3.1 asks that success be
likely enough). Here the labels have Gaussian noise, which BoTorch's own model learns.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from bo_robust.models.fitting import fit_evidence
from bo_robust.study.space import Point

FAR = 100.0  # a value as many ranges of all others away from them is no measurement, if two points have it
HALFWAY = 0.5  # between the label of success and that of failure
# The acquisition falls by this times the squared excess of the label over HALFWAY. Where failure is sure it is 2,500
# lower, far below the logarithm of any improvement; so much steeper would stop line searches at the edge.
STEEP = 1e4


def stand_in(told: Iterable[tuple[Point, float]]) -> float | None:
    """The value that seems to stand for a failure, such as -999: several points have it, no other is near; or None."""
    told = list(told)
    for value in (min(y for _, y in told), max(y for _, y in told)):
        others = [y for _, y in told if y != value]
        here, elsewhere = ({tuple(x.items()) for x, y in told if (y == value) is same} for same in (True, False))
        if len(here) >= 2 and len(elsewhere) >= 3:  # at fewer it may be all others that are odd
            spread = max(others) - min(others)
            if min(abs(value - y) for y in others) > FAR * spread > 0.0:
                return value
    return None


def failure_model(X: Tensor, failed: Tensor) -> SingleTaskGP:
    """``SingleTaskGP`` of labels: 0 at points ``n x d`` that gave a reward, 1 at points ``m x d`` that failed.

    Where a region fails, labels follow a cliff. A trial that failed by chance is noise, or a spike that spoils little
    around it.
    """
    points, labels = torch.cat([X, failed]), torch.cat([X.new_zeros(len(X), 1), X.new_ones(len(failed), 1)])
    model = SingleTaskGP(points, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single restarts
        try:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
        except ModelFittingError:
            model = SingleTaskGP(points, labels)  # at the modes of the priors
    return model.eval()


class WhereTrialsSucceed(AcquisitionFunction):
    """An acquisition of one point where success is likelier than failure; elsewhere the lower the surer failure is.

    Args:
        acqf: The acquisition, the logarithm of an improvement, with the ``X_baseline`` where searches start.
        failing: A :func:`failure_model`.
    """

    def __init__(self, acqf: Any, failing: SingleTaskGP) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.failing = acqf, failing
        self.X_baseline = acqf.X_baseline

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at points ``b x 1 x d``."""
        excess = (self.failing.posterior(X).mean.squeeze(-1).squeeze(-1) - HALFWAY).clamp_min(0.0)
        value: Tensor = self.acqf(X) - STEEP * excess.square()
        return value
