"""What a ``RobustGP`` reports and recommends: by its inliers, without those that are held on the good side."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from bo_robust.models.training_data import MovableGP, recommendable
from bo_robust.utils.input_checks import quoted

TAIL = 0.025  # probability on either side of a 95 % interval
Z95 = 1.96  # standard deviations from the mean to the ends of one, of a normal distribution


class Prediction(NamedTuple):
    """Mean and 95 % interval of f at points, ``n`` each, in the units of the observations."""

    mean: Tensor
    lower: Tensor
    upper: Tensor

    @classmethod
    def gaussian(cls, mean: Tensor, variance: Tensor) -> Prediction:
        """That of normal distributions with these moments, ``n`` each."""
        half = Z95 * variance.sqrt()
        return cls(mean, mean - half, mean + half)


class RecommendingGP(MovableGP):
    """A GP with outlier statistics, as :class:`bo_robust.models.RobustGP` describes them."""

    train_X_all: Tensor
    train_Y_all: Tensor
    inlier_mask: Tensor
    held_mask: Tensor
    outliers_detected: Tensor
    outcome_limits: tuple[float, float]
    maximize: bool | None

    @abstractmethod
    def standard_model_of(self, rows: Tensor) -> SingleTaskGP:
        """``SingleTaskGP`` of some of the inliers, ``k`` bool, that shares the modules of this model."""

    def signed_Y(self, maximize: bool | None = None) -> Tensor:
        """Observations ``n``, where larger is better; ``maximize=None`` is as the model was made, else True."""
        maximize = self.maximize if maximize is None else maximize
        return (self.train_Y_all if maximize is None or maximize else -self.train_Y_all).squeeze(-1)

    def held_on_good_side(self, maximize: bool | None = None) -> Tensor:
        """Which observations are held and good, ``n`` bool; ``maximize`` is as for :meth:`reliable_mask`."""
        held, maximize = self.held_mask, self.maximize if maximize is None else maximize
        if held.any() and maximize is not None:
            value = self.signed_Y(maximize)
            held = held & (value > value[self.inlier_mask & ~held].amax())
        return held

    def reliable_mask(self, maximize: bool | None = None) -> Tensor:
        """Which observations are inliers and not held, ``n`` bool.

        Observations held on the bad side count as reliable. ``maximize`` says which side is good; None: as the model
        was made, and if that says nothing, both sides count as good. Raises ``ValueError`` before a fit.
        """
        if not self.outliers_detected:
            raise ValueError("this RobustGP has not looked for outliers yet; call fit_gpytorch_mll first.")
        return self.inlier_mask & ~self.held_on_good_side(maximize)

    def recommendable(self, maximize: bool | None = None) -> Tensor:
        """Whether each row's point may be recommended, ``n`` bool: where a reliable observation was made.

        So a point is out if all its observations are outliers or held. ``maximize`` is as for :meth:`reliable_mask`.
        """
        return recommendable(self.train_X_all, self.reliable_mask(maximize))

    def reliable_model(self, maximize: bool | None = None) -> SingleTaskGP:
        """A ``SingleTaskGP`` of the reliable observations that shares these modules; errors as of :meth:`predict`."""
        return self.standard_model_of(self.reliable_mask(maximize)[self.inlier_mask])

    def predict(self, X: Tensor, maximize: bool | None = None) -> Prediction:
        """What to report at points ``n x d``: mean and 95 % interval of f by the reliable observations alone.

        They end at the ``outcome_limits``. ``maximize`` is as for :meth:`reliable_mask`. Raises ``ValueError`` before a
        fit, or if observations were added.
        """
        d = self.train_X_all.shape[-1]
        if not (isinstance(X, Tensor) and X.ndim == 2 and X.shape[-1] == d):
            raise ValueError(f"X must be points n x {d}, a tensor, got {quoted(X)}.")
        model = self.reliable_model(maximize)
        with torch.no_grad():
            posterior: Any = model.posterior(X)
            mean = posterior.mean.squeeze(-1)
            try:
                ends = posterior.quantile(X.new_tensor([TAIL, 1.0 - TAIL])).squeeze(-1)
                found = Prediction(mean, *ends)
            except NotImplementedError:  # an outcome transform of the user's
                found = Prediction.gaussian(mean, posterior.variance.squeeze(-1))
            return Prediction(*torch.stack(found).clamp(*self.outcome_limits))
