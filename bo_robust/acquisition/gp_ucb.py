"""GP-UCB with a confidence width from theory: mu(x) + w_t sigma(x).

Srinivas et al. 2010 with any width schedule (``bo_robust.schedules``); on ``TruncatedGP`` with ``TGPWidth``
it is TGP-UCB (Ray Chowdhury & Gopalan 2019). Points without feedback yet are hallucinated (GP-BUCB,
Desautels et al. 2014): mean and width stay, the standard deviation is that after observing them.
"""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.rounds import num_observations, reference, width_of_round
from bo_robust.models.moments import marginal_moments, sequential_moments
from bo_robust.schedules import Width
from bo_robust.validation import check_finite

__all__ = ["GPUCB"]


class GPUCB(AnalyticAcquisitionFunction):
    """Upper confidence bound mu(x) + w_t sigma(x), maximised over x.

    Build a new one each round, from the model of that round: the width is computed once, here, and kept in
    the buffer ``width``. With q > 1 points the value is the sum of the bounds the points have when chosen one
    after the other, so sequential optimisation (the default for batches) and joint re-evaluation agree.

    GP-BUCB's guarantee multiplies the width by exp(C), C bounding the information the hallucinated points
    hold; ask for it with the ``scale`` of the width.

    Unlike BoTorch's analytic acquisition functions this one never casts the model to the dtype of X.

    Args:
        model: A fitted model with one output, or with several and a ``posterior_transform``. Batched models
            (``batch_shape`` s) get one width per member.
        width: Confidence width, called as ``width(t, information_gain, uniform)``. The information gain of
            the model's data is computed (exact GPs only) and random numbers are drawn if the width depends on
            them, which is seen by calling it with NaN in their place.
        t: Round about to be played, a whole number >= 1; default one more than the number of observations in the model.
        posterior_transform: To one output, as in BoTorch. Widths in the units of f (``norm_bound``) are not
            rescaled by it. Nor by an outcome transform: on a ``SingleTaskGP`` with its default ``Standardize``,
            ``norm_bound`` and ``noise_scale`` are in standardised units, those of its GP.
        X_pending: ``k x d`` points evaluated but without feedback (a list of models must be a
            ``ModelListGP`` for this, as for q > 1).
        generator: Random numbers of a :class:`~bo_robust.schedules.RandomisedWidth`, drawn here once (on the
            CPU); default the global ones. The same draw serves a whole batch of pending points.

    Raises:
        ValueError: if the model is an ensemble or has neither data nor parameters, ``t`` is not a whole number
            or is needed and not given, the width is not a schedule or needs an information gain that the model
            does not define, or ``X_pending`` is not ``k x d``, finite and of the model's dtype and device.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> model = TruncatedGP(X, Y, TGPTruncation(moment_bound=4.0, alpha=1.0), noise_var=1.0)
        >>> acqf = GPUCB(model, FiniteWidth(num_arms=1000, delta=0.1))
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    width: Tensor

    def __init__(
        self,
        model: Model,
        width: Width,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model=model, posterior_transform=posterior_transform)
        if is_ensemble(model):
            raise ValueError("GPUCB needs the posterior of one GP; an ensemble has no single confidence width.")
        if not callable(width):
            raise ValueError(
                f"width must be a schedule of bo_robust.schedules, such as ConstantWidth(2.0), got {width!r}."
            )
        self.t = num_observations(model) + 1 if t is None else t
        if not isinstance(self.t, int):
            raise ValueError(f"t (the round about to be played) must be an int, got {t!r}.")
        like = reference(model)
        value = width_of_round(width, self.t, model, like.dtype, generator)
        self.register_buffer("width", torch.as_tensor(value, dtype=like.dtype, device=like.device))
        self.register_buffer("X_pending", None, persistent=False)  # a buffer moves along in `.to`
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points (``k x d``, no gradient) from now on; None for no points.

        Raises:
            ValueError: if they are not ``k x d``, finite and of the model's dtype and device.
        """
        if X_pending is not None:
            if X_pending.ndim != 2:
                raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
            self._check("X_pending", X_pending)
            check_finite("X_pending", X_pending)
        AcquisitionFunction.set_X_pending(self, X_pending)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at X.

        Args:
            X: ``lead x q x d``; for a batched model ``lead x batch_shape x q x d``, where dimensions of
                ``batch_shape`` may be 1.

        Returns:
            Values, ``lead`` (``lead x batch_shape``).

        Raises:
            ValueError: if X, the pending points or the width are not of the model's dtype and device, or the
                pending points do not have the dimension of X.
        """
        self._check("X", X)
        self._check("the width", self.width)
        if self.X_pending is not None:
            self._check("X_pending", self.X_pending)
            if self.X_pending.shape[-1] != X.shape[-1]:
                raise ValueError(
                    f"X_pending must be k x d with the d = {X.shape[-1]} of X, got shape {tuple(self.X_pending.shape)}."
                )
        if X.shape[-2] == 1:
            mean, variance = marginal_moments(
                self.model, X, posterior_transform=self.posterior_transform, X_pending=self.X_pending
            )
        else:
            mean, variance = sequential_moments(self.model, X, self.posterior_transform, self.X_pending)
        return (mean + self.width.unsqueeze(-1) * variance.sqrt()).sum(-1)

    def _check(self, name: str, x: Tensor) -> None:
        like = reference(self.model)
        if (x.dtype, x.device) != (like.dtype, like.device):
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, the model {like.dtype} on {like.device}; convert points, or "
                "the bounds or choices they come from, with `.to`, and model, width and pending points together "
                "with the `.to` of the acquisition function."
            )
