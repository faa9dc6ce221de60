"""What a method over pairs (x, z) is: what it knows, what it proposes, and how acquisitions are maximised."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import OptimizationGradientError
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.experiments.conditions.shared_gp import SharedGP
from bo_robust.experiments.problems.conditions import ConditionsProblem
from bo_robust.risk_measures.functionals import ValueAtRisk
from bo_robust.utils.input_checks import check_count

# Evaluations of a line search, for all methods. At a kink it finds nothing and uses them all: 8 in place of 20 halve
# the time of V-UCB at a loss of at most 2e-4 in the bound (12 states, bounds of 1.5 to 4.5).
LINE_SEARCH = 8
DELTA = 0.1  # failure probability of the widths of the paper's experiments
PAPER_WIDTH = FiniteWidth(num_arms=1, delta=DELTA)  # w_t = sqrt(2 log(pi^2 t^2 / 0.6))


@dataclass(frozen=True, eq=False)
class Round:
    """What a method knows in round ``t`` (from 1): points (x, z) observed so far, ``n x d``, and observations, ``n``.

    Methods read the problem's box, environment and alpha, never its f. ``gp`` holds the hyperparameters.
    """

    problem: ConditionsProblem
    gp: SharedGP
    X: Tensor
    Y: Tensor
    t: int

    @property
    def designs(self) -> Tensor:
        """Designs x observed so far, ``n x d_x``."""
        return self.X[:, : self.problem.dim_x]


@dataclass(frozen=True)
class Proposal:
    """The point (x, z) to observe next, ``d``.

    ``max_upper`` is the largest VaR_alpha(u(x, Z)) over x that V-UCB found; None for other methods.
    """

    point: Tensor
    max_upper: float | None = None


@dataclass(frozen=True, kw_only=True)
class ConditionsMethod(ABC):
    """Base of the methods.

    Methods that ``bounds_regret`` find max_x VaR_alpha(u(x, Z)). While l <= f <= u, 2 w sigma at the point that they
    choose bounds the regret of its x.
    """

    bounds_regret: ClassVar[bool] = False

    def bound(self, now: Round) -> ValueAtRiskUCB:
        """The bounds on VaR_alpha(f(x, Z)) by which designs are recommended."""
        model = now.gp.model(now.X, now.Y)
        return ValueAtRiskUCB(model, now.problem.environment, ValueAtRisk(now.problem.alpha), PAPER_WIDTH, t=now.t)

    @abstractmethod
    def propose(self, now: Round) -> Proposal:
        """The point to observe. Random numbers come from torch's global generator, which the caller seeds."""


def _best_sample(acquisition: AcquisitionFunction, points: Tensor) -> tuple[Tensor, Tensor]:
    """The point ``d`` of largest value out of ``k x 1 x d``, and that value; NaN counts as smallest."""
    with torch.no_grad():
        values = acquisition(points).nan_to_num(nan=-torch.inf)
    best = values.argmax()
    return points[best, 0], values[best]


@dataclass(frozen=True, kw_only=True)
class Optimised(ConditionsMethod):
    """Maximises an acquisition function by BoTorch's ``optimize_acqf``.

    ``restarts`` local searches start from the best of ``raw_samples`` points, each with ``maxiter`` iterations of
    L-BFGS-B.
    """

    restarts: int = 4
    raw_samples: int = 64
    maxiter: int = 200

    def __post_init__(self) -> None:
        check_count(1, restarts=self.restarts, raw_samples=self.raw_samples, maxiter=self.maxiter)

    @abstractmethod
    def acquisition(self, now: Round) -> AcquisitionFunction:
        """The function to maximise."""

    def maximised(self, acquisition: AcquisitionFunction, bounds: Tensor) -> tuple[Tensor, Tensor]:
        """The argmax ``d`` and its value, or the best raw sample where the gradient is NaN.

        Gradients of methods that sample are sometimes NaN: they pass through roots of near-singular joint covariances.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of searches that stop at maxiter or at a kink, and of jitter
            try:
                x, value = optimize_acqf(
                    acquisition,
                    bounds,
                    q=1,
                    num_restarts=self.restarts,
                    raw_samples=self.raw_samples,
                    options={"maxiter": self.maxiter, "maxls": LINE_SEARCH},
                    # A search that ends at a kink counts as failed; all anew would double the time and find no more.
                    retry_on_optimization_warning=False,
                )
            except OptimizationGradientError:
                return _best_sample(acquisition, draw_sobol_samples(bounds, self.raw_samples, 1))
        assert value is not None
        return x[0], value
