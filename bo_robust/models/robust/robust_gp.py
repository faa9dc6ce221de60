"""An exact GP that detects outliers in its training data, with nothing to choose.

It compares an observation with its prediction from the others, and takes all scales from the data. So the regret bounds
of Ray Chowdhury & Gopalan (2019) do not cover it; ``TruncatedGP`` is the model with that guarantee.
"""

import copy
import difflib
import inspect
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
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
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from bo_robust.models.marginal_likelihood import as_array, evidence_of
from bo_robust.models.recommendation import RecommendingGP
from bo_robust.models.reward_units import computable, smallest_deviation
from bo_robust.models.robust.detection import OutlierDetection, OutlierSearch, SearchData, find_outliers, held_rows
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import scaled_standardize, standardize_of
from bo_robust.models.robust.prior import OutlierPrior
from bo_robust.models.training_data import (
    check_added,
    check_data,
    check_learnt,
    checked_limits,
    nearly_equal,
)
from bo_robust.utils.input_checks import quoted
from bo_robust.utils.linalg import on_cuda
from bo_robust.utils.upstream import DefaultType

MANY = 0.25  # share of outliers above which the model warns
UNEXPLAINED = 0.2  # share of an observation's variance that the others predict, below which the model warns
ENOUGH = 40  # number of observations from which on it warns of unexplained variance
CLOSE = 0.75  # similarity of names from which on one is taken for a misspelling of the other
FEW = 300  # rows below which a fit takes less time on a CPU than its launches on a GPU


DATA = ("train_X_all", "train_Y_all")
STATISTICS = (
    *("inlier_mask", "inlier_probability", "loo_zscore", "loo_zscore_limit"),
    *("confirmed_by_replicate", "held_mask"),
)
STATE = (*DATA, *STATISTICS, "outliers_detected", "_scale")


class RobustGP(RecommendingGP):
    """``SingleTaskGP`` on the inliers of its data; ``fit_gpytorch_mll`` detects the outliers.

    The fit chooses the scale of the outcomes, inliers and hyperparameters together, by marginal likelihood. An
    observation is an outlier if a gross error is more plausible than its value given the others. If a fit to all
    observations foretells the outliers, or if half would be outliers, all are inliers. BoTorch then fits the
    hyperparameters to the inliers. Without outliers the model is ``SingleTaskGP``, bit for bit. Before a fit, and with
    fewer than four observations, all are inliers. At least half always are, and so are replicates that agree, unless
    others at their point outvote them.

    Skewed outcomes may be modeled as their logarithm or a root, if that predicts
    (:mod:`bo_robust.models.robust.outcome_scale`).
    The posterior is a ``GPyTorchPosterior`` in the units of the observations all the same: its samples and quantiles
    are exact, and its ``distribution`` has the moments of the outcomes.

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

    Attributes:
        outlier_prior: All numbers of the detection, an :class:`OutlierPrior`, to be replaced before a fit.
        train_X_all: All points, ``n x d``, where ``train_inputs`` has those of the inliers.
        train_Y_all: All observations, ``n x 1``.
        inlier_mask: Whether each observation is an inlier, ``n`` bool.
        inlier_probability: Probability of each observation that it is an inlier, ``n``, on average over the scales.
        loo_zscore: Standardized leave-one-out residual of each observation given the other inliers, ``n``. Its variance
            has the noise that the search adds, so it is smaller than by the fitted model.
        loo_zscore_limit: Size of the residual at which inlier and outlier are equally likely, ``n``.
        confirmed_by_replicate: Whether an observation is an inlier only because a replicate confirms it, ``n`` bool.
        held_mask: Whether an observation is held, on the good side or the bad one, ``n`` bool.
        outliers_detected: Whether a fit, :meth:`detect_outliers` or a loaded state chose the inliers, a bool tensor.

    Raises ``ValueError`` for wrong data or options, and for noise that a likelihood fixes instead of ``train_Yvar``.

    Examples:
        >>> model = RobustGP(train_X, train_Y)
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> outliers = train_X[~model.inlier_mask]
    """

    _supports_batched_models = False  # Ax: one model for each metric
    has_exact_moments: ClassVar[bool] = True  # (:mod:`bo_robust.models.exact_moments`)
    train_X_all: Tensor
    train_Y_all: Tensor
    inlier_mask: Tensor
    inlier_probability: Tensor
    loo_zscore: Tensor
    loo_zscore_limit: Tensor
    confirmed_by_replicate: Tensor
    held_mask: Tensor
    outliers_detected: Tensor
    outcome_transform: OutcomeTransform
    _train_Yvar_all: Tensor | None

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
        self.outcome_limits = checked_limits(outcome_limits, train_Y)
        if maximize not in (True, False, None):
            raise ValueError(f"maximize must be True, False or None, got {quoted(maximize)}.")
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
        self._set_data(train_X, train_Y, train_Yvar)
        self._set_scale(IDENTITY)
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
        ours = ("outlier_share", "outlier_density", "maximize", "outcome_scale", "outcome_limits")
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
        learns, Y = self._learns_scale, self.train_Y_all
        given, limits = (IDENTITY, self.outcome_limits) if learns else (self.outcome_scale, None)
        scale, detection = find_outliers(self._search_data(), given, limits)
        self._set_scale(scale)
        self._adopt(detection, restandardize=True)
        self._warn(detection)
        standard = fitted = self.to_standard_model()
        if on_cuda(Y) and len(standard.train_targets) < FEW:
            fitted = copy.deepcopy(standard).cpu()
        fit_gpytorch_mll(type(mll)(fitted.likelihood, fitted), **options)
        with torch.no_grad():
            for own, value in zip(standard.parameters(), fitted.parameters(), strict=True):
                own.copy_(value)
        if self.num_outliers:  # at the hyperparameters now fitted
            self.detect_outliers(restandardize=False, known_inliers=self.inlier_mask)
            if learns:
                self.inlier_probability.copy_(torch.as_tensor(detection.inlier_probability))
        return mll.eval()

    def to_standard_model(self) -> SingleTaskGP:
        """A ``SingleTaskGP`` of the inliers that shares these modules; ``ValueError`` if observations were added."""
        return self.standard_model_of(torch.ones_like(self.train_targets, dtype=torch.bool))

    def standard_model_of(self, rows: Tensor) -> SingleTaskGP:
        """``SingleTaskGP`` of some of the inliers, ``k`` bool, that shares these modules."""
        training = self.training
        self._check_nothing_added()
        modules = {"likelihood": self.likelihood, "covar_module": self.covar_module, "mean_module": self.mean_module}
        X, Y = self.train_inputs[0][rows], self.train_targets[rows].unsqueeze(-1)
        model: Any = SingleTaskGP(X, Y, outcome_transform=None, **modules)
        model._supports_cache_root = self._supports_cache_root
        for name in ("outcome_transform", "input_transform"):  # set last, because the constructor would retrain them
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        self.train(training)
        return model.train(training)

    @property
    def flagged(self) -> Tensor:
        """Which observations are outliers, ``n`` bool."""
        return ~self.inlier_mask

    @property
    def num_outliers(self) -> int:
        return int((~self.inlier_mask).sum())

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> None:
        """Load a state with its transforms; its outliers are restored, or detected if the state has other data."""
        # Targets are made anew from all observations, by the transforms of the state: BoTorch need not keep them.
        super().load_state_dict(state_dict, strict=strict, keep_transforms=False, assign=assign)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        """Keep what the state says of outliers for :func:`_restore`, which runs when all modules have their state."""
        self._loaded = {name: state_dict.get(prefix + name) for name in STATE}
        scale = self._loaded["_scale"]
        self._set_scale(OutcomeScale() if scale is None else OutcomeScale.of(scale))
        ours = {prefix + name: getattr(self, name) for name in STATE}
        super()._load_from_state_dict({**state_dict, **ours}, prefix, local_metadata, strict, *lists)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> "RobustGP":
        """Return a model that has these observations as inliers too; raise ``ValueError`` unless they are finite."""
        check_added(X, Y)
        return cast(RobustGP, super().condition_on_observations(X, Y, noise=noise, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> "RobustGP":
        """As :meth:`condition_on_observations`, on transformed data; ``ModelListGP`` calls it."""
        check_learnt(inputs, targets, self.train_Y_all)
        return cast(RobustGP, super().get_fantasy_model(inputs, targets, **kwargs))

    def detect_outliers(self, restandardize: bool = True, known_inliers: Tensor | None = None) -> None:
        """Choose the inliers at the present hyperparameters; ``restandardize`` trains the outcome transform on them.

        ``known_inliers``, ``m`` bool, is the choice of a fit among the first m rows; it stands if these are all.
        """
        first_inliers = None if known_inliers is None else known_inliers.cpu().numpy()
        data = self._search_data()
        detection = OutlierSearch(data, self.outcome_scale).detect(first_inliers)
        if first_inliers is not None and len(first_inliers) == len(self.held_mask):
            held = self.held_mask.cpu().numpy()
        else:
            held = held_rows(data, detection.inlier_mask, self.outcome_scale)
        self._adopt(detection._replace(held_mask=held), restandardize)
        self.eval()

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data, all inliers until a fit: points as given, targets as the outcome transform makes them."""
        if targets is None:  # BoTorch, as it transforms inputs for predictions and restores the old ones
            return super().set_train_data(inputs=inputs, strict=strict)
        if self._train_Yvar_all is not None:
            raise ValueError("a RobustGP with train_Yvar keeps its data; make a new one of all data.")
        training = self.training
        self.train()  # inputs are untransformed now, so BoTorch transforms the new ones and forgets the old ones
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        Y = targets.unsqueeze(-1)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform.untransform(Y)
        self._set_data(self.train_inputs[0], Y, None)
        self.train(training)

    def replicate_mask(self) -> Tensor:
        """Which other rows are of the same point, ``n x n`` bool, as given or as the kernel sees it, up to rounding."""
        X, seen = self.train_X_all, self._points_seen()
        columns = (nearly_equal(x.unsqueeze(1), x) for x in X.unbind(-1))
        kernel = (nearly_equal(z.unsqueeze(1), z, z.abs().amax()) for z in seen.unbind(-1))
        if X.shape == seen.shape:
            same = reduce(torch.logical_and, map(torch.logical_or, columns, kernel))
        else:  # an input transform drops or adds columns, so that they do not correspond
            same = reduce(torch.logical_and, columns) | reduce(torch.logical_and, kernel)
        return same & ~torch.eye(len(X), dtype=torch.bool, device=X.device)

    def _points_seen(self) -> Tensor:
        """All points as the kernel sees training points; an input transform learns nothing from that."""
        transform: Any = getattr(self, "input_transform", None)
        if transform is None:
            return self.train_X_all
        training = transform.training
        with torch.no_grad():
            seen: Tensor = transform.eval().preprocess_transform(self.train_X_all)
        transform.train(training)
        return seen

    @property
    def outcome_scale(self) -> OutcomeScale:
        """The scale in which outcomes are modeled; the identity before a fit."""
        return standardize_of(getattr(self, "outcome_transform", None))[0]

    def _set_scale(self, scale: OutcomeScale) -> None:
        """Standardize in this scale; the transform must be trained or loaded afterwards."""
        self.register_buffer("_scale", self.train_Y_all.new_tensor(scale))
        if scale != self.outcome_scale:
            values = scale.transform(self.train_Y_all[scale.contains(self.train_Y_all)])
            standardize = Standardize(1, min_stdv=smallest_deviation(values)).to(values)
            self.outcome_transform = scaled_standardize(scale, standardize).train(self.training)

    def _set_data(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        for name, value in zip(DATA, (X, Y), strict=True):
            self.register_buffer(name, value.detach().clone())
        self.register_buffer("_train_Yvar_all", None if Yvar is None else Yvar.detach().clone(), persistent=False)
        self._set_detection(OutlierDetection.without_search(np.ones(len(X), dtype=bool)), detected=False)

    def _set_detection(self, detection: OutlierDetection, detected: bool = True) -> None:
        """Keep the outlier statistics."""
        template = self.train_Y_all
        values = {name: torch.as_tensor(getattr(detection, name)) for name in STATISTICS}
        for name, value in {**values, "outliers_detected": torch.tensor(detected)}.items():
            self.register_buffer(name, value.to(template.device) if value.dtype == torch.bool else value.to(template))

    def _check_nothing_added(self) -> None:
        self.train()
        if not torch.equal(self.train_inputs[0], self.train_X_all[self.inlier_mask]):
            raise ValueError("observations were added to this RobustGP; make and fit a new one of all data.")

    def within_limits(self) -> Tensor:
        """Which observations are within the ``outcome_limits``, ``n`` bool."""
        lower, upper = self.outcome_limits
        return ((self.train_Y_all >= lower) & (self.train_Y_all <= upper)).squeeze(-1)

    def _search_data(self) -> SearchData:
        """All observations as arrays, in the units of an outcome transform that is not ours."""
        self._check_nothing_added()
        standardized = standardize_of(getattr(self, "outcome_transform", None))[1] is not None
        Y, Yvar = self.train_Y_all, self._train_Yvar_all
        if not standardized and hasattr(self, "outcome_transform"):
            Y, Yvar = self.outcome_transform.eval()(Y=Y, Yvar=Yvar, X=self.transform_inputs(self.train_X_all))
        model = copy.deepcopy(self).double()
        SingleTaskGP.set_train_data(model, self.train_X_all.double(), Y.squeeze(-1).double(), strict=False)
        if Yvar is not None:
            model.likelihood.noise_covar.noise = Yvar.double().flatten()
        places = as_array(self._points_seen())
        places = places[:, np.ptp(places, axis=0) > 0.0]  # a constant column does not count
        return SearchData(
            evidence=evidence_of(model),
            y=as_array(Y.squeeze(-1)),
            places=(places - places.min(0)) / np.ptp(places, axis=0),
            replicates=self.replicate_mask().cpu().numpy(),
            prior=self.outlier_prior,
            standardized=standardized,
            possible=self.within_limits().cpu().numpy(),
        )

    def _adopt(self, detection: OutlierDetection, restandardize: bool) -> None:
        self.train()
        inliers = torch.as_tensor(detection.inlier_mask, device=self.train_Y_all.device)
        X, Y = self.train_X_all[inliers], self.train_Y_all[inliers]
        Yvar = None if self._train_Yvar_all is None else self._train_Yvar_all[inliers]
        if hasattr(self, "outcome_transform"):
            self.outcome_transform.train(restandardize)
            Y, Yvar = self.outcome_transform(Y=Y, Yvar=Yvar, X=self.transform_inputs(X))
        super().set_train_data(X, Y.squeeze(-1), strict=False)
        if Yvar is not None:
            self.likelihood.noise_covar.noise = Yvar.squeeze(-1).clamp_min(min_fixed_noise.value(Yvar.dtype))
        self._set_detection(detection)

    def _warn(self, found: OutlierDetection) -> None:
        n, outliers, explained = len(self.inlier_mask), self.num_outliers, found.explained
        if found.undecided:
            notice = (
                f"{found.undecided} of {n} observations look like outliers, so nothing tells which are right: none is "
                "left out; do not trust this model, and replicate some."
            )
        elif outliers > max(2.0, MANY * n):
            notice = (
                f"RobustGP flags {outliers} of {n} observations as outliers; look at them with "
                "bo_robust.models.plot_outliers(model)."
            )
        elif n >= ENOUGH and explained < UNEXPLAINED:
            notice = (
                f"the others explain {max(explained, 0.0):.0%} of the variance of an observation: noise is large, the "
                "kernel is wrong, or there are more outliers than RobustGP can tell; look at them, or replicate some."
            )
        else:
            return
        warnings.warn(notice, UserWarning, stacklevel=4)


def _restore(model: RobustGP, _: Any) -> None:
    """Restore the outliers of a loaded state, or detect them in data that the state does not know."""
    state: dict[str, Any] = model.__dict__.pop("_loaded")
    complete = all(value is not None for value in state.values()) and bool(state["outliers_detected"])
    if not complete or any(not torch.equal(state[x].to(model.get_buffer(x)), model.get_buffer(x)) for x in DATA):
        return model.detect_outliers(restandardize=False)
    saved = {name: state[name].to(model.get_buffer(name)).cpu().numpy() for name in STATISTICS}
    model._adopt(OutlierDetection(**saved, explained=math.nan), restandardize=False)
    model.eval()
