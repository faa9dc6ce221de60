"""An exact GP that decides for itself which rewards to believe, with nothing to choose.

The papers' rule truncates rewards around zero, at a level in the units of the rewards. This model judges a reward by
what the others let expect there, and all its scales come from the data. It is a heuristic: its reference and its
hyperparameters come from the rewards themselves, so the regret bounds of Ray Chowdhury & Gopalan (2019) do not cover
it. ``TruncatedGP`` is the model with the guarantee.
"""

import copy
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.likelihoods.likelihood import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.module import Module
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from bo_robust.models.doubt import Doubt
from bo_robust.models.evidence import as_array, evidence_of
from bo_robust.models.finds import Find
from bo_robust.models.outliers import Judgement, OutlierSearch
from bo_robust.models.reward_units import computable, smallest_deviation
from bo_robust.models.training_data import MovableGP, check_added, check_data, check_learnt, recommendable
from bo_robust.validation import check_positive, is_number, quoted

MANY = 0.25  # share of rewards set aside from which on the model warns
# It also warns where the others explain less than this of a reward's variance, if there are enough of them.
UNEXPLAINED, ENOUGH = 0.2, 40
ROUNDING = 16.0  # ulps by which a change of units there and back moves a coordinate
STATE = "_extra_state"  # torch's key of what :meth:`RobustGP.get_extra_state` returns
OPTIONS = ("outlier_share", "outlier_density", "maximize")
THOUGHTS = ("believed", "inlier_probability", "surprise", "surprise_limit", "barely_believed")


class RobustGP(MovableGP):
    """``SingleTaskGP`` on the rewards it believes; ``fit_gpytorch_mll`` decides which.

    The fit chooses the believed rewards and the hyperparameters together, by the evidence: a reward is set aside if it
    is less plausible, given the others, than an outlier. Then BoTorch fits the hyperparameters to the believed ones.
    Where all are believed, the model is ``SingleTaskGP``, bit for bit. Without a fit all are believed.

    Rewards that are set aside come back where a find, a region in which f deviates, is likelier than as many faults.
    One reading alone cannot tell. If it is better than all believed ones, then the mean of predictions does not follow
    it, but their variance grows about its point by P a^2: P is the probability of a find, a its size. So acquisitions
    go and look; not Thompson sampling by ``draw_matheron_paths``, which sees ``covar_module`` alone.

    At least half of the rewards are believed, and so are rewards that a second one at their point confirms. With fewer
    than four rewards, all are. Where more than half of them are equal, only rewards that deviate eight times as much as
    all that deviate less are not believed; surprise and level say nothing there. :func:`verify` says which point to
    measure again before a good reward is given up.

    Observations added by ``condition_on_observations`` and fantasies are believed: to judge them, make and fit a new
    model. ``load_state_dict`` restores what was believed of the same data, and predicts as the saved model did. Other
    data it judges at the state's hyperparameters.

    Arguments not listed are those of ``SingleTaskGP``; the default outcome transform standardises by the believed
    rewards. The non-persistent buffers ``points`` (``n x d``) and ``rewards`` (``n x 1``) keep all data.

    Args:
        train_X: ``n x d`` points, n >= 1.
        train_Y: ``n x 1`` rewards, finite. Several outputs or data sets need a ``ModelListGP``.
        train_Yvar: ``n x 1`` noise variances, where they are known.
        outlier_share: Share of outliers among all rewards, as expected before they are seen, in (0, .5).
        outlier_density: Density of an outlier within 1 / (4 density) robust standard deviations of the median, per
            robust standard deviation; beyond, it falls with the square of the distance: see ``models/outliers.py``.
        maximize: Whether large rewards are good. A good reading that is set aside leaves doubt in predictions; on the
            other side none is worth a look. None: no doubt, for loops that always measure suspects again, as batches
            filled up beside ``verify(model, maximize=True, q=q)``, Study, Optuna and Ax do.

    Attributes:
        believed: Whether each reward is believed, ``n`` bool.
        inlier_probability: Probability of each reward that it is no outlier, ``n``.
        surprise: Distance of each reward from what the other believed ones let expect, in standard deviations, ``n``.
        surprise_limit: The size of the surprise at which a reward might as well be an outlier, ``n``.
        barely_believed: Whether a reward is believed only because another one confirms it, ``n`` bool.
        judged: Whether a fit, :meth:`judge` or a loaded state chose which rewards are believed; if none did, all are.

    Raises:
        ValueError: if data are not finite or have a batch or several outputs, an option is out of range, or the noise
            is fixed by a likelihood instead of ``train_Yvar``.
    """

    _supports_batched_models = False  # Ax: one model for each metric

    points: Tensor
    rewards: Tensor
    believed: Tensor
    inlier_probability: Tensor
    surprise: Tensor
    surprise_limit: Tensor
    barely_believed: Tensor
    outcome_transform: OutcomeTransform
    _variances: Tensor | None

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
    ) -> None:
        check_data("RobustGP", train_X, train_Y, batched=False, Yvar=train_Yvar)
        if not (is_number(outlier_share) and 0.0 < outlier_share < 0.5):
            raise ValueError(f"outlier_share must be in (0, .5), got {quoted(outlier_share)}.")
        if maximize not in (True, False, None):
            raise ValueError(f"maximize must be True, False or None, got {maximize!r}.")
        check_positive(outlier_density=outlier_density)
        if isinstance(likelihood, FixedNoiseGaussianLikelihood):
            raise ValueError("give known noise variances as train_Yvar, not by a likelihood.")
        train_Y = computable(train_Y, outcome_transform, covar_module is None)
        if outcome_transform == DEFAULT:
            outcome_transform = Standardize(1, min_stdv=smallest_deviation(train_Y))
        super().__init__(
            train_X, train_Y, train_Yvar, likelihood, covar_module, mean_module, outcome_transform, input_transform
        )
        self.outlier_share, self.outlier_density, self.maximize = outlier_share, outlier_density, maximize
        self._doubt = Doubt(train_X.detach())
        self._set_data(train_X, train_Y, train_Yvar)

    @classmethod
    def construct_inputs(
        cls, training_data: SupervisedDataset, noise_var: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor; what Ax adds for categorical or task features is ignored.

        ``noise_var``, one for all rewards, wins over the noise variances of the data.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        if noise_var is not None:
            inputs["train_Yvar"] = torch.full_like(inputs["train_Y"], noise_var)
        return inputs | {name: options[name] for name in OPTIONS if name in options}

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Choose the believed rewards and fit the hyperparameters to them; ``fit_gpytorch_mll`` calls this."""
        judgement = self._search().fit()
        self._believe(judgement, restandardise=True)
        self._warn(judgement.explained)
        # A view of this model without this method, which shares its modules.
        plain = copy.copy(self)
        plain.__class__ = SingleTaskGP
        fit_gpytorch_mll(type(mll)(self.likelihood, plain), **options)
        if self.num_set_aside:  # at the hyperparameters now fitted
            self.judge(restandardise=False, known=self.believed)
        return mll.eval()

    @property
    def prediction_kernel(self) -> Kernel:
        """The covariance of f in predictions: it holds the doubt about readings that may be finds."""
        kernel: Kernel = self.covar_module + self._doubt if self._doubt else self.covar_module
        return kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior of f at points as the kernel sees them; a fit is without doubt."""
        prior = super().forward(x)
        certain = self.training or not self._doubt
        return prior if certain else MultivariateNormal(prior.mean, self.prediction_kernel(x))

    @property
    def num_set_aside(self) -> int:
        """Rewards that are not believed; a round of a loop counts them too."""
        return int((~self.believed).sum())

    def value(self, maximize: bool | None = None) -> Tensor:
        """Rewards ``n``, the larger the better; ``maximize=None`` is as the model was made, else True."""
        maximize = self.maximize if maximize is None else maximize
        return (self.rewards if maximize is None or maximize else -self.rewards).squeeze(-1)

    def suspects(self, maximize: bool | None = None) -> Tensor:
        """Rows of rewards that are better than all that the others support, and need another reading.

        Such a reward is not believed and alone at its point, or with a second one that is as good and not believed
        either; or it is believed only because a second one confirms it: twice the same fault is rare, three times is no
        fault. The best comes first. ``maximize`` says whether large rewards are good; None: as for the model.
        """
        value = self.value(maximize)
        twins, supported = self.twins(), self.believed & ~self.barely_believed
        best = value[supported].amax() if supported.any() else -math.inf
        # A second reading that is no better than what the others support has refuted the first.
        refuted = ~self.believed & (twins & (value <= best)).any(1)
        open_question = (twins.sum(1) < 2) & ~supported & ~refuted
        rows = (open_question & (value > best)).nonzero().squeeze(-1)
        return rows[value[rows].argsort(descending=True)]

    def recommendable(self, maximize: bool | None = None) -> Tensor:
        """Whether the point of each row may be recommended, ``n`` bool; ``maximize`` as in :meth:`suspects`.

        Not if its only readings are not believed and worse than the median of those that are: the posterior there comes
        from other points, and it may be as bad as it was read. Raises ``ValueError`` before a fit.
        """
        if not self.judged:
            raise ValueError("this RobustGP believes all rewards until it is fitted; call fit_gpytorch_mll first.")
        return recommendable(self.points, self.value(maximize), ~self.believed)

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> None:
        """Load hyperparameters and transforms, and what was believed, or judge rewards that the state does not know.

        The transforms are those of the state, whatever ``keep_transforms``, which BoTorch's models have.
        """
        told = state_dict.get(STATE, self.rewards.new_zeros(0, 0))
        # Targets are made anew of all rewards, by the transforms of the state, so BoTorch need not keep them.
        super().load_state_dict({**state_dict, STATE: told}, strict=strict, keep_transforms=False, assign=assign)
        data, told = torch.cat([self.points, self.rewards], 1), told.to(self.rewards)
        if not torch.equal(told[:, : data.shape[1]], data):
            return self.judge(restandardise=False)
        believed, probability, surprise, limit, barely, *of_finds = told[:, data.shape[1] :].cpu().numpy().T
        rows = enumerate(zip(*of_finds, strict=True))
        finds = tuple(Find(row, (row,), *map(float, find)) for row, find in rows if find[0])
        judgement = Judgement(believed > 0.0, probability, surprise, limit, barely > 0.0, math.nan, finds)
        self._believe(judgement, restandardise=False)
        self.eval()

    def get_extra_state(self) -> Tensor:
        """The data and what is thought of them, a row for each reward; no rows where they were not judged."""
        if not self.judged:
            return self.rewards.new_zeros(0, 0)
        finds = self.rewards.new_zeros(len(self.rewards), 3)
        for find in self._finds:
            finds[find.row] = finds.new_tensor([find.radius, find.deviation, find.log_odds])
        thoughts = [getattr(self, name).unsqueeze(1) for name in THOUGHTS]
        return torch.cat([self.points, self.rewards, *thoughts, finds], 1)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing: :meth:`load_state_dict` sets it, once transforms are loaded."""

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> "RobustGP":
        """A model that has these observations too, and believes them; ``ValueError`` unless they are finite."""
        check_added(X, Y)
        return cast(RobustGP, super().condition_on_observations(X, Y, noise=noise, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> "RobustGP":
        """As :meth:`condition_on_observations`, on transformed data; ``ModelListGP`` calls it."""
        check_learnt(inputs, targets, self.rewards)
        return cast(RobustGP, super().get_fantasy_model(inputs, targets, **kwargs))

    def judge(self, restandardise: bool = True, known: Tensor | None = None) -> None:
        """Choose the believed rewards at the present hyperparameters, as between the fits of a loop.

        ``restandardise`` says whether the outcome transform is trained again, on the believed rewards. ``known`` is
        what the last fit believed of the first ``m <= n`` rewards, ``m`` bool. It stands where there are no others.
        """
        rows = None if known is None else known.cpu().numpy()
        self._believe(self._search().judge(rows, doubts=self.maximize is not None), restandardise)
        self.eval()

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data and believe all of it until the next fit.

        Inputs are as the user gives them, before an input transform; targets are in the units of the outcome transform.
        Raises ``ValueError`` for new targets where noise variances are known: make a new model.
        """
        if targets is None:  # BoTorch, as it transforms inputs for predictions and brings the old ones back
            return super().set_train_data(inputs=inputs, strict=strict)
        if self._variances is not None:
            raise ValueError("a RobustGP with train_Yvar keeps its data; make a new one of all data.")
        training = self.training
        self.train()  # inputs are untransformed now, so BoTorch transforms the new ones and forgets the old ones
        super().set_train_data(inputs=inputs, targets=targets, strict=strict)
        Y = targets.unsqueeze(-1)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform.untransform(Y)
        self._set_data(self.train_inputs[0], Y, None)
        self.train(training)

    def _set_data(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        for name, value in (("points", X), ("rewards", Y), ("_variances", Yvar)):
            self.register_buffer(name, None if value is None else value.detach().clone(), persistent=False)
        self._set_judgement(Judgement.all_believed(len(X)))
        self.judged = False

    def _set_judgement(self, judgement: Judgement) -> None:
        """Keep what is thought of the rewards, and doubt what may be a find on the good side."""
        for name in THOUGHTS:
            value = torch.as_tensor(getattr(judgement, name), device=self.rewards.device)
            value = value if value.dtype == torch.bool else value.to(self.rewards)
            self.register_buffer(name, value, persistent=False)
        self.judged, self._finds = True, judgement.finds
        good = [find for find in self._finds if (find.deviation > 0.0) == self.maximize]  # None: on no side
        self._doubt.set(self._points_seen(), good, self._unit() or 1.0)

    def twins(self) -> Tensor:
        """Which rows are of the same point, ``n x n``; a loop's change of units may have rounded it.

        They are if each coordinate differs by the rounding of what the user gives, or of what the kernel sees.
        """
        same = ~torch.eye(len(self.points), dtype=torch.bool, device=self.points.device)
        rounding = ROUNDING * torch.finfo(self.points.dtype).eps
        for x, seen in zip(self.points.unbind(-1), self._points_seen().unbind(-1), strict=True):
            near = torch.isclose(x, x.unsqueeze(1), rtol=rounding, atol=0.0)
            same &= near | near.T | ((seen.unsqueeze(1) - seen).abs() <= rounding * seen.abs().amax())
        return same

    def _points_seen(self) -> Tensor:
        """All points as the kernel sees them, ``n x d``; an input transform learns nothing from that."""
        transform = getattr(self, "input_transform", torch.nn.Identity())
        training = transform.training
        with torch.no_grad():
            seen: Tensor = transform.eval()(self.points)
        transform.train(training)
        return seen

    def _unit(self) -> float | None:
        """The unit of the targets where the default outcome transform sets it."""
        transform: Any = getattr(self, "outcome_transform", None)
        return float(transform.stdvs) if type(transform) is Standardize else None

    def _search(self) -> OutlierSearch:
        """The search among all rewards, in the units of an outcome transform that is not the default one."""
        self.train()
        if not torch.equal(self.train_inputs[0], self.points[self.believed]):
            raise ValueError("observations were added to this RobustGP; make and fit a new one of all data.")
        self._believe(Judgement.all_believed(len(self.rewards)), restandardise=False)
        self.judged = False
        standardised = self._unit() is not None
        y = self.rewards.squeeze(-1) if standardised else self.train_targets
        model = copy.deepcopy(self).double()
        if standardised and self._variances is not None:  # in the units of y
            model.likelihood.noise_covar.noise = self._variances.double().flatten()
        places = as_array(self._points_seen())
        places = places[:, np.ptp(places, axis=0) > 0.0]  # a column that is constant does not count
        places = (places - places.min(0)) / np.ptp(places, axis=0)
        twins, options = self.twins().cpu().numpy(), (self.outlier_share, self.outlier_density)
        return OutlierSearch(evidence_of(model), as_array(y), places, twins, *options, standardised)

    def _believe(self, judgement: Judgement, restandardise: bool) -> None:
        """Make the believed rewards the training data."""
        self.train()
        believed = torch.as_tensor(judgement.believed, device=self.rewards.device)
        X, Y = self.points[believed], self.rewards[believed]
        Yvar = None if self._variances is None else self._variances[believed]
        if hasattr(self, "outcome_transform"):
            self.outcome_transform.train(restandardise)
            Y, Yvar = self.outcome_transform(Y=Y, Yvar=Yvar, X=self.transform_inputs(X))
        super().set_train_data(X, Y.squeeze(-1), strict=False)
        if Yvar is not None:
            self.likelihood.noise_covar.noise = Yvar.squeeze(-1).clamp_min(min_fixed_noise.value(Yvar.dtype))
        self._set_judgement(judgement)  # last: doubt is in the units that the transforms now have

    def _warn(self, explained: float) -> None:
        """Say that outliers are many, or too many to tell."""
        n, lost = len(self.believed), self.num_set_aside
        if lost > max(2.0, MANY * n):
            most = 2 * (n - lost - 1) < n
            more = "no more can be, so there may be more outliers: do not trust this model"
            advice = more if most else "look at them with bo_robust.models.plot_outliers(model)"
            notice = f"RobustGP sets {lost} of {n} rewards aside; {advice}."
        elif n >= ENOUGH and explained < UNEXPLAINED:
            notice = (
                f"the others explain {max(explained, 0.0):.0%} of the variance of a reward: noise is large, the kernel "
                "is wrong, or more rewards are wrong than RobustGP can tell; look at them, or repeat some."
            )
        else:
            return
        warnings.warn(notice, UserWarning, stacklevel=4)
