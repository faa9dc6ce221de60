"""An exact GP that detects outliers in its training data, with nothing to choose.

The papers' rule truncates rewards around zero, at a level in their units. This model compares an observation with its
prediction from the others, and all its scales come from the data. It is a heuristic: reference and hyperparameters come
from the observations themselves, so the regret bounds of Ray Chowdhury & Gopalan (2019) do not cover it.
``TruncatedGP`` is the model with the guarantee.
"""

import copy
import math
import warnings
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, cast

import numpy as np
import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.likelihoods.likelihood import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from bo_robust.models.local_deviation import LocalDeviation
from bo_robust.models.marginal_likelihood import as_array, evidence_of
from bo_robust.models.outcome_scale import (
    IDENTITY,
    OutcomeScale,
    affine,
    outcome_scales,
    scaled_standardize,
    standardize_of,
)
from bo_robust.models.outlier_detection import OutlierDetection, OutlierPrior, OutlierSearch, detect_over_scales
from bo_robust.models.reward_units import computable, smallest_deviation
from bo_robust.models.training_data import MovableGP, check_added, check_data, check_learnt, recommendable
from bo_robust.models.variance_inflation import InflatedKernel, VarianceInflation
from bo_robust.utils.input_checks import quoted

MANY = 0.25  # share of outliers above which the model warns
UNEXPLAINED = 0.2  # share of an observation's variance that the others predict, below which the model warns
ENOUGH = 40  # number of observations from which on it warns of unexplained variance
ROUNDING = 16.0  # units in the last place by which a change of units there and back moves a coordinate
OPTIONS = ("outlier_share", "outlier_density", "maximize", "outcome_scale")
DATA = ("train_X_all", "train_Y_all")
STATISTICS = ("inlier_mask", "inlier_probability", "loo_zscore", "loo_zscore_limit", "confirmed_by_replicate")
DEVIATIONS = ("deviation_radius", "deviation_size", "deviation_log_odds")  # 0 in rows without a local deviation
STATE = (*DATA, *STATISTICS, *DEVIATIONS, "outliers_detected", "_scale")


class RobustGP(MovableGP):
    """``SingleTaskGP`` on the inliers of its data; ``fit_gpytorch_mll`` detects the outliers.

    The fit chooses the scale of the outcomes, inliers and hyperparameters together, by marginal likelihood. An
    observation is an outlier if a gross error is more plausible than its value given the others. BoTorch then fits the
    hyperparameters to the inliers. If there are no outliers, the model is ``SingleTaskGP``, bit for bit. Before a fit
    all observations are inliers.

    Outcomes that are positive and skewed, such as prices, counts and concentrations, may be modelled as their logarithm
    or a root, where that is likelier by ``outlier_prior.scale_evidence`` nats (:mod:`bo_robust.models.outcome_scale`).
    The model is then ``SingleTaskGP`` with that outcome transform, and its posterior a ``TransformedPosterior`` in the
    units of the observations: acquisition functions take it as they take that of BoTorch's ``Log``. Those that need a
    Gaussian posterior, such as ``qMaxValueEntropy``, need ``outcome_scale=None``.

    Outliers become inliers again where a local deviation of f, a bump, is likelier than as many gross errors. A single
    observation cannot tell. If it is better than all inliers, the posterior mean does not follow it, but the posterior
    variance around its point grows by P a^2, where P is the probability of a local deviation and a its size. So
    acquisition functions explore there. This variance inflation is part of ``covar_module`` in evaluation mode, never
    in a fit.

    At least half of the observations are inliers, and so are replicates that agree. With fewer than four observations
    all are inliers. :func:`suggest_replicates` says which point to measure again before a good observation is given up.

    Observations that ``condition_on_observations`` or fantasies add are inliers. To test them, make and fit a new
    model. The state dict holds the outliers of the data and restores them with the same data, in whatever module the
    model is nested. In other data, outliers are detected at the hyperparameters of the state.

    Arguments not listed are those of ``SingleTaskGP``. The default outcome transform standardises by the inliers.

    Args:
        train_X: ``n x d`` points, n >= 1.
        train_Y: ``n x 1`` observations, finite. Several outputs or data sets need a ``ModelListGP``.
        train_Yvar: ``n x 1`` noise variances, if they are known.
        outlier_share: Share of outliers that is expected before the data are seen, in (0, .5).
        outlier_density: Density of an outlier within 1 / (4 density) robust standard deviations of the median, per
            robust standard deviation. Beyond, it falls with the square of the distance.
        maximize: Whether large observations are good. The variance is inflated around good outliers only. None: around
            none, for loops that always replicate good outliers first, as ``suggest_replicates(model, maximize=True)``,
            Ax and Optuna do.
        outcome_scale: "auto", or None to model observations as they are. With ``train_Yvar``, or another outcome
            transform than the default one, they are modelled as they are.

    Attributes:
        outlier_prior: All numbers of the detection, an :class:`OutlierPrior`. Replace it before a fit to change others
            than share and density.
        train_X_all: All points, ``n x d``. ``train_inputs`` has those of the inliers, so that code which takes its
            last row for the present setting, such as ``ProximalAcquisitionFunction``, may see an earlier one.
        train_Y_all: All observations, ``n x 1``.
        inlier_mask: Whether each observation is an inlier, ``n`` bool.
        inlier_probability: Probability of each observation that it is an inlier, ``n``, on average over the scales.
        outcome_scale: The scale in which outcomes are modelled, an :class:`OutcomeScale`.
        loo_zscore: Standardised leave-one-out residual of each observation given the other inliers, ``n``.
        loo_zscore_limit: Size of the residual at which inlier and outlier are equally likely, ``n``.
        confirmed_by_replicate: Whether an observation is an inlier only because a replicate confirms it, ``n`` bool.
        outliers_detected: Whether a fit, :meth:`detect_outliers` or a loaded state chose the inliers, a bool tensor.

    Raises:
        ValueError: if data are not finite or have a batch or several outputs, an option is out of range, or the noise
            is fixed by a likelihood instead of ``train_Yvar``.

    Examples:
        >>> model = RobustGP(train_X, train_Y)
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> outliers = train_X[~model.inlier_mask]
    """

    _supports_batched_models = False  # Ax: one model for each metric

    train_X_all: Tensor
    train_Y_all: Tensor
    inlier_mask: Tensor
    inlier_probability: Tensor
    loo_zscore: Tensor
    loo_zscore_limit: Tensor
    confirmed_by_replicate: Tensor
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
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        outlier_share: float = 0.05,
        outlier_density: float = 0.05,
        maximize: bool | None = True,
        outcome_scale: str | None = "auto",
    ) -> None:
        check_data("RobustGP", train_X, train_Y, batched=False, Yvar=train_Yvar)
        prior = OutlierPrior(outlier_share, outlier_density)
        if maximize not in (True, False, None):
            raise ValueError(f"maximize must be True, False or None, got {quoted(maximize)}.")
        if isinstance(likelihood, FixedNoiseGaussianLikelihood):
            raise ValueError("give known noise variances as train_Yvar, not by a likelihood.")
        if outcome_scale not in ("auto", None):
            raise ValueError(f'outcome_scale must be "auto" or None, got {quoted(outcome_scale)}.')
        standardised = outcome_transform == DEFAULT or type(outcome_transform) is Standardize
        self._learns_scale = outcome_scale == "auto" and standardised and train_Yvar is None
        train_Y = computable(train_Y, outcome_transform, covar_module is None)
        if outcome_transform == DEFAULT:
            outcome_transform = Standardize(1, min_stdv=smallest_deviation(train_Y))
        super().__init__(
            train_X, train_Y, train_Yvar, likelihood, covar_module, mean_module, outcome_transform, input_transform
        )
        self.outlier_prior, self.maximize = prior, maximize
        self._variance_inflation = VarianceInflation(train_X.detach())
        self._set_data(train_X, train_Y, train_Yvar)
        self._set_scale(IDENTITY)
        self.register_load_state_dict_post_hook(_restore)

    @classmethod
    def construct_inputs(
        cls, training_data: SupervisedDataset, noise_var: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor; what Ax adds for categorical or task features is ignored.

        ``noise_var``, one for all observations, overrides the noise variances of the data.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        if noise_var is not None:
            inputs["train_Yvar"] = torch.full_like(inputs["train_Y"], noise_var)
        return inputs | {name: options[name] for name in OPTIONS if name in options}

    @property
    def covar_module(self) -> Kernel:
        """The covariance of f: the given kernel in training mode, with the variance inflation in evaluation mode."""
        kernel = cast(Kernel, self._modules["covar_module"])
        inflated = self._variance_inflation and not self.training
        return InflatedKernel(kernel, self._variance_inflation) if inflated else kernel

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Choose the inliers and fit the hyperparameters to them; ``fit_gpytorch_mll`` calls this."""
        scales = outcome_scales(self.train_Y_all.squeeze(-1)) if self._learns_scale else [self.outcome_scale]
        scale, detection = detect_over_scales(self._search(*scales))
        self._set_scale(scale)
        self._use(detection, restandardise=True)
        self._warn(detection.explained)
        fit_gpytorch_mll(type(mll)(self.likelihood, self.to_standard_model()), **options)
        if self.num_outliers:  # at the hyperparameters now fitted
            self.detect_outliers(restandardise=False, known_inliers=self.inlier_mask)
            if len(scales) > 1:
                self.inlier_probability.copy_(torch.as_tensor(detection.inlier_probability))
        return mll.eval()

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """As of ``SingleTaskGP``; in a learnt scale, ``posterior_transform`` may weight the output, as Ax does."""
        weighted = type(posterior_transform) is ScalarizedPosteriorTransform and not self.outcome_scale.is_identity
        transform = None if weighted else posterior_transform
        posterior: Any = super().posterior(X, output_indices, observation_noise, transform)
        if not weighted:
            return posterior
        line: Any = posterior_transform
        return affine(posterior, line.offset, line.weights)

    def to_standard_model(self) -> SingleTaskGP:
        """Return a ``SingleTaskGP`` of the inliers that shares the modules of this model, without variance inflation.

        Raises ``ValueError`` if observations were added to this model.
        """
        training = self.training
        self._check_nothing_added()
        model = SingleTaskGP(
            self.train_inputs[0],
            self.train_targets.unsqueeze(-1),
            likelihood=self.likelihood,
            covar_module=self.covar_module,
            mean_module=self.mean_module,
            outcome_transform=None,
        )
        for name in ("outcome_transform", "input_transform"):  # set last, because the constructor would retrain them
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        self.train(training)
        return model.train(training)

    @property
    def num_outliers(self) -> int:
        """Number of outliers; a round of a loop counts them too."""
        return int((~self.inlier_mask).sum())

    def signed_Y(self, maximize: bool | None = None) -> Tensor:
        """Observations ``n``, where larger is better; ``maximize=None`` is as the model was made, else True."""
        maximize = self.maximize if maximize is None else maximize
        return (self.train_Y_all if maximize is None or maximize else -self.train_Y_all).squeeze(-1)

    def prior_covariance(self) -> Tensor:
        """Prior covariance of f at all points, ``n x n``, without variance inflation."""
        return cast(Tensor, cast(Kernel, self._modules["covar_module"])(self._points_seen()).to_dense())

    def replication_candidates(self, maximize: bool | None = None, replicates: Tensor | None = None) -> Tensor:
        """Rows of observations that are better than all that the others support, and need a replicate.

        Such an observation is an outlier and alone at its point, or has one replicate that is as good and an outlier
        too. Or it is an inlier only because a replicate confirms it: the same gross error is rare twice, and does not
        occur three times. The best comes first. ``maximize`` says whether large observations are good; None: as for the
        model. ``replicates`` says which rows are of one point; default: :meth:`replicate_mask`.
        """
        value = self.signed_Y(maximize)
        supported = self.inlier_mask & ~self.confirmed_by_replicate
        replicates = self.replicate_mask() if replicates is None else replicates
        best = value[supported].amax() if supported.any() else -math.inf
        # A replicate that is no better than what the others support has contradicted the observation.
        contradicted = ~self.inlier_mask & (replicates & (value <= best)).any(1)
        undecided = (replicates.sum(1) < 2) & ~supported & ~contradicted
        rows = (undecided & (value > best)).nonzero().squeeze(-1)
        return rows[value[rows].argsort(descending=True)]

    def recommendable(self, maximize: bool | None = None) -> Tensor:
        """Whether the point of each row may be recommended, ``n`` bool; see :meth:`replication_candidates`.

        A point may not be recommended if its only observations are outliers that are worse than the median of the
        inliers. The posterior there comes from other points, and the point may be as bad as it was observed to be.
        Raises ``ValueError`` before a fit.
        """
        if not self.outliers_detected:
            raise ValueError("this RobustGP has not looked for outliers yet; call fit_gpytorch_mll first.")
        return recommendable(self.train_X_all, self.signed_Y(maximize), ~self.inlier_mask)

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> None:
        """Load a state; its outliers are restored, or detected if the state has other data.

        The transforms are those of the state, whatever ``keep_transforms``, which BoTorch's models have.
        """
        # Targets are made anew from all observations, by the transforms of the state, so BoTorch need not keep them.
        super().load_state_dict(state_dict, strict=strict, keep_transforms=False, assign=assign)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        """Keep what the state says of outliers for :func:`_restore`, which runs when all modules have their state."""
        scale = state_dict.get(prefix + "_scale")
        self._set_scale(IDENTITY if scale is None else OutcomeScale(*scale.tolist()))
        self._loaded = {name: state_dict.get(prefix + name) for name in STATE}
        own = {prefix + name: getattr(self, name) for name in STATE}
        super()._load_from_state_dict({**state_dict, **own}, prefix, local_metadata, strict, *lists)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> "RobustGP":
        """Return a model that has these observations as inliers too; raise ``ValueError`` unless they are finite."""
        check_added(X, Y)
        return cast(RobustGP, super().condition_on_observations(X, Y, noise=noise, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> "RobustGP":
        """As :meth:`condition_on_observations`, on transformed data; ``ModelListGP`` calls it."""
        check_learnt(inputs, targets, self.train_Y_all)
        return cast(RobustGP, super().get_fantasy_model(inputs, targets, **kwargs))

    def detect_outliers(self, restandardise: bool = True, known_inliers: Tensor | None = None) -> None:
        """Choose the inliers at the present hyperparameters, as between the fits of a loop.

        ``restandardise`` says whether the outcome transform is trained again, on the inliers. ``known_inliers`` is the
        choice of the last fit among the first ``m <= n`` observations, ``m`` bool. It stands if these are all.
        """
        known = None if known_inliers is None else known_inliers.cpu().numpy()
        (search,) = self._search(self.outcome_scale)
        self._use(search.detect(known, look_for_deviations=self.maximize is not None), restandardise)
        self.eval()

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data; all of it are inliers until the next fit.

        Inputs are as the user gives them, before an input transform; targets are in the units of the outcome transform.
        Raises ``ValueError`` for new targets where noise variances are known: make a new model.
        """
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
        """Which rows are of the same point, ``n x n`` bool; a row is no replicate of itself.

        They are if each coordinate differs by the rounding of what the user gives, or of what the kernel sees. A change
        of units in a loop rounds.
        """
        X, seen = self.train_X_all, self._points_seen()
        rounding = ROUNDING * torch.finfo(X.dtype).eps

        def near(x: Tensor) -> Tensor:
            close = torch.isclose(x, x.unsqueeze(1), rtol=rounding, atol=0.0)
            return close | close.T

        def near_seen(x: Tensor) -> Tensor:
            return (x.unsqueeze(1) - x).abs() <= rounding * x.abs().amax()

        given, kernel = X.unbind(-1), seen.unbind(-1)
        if len(given) == len(kernel):
            same = reduce(torch.logical_and, (near(x) | near_seen(z) for x, z in zip(given, kernel, strict=True)))
        else:  # an input transform drops or adds columns, so that they do not correspond
            same = reduce(torch.logical_and, map(near, given)) | reduce(torch.logical_and, map(near_seen, kernel))
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
        """The scale in which outcomes are modelled; the identity before a fit."""
        return standardize_of(getattr(self, "outcome_transform", None))[0]

    def _set_scale(self, scale: OutcomeScale) -> None:
        """Standardise in this scale; the transform must be trained or loaded afterwards."""
        self.register_buffer("_scale", self.train_Y_all.new_tensor(scale))
        if scale != self.outcome_scale:
            values = scale.transform(self.train_Y_all[scale.contains(self.train_Y_all)])
            standardize = Standardize(1, min_stdv=smallest_deviation(values)).to(values)
            self.outcome_transform = scaled_standardize(scale, standardize).train(self.training)

    def _unit(self) -> float | None:
        """The unit of the targets, in the outcome scale, where the default outcome transform sets it."""
        standardize: Any = standardize_of(getattr(self, "outcome_transform", None))[1]
        return None if standardize is None else float(standardize.stdvs)

    def _set_data(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        for name, value in zip(DATA, (X, Y), strict=True):
            self.register_buffer(name, value.detach().clone())
        self.register_buffer("_train_Yvar_all", None if Yvar is None else Yvar.detach().clone(), persistent=False)
        self._set_detection(OutlierDetection.all_inliers(len(X)), detected=False)

    def _set_detection(self, detection: OutlierDetection, detected: bool = True) -> None:
        """Keep the outlier statistics, and inflate the variance around good outliers that may be no errors."""
        like = self.train_Y_all
        deviations = like.new_zeros(len(DEVIATIONS), len(like))
        for each in detection.deviations:
            deviations[:, each.row] = like.new_tensor([each.radius, each.size, each.log_odds])
        values = {name: torch.as_tensor(getattr(detection, name)) for name in STATISTICS}
        values |= {name: row.clone() for name, row in zip(DEVIATIONS, deviations, strict=True)}
        values["outliers_detected"] = torch.tensor(detected)
        for name, value in values.items():
            self.register_buffer(name, value.to(like.device) if value.dtype == torch.bool else value.to(like))
        # `maximize=None` is equal to neither side.
        good = [each for each in detection.deviations if (each.size > 0.0) == self.maximize]
        self._variance_inflation.set(self._points_seen(), good, self._unit() or 1.0)

    def _check_nothing_added(self) -> None:
        """Raise ``ValueError`` if observations were added; the model is in training mode afterwards."""
        self.train()
        if not torch.equal(self.train_inputs[0], self.train_X_all[self.inlier_mask]):
            raise ValueError("observations were added to this RobustGP; make and fit a new one of all data.")

    def _search(self, *scales: OutcomeScale) -> list[OutlierSearch]:
        """A search among all observations for each scale, in the units of an outcome transform that is not ours."""
        self._check_nothing_added()
        standardised = self._unit() is not None
        Y, Yvar = self.train_Y_all, self._train_Yvar_all
        if not standardised and hasattr(self, "outcome_transform"):
            Y, Yvar = self.outcome_transform.eval()(Y=Y, Yvar=Yvar, X=self.transform_inputs(self.train_X_all))
        model = copy.deepcopy(self).double()
        SingleTaskGP.set_train_data(model, self.train_X_all.double(), Y.squeeze(-1).double(), strict=False)
        if Yvar is not None:
            model.likelihood.noise_covar.noise = Yvar.double().flatten()
        places = as_array(self._points_seen())
        places = places[:, np.ptp(places, axis=0) > 0.0]  # a constant column does not count
        places = (places - places.min(0)) / np.ptp(places, axis=0)
        replicates, y, evidence = self.replicate_mask().cpu().numpy(), as_array(Y.squeeze(-1)), evidence_of(model)
        return [
            OutlierSearch(evidence, y, places, replicates, self.outlier_prior, standardised, scale) for scale in scales
        ]

    def _use(self, detection: OutlierDetection, restandardise: bool, detected: bool = True) -> None:
        """Make the inliers the training data."""
        self.train()
        inliers = torch.as_tensor(detection.inlier_mask, device=self.train_Y_all.device)
        X, Y = self.train_X_all[inliers], self.train_Y_all[inliers]
        Yvar = None if self._train_Yvar_all is None else self._train_Yvar_all[inliers]
        if hasattr(self, "outcome_transform"):
            self.outcome_transform.train(restandardise)
            Y, Yvar = self.outcome_transform(Y=Y, Yvar=Yvar, X=self.transform_inputs(X))
        super().set_train_data(X, Y.squeeze(-1), strict=False)
        if Yvar is not None:
            self.likelihood.noise_covar.noise = Yvar.squeeze(-1).clamp_min(min_fixed_noise.value(Yvar.dtype))
        self._set_detection(detection, detected)  # last: the inflation is in the units that the transforms now have

    def _warn(self, explained: float) -> None:
        """Warn if there are many outliers, or too many to tell."""
        n, outliers = len(self.inlier_mask), self.num_outliers
        if outliers > max(2.0, MANY * n):
            most = 2 * (n - outliers - 1) < n
            more = "no more can be, so there may be more outliers: do not trust this model"
            advice = more if most else "look at them with bo_robust.models.plot_outliers(model)"
            notice = f"RobustGP flags {outliers} of {n} observations as outliers; {advice}."
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
        return model.detect_outliers(restandardise=False)
    saved = {name: state[name].to(model.get_buffer(name)).cpu().numpy() for name in (*STATISTICS, *DEVIATIONS)}
    rows = enumerate(zip(*(saved[name].tolist() for name in DEVIATIONS), strict=True))
    deviations = tuple(LocalDeviation(row, (row,), *values) for row, values in rows if values[0])
    statistics = {name: saved[name] for name in STATISTICS}
    model._use(OutlierDetection(**statistics, explained=math.nan, deviations=deviations), restandardise=False)
    model.eval()
