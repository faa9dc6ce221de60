"""Ax' ``Acquisition`` by bo_robust: replicates, conditions, and points chosen one after the other."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import torch
from ax.exceptions.core import SearchSpaceExhausted
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from torch import Tensor

from bo_robust.acquisition import (
    OnePointLogNoisyExpectedHypervolumeImprovement,
    OnePointLogNoisyExpectedImprovement,
    ValueAtRiskUCB,
)
from bo_robust.acquisition.fresh_pair import is_due, repeats, under_drawn_condition
from bo_robust.acquisition.pending import MOST_PENDING, MOST_PENDING_OF_BOUNDS, foremost_pending
from bo_robust.integrations.ax.search import Columns, random_point
from bo_robust.proposals.sided_model import SidedModel, replicates
from bo_robust.proposals.space import OneHotAcquisition
from bo_robust.utils.linalg import is_among
from bo_robust.utils.upstream import ax_objectives

ROUNDING = 1e-8  # of a coordinate of the unit box, by Ax' changes of units


class ValueOfDesigns(AcquisitionFunction):
    """A :class:`ValueAtRiskUCB` at points of a search space that holds its conditions too; it sees the designs only."""

    may_repeat: ClassVar[bool] = True

    def __init__(self, acqf: ValueAtRiskUCB) -> None:
        super().__init__(acqf.model)
        self.acqf, self.X_pending = acqf, acqf.X_pending

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        super().set_X_pending(X_pending)
        self.acqf.set_X_pending(X_pending)

    def forward(self, X: Tensor) -> Tensor:
        return self.acqf(X[..., : X.shape[-1] - self.acqf.environment.appended])


WRITTEN_OUT: dict[type[AcquisitionFunction], type[AcquisitionFunction]] = {
    qLogNoisyExpectedImprovement: OnePointLogNoisyExpectedImprovement,
    qLogNoisyExpectedHypervolumeImprovement: OnePointLogNoisyExpectedHypervolumeImprovement,
}


class RobustAcquisition(Acquisition):
    """Ax' ``Acquisition``, which may also measure arms again and choose conditions.

    The models learn which side of each objective is good. An observation that is better than all inliers, but flagged
    as an outlier or held, is measured a second time before the maximum (:func:`bo_robust.suggest_replicates`), unless
    the acquisition chooses conditions. In a finite search space Ax leaves out points observed or pending, as suits
    expected improvement, until none is left; the maximum of an upper confidence bound is over all points. A space of
    choices, ordered or not, and integers is finite. Several points are chosen one after the other, the earlier ones
    hallucinated.
    """

    acqf: Any
    choosing: Any
    X_observed: Tensor | None
    X_pending: Tensor | None
    known_pending: Tensor | None  # those that the acquisition gets, the foremost where they are many

    def __init__(self, *, surrogate: Any, botorch_acqf_class: Any, torch_opt_config: Any, **options: Any) -> None:
        several = torch_opt_config.is_moo or torch_opt_config.outcome_constraints is not None
        if several and getattr(botorch_acqf_class, "may_repeat", False):
            raise ValueError(
                "this method takes one objective and no constraints on outcomes; leave method and width out."
            )
        limited = surrogate.surrogate_spec.metric_to_model_configs if surrogate.surrogate_spec is not None else {}
        if unknown := sorted(set(limited) - set(surrogate.outcomes)):
            known = ", ".join(surrogate.outcomes)
            warnings.warn(
                f"outcome_limits name {', '.join(unknown)}, but the metrics modeled are {known}.", stacklevel=2
            )
        for sided in _objectives(surrogate.model, torch_opt_config.objective_weights):
            sided.model.maximize = sided.maximize  # the strategy does not know the objective
        super().__init__(
            surrogate=surrogate, botorch_acqf_class=botorch_acqf_class, torch_opt_config=torch_opt_config, **options
        )
        self.chooses_conditions = getattr(self.acqf, "chooses_conditions", False)
        self.choosing = self.acqf  # which chooses conditions
        if self.chooses_conditions and not self.acqf.takes_conditions:
            self.acqf = ValueOfDesigns(self.acqf)
        self.repeats = getattr(self.acqf, "may_repeat", False)
        self.known_pending = self.X_pending
        most = MOST_PENDING_OF_BOUNDS if self.chooses_conditions else MOST_PENDING
        cheap = self.repeats and not self.chooses_conditions  # a bound of one point
        if not cheap and self.X_pending is not None and len(self.X_pending) > most:
            self.known_pending = self.X_pending[foremost_pending(self.acqf, self.X_pending, most)]

    def _construct_botorch_acquisition(self, botorch_acqf_class: Any, *args: Any, **options: Any) -> Any:
        """As Ax does; noisy improvements are the faster ones of the same values."""
        botorch_acqf_class = WRITTEN_OUT.get(botorch_acqf_class, botorch_acqf_class)
        return super()._construct_botorch_acquisition(botorch_acqf_class, *args, **options)

    def optimize(  # type: ignore[override]
        self,
        n: int,
        search_space_digest: Any,
        inequality_constraints: Any = None,
        equality_constraints: Any = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in Ax: points ``n x d``, their values ``n`` and weights ``n``."""
        options |= {"inequality_constraints": inequality_constraints, "equality_constraints": equality_constraints}
        avoided = observed, pending = self.X_observed, self.X_pending
        if self.repeats:
            self.X_observed = self.X_pending = None  # what `optimize` avoids; the acquisition knows of both
        finite = Columns.of(search_space_digest).finite
        fixed = options.get("fixed_features") or {}
        points: list[Tensor] = []
        values: list[Tensor] = []
        try:
            for _ in range(n):
                x = self._replicate(observed, pending, fixed, finite)
                if x is None:
                    x, value = self._search(search_space_digest, **options)
                else:
                    value = self.evaluate(x.unsqueeze(0))
                if self.chooses_conditions:
                    x = self._with_condition(x, search_space_digest, fixed)
                    x = self._unless_stuck(x, pending, search_space_digest, **options)
                points.append(x)
                values.append(value.reshape(-1))
                if len(points) < n:
                    pending = x if pending is None else torch.cat([pending, x])
                    self.X_pending = None if self.repeats else pending
                    known = [] if self.known_pending is None else [self.known_pending]
                    self.acqf.set_X_pending(torch.cat([*known, *points]))
        finally:
            self.X_observed, self.X_pending = avoided
            if len(points) > 1:
                self.acqf.set_X_pending(self.known_pending)
        return torch.cat(points), torch.cat(values), torch.ones(len(points), dtype=points[0].dtype)

    def _search(self, digest: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """The point of the largest acquisition value, ``1 x d``, and its value.

        Points observed are left out until there is no other, and points pending until there is none but them.
        """
        if self.chooses_conditions:
            designs = len(digest.feature_names) - self.choosing.environment.appended
            if any(int(columns.max()) >= designs for columns, *_ in options.get("inequality_constraints") or ()):
                raise ValueError("parameter_constraints cannot have conditions of an environment.")
        avoided = self.X_observed, self.X_pending
        try:
            for self.X_observed, self.X_pending in (avoided, (None, avoided[1])):
                with suppress(SearchSpaceExhausted):
                    return self._search_once(digest, **options)
            self.X_pending = None
            return self._search_once(digest, **options)
        finally:
            self.X_observed, self.X_pending = avoided

    def _search_once(self, digest: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """As :meth:`_search`, where at least one point is neither observed nor pending.

        In Ax' search one-hot columns are continuous, and their best values may round to a point to be avoided. In a
        finite space this search sees an unordered choice as one column instead, as it sees an ordered one.
        """
        options["optimizer_options"] = dict(options.get("optimizer_options") or {})  # a copy, because Ax empties it
        columns = Columns.of(digest)
        elsewhere = any(options.get(name) is not None for name in ("candidate_set", "sampling_strategy"))
        if not (columns.finite and columns.counts) or elsewhere or options.get("equality_constraints"):
            x, value, _ = super().optimize(1, digest, **options)
            return x, value
        plain = self.acqf, self.X_observed, self.X_pending
        coded = OneHotAcquisition(self.acqf, columns.counts)
        options |= columns.coded_options(options, coded.encode)
        try:
            self.acqf, self.X_observed, self.X_pending = coded, *map(columns.coded, plain[1:])
            x, value, _ = super().optimize(1, columns.coded_digest(digest), **options)
        finally:
            self.acqf, self.X_observed, self.X_pending = plain
        return coded.encode(x), value

    def _replicate(
        self, observed: Tensor | None, pending: Tensor | None, fixed: Mapping[int, float], finite: bool
    ) -> Tensor | None:
        """The best replication candidate of an objective, ``1 x d``, in the search space and not on its way already."""
        if self.chooses_conditions:
            return None  # it would be measured under another condition
        model, weights = ax_objectives(self)
        for point in replicates(_objectives(model, weights), finite):
            x = point.unsqueeze(0)
            obeys = all(abs(float(x[0, i]) - value) <= ROUNDING for i, value in fixed.items())
            if obeys and _holds(observed, x) and not _holds(pending, x):
                return x.to(weights)
        return None

    def _with_condition(self, x: Tensor, digest: Any, fixed: Mapping[int, float]) -> Tensor:
        """The design with the condition to observe it under, ``1 x d``; fixed columns keep their values."""
        z = self.choosing.environment.z
        d = x.shape[-1]
        if any(column >= d - z.shape[-1] for column in fixed):
            return x
        for column in range(z.shape[-1]):
            choices = digest.discrete_choices.get(d - z.shape[-1] + column)
            if choices is not None and not set(z[:, column].tolist()) <= {float(v) for v in choices}:
                name = digest.feature_names[d - z.shape[-1] + column]
                raise ValueError(f"some points of the environment are no values of the parameter {name!r}: {choices}.")
        return self.choosing.select_condition(x[..., : d - z.shape[-1]]).point.reshape(1, d)

    def _unless_stuck(self, x: Tensor, pending: Tensor | None, digest: Any, **options: Any) -> Tensor:
        """The pair, or a random one where V-UCB is stuck (:mod:`bo_robust.acquisition.fresh_pair`)."""
        # Ax' X_observed has each pair once, and their number would no longer grow.
        known = torch.cat([self.surrogate.Xs[0].to(x), x[:0] if pending is None else pending])
        low, high = x.new_tensor(digest.bounds).T
        if not (isinstance(self.choosing, ValueAtRiskUCB) and is_due(len(known)) and repeats(x[0], known, low, high)):
            return x
        environment: Any = self.choosing.environment
        drawn = random_point(digest, len(known), **options).to(x)[:, : x.shape[-1] - environment.appended]
        pair = under_drawn_condition(drawn, environment, torch.Generator().manual_seed(len(known)))
        for column, value in (options.get("fixed_features") or {}).items():
            pair[:, column] = value
        return pair


def _objectives(model: Any, weights: Tensor) -> list[SidedModel]:
    """The models of objectives that say something of their observations, each with its good side."""
    pairs = zip(getattr(model, "models", [model]), weights.sum(0).tolist(), strict=True)
    told = [(one, weight) for one, weight in pairs if hasattr(one, "train_X_all") and weight != 0.0]
    return [SidedModel(one, weight > 0.0, one.train_X_all) for one, weight in told]


def _holds(points: Tensor | None, x: Tensor) -> bool:
    """Whether a point ``1 x d`` of the unit box is among others, ``k x d`` or None, but for rounding."""
    return points is not None and bool(is_among(x, points, lambda a, b: (b - a).abs() <= ROUNDING))
