"""The methods of BoTorch's loop over designs: a model by its settings, noisy expected improvement, recommendations."""

from __future__ import annotations

import contextlib
import math
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.problems.designs import DesignProblem
from bo_robust.models import RobustGP
from bo_robust.proposals.methods import METHODS
from bo_robust.proposals.sided_model import SidedModel, recommendable, replicates


class Loop(Protocol):
    """What is run; points are ``d``, in the unit cube. ``flagged`` says which observations are outliers, ``n`` bool."""

    def ask(self) -> Tensor: ...

    def tell(self, x: Tensor, y: float) -> None:
        """Observe at the nearest point that can be measured, or at a point of the initial design."""

    def recommend(self) -> Tensor: ...

    def flagged(self) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class BoTorchMethod(ABC):
    """Base of the methods: a model by its settings, in BoTorch's loop."""

    every: ClassVar[int] = 1  # evaluations between two recommendations

    @abstractmethod
    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        """The fitted model of points ``n x d`` and observations ``n x 1``, given which are outliers (``n`` bool)."""

    def begin(self, problem: DesignProblem, seed: int, outliers: np.ndarray) -> Loop:
        """The loop before any observation; ``outliers`` says which will be wrong."""
        return BoTorchLoop(problem, seed, outliers, self)


@dataclass(frozen=True, kw_only=True)
class Plain(BoTorchMethod):
    """SingleTaskGP of BoTorch, which takes every observation for right."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        return fitted(SingleTaskGP(X, Y))


@dataclass(frozen=True, kw_only=True)
class Known(BoTorchMethod):
    """SingleTaskGP of the inliers only: it knows which observations are wrong, and bounds what can be gained."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        kept = ~outliers if (~outliers).sum() >= 2 else torch.ones_like(outliers)
        return fitted(SingleTaskGP(X[kept], Y[kept]))


@dataclass(frozen=True, kw_only=True)
class Winsorized(BoTorchMethod):
    """SingleTaskGP of rewards clipped at 1.5 interquartile ranges beyond the quartiles."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        return fitted(SingleTaskGP(X, winsorized(Y)))


@dataclass(frozen=True, kw_only=True)
class Robust(BoTorchMethod):
    """RobustGP, which detects outliers.

    Args:
        outlier_share: As of "robust" in :data:`bo_robust.proposals.methods.METHODS`.
        outlier_density: As there.
        outcome_scale: "auto", or None to model the observations as they are.
        replicates: Measure what ``suggest_replicates`` asks for before the acquisition is maximized.
    """

    outlier_share: float = METHODS["robust"].settings["outlier_share"]
    outlier_density: float = METHODS["robust"].settings["outlier_density"]
    replicates: bool = False
    outcome_scale: str | None = "auto"

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        options = {name: getattr(self, name) for name in ("outlier_share", "outlier_density", "outcome_scale")}
        return fitted(RobustGP(X, Y, **options))


@dataclass(frozen=True, kw_only=True)
class RelevancePursuit(BoTorchMethod):
    """RobustRelevancePursuitSingleTaskGP of BoTorch (Ament et al. 2024)."""

    def model(self, X: Tensor, Y: Tensor, outliers: Tensor) -> Any:
        return fitted(RobustRelevancePursuitSingleTaskGP(X, Y))


def fitted(model: Any) -> Any:
    """The model, fitted as BoTorch's tutorials do; unfitted where the fit ends nowhere."""
    with contextlib.suppress(ModelFittingError):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def winsorized(Y: Tensor) -> Tensor:
    """Rewards within 1.5 interquartile ranges of the quartiles, which are observed values.

    Ax's ``Winsorize`` (facebook/Ax at e3371084, with ``AUTO_WINS_QUANTILE``) does so, by default on the bad side only.
    """
    q1 = float(np.percentile(Y.numpy(), 25, method="lower"))
    q3 = float(np.percentile(Y.numpy(), 75, method="higher"))
    return Y.clamp(q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1))


class BoTorchLoop:
    """BoTorch's loop with the model of a method. Random numbers are those of the evaluation."""

    def __init__(self, problem: DesignProblem, seed: int, outliers: np.ndarray, method: BoTorchMethod) -> None:
        self.problem, self.seed, self.outliers, self.method = problem, seed, torch.from_numpy(outliers), method
        self.X, self.Y = torch.empty(0, problem.d, dtype=torch.float64), torch.empty(0, 1, dtype=torch.float64)
        self.model: Any = None

    def tell(self, x: Tensor, y: float) -> None:
        self.X, self.Y = torch.cat([self.X, x.unsqueeze(0)]), torch.cat([self.Y, self.Y.new_tensor([[y]])])
        self.model = None

    def ask(self) -> Tensor:
        again = replicates([self._fitted()], self.problem.candidates is not None)
        point = next(again, None) if getattr(self.method, "replicates", False) else None
        return self._maximized() if point is None else point

    def recommend(self) -> Tensor:
        """The observed point of the best mean, of those that may be recommended."""
        fitted = self._fitted()
        may = recommendable([fitted], self.X)
        return self.X[fitted.predict(self.X).mean.where(may, -math.inf).argmax()]

    def flagged(self) -> np.ndarray:
        return self._fitted().verdict.flagged.numpy()

    def _fitted(self) -> SidedModel:
        if self.model is None:
            self._seed()
            self.model = self.method.model(self.X, self.Y, self.outliers[: len(self.X)]).eval()
        return SidedModel(self.model, True, self.X)

    def _seed(self) -> None:
        torch.manual_seed(zlib.crc32(repr((self.problem.name, self.seed, len(self.X))).encode()))

    def _maximized(self) -> Tensor:
        self._seed()
        acquisition = qLogNoisyExpectedImprovement(self.model, self.X)
        if self.problem.candidates is None:
            box = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, self.problem.d)
            return optimize_acqf(acquisition, box, q=1, num_restarts=4, raw_samples=64)[0][0]
        # A table's few replicates must not fill a run: only `suggest_replicates` measures a design again.
        measured = (self.problem.candidates.unsqueeze(1) == self.X).all(-1).any(-1)
        return optimize_acqf_discrete(acquisition, q=1, choices=self.problem.candidates[~measured])[0][0]
