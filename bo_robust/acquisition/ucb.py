"""GP-UCB with a confidence width from theory, mu(x) + w_t sigma(x), and the base of all such acquisition functions.

Srinivas et al. 2010, with any width schedule (``bo_robust.confidence``). On ``TruncatedGP`` with ``TGPWidth`` it is
TGP-UCB (Ray Chowdhury & Gopalan 2019). Points without feedback yet are hallucinated (GP-BUCB, Desautels et al. 2014):
mean and width stay, and the standard deviation is that after observing them.
"""

from numbers import Integral
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.elimination import Elimination, check_elimination_of
from bo_robust.confidence import ConstantWidth, Width
from bo_robust.confidence.base import DIMENSION, GAIN, UNIFORM, needs_of
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.feature_gp import FeatureGP
from bo_robust.models.moments import information_gain, marginal_moments, sequential_moments
from bo_robust.utils.input_checks import check_finite, check_like, check_schedule, is_number, quoted


class PendingAcquisition(AnalyticAcquisitionFunction):
    """Base of the acquisition functions that know of points under evaluation, and take only what fits their model."""

    model: Any

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points (``k x d``, finite, no gradient) from now on; None for no points."""
        if X_pending is not None:
            self._check("X_pending", X_pending)
            if X_pending.ndim != 2:
                raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
            check_finite("X_pending", X_pending)
        AcquisitionFunction.set_X_pending(self, X_pending)

    def _check(self, name: str, x: Tensor) -> None:
        advice = "convert the points, or all else with the `.to` of the acquisition function"
        check_like(name, x, "the model", reference(self.model), advice)


class ConfidenceBoundAcquisition(PendingAcquisition):
    """Base of the acquisition functions made of mu + w_t sigma under one GP.

    Width (computed once, at construction) and pending points are buffers, so that ``.to`` moves them. Arguments and
    errors are those of :class:`~bo_robust.acquisition.GPUCB`.
    """

    takes_elimination: ClassVar[bool] = True
    may_repeat: ClassVar[bool] = True  # a point observed before; such a bound takes one objective without constraints
    width: Tensor
    over_candidates: bool
    members: CandidateEnsemble
    _among: Tensor
    _indices: Tensor

    def __init__(
        self,
        model: Model,
        width: Width | float | None,
        t: int | None,
        posterior_transform: PosteriorTransform | None,
        generator: torch.Generator | None,
        elimination: Elimination | None = None,
    ) -> None:
        name = type(self).__name__
        schedule: Any = ConstantWidth(float(width)) if is_number(width) else width  # type: ignore[arg-type]
        if not isinstance(model, Model):
            raise ValueError(f"model must be a BoTorch model, got {quoted(model)}.")
        super().__init__(model=model, posterior_transform=posterior_transform)
        if is_ensemble(model):
            raise ValueError(f"{name} needs the posterior of one GP; an ensemble has no single confidence width.")
        if (elimination is None) == (width is None):
            hint = ", or an elimination of candidates, which has widths of its own" if self.takes_elimination else ""
            raise ValueError(f"give {name} a width, such as 2.0{hint}.")
        self.t = num_observations(model) + 1 if t is None else t
        if not isinstance(self.t, Integral):
            raise ValueError(f"t (the round about to be run) must be an int, got {t!r}.")
        template = reference(model)
        self.over_candidates = elimination is not None
        if elimination is not None:
            check_elimination_of(model, elimination)
            self.members = model.subset(elimination.active)
            value = elimination.widths[elimination.active]
            # Of the active candidates: which are in the acquisition set, and their indices in U.
            self.register_buffer("_among", elimination.acquisition_set[elimination.active])
            self.register_buffer("_indices", elimination.active.nonzero().flatten())
        else:
            check_schedule("width", "ConstantWidth(2.0)", schedule)
            value = width_of_round(schedule, self.t, model, template.dtype, generator)
        self.register_buffer("width", torch.as_tensor(value, dtype=template.dtype, device=template.device))
        self.register_buffer("X_pending", None, persistent=False)

    def _check_columns(self, name: str, x: Tensor) -> None:
        """Raise ``ValueError`` unless points have as many columns as the data of a ``SingleTaskGP`` or our models."""
        data = getattr(self.model, "train_inputs", None)
        if isinstance(self.model, SingleTaskGP | FeatureGP) and data and not hasattr(self.model, "input_transform"):
            d = data[0].shape[-1]
            if x.shape[-1] != d:
                raise ValueError(f"{name} has {x.shape[-1]} columns, the model's data {d}; give points of {d} columns.")


class GPUCB(ConfidenceBoundAcquisition):
    """Upper confidence bound mu(x) + w_t sigma(x), maximized over x.

    Build a new one each round, from the model of that round: the width is computed once, here, and kept in the buffer
    ``width``. With q > 1 points, the value is the sum of the bounds that the points have when chosen one after the
    other. So sequential optimization (the default for batches) and joint re-evaluation agree. Unlike BoTorch's analytic
    acquisition functions, this one never casts the model to the dtype of X.

    GP-BUCB's guarantee multiplies the width by exp(C), where C bounds the information in the hallucinated points. Ask
    for it with the ``scale`` of the width.

    Args:
        model: A fitted model with one output, or with several and a ``posterior_transform``. Batched models
            (``batch_shape`` s) get one width per member.
        width: Confidence width: a number, or a schedule of :mod:`bo_robust.confidence`, called as ``width(t,
            information_gain, uniform)``. The model's information gain (exact GPs only) and random numbers are computed
            only if they are among its ``needs``. A callable without that attribute gets both.
        t: Round about to be run, a whole number >= 1; default one more than the number of observations in the model.
        posterior_transform: To one output. Like an outcome transform, it does not rescale widths in the units of f
            (``norm_bound``): on a ``SingleTaskGP`` with its default ``Standardize`` these are standardized units.
        X_pending: ``k x d`` points evaluated but without feedback. For this, as for q > 1, a list of models must be a
            ``ModelListGP``.
        generator: Random numbers of a :class:`~bo_robust.confidence.RandomizedWidth`, drawn here once (on the CPU);
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

    takes_elimination = False

    def __init__(
        self,
        model: Model,
        width: Width | float,
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
        """The bound at X (``lead x q x d``), ``lead``; ``ValueError`` if dtypes, devices or columns do not fit.

        For a batched model X is ``lead x batch_shape x q x d``, where dimensions of ``batch_shape`` may be 1, and the
        result is ``lead x batch_shape``.
        """
        self._check("X", X)
        self._check_columns("X", X)
        self._check("the width", self.width)
        moments = marginal_moments if X.shape[-2] == 1 else sequential_moments
        mean, variance = moments(self.model, X, posterior_transform=self.posterior_transform, X_pending=self.X_pending)
        return (mean + self.width.unsqueeze(-1) * variance.sqrt()).sum(-1)


def width_of_round(
    width: Width, t: int, model: Model, dtype: torch.dtype, generator: torch.Generator | None
) -> float | Tensor:
    """w_t; random numbers and the information gain are computed only if the width needs them."""
    needs = needs_of(width)
    uniform = torch.zeros(model.batch_shape, dtype=dtype)
    if UNIFORM in needs:
        uniform = torch.rand(uniform.shape, generator=generator, dtype=dtype)
    gain: float | Tensor = 0.0
    if DIMENSION in needs:
        gain = getattr(model, DIMENSION, 0.0)
        if not isinstance(gain, Tensor):
            raise ValueError(f"{type(width).__name__} needs a model with an effective_dimension, such as BKBModel.")
    elif GAIN in needs:
        gain = information_gain(model)
        uniform = uniform.to(gain.device)
    return width(t, information_gain=gain, uniform=uniform)


def reference(model: Model) -> Tensor:
    """A tensor of the model's dtype and device."""
    inputs = getattr(model, "train_inputs", None)
    while isinstance(inputs, tuple | list):
        inputs = inputs[0]
    tensor = inputs if isinstance(inputs, Tensor) else next(model.parameters(), None)
    if tensor is None:
        raise ValueError(f"{type(model).__name__} has neither training data nor parameters; give a GP.")
    return tensor


def num_observations(model: Model) -> int:
    """The number of observations of the model, or of each model of a list, outliers that it leaves out included."""
    models = [m for m in getattr(model, "models", [model]) if getattr(m, "train_targets", None) is not None]
    counts = {m.train_targets.shape[-1] + getattr(m, "num_outliers", 0) for m in models}
    if len(counts) != 1:
        raise ValueError("the number of observations cannot be read from the model; pass t, the round about to be run.")
    return counts.pop()
