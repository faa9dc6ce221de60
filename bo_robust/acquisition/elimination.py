"""HE-GP-UCB's rule: the largest upper confidence bound under any active candidate, and the test of candidates.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1: x_t, u_t = argmax over x and u active of mu^u_{t-1}(x) + w^u_t sigma^u_{t-1}(x).
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.confidence import BayesianFiniteWidth
from bo_robust.confidence import elimination as tests
from bo_robust.confidence.base import DIMENSION, EXPLORING, UNIFORM
from bo_robust.confidence.candidate_widths import Widths, check_number, check_unit_scale, each, widths_at
from bo_robust.confidence.elimination import Failures
from bo_robust.models.candidate_ensemble import CandidateEnsemble
from bo_robust.models.candidate_gps import Predictions
from bo_robust.models.moments import variance_in_sequence
from bo_robust.utils.input_checks import check_count, check_delta, check_positive, check_tensor, quoted

GRID = 1000  # points that stand for a continuous space in a width over finitely many: a heuristic


@dataclass(frozen=True)
class Elimination:
    """What :func:`eliminate` found, for the acquisition functions of the coming round.

    Attributes:
        t: The coming round, counted from 1: one more than the number of observations.
        active: The candidates that were not removed, ``h`` bool.
        acquisition_set: Those among which the largest bound is maximized, ``h`` bool: the active ones. By likelihood
            it is the MAP candidate alone after an observation that informed it by half a bit or more.
        widths: w^u_t of the coming round, ``h``.
        removed: Who failed its test, by round: :func:`bo_robust.confidence.elimination.timeline`, with
            ``name``. Rounds are counted from the first row of the data. It is not final: by likelihood a removed
            candidate may become active again; with standardized observations all rounds are tested anew.
        map_candidate: Index of the most probable active candidate.
        assumptions_violated: Whether every candidate failed its test, the last active one too: then none fits.
        tested: Who was tested by errors in each row, ``n x 1`` or ``n x 2`` long: indices in U, -1 for nobody.
        maximize: Whether f is maximized.
    """

    t: int
    active: Tensor
    acquisition_set: Tensor
    widths: Tensor
    removed: list[dict[str, Any]]
    map_candidate: int
    assumptions_violated: bool
    tested: Tensor
    maximize: bool


def eliminate(
    model: CandidateEnsemble,
    elimination: str = "errors",
    width: Widths | None = None,
    noise_scale: float | None = None,
    delta: float = 0.1,
    num_initial: int = 0,
    maximize: bool = True,
    chosen: Tensor | None = None,
) -> Elimination:
    """Test the candidates of an ensemble on its data, row by row.

    Args:
        model: The ensemble of all candidates.
        elimination: "errors": the test of HE-GP-UCB, with its guarantee. "likelihood": candidates are active whose log
            marginal likelihood is within log(|U| / delta) of the largest. "likeliest": the one of largest likelihood.
            :mod:`bo_robust.confidence.elimination` has the formulas.
        width: Confidence width w^u_t, one for all candidates (each with its own information gain) or a tuple of one
            each. The guarantee needs a width that holds with probability 1 - delta / 2. ``BayesianFiniteWidth(n,
            delta)`` halves delta itself; ``SelfNormalizedWidth(B, R, delta / 2)`` does not. None: that of 1000 arms
            for "errors", and w^2 / 5 for the others, whose tests do not use the width.
        noise_scale: R > 0 of R-sub-Gaussian noise, in the units that candidates see. None: the root of the candidates'
            largest noise variance. Only for "errors".
        delta: Failure probability in (0, 1).
        num_initial: Number of first rows, an initial design, in which nobody is tested by errors.
        maximize: False if f is minimized: the bound is then -mu + w sigma.
        chosen: Who chose each row, ``n`` long: indices in U, -1 for an initial design. ``n x 2``: u_t and v_t of
            HE-StableOpt, each tested with its own sums. None: the active candidate of largest bound at the row's point,
            which is who chose it by :class:`EliminationUCB`. Only for "errors".

    Raises:
        ValueError: if an argument is not as described, or k(x, x) > 1 and a width assumes a norm bound.

    Warns:
        UserWarning: if every candidate failed its test. The last active one is then kept.

    Examples:
        >>> elimination = eliminate(model, "errors", BayesianFiniteWidth(1000, 0.1), noise_scale=0.1)
        >>> print(elimination.removed)
        >>> recommended = X[model.subset(elimination.active).posterior(X).mean.argmax()]
    """
    if not isinstance(model, CandidateEnsemble):
        raise ValueError(f"eliminate needs a CandidateEnsemble, got {type(model).__name__}.")
    tests.check_elimination(elimination)
    if not isinstance(maximize, bool):
        raise ValueError(f"maximize must be True or False, got {quoted(maximize)}.")
    check_delta(delta)
    check_count(0, num_initial=num_initial)
    noise_scale = math.sqrt(max(c.noise_var for c in model.candidates)) if noise_scale is None else noise_scale
    check_positive(noise_scale=noise_scale)
    if width is None:
        width = BayesianFiniteWidth(GRID, delta, scale=1.0 if elimination == "errors" else EXPLORING)
    h, n = len(model.candidates), len(model.train_targets)
    _check_width(width, model)
    _check_chosen(chosen, elimination, n, h)
    predictions, start = model.predictions(), torch.zeros(1, h, dtype=torch.float64)
    gains, evidence = (torch.cat([start, x]).cumsum(0) for x in (predictions.gain, predictions.log_density))
    # Row i is of round i + 1, before its observation.
    widths = torch.cat([widths_of_round(width, i + 1, gains[i : i + 1]) for i in range(n + 1)])
    if elimination == "errors":
        xi = [tests.noise_allowance(i + 1, noise_scale, h, delta) for i in range(n)]
        result = _tested_by_errors(model, predictions, widths, xi, num_initial, maximize, chosen)
    else:
        bound = tests.evidence_bound(elimination, h, delta)
        result = _tested_by_likelihood(predictions, evidence, widths[n:], elimination, bound)
    active, among, failures, w, tested = result
    violated = bool(tests.violated(active, failures))
    if violated:
        last = model.names[int(active[0].nonzero())]
        warnings.warn(
            f"every candidate failed its test; the last active one ({last}) is kept: {tests.UNFIT}. `removed` says who "
            "failed when and by how much.",
            UserWarning,
            stacklevel=2,
        )
    removed = [{"name": model.names[row["candidate"]]} | row for row in tests.timeline(active, failures)]
    return Elimination(
        t=n + 1,
        active=active[0].to(model.train_targets.device),
        acquisition_set=among[0].to(model.train_targets.device),
        widths=w[0].to(model.train_targets),
        removed=[{key: value for key, value in row.items() if key != "trial"} for row in removed],
        map_candidate=int(evidence[n:].masked_fill(~active, -math.inf).argmax()),
        assumptions_violated=violated,
        tested=tested,
        maximize=maximize,
    )


# After all rows, ``1 x h``: who is active, in the acquisition set and failed, and the widths; who was tested.
_Tested = tuple[Tensor, Tensor, Failures, Tensor, Tensor]


def _tested_by_errors(
    model: CandidateEnsemble,
    predictions: Predictions,
    widths: Tensor,
    xi: list[float],
    num_initial: int,
    maximize: bool,
    chosen: Tensor | None,
) -> _Tested:
    """The candidates ``chosen`` are tested; None: after ``num_initial`` rows the active one of largest bound in each.

    ``widths`` are ``(n + 1) x h``.
    """
    error, n = predictions.error, len(predictions.error)
    reach = widths[:n] * predictions.sd
    bounds = (predictions.mean if maximize else -predictions.mean) + reach
    tested = torch.full((n, 1), -1) if chosen is None else chosen.cpu().reshape(n, chosen.shape[1:].numel()).clone()
    # The acquisition function computes its bounds in another way, so equal ones differ by rounding here.
    rounding = math.sqrt(torch.finfo(model.train_targets.dtype).eps)
    start = widths[:1]
    active, (sums, failures) = torch.ones_like(start, dtype=torch.bool), tests.untested(start)
    families, ok = [sums.clone() for _ in tested.mT], torch.ones(1, dtype=torch.bool)
    for i in range(n):
        row = slice(i, i + 1)
        if chosen is None and i >= num_initial:
            tested[i] = tests.largest_bound(bounds[row], active, rounding)
        for k, u in enumerate(tested[i].tolist()):
            if u >= 0:
                who = tested[i, k : k + 1]
                out = tests.run_error_test(active, families[k], failures, who, error[row], reach[row], xi[i], i + 1, ok)
                active, families[k], failures = out.active, out.sums, out.failures
    return active, active, failures, widths[n:], tested


def _tested_by_likelihood(
    predictions: Predictions, evidence: Tensor, widths: Tensor, elimination: str, bound: float
) -> _Tested:
    """``evidence`` is that of the first 0 to n rows, ``(n + 1) x h``."""
    n, start = len(evidence) - 1, evidence[:1]
    active, failures = tests.plausible(start, bound), tests.untested(start)[1]
    for t in range(1, n + 1):
        active = tests.plausible(evidence[t : t + 1], bound)
        failures = tests.run_likelihood_test(active, failures, evidence[t : t + 1], bound, t)
    among = active
    if elimination == "likelihood":
        last_gain = predictions.gain[n - 1 :] if n else torch.full_like(start, math.inf)
        among = tests.acquisition_set(active, evidence[n:], last_gain)
        widths = widths * tests.shrinkage(evidence[n:], bound)
    return active, among, failures, widths, torch.full((n, 1), -1)


class EliminationUCB(AcquisitionFunction):
    """max over candidates of mu^u(x) + w^u sigma^u(x), maximized over x.

    The candidates are those of the acquisition set. Build a new one each round, from the model of that round. With q >
    1 points, the value is the sum of the bounds that the points have when chosen one after the other. With one
    candidate it equals :class:`~bo_robust.acquisition.GPUCB`.

    Args:
        model: The ``CandidateEnsemble`` of all candidates.
        elimination: What :func:`eliminate` returned for this model; None: ``eliminate(model)``.
        posterior_transform: Given by Ax: one weight. Only its sign is read, and must agree with ``maximize``.
        X_pending: Points evaluated but without feedback: :meth:`CandidateEnsemble.hallucinate`.

    Raises:
        ValueError: if an argument is not as described.

    Examples:
        >>> acqf = EliminationUCB(model, eliminate(model, "likelihood"))
        >>> x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
        >>> print(model.names[acqf.chosen_candidate(x)])
        >>> model = model.condition_on_observations(x, measure(x))
    """

    may_repeat: ClassVar[bool] = True
    model: CandidateEnsemble
    width: Tensor
    members: CandidateEnsemble
    _conditioned: CandidateEnsemble

    def __init__(
        self,
        model: CandidateEnsemble,
        elimination: Elimination | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        if not isinstance(model, CandidateEnsemble):
            raise ValueError(f"EliminationUCB needs a CandidateEnsemble, got {type(model).__name__}.")
        elimination = eliminate(model) if elimination is None else elimination
        check_elimination_of(model, elimination)
        super().__init__(model=model)
        _check_sense(posterior_transform, elimination.maximize)
        self.elimination = elimination
        self._sign = 1.0 if elimination.maximize else -1.0
        self.members = model.subset(elimination.acquisition_set)
        self.register_buffer("width", elimination.widths[elimination.acquisition_set])
        self._indices = elimination.acquisition_set.nonzero().flatten().tolist()
        self.register_buffer("X_pending", None, persistent=False)  # a buffer moves along in `.to`
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Hallucinate these points from now on; None for no points."""
        # First, as it checks the points: if they are bad, nothing has changed.
        conditioned = self.members if X_pending is None else self.members.hallucinate(X_pending)
        super().set_X_pending(X_pending)
        self._conditioned = conditioned

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The largest bound at X (``lead x q x d``), ``lead``; ``ValueError`` if X does not fit the model."""
        return self._bounds(X).amax(-2).sum(-1)

    def chosen_candidate(self, x: Tensor) -> int:
        """u_t, the candidate of largest bound at a point (``d`` or ``1 x d``): its index in U; ties go to the first."""
        check_tensor("x", x, floating=False)
        if x.ndim == 0 or x.numel() != x.shape[-1]:
            raise ValueError(f"chosen_candidate takes one point, d or 1 x d, got shape {tuple(x.shape)}.")
        with torch.no_grad():
            return self._indices[int(self._bounds(x.reshape(1, -1)).argmax())]

    def _bounds(self, X: Tensor) -> Tensor:
        """The bound under each candidate of the acquisition set, ``lead x (their number) x q``."""
        check_tensor("X", X, floating=False)
        if X.shape[-2] == 1:
            mean, variance = self._conditioned.member_moments(X)
        else:
            posterior, noise = self._conditioned.member_posterior(X), self._conditioned.member_noise.unsqueeze(-1)
            mean, covariance = posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix
            variance = variance_in_sequence(covariance, noise.expand(mean.shape))
        return self._sign * mean + self.width.unsqueeze(-1) * variance.sqrt()


def check_elimination_of(model: CandidateEnsemble, elimination: Any) -> None:
    """Raise ``ValueError`` unless ``elimination`` is of as many candidates and rewards as the model has."""
    if not isinstance(elimination, Elimination):
        raise ValueError(f"elimination must be what eliminate(model, ...) returned, got {quoted(elimination)}.")
    if (len(elimination.active), elimination.t) != (len(model.candidates), len(model.train_targets) + 1):
        raise ValueError(
            f"the elimination is of {len(elimination.active)} candidates after {elimination.t - 1} rewards, not of "
            "this model; call eliminate on it."
        )


def widths_of_round(width: Widths, t: int, gains: Tensor) -> Tensor:
    """w^u_t, ``1 x h``, at these information gains, ``1 x h``."""
    return torch.as_tensor(widths_at(width, t, lambda _: gains), dtype=gains.dtype).expand(gains.shape)


def _check_width(width: Any, model: CandidateEnsemble) -> None:
    check_number(width, len(model.candidates))
    for w in each(width):
        if isinstance(w, type) or not callable(w) or {UNIFORM, DIMENSION} & getattr(w, "needs", frozenset()):
            raise ValueError(
                "width must be a schedule of bo_robust.confidence that depends on the round and the information gain "
                f"only, such as BayesianFiniteWidth(1000, 0.1), or a tuple of such; got {quoted(w)}."
            )
    if len(model.train_targets):
        X = model.transform_inputs(model.train_inputs[0])
        check_unit_scale(width, model.names, lambda u: model.candidates[u].covar_module(X, diag=True))


def _check_chosen(chosen: Any, elimination: str, rows: int, candidates: int) -> None:
    if chosen is None:
        return
    check_tensor("chosen", chosen, floating=False)
    if elimination != "errors":
        raise ValueError(f"chosen is for the test by errors; leave it out where elimination is {elimination!r}.")
    fits = chosen.shape in ((rows,), (rows, 1), (rows, 2)) and chosen.dtype == torch.long
    if not fits or bool(((chosen < -1) | (chosen >= candidates)).any()):
        raise ValueError(f"chosen must be {rows} or {rows} x 2 long, -1 to {candidates - 1}, got {quoted(chosen)}.")


def _check_sense(transform: PosteriorTransform | None, maximize: bool) -> None:
    if transform is None:
        return
    weights: Any = transform.weights if isinstance(transform, ScalarizedPosteriorTransform) else None
    if weights is None or weights.numel() != 1:
        raise ValueError(f"EliminationUCB takes one output and no posterior_transform but a weight, got {transform!r}.")
    weight = float(weights)
    if (weight > 0) != maximize:
        raise ValueError(f"weight {weight:g} and maximize={maximize} disagree; build it with maximize={not maximize}.")
