"""The methods of a run over pairs (x, z): what each observes next, given the GP that all of them share.

A method is a frozen dataclass of its settings.
"""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction, qLogNoisyExpectedImprovement, qUpperConfidenceBound
from botorch.acquisition.risk_measures import VaR
from botorch.exceptions.errors import OptimizationGradientError
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.transforms import unnormalize
from torch import Tensor

from benchmarks.methods.shared_gp import SharedGP
from benchmarks.problems.conditions.base import ConditionsProblem
from bo_robust.acquisition import ValueAtRiskKnowledgeGradient, ValueAtRiskUCB, optimize_lnso, search_lacing_value
from bo_robust.acquisition.fresh_pair import is_due, repeats
from bo_robust.confidence import FiniteWidth, Width
from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment
from bo_robust.risk_measures.functionals import Functional, ValueAtRisk, as_functional

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
        return ValueAtRiskUCB(self.gp.model(self.X, self.Y), self.problem.environment, functional, width, t=self.t)


@dataclass(frozen=True, kw_only=True)
class ConditionsMethod(ABC):
    """Base of the methods."""

    # Whether the design that it chooses is that of max_x VaR_alpha(u(x, Z))
    bounds_regret: ClassVar[bool] = False

    def bound(self, now: Round) -> ValueAtRiskUCB:
        """The bounds on VaR_alpha(f(x, Z)) by which designs are recommended."""
        return now.bound(ValueAtRisk(now.problem.alpha), PAPER_WIDTH)

    @abstractmethod
    def propose(self, now: Round) -> Tensor:
        """The point (x, z) to observe, ``d``. Random numbers are those of torch's global generator."""


@dataclass(frozen=True, kw_only=True)
class Random(ConditionsMethod):
    """x uniform on its box, z from its distribution."""

    def propose(self, now: Round) -> Tensor:
        u = torch.rand(now.problem.dim_x, dtype=torch.float64).to(now.X)
        return torch.cat([unnormalize(u, now.problem.x_bounds), _drawn(now.problem)])


@dataclass(frozen=True, kw_only=True)
class Optimized(ConditionsMethod):
    """Maximizes an acquisition function by ``restarts`` searches of BoTorch's ``optimize_acqf``."""

    restarts: int = 4
    raw_samples: int = 64
    maxiter: int = 200

    @abstractmethod
    def acquisition(self, now: Round) -> AcquisitionFunction:
        """The function to maximize."""

    def maximized(self, acquisition: AcquisitionFunction, bounds: Tensor) -> Tensor:
        """The argmax ``d``."""
        return self.climbed(acquisition, bounds, self.maxiter)[0][0]

    def climbed(self, acquisition: AcquisitionFunction, bounds: Tensor, maxiter: int, **how: Any) -> Any:
        """What ``optimize_acqf`` returns for q = 1, or the best raw sample where the gradient is NaN.

        It is, as of a root of a singular covariance.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of searches that stop at maxiter or at a kink, and of jitter
            starts = how.get("batch_initial_conditions")
            try:
                return optimize_acqf(
                    acquisition,
                    bounds,
                    q=1,
                    num_restarts=self.restarts if starts is None else len(starts),
                    raw_samples=self.raw_samples,
                    options={"maxiter": maxiter, "maxls": LINE_SEARCH},
                    # A search that ends at a kink counts as failed; all anew would double the time and find no more.
                    retry_on_optimization_warning=False,
                    **how,
                )
            except OptimizationGradientError:
                points = draw_sobol_samples(bounds, self.raw_samples, 1) if starts is None else starts
                with torch.no_grad():
                    values = acquisition(points).nan_to_num(nan=-torch.inf)
                best = values.argmax()
                return (points, values) if how.get("return_best_only") is False else (points[best], values[best])


@dataclass(frozen=True, kw_only=True)
class UpperBound(Optimized):
    """Maximizes the upper bound of a functional of f(x, Z), then chooses a condition that the functional offers."""

    functional: ClassVar[str | None] = None  # the name of one; None: the value at risk of the problem's alpha

    width: Width = PAPER_WIDTH
    selection_rule: str = "probable"

    def acquisition(self, now: Round) -> ValueAtRiskUCB:
        functional = now.problem.alpha if self.functional is None else self.functional
        return now.bound(as_functional(functional), self.width)

    def propose(self, now: Round) -> Tensor:
        bound = self.acquisition(now)
        x = self.maximized(bound, now.problem.x_bounds)
        return bound.select_condition(x.unsqueeze(0), self.selection_rule).point[0]


@dataclass(frozen=True)
class LNSO:
    """The paper's search for continuous Z, from draws of Z alone (:func:`bo_robust.acquisition.optimize_lnso`)."""

    num_starts: int = 8
    rounds: int = 10
    fit_steps: int = 200
    num_x: int = 50
    num_z: int = 10
    radius: float = 0.1

    def __call__(self, bound: ValueAtRiskUCB, box: Tensor) -> Tensor:
        x, _ = optimize_lnso(bound, box, seed=int(torch.randint(2**31, (1,))), **vars(self))
        return search_lacing_value(bound, x, num_starts=self.num_starts).point[0]


@dataclass(frozen=True, kw_only=True)
class VUCB(UpperBound):
    """V-UCB (Nguyen et al. 2021).

    Args:
        width: Confidence width.
        selection_rule: "probable" (V-UCB Prob) or "uniform" (V-UCB Unif).
        optimizer: None for the exact quantile over the fixed points of Z, or :class:`LNSO`, for continuous Z.
    """

    bounds_regret = True

    optimizer: LNSO | None = None

    def propose(self, now: Round) -> Tensor:
        if self.optimizer is not None:
            return self.optimizer(self.acquisition(now), now.problem.x_bounds)
        return super().propose(now)

    def bound(self, now: Round) -> ValueAtRiskUCB:
        return self.acquisition(now)


@dataclass(frozen=True, kw_only=True)
class FreshVUCB(VUCB):
    """Ours: a random pair takes the place of a repeated one (:mod:`bo_robust.acquisition.fresh_pair`)."""

    def propose(self, now: Round) -> Tensor:
        chosen = super().propose(now)
        return Random().propose(now) if is_due(now.t) and repeats(chosen, now.X, *now.gp.bounds) else chosen


@dataclass(frozen=True, kw_only=True)
class StableOptMethod(UpperBound):
    """StableOpt (Bogunovic et al. 2018): the worst condition, however improbable. Its aim is not VaR_alpha."""

    functional = "worst"


@dataclass(frozen=True, kw_only=True)
class GPUCBMean(UpperBound):
    """GP-UCB on the mean over Z, observed where the interval is widest. Its aim is not VaR_alpha."""

    functional = "mean"


@dataclass(frozen=True, kw_only=True)
class Sampled(Optimized):
    """Base of methods of joint posterior samples: ``AppendFeatures`` gives x its conditions, ``VaR`` is their risk.

    BoTorch weighs its conditions equally. They are therefore drawn anew in each round, with the probabilities of Z.
    """

    samples: int = 128
    scenarios: int = 32

    def at_conditions(self, now: Round) -> tuple[SingleTaskGP, VaR]:
        """The model with conditions appended, and the risk of its samples there."""
        z = resample(now.problem, self.scenarios)
        # BoTorch counts from the upper tail. Where n alpha is whole, it would take the next larger value without 1e-9.
        return now.gp.model(now.X, now.Y, append=z), VaR(1.0 - now.problem.alpha + 1e-9, n_w=len(z))


@dataclass(frozen=True, kw_only=True)
class MCVaR(Sampled):
    """BoTorch's own route: ``AppendFeatures``, ``VaR`` of joint posterior samples, ``qUpperConfidenceBound``.

    BoTorch's optimizers return x alone, so z is drawn from Z.

    Args:
        samples: Joint posterior samples.
        scenarios: Conditions, n_w. 0 takes as many as the environment has points.
    """

    def acquisition(self, now: Round) -> AcquisitionFunction:
        model, risk = self.at_conditions(now)
        sampler = SobolQMCNormalSampler(torch.Size([self.samples]))
        return qUpperConfidenceBound(model, beta=float(PAPER_WIDTH(now.t)) ** 2, sampler=sampler, objective=risk)

    def propose(self, now: Round) -> Tensor:
        x = self.maximized(self.acquisition(now), now.problem.x_bounds)
        return torch.cat([x, _drawn(now.problem)])


@dataclass(frozen=True, kw_only=True)
class MCVaRLogNEI(MCVaR):
    """The same with BoTorch's ``qLogNoisyExpectedImprovement`` over the designs that may be best.

    Its cost grows with the cube of their number times that of the scenarios, so it takes fewer of all: a choice of 128
    samples and 32 scenarios is half a minute after 60 rounds.
    """

    restarts: int = 2
    raw_samples: int = 32
    maxiter: int = 15
    samples: int = 32
    scenarios: int = 16

    def acquisition(self, now: Round) -> AcquisitionFunction:
        model, risk = self.at_conditions(now)
        sampler = SobolQMCNormalSampler(torch.Size([self.samples]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of jitter
            return qLogNoisyExpectedImprovement(
                model, now.designs, sampler=sampler, objective=risk, prune_baseline=True
            )


@dataclass(frozen=True, kw_only=True)
class RhoKG(Sampled):
    """rhoKG^apx (Cakmak et al. 2020), in closed form. ``samples`` and ``scenarios`` are as in :class:`MCVaR`.

    Differences from the authors' code (saitcakmak/BoRisk): they search from 10 starts per dimension of 25 or 50 raw
    samples each, take 10 to 40 conditions, and recommend by E[VaR_alpha(f)].
    """

    restarts: int = 5
    maxiter: int = 15
    fantasies: int = 10
    samples: int = 10
    scenarios: int = 16

    def acquisition(self, now: Round) -> ValueAtRiskKnowledgeGradient:
        z, seed = resample(now.problem, self.scenarios), int(torch.randint(2**31, (1,)))
        model, counts = now.gp.model(now.X, now.Y), (self.fantasies, self.samples, len(z))
        return ValueAtRiskKnowledgeGradient(
            model, FiniteEnvironment(z), now.problem.alpha, now.designs, *counts, seed=seed
        )

    def propose(self, now: Round) -> Tensor:
        """argmax over (x, z), with z moved to the nearest possible point."""
        problem = now.problem
        x, z = self.maximized(self.acquisition(now), now.gp.bounds).split([problem.dim_x, problem.dim_z])
        if problem.points is not None and problem.probabilities is not None:
            possible = problem.points[problem.probabilities > 0]
            extent = problem.z_bounds[1] - problem.z_bounds[0]
            z = possible[((possible - z) / extent).square().sum(-1).argmin()]
        return torch.cat([x, z])


@dataclass(frozen=True, kw_only=True)
class RhoKGLowest(RhoKG):
    """rhoKG^apx by the order of restarts of BoRisk, the code of its authors.

    ``Optimizer.optimize_outer`` sorts the values of its climbed starts in ascending order and refines the first tenth,
    the lowest; it returns the best of these. Only this order is theirs here: GP, fits and conditions are ours. Their
    starts climb by a twenty-fifth of 1000 iterations, ours by a third of 15.
    """

    restarts: int = 24
    climb: int = 5

    def maximized(self, acquisition: AcquisitionFunction, bounds: Tensor) -> Tensor:
        starts, values = self.climbed(acquisition, bounds, self.climb, return_best_only=False)
        lowest = starts[values.argsort()[: math.ceil(self.restarts / 10)]]
        x, _ = self.climbed(acquisition, bounds, self.maxiter, batch_initial_conditions=lowest)
        return x[0]


def resample(problem: ConditionsProblem, n: int) -> Tensor:
    """Draw n conditions ``n x d_z`` with the probabilities of Z, by systematic resampling of the environment's points.

    n = 0 takes as many as there are points; where all are equally likely, these are the points themselves.
    """
    z, p = problem.environment.z, problem.environment.probabilities
    w = len(z)
    if p is None and n in (0, w):
        return z
    n = n or w
    if z.shape[1] > 1:
        # Neighbors in a quasi-random sequence share a corner, so they are shuffled first.
        order = torch.randperm(w).to(z.device)
        z, p = z[order], None if p is None else p[order]
    mass = torch.full_like(z[:, 0], 1.0 / w).cumsum(0) if p is None else p.cumsum(0)
    places = (torch.arange(n, dtype=z.dtype) + torch.rand(1, dtype=z.dtype)).to(z) / n
    return z[torch.searchsorted(mass, places * mass[-1]).clamp(max=w - 1)]


def _drawn(problem: ConditionsProblem) -> Tensor:
    """One condition from the distribution of Z, ``d_z``."""
    if isinstance(problem.environment, ContinuousEnvironment):
        generator: Any = torch.Generator(problem.x_bounds.device).manual_seed(int(torch.randint(2**62, (1,))))
        return problem.environment.sample(1, generator=generator)[0]
    return resample(problem, 1)[0]
