"""What a method over pairs (x, z) is: what it knows, and how acquisition functions are maximised."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import OptimizationGradientError
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import FiniteWidth, Width
from bo_robust.experiments.conditions.shared_gp import SharedGP
from bo_robust.experiments.problems.conditions.base import ConditionsProblem
from bo_robust.risk_measures.functionals import Functional, ValueAtRisk
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

    def bound(self, functional: Functional, width: Width) -> ValueAtRiskUCB:
        """The bounds on a functional of f(x, Z)."""
        return ValueAtRiskUCB(self.gp.model(self.X, self.Y), self.problem.environment, functional, width, t=self.t)


@dataclass(frozen=True, kw_only=True)
class ConditionsMethod(ABC):
    """Base of the methods.

    Methods that ``bounds_regret`` find max_x VaR_alpha(u(x, Z)). While l <= f <= u, 2 w sigma at the point that they
    choose bounds the regret of its x.
    """

    bounds_regret: ClassVar[bool] = False

    def bound(self, now: Round) -> ValueAtRiskUCB:
        """The bounds on VaR_alpha(f(x, Z)) by which designs are recommended."""
        return now.bound(ValueAtRisk(now.problem.alpha), PAPER_WIDTH)

    @abstractmethod
    def propose(self, now: Round) -> Tensor:
        """The point (x, z) to observe, ``d``. Random numbers are those of torch's global generator."""


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
        for part in fields(self):
            if part.type is int:
                check_count(0 if part.name == "scenarios" else 1, **{part.name: getattr(self, part.name)})

    @abstractmethod
    def acquisition(self, now: Round) -> AcquisitionFunction:
        """The function to maximise."""

    def maximised(self, acquisition: AcquisitionFunction, bounds: Tensor) -> Tensor:
        """The argmax ``d``, or the best raw sample where the gradient is NaN.

        Gradients of methods that sample are sometimes NaN: they pass through roots of near-singular joint covariances.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of searches that stop at maxiter or at a kink, and of jitter
            try:
                x, _ = optimize_acqf(
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
                points = draw_sobol_samples(bounds, self.raw_samples, 1)
                with torch.no_grad():
                    x = points[acquisition(points).nan_to_num(nan=-torch.inf).argmax()]
        return x[0]
