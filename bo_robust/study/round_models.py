"""The model of a round, in the unit cube and the units of the study, and its treatment of failures."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from bo_robust.methods import Method
from bo_robust.models import TruncationWarning
from bo_robust.models.training_data import truncation_notice, unsupported
from bo_robust.study.failures import WhereTrialsSucceed, failure_model
from bo_robust.study.hyperparameters import Hyperparameters
from bo_robust.study.settings import StudySettings
from bo_robust.study.space import Arms
from bo_robust.study.steps import stream_seed


@dataclass(frozen=True)
class RoundModel:
    """The model of one round, and what it makes of the rewards; all rewards here are as it sees them.

    Attributes:
        method: The method that it belongs to.
        certified: The method with the width of the certificate.
        model: BoTorch's model.
        known: Values that widths may leave out.
        set_aside: Which rewards the model does not see as they are, ``n`` bool.
        suspects: Rows of rewards to measure again, the most promising first.
        best_unseen: The largest reward set aside at a point without another reward; -inf if there is none. Under
            conditions only those larger than all others count.
        largest: The largest |reward| not set aside; 0 where the model standardises by itself.
        varied: Whether rewards that a model which judges them believes differ; True for other models.
        failing: The model of failures; None where there are none, or where they enter ``model`` as rewards.
    """

    method: Method
    certified: Method
    model: Any
    known: Mapping[str, Any]
    set_aside: Tensor
    suspects: list[int]
    best_unseen: float
    largest: float
    varied: bool
    failing: SingleTaskGP | None

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> Any:
        """The acquisition that the next trial maximises: where success is likelier than failure."""
        acqf = self.method.acquisition(self.model, self.known, X_pending=pending, generator=generator)
        return acqf if self.failing is None else WhereTrialsSucceed(acqf, self.failing)

    def upper(self) -> Any:
        """The upper confidence bound of the certificate."""
        return self.certified.acquisition(self.model, self.known)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, lower and upper confidence bound of the certificate at designs ``n x d``, ``n`` each."""
        return self.certified.bounds(self.upper(), X)


class RoundModels:
    """Makes the model of every round."""

    def __init__(self, settings: StudySettings, seed: int, environment: Arms | None) -> None:
        self._method = _in_unit_cube(settings.method, environment)
        self._certified = _in_unit_cube(settings.certified, environment)
        self._known = {**settings.known, "seed": stream_seed(seed, "dictionary", 0) % 2**31}
        self._hyperparameters: Hyperparameters | None = None
        if settings.kernel is not None:
            self._hyperparameters = Hyperparameters(
                settings.kernel,
                getattr(settings.method, "noise_var", None),
                settings.method.judges_rewards,
                self._build,
                seed,
                settings.common.device,
            )

    def make(self, X: Tensor, Y: Tensor, failed: Tensor) -> RoundModel:
        """Make the model of points ``n x d`` in the unit cube with rewards ``n x 1``, in the order told.

        Failed points ``m x d`` have a model of their own where the method says so. Else let A be the rewards that a
        model of the rewards alone sets aside. Failed points enter with

            w = min {y_i : i not in A},  or 0 where A holds all,

        the worst reward that the model sees. A method that has failures first sets nothing aside.
        """
        failing = None
        set_aside, suspects = torch.zeros(len(X), dtype=torch.bool, device=X.device), []
        known = self._known
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)  # which knows nothing of the settings; see below
            if self._method.failures_first:
                model = self._with_failures_first(X, Y, failed)
            else:
                modules: dict[str, Any] = {}
                believed = None
                if self._hyperparameters is not None:
                    modules, believed = self._hyperparameters.modules_for(X, Y)
                model = self._build(X, Y, **modules)
                if self._method.judges_rewards:
                    model.judge(known=believed)
                unseen = self._method.set_aside(model)
                set_aside = set_aside if unseen is None else unseen
                suspects = self._method.suspects(model)
                if len(failed) and self._method.failures_apart:
                    failing = failure_model(X, failed)
                elif len(failed):
                    model = self._with_failures_last(X, Y, failed, set_aside, modules)
                if modules:
                    known = known | _facts(model)
        self._warn_of_set_aside(Y[:, 0], set_aside)
        seen, alone = Y[~set_aside], unsupported(X, set_aside)
        if self._method.environment is not None:  # a reading under one condition says little of the value at risk
            alone &= ~(seen.mT >= Y).any(1)
        return RoundModel(
            self._method,
            self._certified,
            model,
            known,
            set_aside,
            suspects,
            best_unseen=float(Y[alone].amax()) if alone.any() else -math.inf,
            largest=0.0 if self._method.judges_rewards or not len(seen) else float(seen.abs().amax()),
            varied=not self._method.judges_rewards or bool((seen[:1] != seen).any()),
            failing=failing,
        )

    def _build(self, X: Tensor, Y: Tensor, **modules: Any) -> Any:
        return self._method.model(X, Y, self._known, **modules)

    def _with_failures_first(self, X: Tensor, Y: Tensor, failed: Tensor) -> Any:
        """The model with failed points before the others, as part of the initial design."""
        known = self._known | {"num_initial": self._known["num_initial"] + len(failed)}
        worst = Y.amin().expand(len(failed), 1)
        return self._method.model(torch.cat([failed, X]), torch.cat([worst, Y]), known)

    def _with_failures_last(
        self, X: Tensor, Y: Tensor, failed: Tensor, set_aside: Tensor, modules: Mapping[str, Any]
    ) -> Any:
        """The model with failed points after the others.

        A model that judges rewards judges these too, because one failure amid good rewards may be a fault as well. It
        then leaves out what is set aside and the failures that it does not believe.
        """
        worst = Y.new_zeros(()) if set_aside.all() else Y[~set_aside].amin()
        points, rewards = torch.cat([X, failed]), torch.cat([Y, worst.expand(len(failed), 1)])
        model = self._build(points, rewards, **modules)
        if not self._method.judges_rewards:
            return model
        model.judge(known=~set_aside)
        rows = torch.cat([~set_aside, model.believed[len(X) :]])
        return self._build(points[rows], rewards[rows], **modules)

    def _warn_of_set_aside(self, Y: Tensor, set_aside: Tensor) -> None:
        many, advice = self._method.many_set_aside, self._method.advice
        if self._method.judges_rewards:
            count, n = int(set_aside.sum()), len(set_aside)
            if count > max(2.0, many * n):
                warnings.warn(f"{count} of {n} rewards are not believed: {advice}.", UserWarning, stacklevel=3)
        elif (truncated := truncation_notice(Y, set_aside, many)) is not None:
            warnings.warn(f"{truncated} {advice}.", TruncationWarning, stacklevel=3)


def _facts(model: Any) -> dict[str, Any]:
    """Values of the model that widths may ask for."""
    noise_var = float(model.likelihood.noise.detach().flatten()[0])
    return {"noise_var": noise_var, "num_features": getattr(model, "num_features", 1)}


def _in_unit_cube(method: Method, environment: Arms | None) -> Method:
    """The method with its conditions where the models see them."""
    if environment is None:
        return method
    points = [dict(zip(environment.names, environment.encode(point), strict=True)) for point in environment.points]
    return dataclasses.replace(method, environment={**method.environment, "points": points})
