"""The models of all outputs, on the data of one call of :func:`bo_robust.suggest`, and what they recommend."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import GenericMCObjective
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from bo_robust.acquisition.noisy_improvement import noisy_improvement
from bo_robust.acquisition.pending import MOST_PENDING, MOST_PENDING_OF_BOUNDS, foremost_pending
from bo_robust.models import RobustGP, TruncatedGP, marginal_moments, suggest_replicates
from bo_robust.models.marginal_likelihood import fit_evidence
from bo_robust.models.recommendation import Prediction
from bo_robust.models.training_data import recommendable
from bo_robust.proposals.methods import Choice, flagged, held, predict, reliable
from bo_robust.proposals.outcomes import Outputs
from bo_robust.proposals.space import among

NOISE_FLOOR = 1e-6  # least noise variance that is learned; BoTorch's 1e-4 blurs the optimum of a noise-free objective
HALFWAY = 0.5  # between the label of a success and that of a failure
# The acquisition falls by this times the squared excess of the label over HALFWAY. Where failure is sure it is 2,500
# lower, which rules the design out. A steeper fall would stop line searches at the edge.
STEEP = 1e4
ROUNDING = 1e-9  # of a coordinate in the unit cube


class Analysis:
    """The models of all outputs; large objectives and small constraints are good."""

    def __init__(
        self, space: Any, outputs: Outputs, choice: Choice, designs: list[Tensor], repeats: str, device: str
    ) -> None:
        X, pending, failed = designs
        self.space, self.outputs, self.choice, self.X, self.repeats = space, outputs, choice, X, repeats
        self.X_elsewhere, self.X_pending = torch.cat([pending, failed]), pending
        self.U, self.pending, self.failed = (space.encode(x).to(device) for x in (X, pending, failed))
        self.models: list[Any] = []
        self.outliers = torch.zeros(len(X), dtype=torch.bool, device=device)
        self.held, self.feasible = self.outliers.clone(), space.feasible(X).to(device)
        self.recommendable = self.feasible.clone()
        for j, y in enumerate(outputs.scaled.to(device).unbind(-1)):
            sided, rows = j < outputs.objectives, y.isfinite()
            options: dict[str, Any] = {}
            if choice.model is RobustGP:
                options["maximize"] = True if sided else None  # constraints have no good side
                options["outcome_limits"] = outputs.limits[j]
            sided_choice = choice._replace(model_options=choice.model_options | options)
            build = partial(sided_choice.build, self.U[rows], y[rows].unsqueeze(-1))
            model = _fitted(build, **_modules(choice, self.U))
            self.models.append(model)
            self.outliers[rows] |= flagged(model)
            # Small constraints are good.
            self.recommendable[rows] &= recommendable(self.U[rows], reliable(model, maximize=sided))
            if sided:
                self.held |= held(model)
        self.model = self.models[0] if len(self.models) == 1 else ModelListGP(*self.models)
        self.failing = _failure_model(*map(self._designs, (X, failed))) if len(failed) else None

    def replicate(self, chosen: Tensor) -> Tensor | None:
        """A measured design to measure again first, ``1 x d``, or None."""
        if self.choice.model is not RobustGP or self.space.conditioned:
            return None
        candidates = None if self.space.candidates is None else self.U
        elsewhere = torch.cat([self.pending, self.failed, self.space.encode(chosen).to(self.U)])
        for model in self.models[: self.outputs.objectives]:
            if not model.outliers_detected:
                continue
            points = suggest_replicates(model, len(self.U), candidates, X_pending=elsewhere)
            for point in () if points is None else points:
                x = self.X[(point == self.U).all(-1)][:1]
                if self.space.holds(x):
                    return x
        return None

    def maximize(self, chosen: Tensor, restarts: int, raw_samples: int) -> Tensor:
        """The design of the largest acquisition value, ``1 x d``, beside the chosen ones."""
        pending = self._coordinates(torch.cat([self.X_pending[self._known_pending], chosen]))
        acqf = self._acquisition(pending if len(pending) else None)
        if self.failing is not None:
            acqf = _WhereTrialsSucceed(acqf, self.failing)
        if len(self._known_pending) < len(self.pending) and not self.space.conditioned:
            acqf = _Elsewhere(acqf, self.pending)
        return self.space.maximize(acqf, restarts, raw_samples, self.U.device, self._known(chosen))

    def _coordinates(self, pending: Tensor) -> Tensor:
        """Coordinates of pending designs, without their conditions where some are not known yet."""
        coordinates: Tensor = self.space.encode(pending).to(self.U)
        return coordinates if coordinates.isfinite().all() else self._designs(pending)

    @cached_property
    def _known_pending(self) -> Tensor:
        """Rows of the pending designs that the acquisition function gets, the foremost where they are many."""
        every = torch.arange(len(self.X_pending))
        cheap = self.choice.acquisition is not None and not self.space.conditioned  # a bound of one design
        most = MOST_PENDING_OF_BOUNDS if self.space.conditioned else MOST_PENDING
        if cheap or len(every) <= most:
            return every
        pending = self._coordinates(self.X_pending)
        return foremost_pending(self._acquisition(None), pending, most, self._designs(self.X_pending)).cpu()

    def _designs(self, x: Tensor) -> Tensor:
        """Coordinates of designs without their conditions."""
        return self.space.encode_designs(x).to(self.U)

    def _known(self, chosen: Tensor) -> Tensor:
        """Designs of a finite space, ``k x d``, that should not be proposed, because other observations teach more.

        They are those under way or failed, and those measured where the noise is small against what is unknown
        elsewhere.
        """
        if self.space.candidates is None or self.choice.acquisition is not None:  # which chooses repeats itself
            return self.X[:0]
        elsewhere = torch.cat([self.X_elsewhere, chosen])
        if self.repeats == "never":
            return torch.cat([elsewhere, self.X])
        free = ~among(self.space.candidates, torch.cat([elsewhere, self.X]))
        if not free.any():
            return elsewhere
        U = self.space.encode(self.space.candidates[free]).to(self.U)
        with torch.no_grad():
            unknown = [marginal_moments(model, U)[1].amax() for model in self.models]
            readings = [model.posterior(U[:1], observation_noise=True).variance for model in self.models]
            noise = [y - model.posterior(U[:1]).variance for y, model in zip(readings, self.models, strict=True)]
        noisy = all(one > left for one, left in zip(noise, unknown, strict=True))
        return elsewhere if noisy else torch.cat([elsewhere, self.X])

    def expected(self) -> Tensor:
        """Means of the objectives at the designs measured, ``n x m``, in units of Y."""
        m = self.outputs.objectives
        mean = torch.stack([predict(model, self.U).mean for model in self.models[:m]], -1)
        return self.outputs.center[:m] + self.outputs.scale[:m] * mean.cpu()

    def best(self) -> tuple[int | None, float, tuple[float, float]]:
        """The row of the largest mean that may be recommended, with mean and 95 % interval there."""
        nothing = None, math.nan, (math.nan, math.nan)
        if self.outputs.objectives > 1:
            return nothing
        if self.space.conditioned:
            model = self.models[0]
            used = model.reliable_model(maximize=True) if model.outliers_detected else model
            row, value, std = self.space.best(used, self.X, self.recommendable)
            found = torch.stack(Prediction.gaussian(*torch.tensor([[value], [std**2]], dtype=torch.float64)))
            return self._in_units(row, found.clamp(*model.outcome_limits)[:, 0])
        may = self.recommendable.clone()
        for model in self.models[1:]:
            may &= predict(model, self.U, maximize=False).mean <= 0.0
        if not may.any():
            return nothing
        found = torch.stack(predict(self.models[0], self.U))
        row = int(found[0].where(may, -math.inf).argmax())
        return self._in_units(row, found[:, row])

    def _in_units(self, row: int | None, found: Tensor) -> tuple[int | None, float, tuple[float, float]]:
        """The row, and mean and interval there, three numbers of the model, in units of Y."""
        mean, *ends = (self.outputs.center[0] + self.outputs.scale[0] * found.cpu()).tolist()
        return row, mean, (min(ends), max(ends))

    def _acquisition(self, pending: Tensor | None) -> Any:
        if self.choice.acquisition is not None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (1,))))
            return self.choice.acquire(self.model, pending, generator)
        # What is to be improved on: where no design will do, all.
        may = next((rows for rows in (self.recommendable, self.feasible) if rows.any()), torch.ones_like(self.feasible))
        baseline, m = self.U[may], self.outputs.objectives
        options: dict[str, Any] = {"X_pending": pending, "prune_baseline": True}
        if len(self.models) > m:
            options["constraints"] = [partial(_output, j) for j in range(m, len(self.models))]
        if not self.outputs.several:
            return noisy_improvement(self.model, baseline, **options)
        if m == 1:
            objective = GenericMCObjective(partial(_output, 0))
            return qLogNoisyExpectedImprovement(self.model, baseline, objective=objective, **options)
        with torch.no_grad():
            mean = self.model.posterior(baseline).mean[:, :m]
        front = mean[is_non_dominated(mean)]
        return qLogNoisyExpectedHypervolumeImprovement(
            self.model,
            infer_reference_point(front),
            baseline,
            objective=IdentityMCMultiOutputObjective(outcomes=list(range(m)), num_outcomes=len(self.models)),
            **options,
        )


class _WhereTrialsSucceed(AcquisitionFunction):
    """An acquisition function that falls with the probability of failure where failure is likelier than success.

    A failure tells of a constraint, of which success or failure is all that is seen (Gelbart, Snoek & Adams 2014,
    "Bayesian optimization with unknown constraints"). The wrapped values are logarithms or bounds.
    """

    def __init__(self, acqf: Any, failing: SingleTaskGP) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.failing = acqf, failing
        self.set_X_pending(None)
        if (baseline := getattr(acqf, "X_baseline", None)) is not None:
            self.X_baseline = baseline  # where BoTorch's searches start

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x 1 x d``."""
        excess = (self.failing.posterior(X).mean.squeeze(-1).squeeze(-1) - HALFWAY).clamp_min(0.0)
        value: Tensor = self.acqf(X) - STEEP * excess.square()
        return value


class _Elsewhere(AcquisitionFunction):
    """An acquisition function that rules out pending designs, so that it need not know all of them."""

    def __init__(self, acqf: Any, taken: Tensor) -> None:
        super().__init__(model=acqf.model)
        self.acqf, self.taken = acqf, taken
        self.set_X_pending(None)
        if (baseline := getattr(acqf, "X_baseline", None)) is not None:
            self.X_baseline = baseline

    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x 1 x d``."""
        same = ((X - self.taken).abs() <= ROUNDING).all(-1).any(-1)
        value: Tensor = self.acqf(X) - STEEP * same
        return value


def _output(j: int, Z: Tensor, X: Tensor | None = None) -> Tensor:
    return Z[..., j]


def _failure_model(U: Tensor, failed: Tensor) -> SingleTaskGP:
    """``SingleTaskGP`` of labels: 0 where there was an observation, 1 where the measurement failed.

    Where a region fails, labels follow a cliff. A failure by chance is noise, or a spike that spoils little around it.
    """
    labels = torch.cat([U.new_zeros(len(U), 1), U.new_ones(len(failed), 1)])
    return _fitted(partial(SingleTaskGP, torch.cat([U, failed]), labels))


def _fitted(build: Callable[..., Any], **modules: Any) -> Any:
    """The model, fitted; without these modules, at the modes of its priors, where no fit succeeds."""
    model = build(**modules)
    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer=fit_evidence)
    except ModelFittingError:
        model = build()
    return model.eval()


def _modules(choice: Choice, template: Tensor) -> dict[str, Any]:
    """BoTorch's default likelihood with a lower floor of the noise, where one is learned."""
    if choice.model not in (RobustGP, TruncatedGP) or "noise_var" in choice.model_options:
        return {}
    prior = LogNormalPrior(-4.0, 1.0)
    floor = GreaterThan(NOISE_FLOOR, transform=None, initial_value=prior.mode)
    return {"likelihood": GaussianLikelihood(noise_prior=prior, noise_constraint=floor).to(template)}
