"""The model of a round, in the unit cube and the units of the study, and its treatment of failures."""

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
from bo_robust.models.training_data import lost_rewards, unsupported
from bo_robust.study.hyperparameters import Hyperparameters
from bo_robust.study.settings import StudySettings
from bo_robust.study.space import Arms
from bo_robust.study.steps import stream_seed


@dataclass(frozen=True)
class Surrogate:
    """A model of one round with the method it belongs to.

    ``certified`` is the method with the width of the certificate, ``known`` has the values that widths may leave out.
    ``lost`` says which rewards the model does not see as they are, ``n`` bool.
    ``truncated_top`` is the largest truncated reward (-inf if there is none) of a point without another reward, and
    ``largest`` the largest size of those not truncated, both as the model sees rewards. (A model that standardises by
    itself sees none that is large.) ``varied`` says whether the rewards that such a model believes differ. ``suspect``
    is the row of the reward to measure again, if any.
    """

    method: Method
    certified: Method
    model: Any
    known: Mapping[str, Any]
    lost: Tensor
    truncated_top: float
    largest: float
    varied: bool
    suspect: int | None

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
            learns_mean = settings.method.judges_rewards
            of = (settings.kernel, noise_var, learns_mean, self._build, seed, settings.common.device, fits)
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
            modules, believed = ({}, None) if self._hyperparameters is None else self._hyperparameters.of(X, Y)
            lost, suspect = torch.zeros(len(X), dtype=torch.bool, device=X.device), None
            if self._method.failures_first:
                model = self._with_failures(X, Y, failed, Y.amin())
            else:
                # This first model says which rewards are truncated; failures then get the worst of the others.
                model = self._build(X, Y, **modules)
                if self._method.judges_rewards:
                    model.judge(known=believed)
                suspect = self._method.suspect(model)
                found = self._method.truncated(model)
                lost = lost if found is None else found
                if len(failed):
                    worst = Y[~lost].amin() if not lost.all() else Y.new_zeros(())
                    points, rewards = torch.cat([X, failed]), torch.cat([Y, worst.expand(len(failed), 1)])
                    model = self._build(points, rewards, **modules)
                    if self._method.judges_rewards:  # one failure amid good rewards may be a fault as well
                        model.judge(known=~lost)
                        rows = torch.cat([~lost, model.believed[len(X) :]])
                        model = self._build(points[rows], rewards[rows], **modules)
            known = self._known | (_facts(model) if modules else {})
        self._warn_of_truncated(Y[:, 0], lost)
        largest = 0.0 if lost.all() or self._method.judges_rewards else float(Y[~lost].abs().amax())
        seen = Y[~lost]
        varied = not self._method.judges_rewards or bool((seen[:1] != seen).any())
        unseen = unsupported(X, lost)
        top = float(Y[unseen].amax()) if unseen.any() else -math.inf
        return Surrogate(self._method, self._certified, model, known, lost, top, largest, varied, suspect)

    def _build(self, X: Tensor, Y: Tensor, **modules: Any) -> Any:
        return self._method.model(X, Y, self._known, **modules)

    def _warn_of_truncated(self, Y: Tensor, lost: Tensor) -> None:
        n, many = len(lost), self._method.many_truncated
        if self._method.judges_rewards:
            count = int(lost.sum())
            if count > max(2.0, many * n):
                text = f"{count} of {n} rewards are not believed: {self._method.advice}."
                warnings.warn(text, UserWarning, stacklevel=3)
        elif (said := lost_rewards(Y, lost, many)) is not None:
            warnings.warn(f"{said} {self._method.advice}.", TruncationWarning, stacklevel=3)

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
