"""GP-UCB with a confidence width from theory: mu(x) + w_t sigma(x).

Srinivas et al. 2010, with any width schedule (``bo_robust.confidence``). On ``TruncatedGP`` with ``TGPWidth`` it is
TGP-UCB (Ray Chowdhury & Gopalan 2019). Points without feedback yet are hallucinated (GP-BUCB, Desautels et al. 2014):
mean and width stay, and the standard deviation is that after observing them.
"""

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.base import ConfidenceBoundAcquisition
from bo_robust.confidence import Width
from bo_robust.models.moments import marginal_moments, sequential_moments


class GPUCB(ConfidenceBoundAcquisition):
    """Upper confidence bound mu(x) + w_t sigma(x), maximised over x.

    Build a new one each round, from the model of that round: the width is computed once, here, and kept in the buffer
    ``width``. With q > 1 points, the value is the sum of the bounds that the points have when chosen one after the
    other. So sequential optimisation (the default for batches) and joint re-evaluation agree. Unlike BoTorch's analytic
    acquisition functions, this one never casts the model to the dtype of X.

    GP-BUCB's guarantee multiplies the width by exp(C), where C bounds the information in the hallucinated points. Ask
    for it with the ``scale`` of the width.

    Args:
        model: A fitted model with one output, or with several and a ``posterior_transform``. Batched models
            (``batch_shape`` s) get one width per member.
        width: Confidence width, called as ``width(t, information_gain, uniform)``. The model's information gain (exact
            GPs only) and random numbers are computed only if a call with NaN in their place shows that the width
            depends on them.
        t: Round about to be run, a whole number >= 1; default one more than the number of observations in the model.
        posterior_transform: To one output, as in BoTorch. Like an outcome transform, it does not rescale widths in the
            units of f (``norm_bound``). So on a ``SingleTaskGP`` with its default ``Standardize``, ``norm_bound`` and
            ``noise_scale`` are in standardised units, those of its GP.
        X_pending: ``k x d`` points evaluated but without feedback. For this, as for q > 1, a list of models must be a
            ``ModelListGP``.
        generator: Random numbers of a :class:`~bo_robust.confidence.RandomisedWidth`, drawn here once (on the CPU);
            default the global ones. The same draw serves a whole batch of pending points.

    Raises:
        ValueError: if the model is an ensemble or has neither data nor parameters, ``t`` is needed and not given, the
            width needs an information gain that the model does not define, or an argument is not as described.
        UnsupportedError: if the model has several outputs and there is no ``posterior_transform``.

    Example:
        >>> model = TruncatedGP(X, Y, TGPTruncation(moment_bound=4.0, alpha=1.0), noise_var=1.0)
        >>> acqf = GPUCB(model, FiniteWidth(num_arms=1000, delta=0.1))
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
    """

    def __init__(
        self,
        model: Model,
        width: Width,
        t: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(model, width, t, posterior_transform, generator)
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """As in the base class; ``ValueError`` also if the points have not the columns of the model's data."""
        if isinstance(X_pending, Tensor):
            self._check_columns("X_pending", X_pending)
        super().set_X_pending(X_pending)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The bound at X (``lead x q x d``), ``lead``.

        For a batched model X is ``lead x batch_shape x q x d``, where dimensions of ``batch_shape`` may be 1, and the
        result is ``lead x batch_shape``. ``ValueError`` if X, the pending points or the width are not of the model's
        dtype and device, or X and the pending points differ in d.
        """
        self._check("X", X)
        self._check_columns("X", X)
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
