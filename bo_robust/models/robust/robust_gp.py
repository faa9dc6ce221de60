"""An exact GP that detects outliers in its training data, with nothing to choose.

It compares an observation with its prediction from the others, and takes all scales from the data. So the regret bounds
of Ray Chowdhury & Gopalan (2019) do not cover it; ``TruncatedGP`` is the model with that guarantee.
"""

import difflib
import inspect
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from gpytorch.settings import max_eager_kernel_size, min_fixed_noise
from torch import Tensor

from bo_robust.models.batch_effect import BatchEffectLikelihood, label_numbers
from bo_robust.models.evidence_fit import fit_evidence
from bo_robust.models.reward_units import computable, smallest_deviation
from bo_robust.models.robust.conditioned_gp import Rows
from bo_robust.models.robust.decided import Detection
from bo_robust.models.robust.detection import detect_at_present, restate, with_single_slips
from bo_robust.models.robust.joint_slips import detect_with_slips
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import scaled_standardize, standardize_of
from bo_robust.models.robust.prior import OutlierPrior
from bo_robust.models.robust.search_data import points_seen, replicates_among, search_data
from bo_robust.models.robust.slips import Slip
from bo_robust.models.training_data import (
    MovableGP,
    check_added,
    check_data,
    check_learnt,
    checked_limits,
    one_noise_likelihood,
)
from bo_robust.models.verdict import TAIL, Prediction, Verdict
from bo_robust.utils.input_checks import quoted
from bo_robust.utils.upstream import (
    DefaultType,
    drop_prediction_strategy,
    points_given,
    shared_posterior_settings,
)

CLOSE = 0.75  # similarity of names from which on one is taken for a misspelling of the other
STATISTICS = ("inliers", "held", "probability", "zscore", "limit", "confirmed")  # fields of a detection, `n` each
_evaluating = threading.Lock()  # one for all models, as copies of a model cannot have a lock


def _statistic(name: str) -> property:
    """The attribute that is a field of the detection, ``n``, as a tensor beside the observations."""

    def value(model: "RobustGP") -> Tensor:
        Y, found = model.train_Y_all, model.detection
        if found is None:
            found = Detection.without_search(np.ones(len(Y), dtype=bool))
        array = getattr(found, name)
        return torch.tensor(array, dtype=None if array.dtype == bool else Y.dtype, device=Y.device)

    return property(value)


class RobustGP(MovableGP):
    """``SingleTaskGP`` on the inliers of its data; ``fit_gpytorch_mll`` detects the outliers.

    The fit chooses the scale of the outcomes, inliers and hyperparameters together, by marginal likelihood. An
    observation is an outlier if a gross error is more plausible than its value given the others. If a fit to all
    observations foretells the outliers, or if half would be outliers, all are inliers. The hyperparameters are then
    fitted to the inliers, by :func:`bo_robust.models.evidence_fit.fit_evidence` unless ``fit_gpytorch_mll`` is given an
    ``optimizer``. Without outliers the model predicts as ``SingleTaskGP`` does. Before a fit, and with
    fewer than four observations, all are inliers. At least half always are, and so are replicates that agree, unless
    others at their point outvote them.

    Skewed outcomes may be modeled as their logarithm or a root, if that predicts
    (:mod:`bo_robust.models.robust.outcome_scale`).
    The posterior is a ``GPyTorchPosterior`` in the units of the observations all the same: its samples and quantiles
    are exact, and its ``distribution`` has the moments of the outcomes.

    What people do to a reading, they do to several at once, too: two readings exchanged, or some fractions among
    percentages, are outliers where that is likelier than all else (:mod:`bo_robust.models.robust.joint_slips`).

    A logarithm forgives a factor of ten, which is what people mistype. So an observation is held if it is an inlier in
    the learnt scale alone, an outlier in the given one, beyond all observations that are inliers in both scales, and
    agrees better with the others once it is divided or multiplied by ten. A held observation stays in the model. It is
    not recommended, and enters no :meth:`predict`, until a replicate agrees.

    Outliers become inliers again where a local deviation of f, a bump, is likelier than as many gross errors. A single
    outlier leaves this open, and acquisition functions see nothing good there. :func:`suggest_replicates` says which
    point to measure again before a good observation is given up.

    Observations that ``condition_on_observations`` or fantasies add are inliers. To test them, make and fit a new
    model. The state dict restores the outliers with the same data. In other data they are detected anew.

    Arguments not listed are those of ``SingleTaskGP``, without batches. The default outcome transform standardizes by
    the inliers. Several outputs or data sets need a ``ModelListGP``.

    Args:
        outlier_share: Share of outliers that is expected before the data are seen, in (0, .5).
        outlier_density: Density of an outlier near the median, per robust standard deviation (:class:`OutlierPrior`).
        maximize: Whether large observations are good, for :func:`suggest_replicates`, :meth:`recommendable` and
            :meth:`predict`; the posterior does not depend on it. None: neither side is, as for a constraint.
        outcome_scale: "auto", or None to model observations as they are. With ``train_Yvar``, or another outcome
            transform than the default one, they are modeled as they are.
        outcome_limits: Smallest and largest possible outcome, such as (0, 100) of a yield; either may be None. An
            observation beyond them is a gross error, whatever its neighbors or replicates say, and :meth:`predict`
            ends there. The posterior is not cut, as a mean that is cut has no gradient.
        batch: Label of the batch, day or instrument of each observation, ``n``, numbers or texts. Observations of one
            share a deviation, whose variance is learned; the posterior is for a new batch
            (:class:`bo_robust.models.BatchEffectLikelihood`).
        reading_unit: What ``train_Y`` are multiplied by for the readings as people wrote them, whose digits say what
            slips they may have made.

    Attributes:
        detection: What a fit, :meth:`detect_outliers` or a loaded state decided; None before.
        outlier_prior: ``outlier_share`` and ``outlier_density``, an :class:`OutlierPrior`.
        train_X_all: All points, ``n x d``, where ``train_inputs`` has those of the inliers.
        train_Y_all: All observations, ``n x 1``.
        inlier_mask: Whether each observation is an inlier, ``n`` bool.
        inlier_probability: Probability of each observation that it is an inlier, ``n``, on average over the scales.
        loo_zscore: Standardized leave-one-out residual of each observation given the other inliers, ``n``. Its variance
            has the noise that the search adds, so it is smaller than by the fitted model.
        loo_zscore_limit: Size of the residual at which inlier and outlier are equally likely, ``n``.
        confirmed_by_replicate: Whether an observation is an inlier only because a replicate confirms it, ``n`` bool.
        held_mask: Whether an observation is held, on the good side or the bad one, ``n`` bool.
        slips: What may have happened to observations that are outliers or held, :class:`Slip` each; none before a fit,
            and of a loaded state.
        outliers_detected: Whether there is a ``detection``.

    Raises ``ValueError`` for wrong data or options, and for noise that a likelihood fixes instead of ``train_Yvar``.

    Examples:
        >>> model = RobustGP(train_X, train_Y)
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> outliers = train_X[~model.inlier_mask]
    """

    _supports_batched_models = False  # Ax: one model for each metric
    has_exact_moments: ClassVar[bool] = True  # (:mod:`bo_robust.models.exact_moments`)
    wants_replicates: ClassVar[bool] = True
    centers: ClassVar[bool] = False  # outcome scales need the zero of the observations
    train_X_all: Tensor
    train_Y_all: Tensor
    detection: Detection | None
    inlier_mask = _statistic("inliers")
    inlier_probability = _statistic("probability")
    loo_zscore = _statistic("zscore")
    loo_zscore_limit = _statistic("limit")
    confirmed_by_replicate = _statistic("confirmed")
    held_mask = _statistic("held")
    outcome_transform: OutcomeTransform
    train_Yvar_all: Tensor | None
    batch_all: Tensor | None
    likelihood: Any

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        likelihood: Likelihood | None = None,
        covar_module: Module | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        outlier_share: float = OutlierPrior.share,
        outlier_density: float = OutlierPrior.density,
        maximize: bool | None = True,
        outcome_scale: str | None = "auto",
        outcome_limits: Sequence[float | None] | None = None,
        batch: Sequence[Any] | Tensor | None = None,
        reading_unit: float = 1.0,
        **others: Any,
    ) -> None:
        if others:
            options = [*inspect.signature(RobustGP).parameters][:-1]
            for name in others:
                if close := difflib.get_close_matches(name, options, n=1, cutoff=CLOSE):
                    raise TypeError(f"RobustGP has no option {name!r}; did you mean {close[0]!r}?")
            raise TypeError(
                f"RobustGP takes no {', '.join(others)}: give a kernel for that as covar_module, or the inliers of a "
                "RobustGP, train_X[model.inlier_mask], to the model that takes it."
            )
        check_data("RobustGP", train_X, train_Y, batched=False, Yvar=train_Yvar)
        self.outlier_prior, self.maximize = OutlierPrior(outlier_share, outlier_density), maximize
        self.outcome_limits, self.reading_unit = checked_limits(outcome_limits, train_Y), reading_unit
        if maximize not in (True, False, None):
            raise ValueError(f"maximize must be True, False or None, got {quoted(maximize)}.")
        numbers = None if batch is None else label_numbers("batch", batch, train_X)
        if numbers is not None:
            if train_Yvar is not None:
                raise ValueError("give batch or train_Yvar: the deviation of a batch is learned with the noise.")
            likelihood = one_noise_likelihood("RobustGP", None, likelihood, train_X.dtype).to(train_X)
            likelihood = BatchEffectLikelihood(numbers, likelihood)
        if isinstance(likelihood, FixedNoiseGaussianLikelihood):
            raise ValueError("give known noise variances as train_Yvar, not by a likelihood.")
        if outcome_scale not in ("auto", None):
            raise ValueError(f'outcome_scale must be "auto" or None, got {quoted(outcome_scale)}.')
        standardized = outcome_transform == DEFAULT or type(outcome_transform) is Standardize
        self._learns_scale = outcome_scale == "auto" and standardized and train_Yvar is None
        train_Y = computable(train_Y, outcome_transform, covar_module is None)
        if outcome_transform == DEFAULT:
            outcome_transform = Standardize(1, min_stdv=smallest_deviation(train_Y))
        super().__init__(
            train_X, train_Y, train_Yvar, likelihood, covar_module, mean_module, outcome_transform, input_transform
        )
        self._set_data(train_X, train_Y, train_Yvar, numbers)
        self.register_load_state_dict_post_hook(_restore)

    @classmethod
    def construct_inputs(
        cls, training_data: SupervisedDataset, noise_var: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor; a ``noise_var`` for all overrides the noise variances of the data."""
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        if noise_var is not None:
            inputs["train_Yvar"] = torch.full_like(inputs["train_Y"], noise_var)
        # Others are Ax', of a search space.
        ours = (
            "outlier_share",
            "outlier_density",
            "maximize",
            "outcome_scale",
            "outcome_limits",
            "batch",
            "reading_unit",
        )
        return inputs | {name: options[name] for name in ours if name in options}

    @property
    def _supports_cache_root(self) -> bool:
        """Whether BoTorch may sample by a cached root of the covariance: in a learnt scale samples are not Gaussian.

        An input transform that makes several points of one needs the root.
        """
        several = getattr(getattr(self, "input_transform", None), "is_one_to_many", False)
        return self.outcome_scale.is_identity or bool(several)

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Choose the inliers and fit the hyperparameters to them; ``fit_gpytorch_mll`` calls this."""
        learns = self._learns_scale
        given, limits = (IDENTITY, self.outcome_limits) if learns else (self.outcome_scale, None)
        data = search_data(self)
        detection = detect_with_slips(data, given, limits, self.reading_unit)
        self._adopt(detection, restandardize=True)
        if (notice := detection.notice()) is not None:
            warnings.warn(notice, UserWarning, stacklevel=3)
        standard = self.to_standard_model()
        fit_gpytorch_mll(type(mll)(standard.likelihood, standard), **{"optimizer": fit_evidence} | options)
        if self.num_outliers:  # at the hyperparameters now fitted
            data = search_data(self)
            detection = restate(data, detection, probability=not learns)
            self._adopt(with_single_slips(data, detection, self.reading_unit), restandardize=False)
        elif detection.held.any():
            self.detection = with_single_slips(data, detection, self.reading_unit)
        return mll.eval()

    def to_standard_model(self) -> SingleTaskGP:
        """A ``SingleTaskGP`` of the inliers that shares these modules; ``ValueError`` if observations were added."""
        drop_prediction_strategy(self)  # it would know nothing of a fit of the other model
        return self._standard_model(torch.ones_like(self.train_targets, dtype=torch.bool))

    def _standard_model(self, rows: Tensor) -> SingleTaskGP:
        """``SingleTaskGP`` of some of the inliers, ``k`` bool, that shares these modules."""
        self.check_nothing_added()
        likelihood = self.likelihood if self.batch_all is None else self.likelihood.of(self.likelihood.batch[rows])
        modules = {"likelihood": likelihood, "covar_module": self.covar_module, "mean_module": self.mean_module}
        X, Y = points_given(self)[rows], self.train_targets[rows].unsqueeze(-1)
        model: Any = SingleTaskGP(X, Y, outcome_transform=None, **modules)
        model._supports_cache_root = self._supports_cache_root
        for name in ("outcome_transform", "input_transform"):  # set last, because the constructor would retrain them
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model.train(self.training)

    def posterior(self, X: Tensor, *args: Any, **options: Any) -> Any:
        """As of ``SingleTaskGP``, also from several threads at once."""
        with _evaluating:  # an input transform in training would learn from X
            self.eval()
        with shared_posterior_settings():
            return super().posterior(X, *args, **options)

    def _get_test_prior_mean_and_covariances(
        self, train_inputs: Sequence[Tensor], test_inputs: Sequence[Tensor], **_: Any
    ) -> tuple[Any, ...]:
        """As GPyTorch's, which also needs the covariance of all points at once while another thread is in a kernel."""
        (train,), (points,) = train_inputs, test_inputs
        batch = torch.broadcast_shapes(train.shape[:-2], points.shape[:-2])
        train, points = (x.expand(*batch, *x.shape[-2:]) for x in (train, points))
        prior = self.forward(points)
        own, cross = prior.lazy_covariance_matrix, self.covar_module(points, train)
        if sum(cross.shape[-2:]) <= max_eager_kernel_size.value():  # of more, Ax asks variances alone
            own = own.evaluate_kernel()
        return prior.loc, own, cross.evaluate_kernel(), batch, prior.event_shape, type(prior)

    @property
    def outliers_detected(self) -> bool:
        return self.detection is not None

    @property
    def slips(self) -> tuple[Slip, ...]:
        return () if self.detection is None else self.detection.slips

    @property
    def num_outliers(self) -> int:
        return int((~self.inlier_mask).sum())

    def signed_Y(self, maximize: bool | None = None) -> Tensor:
        """Observations ``n``, where larger is better; ``maximize=None`` is as the model was made, else True."""
        maximize = self.maximize if maximize is None else maximize
        return (self.train_Y_all if maximize is None or maximize else -self.train_Y_all).squeeze(-1)

    def verdict(self, maximize: bool | None = None) -> Verdict:
        """What the model says of its observations.

        Observations held on the bad side count as reliable. ``maximize`` says which side is good; None: as the model
        was made, and if that says nothing, both sides count as good. Before a fit all are reliable.
        """
        held, maximize = self.held_mask, self.maximize if maximize is None else maximize
        if held.any() and maximize is not None:
            value = self.signed_Y(maximize)
            held = held & (value > value[self.inlier_mask & ~held].amax())
        return Verdict.of(self.train_X_all, ~self.inlier_mask, held)

    def recommendable(self, maximize: bool | None = None) -> Tensor:
        """Whether each row's point may be recommended, ``n`` bool: where a reliable observation was made.

        So a point is out if all its observations are outliers or held. ``maximize`` is as for :meth:`verdict`. Raises
        ``ValueError`` before a fit.
        """
        self._check_detected()
        return self.verdict(maximize).recommendable

    def reliable_model(self, maximize: bool | None = None) -> SingleTaskGP:
        """A ``SingleTaskGP`` of the reliable observations that shares these modules; errors as of :meth:`predict`."""
        self._check_detected()
        return self._standard_model(self.verdict(maximize).reliable[self.inlier_mask])

    def predict(self, X: Tensor, maximize: bool | None = None) -> Prediction:
        """What to report at points ``n x d``: mean and 95 % interval of f by the reliable observations alone.

        They end at the ``outcome_limits``. ``maximize`` is as for :meth:`verdict`. Raises ``ValueError`` before a fit,
        or if observations were added.
        """
        d = self.train_X_all.shape[-1]
        if not (isinstance(X, Tensor) and X.ndim == 2 and X.shape[-1] == d):
            raise ValueError(f"X must be points n x {d}, a tensor, got {quoted(X)}.")
        model = self.reliable_model(maximize)
        with torch.no_grad(), shared_posterior_settings():
            posterior: Any = model.posterior(X)
            mean = posterior.mean.squeeze(-1)
            try:
                ends = posterior.quantile(X.new_tensor([TAIL, 1.0 - TAIL])).squeeze(-1)
                found = Prediction(mean, *ends)
            except NotImplementedError:  # an outcome transform of the user's
                found = Prediction.gaussian(mean, posterior.variance.squeeze(-1))
            return Prediction(*torch.stack(found).clamp(*self.outcome_limits))

    def batch_deviations(self) -> Prediction:
        """The deviation of each batch in the outcome scale, in the order of sorted labels: mean and 95 % interval.

        The shift of an observation T(y) that batch b makes; on a logarithm, its exponential is a factor. Raises
        ``ValueError`` before a fit, and without batches.
        """
        self._check_detected()
        if self.batch_all is None:
            raise ValueError("this RobustGP was made without batch.")
        self.eval()
        (X,), likelihood = self.train_inputs, self.likelihood
        with torch.no_grad():
            prior = self.forward(X)
            total = likelihood(prior, [X]).covariance_matrix
            member = (likelihood.batch == torch.arange(int(self.batch_all.max()) + 1).to(X.device)[:, None]).to(X)
            gain = likelihood.batch_variance * torch.linalg.solve(total, member.mT).mT
            mean = gain @ (self.train_targets - prior.mean)
            variance = likelihood.batch_variance * (1.0 - (gain * member).sum(-1))
            standardize = standardize_of(getattr(self, "outcome_transform", None))[1]
            unit = 1.0 if standardize is None else standardize.stdvs.squeeze()
        return Prediction(*(unit * x for x in Prediction.gaussian(mean, variance.clamp_min(0.0))))

    def _check_detected(self) -> None:
        if not self.outliers_detected:
            raise ValueError("this RobustGP has not looked for outliers yet; call fit_gpytorch_mll first.")

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> None:
        """Load a state with its transforms; its outliers are restored, or detected if the state has other data."""
        # Targets are made anew from all observations, by the transforms of the state: BoTorch need not keep them.
        super().load_state_dict(state_dict, strict=strict, keep_transforms=False, assign=assign)

    def get_extra_state(self) -> Tensor:
        """The detection and its data, ``(n + 1) x (d + 7)``, the scale in the first row; empty before a detection.

        One tensor passes wherever the others of a state dict do.
        """
        found = self.detection
        if found is None:
            return self.train_Y_all.new_empty(0, dtype=torch.float64)
        statistics = [torch.from_numpy(getattr(found, name)) for name in STATISTICS]
        columns = [*self.train_X_all.unbind(-1), self.train_Y_all[:, 0], *(x.to(self.train_Y_all) for x in statistics)]
        rows = torch.stack([column.double() for column in columns], -1)
        scale = rows.new_zeros(1, rows.shape[-1])
        scale[0, : len(found.scale)] = scale.new_tensor(found.scale)
        return torch.cat([scale, rows])

    def set_extra_state(self, state: Tensor) -> None:
        """Keep a state for :func:`_restore`, which runs when all modules have theirs."""
        self._loaded = state
        self._set_scale(_scale_of(state))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Take the state of a model that knows nothing of outliers, such as a ``SingleTaskGP``, too."""
        nothing = self.train_Y_all.new_empty(0, dtype=torch.float64)
        super()._load_from_state_dict({f"{prefix}_extra_state": nothing, **state_dict}, prefix, *others)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> "RobustGP":
        """Return a model that has these observations as inliers too; raise ``ValueError`` unless they are finite."""
        check_added(X, Y)
        return cast(RobustGP, super().condition_on_observations(X, Y, noise=noise, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> "RobustGP":
        """As :meth:`condition_on_observations`, on transformed data; ``ModelListGP`` calls it."""
        check_learnt(inputs, targets, self.train_Y_all)
        return cast(RobustGP, super().get_fantasy_model(inputs, targets, **kwargs))

    def detect_outliers(self, restandardize: bool = True) -> None:
        """Choose the inliers at the present hyperparameters; ``restandardize`` trains the outcome transform on them."""
        self._adopt(detect_at_present(search_data(self), self.outcome_scale), restandardize)
        self.eval()

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data, all inliers until a fit: points as given, targets as the outcome transform makes them."""
        if targets is None:  # BoTorch, as it transforms inputs for predictions and restores the old ones
            return super().set_train_data(inputs=inputs, strict=strict)
        if self.train_Yvar_all is not None or self.batch_all is not None:
            raise ValueError("a RobustGP with train_Yvar or batch keeps its data; make a new one of all data.")
        training = self.training
        self.train()  # inputs are untransformed now, so BoTorch transforms the new ones and forgets the old ones
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        Y = targets.unsqueeze(-1)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform.untransform(Y)
        self._set_data(self.train_inputs[0], Y)
        self.train(training)

    def replicate_mask(self) -> Tensor:
        """Which other rows are of the same point, ``n x n`` bool, as given or as the kernel sees it, up to rounding."""
        return replicates_among(self.train_X_all, points_seen(self))

    @property
    def outcome_scale(self) -> OutcomeScale:
        """The scale in which outcomes are modeled; the identity before a fit."""
        return standardize_of(getattr(self, "outcome_transform", None))[0]

    def _set_scale(self, scale: OutcomeScale) -> None:
        """Standardize in this scale; the transform must be trained or loaded afterwards."""
        if scale != self.outcome_scale:
            values = scale.transform(self.train_Y_all[scale.contains(self.train_Y_all)])
            standardize = Standardize(1, min_stdv=smallest_deviation(values)).to(values)
            self.outcome_transform = scaled_standardize(scale, standardize).train(self.training)

    def _set_data(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, batch: Tensor | None = None) -> None:
        """Keep all data, of which nothing is known yet."""
        data = {"train_X_all": X, "train_Y_all": Y, "train_Yvar_all": Yvar, "batch_all": batch}
        for name, value in data.items():
            self.register_buffer(name, None if value is None else value.detach().clone(), persistent=False)
        self.detection = None

    def check_nothing_added(self) -> None:
        """Raise ``ValueError`` if observations were added since the last fit."""
        if not torch.equal(points_given(self), self.train_X_all[self.inlier_mask]):
            raise ValueError("observations were added to this RobustGP; make and fit a new one of all data.")

    def known(self) -> dict[str, Rows]:
        """What is known of the observations before the search, as fields of its data."""
        return {"possible": self.within_limits().cpu().numpy()}

    def within_limits(self) -> Tensor:
        """Which observations are within the ``outcome_limits``, ``n`` bool."""
        lower, upper = self.outcome_limits
        return ((self.train_Y_all >= lower) & (self.train_Y_all <= upper)).squeeze(-1)

    def _adopt(self, detection: Detection, restandardize: bool) -> None:
        """Take a detection over; nothing else does. Only new data forget it."""
        self.train()
        self._set_scale(detection.scale)
        self.detection = detection
        inliers = self.inlier_mask
        X, Y = self.train_X_all[inliers], self.train_Y_all[inliers]
        Yvar = None if self.train_Yvar_all is None else self.train_Yvar_all[inliers]
        if hasattr(self, "outcome_transform"):
            self.outcome_transform.train(restandardize)
            Y, Yvar = self.outcome_transform(Y=Y, Yvar=Yvar, X=self.transform_inputs(X))
        super().set_train_data(X, Y.squeeze(-1), strict=False)
        if self.batch_all is not None:
            self.likelihood.batch = self.batch_all[inliers]
        if Yvar is not None:
            self.likelihood.noise_covar.noise = Yvar.squeeze(-1).clamp_min(min_fixed_noise.value(Yvar.dtype))


def _scale_of(state: Tensor) -> OutcomeScale:
    """The outcome scale of an extra state; the identity of an empty one."""
    return OutcomeScale(*state[0, : len(IDENTITY)].tolist()) if len(state) else IDENTITY


def _restore(model: RobustGP, _: Any) -> None:
    """Restore the outliers of a loaded state, or detect them in data that the state does not know."""
    state: Tensor = model.__dict__.pop("_loaded").to("cpu", torch.float64)
    data = torch.cat([model.train_X_all, model.train_Y_all], -1).to(state)
    d = data.shape[-1]
    if len(state) == 0 or not torch.equal(state[1:, :d], data):
        return model.detect_outliers(restandardize=False)
    inliers, held, probability, zscore, limit, confirmed = (column.numpy() for column in state[1:, d:].unbind(-1))
    found = Detection(_scale_of(state), inliers > 0.0, held > 0.0, probability, zscore, limit, confirmed > 0.0)
    model._adopt(found, restandardize=False)
    model.eval()
