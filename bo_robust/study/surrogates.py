"""The model of a round, in the unit cube and the units of the study, and its treatment of failures."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bo_robust.methods import Method
from bo_robust.models import TruncationWarning
from bo_robust.models.training_data import lost_rewards
from bo_robust.study.hyperparameters import Hyperparameters
from bo_robust.study.settings import StudySettings
from bo_robust.study.space import Arms
from bo_robust.study.steps import stream_seed

__all__ = ["Surrogate", "Surrogates"]

TOO_MANY = 0.1  # share of truncated rewards beyond which a study warns


@dataclass(frozen=True)
class Surrogate:
    """A model of one round with the method it belongs to.

    ``certified`` is the method with the width of the certificate, ``known`` has the values that widths may leave out.
    ``truncated_top`` is the largest truncated reward (-inf if there is none), ``largest`` the largest size of the
    others, both as the model sees rewards.
    """

    method: Method
    certified: Method
    model: Any
    known: Mapping[str, Any]
    truncated_top: float
    largest: float

    def acquisition(self, pending: Tensor | None, generator: torch.Generator) -> Any:
        """The acquisition that the next trial maximises."""
        return self.method.acquisition(self.model, self.known, X_pending=pending, generator=generator)

    def upper(self) -> Any:
        """The upper confidence bound of the certificate."""
        return self.certified.acquisition(self.model, self.known)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, lower and upper confidence bound of the certificate at designs ``n x d``, ``n`` each."""
        return self.certified.bounds(self.upper(), X)


class Surrogates:
    """Makes the model of every round; ``fits`` are hyperparameters, as in ``Hyperparameters``."""

    def __init__(self, settings: StudySettings, seed: int, environment: Arms | None, fits: Mapping[str, Any]) -> None:
        self._method, self._certified = (
            _in_unit_cube(method, environment) for method in (settings.method, settings.certified)
        )
        self._known = {**settings.known, "seed": stream_seed(seed, "dictionary", 0) % 2**31}
        self._hyperparameters: Hyperparameters | None = None
        if settings.kernel is not None:
            noise_var = getattr(settings.method, "noise_var", None)
            of = (settings.kernel, noise_var, self._build, seed, settings.common.device, fits)
            self._hyperparameters = Hyperparameters(*of)

    @property
    def fits(self) -> Mapping[str, Any]:
        """Hyperparameters known and fitted since, as in ``Hyperparameters``."""
        return {} if self._hyperparameters is None else self._hyperparameters.fits

    def of(self, X: Tensor, Y: Tensor, failed: Tensor) -> Surrogate:
        """Make the surrogate of points ``n x d`` in the unit cube with rewards ``n x 1``, in the order told.

        Failed points ``m x d`` enter with the worst reward that is not truncated.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)  # which knows nothing of the settings; see below
            modules = {} if self._hyperparameters is None else self._hyperparameters.of(X, Y)
            lost = torch.zeros(len(X), dtype=torch.bool, device=X.device)
            if self._method.failures_first:
                model = self._with_failures(X, Y, failed, Y.amin())
            else:
                # This first model says which rewards are truncated; failures then get the worst of the others.
                model = self._build(X, Y, **modules)
                found = self._method.truncated(model)
                lost = lost if found is None else found
                if len(failed):
                    worst = Y[~lost].amin() if not lost.all() else Y.new_zeros(())
                    model = self._build(torch.cat([X, failed]), torch.cat([Y, worst.expand(len(failed), 1)]), **modules)
            known = self._known | (_facts(model) if modules else {})
        _warn_of_truncated(Y[:, 0], lost)
        largest = 0.0 if lost.all() else float(Y[~lost].abs().amax())
        top = float(Y[lost].amax()) if lost.any() else -math.inf
        return Surrogate(self._method, self._certified, model, known, top, largest)

    def _build(self, X: Tensor, Y: Tensor, **modules: Any) -> Any:
        return self._method.model(X, Y, self._known, **modules)

    def _with_failures(self, X: Tensor, Y: Tensor, failed: Tensor, worst: Tensor) -> Any:
        """The model with failed points before the others, as part of the initial design."""
        known = self._known | {"num_initial": self._known["num_initial"] + len(failed)}
        return self._method.model(torch.cat([failed, X]), torch.cat([worst.expand(len(failed), 1), Y]), known)


def _facts(model: Any) -> dict[str, Any]:
    """Values of the model that widths may ask for."""
    noise_var = float(model.likelihood.noise.detach().flatten()[0])
    return {"noise_var": noise_var, "num_features": getattr(model, "num_features", 1)}


def _in_unit_cube(method: Method, environment: Arms | None) -> Method:
    """The method with its conditions where the models see them."""
    if environment is None:
        return method
    points = [dict(zip(environment.names, environment.to_unit(point), strict=True)) for point in environment.points]
    return dataclasses.replace(method, environment={**method.environment, "points": points})


def _warn_of_truncated(Y: Tensor, lost: Tensor) -> None:
    said = lost_rewards(Y, lost, TOO_MANY)
    if said is not None:
        warnings.warn(
            f"{said} If these are no outliers, raise `moment_bound`, or give `center` and `scale`, which the rewards "
            "so far may have shown too small.",
            TruncationWarning,
            stacklevel=3,
        )
