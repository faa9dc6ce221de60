"""HE-GP-UCB's rule: the largest upper confidence bound under any candidate still alive.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1: x_t, u_t = argmax over x and u alive of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x).
"""

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.models.candidate_elimination import Observation
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.candidate_gps import one_point
from bo_robust.validation import check_tensor


class EliminationUCB(AcquisitionFunction):
    """max over candidates of mu^u(x) + w^u sigma^u(x), maximised over x; never their average, unless asked for.

    The candidates are those of :attr:`CandidateEnsemble.choosing`. Build a new one each round, from the model of that
    round. With q > 1 points, the value is the sum of the bounds that the points have when chosen one after the other.
    With one candidate it equals :class:`~bo_robust.acquisition.GPUCB`. It never casts the model to the dtype of X.

    Args:
        model: A ``CandidateEnsemble``, with its widths. If it minimises f, the bound is that of -f.
        posterior_transform: Given by Ax: one weight. Only its sign is read, and must agree with the model.
        X_pending: Points evaluated but without feedback, as in :class:`~bo_robust.acquisition.GPUCB`. Under every
            candidate the mean stays, and the variance is that after observing them
            (:meth:`CandidateEnsemble.hallucinate`).
        average: The mean over candidates alive, by the model's ``weights``, in place of the maximum. Over a model with
            ``elimination=None`` it is ExpectedUCB, a baseline of Ziomek et al.

    Raises:
        ValueError: if an argument is not as described.

    Example:
        >>> acqf = EliminationUCB(model)
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
        >>> print(acqf.chosen_member(x))
        >>> model, observation = acqf.observe(x, measure(x))
    """

    model: CandidateEnsemble
    widths: Tensor
    weights: Tensor | None
    _chosen: Tensor
    _conditioned: CandidateEnsemble

    def __init__(
        self,
        model: CandidateEnsemble,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        average: bool = False,
    ) -> None:
        if not isinstance(model, CandidateEnsemble):
            raise ValueError(f"EliminationUCB needs a CandidateEnsemble, got {type(model).__name__}.")
        if model.risk is not None:
            raise ValueError(
                "the CandidateEnsemble tests candidates by a risk, which ValueAtRiskUCB maximises; build it without "
                "environment and functional."
            )
        super().__init__(model=model)
        _check_sense(posterior_transform, model.maximize)
        choosing = model.alive if average else model.choosing
        self.register_buffer("widths", model.widths[choosing].unsqueeze(-1))
        self.register_buffer("_chosen", choosing[model.alive])
        weights = model.weights[choosing] if average else None
        self.register_buffer("weights", weights)
        self.register_buffer("X_pending", None, persistent=False)  # a buffer moves along in `.to`
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points from now on, as :meth:`GPUCB.set_X_pending`, with its errors; None for no points."""
        # First, as it checks the points: if they are bad, nothing has changed.
        conditioned = self.model if X_pending is None else self.model.hallucinate(X_pending)
        super().set_X_pending(X_pending)
        self._conditioned = conditioned

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The largest bound at X (``lead x q x d``), ``lead``; ``ValueError`` if X does not fit the model."""
        bounds = self._bounds(X)
        return (bounds.amax(-2) if self.weights is None else (self.weights @ bounds)).sum(-1)

    def chosen_member(self, x: Tensor) -> tuple[int, str]:
        """u_t, who has the largest bound at a point (``d`` or ``1 x d``): index in U and name; ties go to the first."""
        x = one_point("chosen_member", x)
        if self.weights is not None:
            raise ValueError("an average of candidates is nobody's choice; build the function without average.")
        with torch.no_grad():
            best = int(self._bounds(x).argmax())
        index = int(self.model.alive.nonzero()[self._chosen.nonzero()[best]])
        return index, self.model.names[index]

    def observe(self, x: Tensor, y: Tensor | float) -> tuple[CandidateEnsemble, Observation]:
        """The ensemble of the next round, and what the reward did to it (:meth:`CandidateEnsemble.observe`)."""
        return self.model.observe(x, y)

    def _bounds(self, X: Tensor) -> Tensor:
        """The bound under each candidate that counts, ``lead x (their number) x q``."""
        check_tensor("X", X, floating=False)
        model = self._conditioned
        predict = model.moments if X.shape[-2] == 1 else model.sequential_moments
        mean, variance = predict(X, alive_only=True)
        mean, variance = (x if self._chosen.all() else x[..., self._chosen, :] for x in (mean, variance))
        return (mean if self.model.maximize else -mean) + self.widths * variance.sqrt()


def _check_sense(transform: PosteriorTransform | None, maximize: bool) -> None:
    if transform is None:
        return
    weights: Any = transform.weights if isinstance(transform, ScalarizedPosteriorTransform) else None
    if weights is None or weights.numel() != 1:
        raise ValueError(f"EliminationUCB takes one output and no posterior_transform but a weight, got {transform!r}.")
    weight = float(weights)
    if (weight > 0) != maximize:
        raise ValueError(
            f"the weight {weight:g} asks to {'maximise' if weight > 0 else 'minimise'} f, the model was built with "
            f"maximize={maximize}; build it with maximize={not maximize}."
        )
