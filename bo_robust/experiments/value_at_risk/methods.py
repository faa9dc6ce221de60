"""The methods of a value-at-risk run: what each observes next, given the GP that all of them share.

A method is a frozen dataclass of its settings; the configuration names it by its key in :data:`METHODS`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction, qUpperConfidenceBound
from botorch.acquisition.risk_measures import VaR
from botorch.exceptions.errors import OptimizationGradientError
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_robust import specs
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.confidence import FiniteWidth
from bo_robust.experiments.problems.value_at_risk import ValueAtRiskProblem
from bo_robust.experiments.value_at_risk.knowledge_gradient import RhoKGApx
from bo_robust.experiments.value_at_risk.surrogate import Surrogate
from bo_robust.functionals import Functional, Mean, ValueAtRisk, WorstCase
from bo_robust.validation import check_count, check_positive

__all__ = [
    "METHODS",
    "GPUCBMean",
    "MCVaR",
    "Method",
    "Proposal",
    "Random",
    "RhoKG",
    "Round",
    "StableOptMethod",
    "VUCBProb",
    "VUCBUnif",
    "build_method",
    "confidence_width",
    "resample",
]

# Evaluations of a line search, for all methods. At a kink it finds nothing and uses them all: 8 in place of 20 halve
# the time of V-UCB at a loss of at most 2e-4 in the bound (12 states, bounds of 1.5 to 4.5).
LINE_SEARCH = 8


@dataclass(frozen=True)
class Round:
    """What a method knows in round ``t`` (from 1): points (x, z) observed so far, ``n x d``, and observations, ``n``.

    Methods read the problem's box, environment and alpha, never its f. The surrogate holds the GP's hyperparameters.
    """

    problem: ValueAtRiskProblem
    surrogate: Surrogate
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
class Method(ABC):
    """Base of the methods. Methods that ``certify`` find max_x VaR_alpha(u(x, Z))."""

    certifies: ClassVar[bool] = False

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
class _Optimised(Method):
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


@dataclass(frozen=True, kw_only=True)
class _UpperBound(_Optimised):
    """Maximises the upper bound of a functional of f(x, Z), then picks a condition that the functional offers.

    ``width_scale`` multiplies the paper's width.
    """

    rule: ClassVar[str] = "probable"
    width_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(width_scale=self.width_scale)

    @abstractmethod
    def functional(self, alpha: float) -> Functional:
        """The functional of f(x, Z)."""

    def acquisition(self, now: Round) -> ValueAtRiskUCB:
        model = now.surrogate.model(now.X, now.Y)
        width = confidence_width(self.width_scale)
        return ValueAtRiskUCB(model, now.problem.environment, self.functional(now.problem.alpha), width, t=now.t)

    def propose(self, now: Round) -> Proposal:
        bound = self.acquisition(now)
        x, value = self.maximised(bound, now.problem.x_bounds)
        choice = bound.select_environment(x.unsqueeze(0), self.rule)
        return Proposal(choice.point[0], float(value.max()) if self.certifies else None)


@dataclass(frozen=True, kw_only=True)
class VUCBProb(_UpperBound):
    """V-UCB Prob (Nguyen et al. 2021): the lacing value of largest probability."""

    certifies: ClassVar[bool] = True

    def functional(self, alpha: float) -> ValueAtRisk:
        return ValueAtRisk(alpha)


@dataclass(frozen=True, kw_only=True)
class VUCBUnif(VUCBProb):
    """V-UCB Unif (Nguyen et al. 2021): a lacing value at random."""

    rule: ClassVar[str] = "uniform"


@dataclass(frozen=True, kw_only=True)
class StableOptMethod(_UpperBound):
    """StableOpt (Bogunovic et al. 2018): the worst condition, however improbable. Its aim is not VaR_alpha."""

    def functional(self, alpha: float) -> WorstCase:
        return WorstCase()


@dataclass(frozen=True, kw_only=True)
class GPUCBMean(_UpperBound):
    """GP-UCB on the mean over Z, observed where the interval is widest. Its aim is not VaR_alpha."""

    def functional(self, alpha: float) -> Mean:
        return Mean()


@dataclass(frozen=True, kw_only=True)
class Random(Method):
    """x uniform on its box, z from its distribution."""

    def propose(self, now: Round) -> Proposal:
        lower, upper = now.problem.x_bounds
        x = lower + (upper - lower) * torch.rand(now.problem.dim_x, dtype=lower.dtype).to(lower)
        return Proposal(torch.cat([x, _drawn(now.problem)]))


@dataclass(frozen=True, kw_only=True)
class MCVaR(_Optimised):
    """BoTorch's own route: ``AppendFeatures``, ``VaR`` of joint posterior samples, ``qUpperConfidenceBound``.

    BoTorch weighs its conditions equally and its optimisers return x alone. We therefore draw conditions anew in each
    round with the probabilities of Z, and draw z from Z. BoTorch's ``VaR`` takes 1 - alpha, its ``beta`` is w^2.

    Args:
        samples: Joint posterior samples.
        scenarios: Conditions, n_w. 0 takes as many as the environment has points.
        width_scale: Multiplier of the paper's width.
    """

    samples: int = 128
    scenarios: int = 32
    width_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, samples=self.samples)
        check_count(0, scenarios=self.scenarios)
        check_positive(width_scale=self.width_scale)

    def acquisition(self, now: Round) -> qUpperConfidenceBound:
        z = resample(now.problem, self.scenarios)
        width = float(confidence_width(self.width_scale)(now.t))
        return qUpperConfidenceBound(
            now.surrogate.model(now.X, now.Y, append=z),
            beta=width**2,
            sampler=SobolQMCNormalSampler(torch.Size([self.samples])),
            objective=value_at_risk(now.problem.alpha, len(z)),
        )

    def propose(self, now: Round) -> Proposal:
        x, _ = self.maximised(self.acquisition(now), now.problem.x_bounds)
        return Proposal(torch.cat([x, _drawn(now.problem)]))


@dataclass(frozen=True, kw_only=True)
class RhoKG(_Optimised):
    """rhoKG^apx (Cakmak et al. 2020), see :mod:`bo_robust.experiments.value_at_risk.knowledge_gradient`.

    ``fantasies`` is K, ``samples`` is M, ``scenarios`` are as in :class:`MCVaR`.
    """

    restarts: int = 2
    raw_samples: int = 16
    maxiter: int = 10
    fantasies: int = 4
    samples: int = 10
    scenarios: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(1, fantasies=self.fantasies, samples=self.samples)
        check_count(0, scenarios=self.scenarios)

    def acquisition(self, now: Round) -> RhoKGApx:
        z = resample(now.problem, self.scenarios)
        model = now.surrogate.model(now.X, now.Y, append=z)
        risk = value_at_risk(now.problem.alpha, len(z))
        return RhoKGApx(model, now.designs, risk, self.fantasies, self.samples)

    def propose(self, now: Round) -> Proposal:
        """argmax over (x, z), with z moved to the nearest possible point."""
        problem = now.problem
        point, _ = self.maximised(self.acquisition(now), now.surrogate.bounds)
        x, z = point.split([problem.dim_x, problem.dim_z])
        if problem.points is not None and problem.probabilities is not None:
            possible = problem.points[problem.probabilities > 0]
            extent = problem.z_bounds[1] - problem.z_bounds[0]
            z = possible[((possible - z) / extent).square().sum(-1).argmin()]
        return Proposal(torch.cat([x, z]))


METHODS: dict[str, type[Method]] = {
    "gp-ucb-mean": GPUCBMean,
    "mc-var": MCVaR,
    "random": Random,
    "rho-kg-apx": RhoKG,
    "stable-opt": StableOptMethod,
    "v-ucb-prob": VUCBProb,
    "v-ucb-unif": VUCBUnif,
}


def build_method(name: str, options: dict[str, Any]) -> Method:
    """Build the method of a name with its settings; a ``SpecError`` names the nearest valid name or setting."""
    return specs.build({"kind": name, **options}, METHODS, {}, "method")


def confidence_width(scale: float = 1.0) -> FiniteWidth:
    """w_t = scale * sqrt(2 log(pi^2 t^2 / 0.6)), the width of the paper's experiments."""
    return FiniteWidth(num_arms=1, delta=0.1, scale=scale)


def value_at_risk(alpha: float, n: int) -> VaR:
    """BoTorch's VaR of n equally probable conditions at our alpha, which counts from the lower tail."""
    # Where n alpha is whole, BoTorch would take the next larger value without the 1e-9.
    return VaR(1.0 - alpha + 1e-9, n_w=n)


def resample(problem: ValueAtRiskProblem, n: int) -> Tensor:
    """Draw n conditions ``n x d_z`` with the probabilities of Z, by systematic resampling of the environment's points.

    A point of probability p is drawn floor(n p) or floor(n p) + 1 times. n = 0 takes as many as there are points; where
    all are equally likely, these are the points themselves.
    """
    environment = problem.environment
    z, w = environment.z, len(environment.z)
    p = environment.probabilities
    if p is None and n in (0, w):
        return z
    n = n or w
    if z.shape[1] > 1:
        # Neighbours in a quasi-random sequence share a corner, so they are shuffled first.
        order = torch.randperm(w).to(z.device)
        z, p = z[order], None if p is None else p[order]
    mass = torch.full_like(z[:, 0], 1.0 / w).cumsum(0) if p is None else p.cumsum(0)
    places = (torch.arange(n, dtype=z.dtype) + torch.rand(1, dtype=z.dtype)).to(z) / n
    return z[torch.searchsorted(mass, places * mass[-1]).clamp(max=w - 1)]


def _drawn(problem: ValueAtRiskProblem) -> Tensor:
    """One condition from the distribution of Z, ``d_z``."""
    if problem.sampler is not None:
        generator: Any = torch.Generator(problem.x_bounds.device).manual_seed(int(torch.randint(2**62, (1,))))
        return problem.sampler(1, generator=generator)[0]
    return resample(problem, 1)[0]
