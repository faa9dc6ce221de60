"""HE-GP-UCB's model: an exact GP per candidate prior, and the test that eliminates candidates.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.posteriors.elimination`).

The eliminations are a function of the data in their order. One factor of all rows holds what every candidate predicted
of each row before seeing it (:mod:`bo_robust.posteriors.candidate_factor`). So building a model replays the test from
its data alone.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from torch import Tensor

from bo_robust.confidence import WIDTHS
from bo_robust.confidence.candidate_widths import Widths, delta_of_width
from bo_robust.environments import Environment
from bo_robust.functionals import Functional
from bo_robust.models.candidate_elimination import CandidateHistory, Observation
from bo_robust.models.candidate_gps import (
    CandidateGPs,
    check_outcome_transform,
    check_points,
    check_rows,
    check_transform,
    one_point,
    one_reward,
    units,
)
from bo_robust.models.candidate_priors import Candidate
from bo_robust.models.candidate_risk import Risk
from bo_robust.models.hyperparameter_draws import posterior_candidates
from bo_robust.models.inputs import from_spec
from bo_robust.validation import check_finite, check_tensor


class CandidateEnsemble(GPyTorchModel, GP):
    """Exact GPs under h candidate priors, and which of them are still alive (HE-GP-UCB).

    Every row after the first ``num_initial`` tests the candidate alive with the largest bound mu + w sigma at its
    point, the first of bounds equal up to rounding. It is the candidate that chose the point, if
    :class:`~bo_robust.acquisition.EliminationUCB` did. With one candidate the model is the GP of GP-UCB.

    Of candidates drawn from their posterior it is a GP averaged over its hyperparameters. Methods that add rows keep
    the draws; build it anew for others.

    To BoTorch the model is an equally weighted ensemble of the candidates alive. Nothing is fitted:
    ``fit_gpytorch_mll`` returns at once. Hyperparameters, data and the history of the test are not in ``state_dict``.
    The model never changes: methods return a new one.

    Rows are rounds 1, 2, ... in their order. Another order (Ax: by trial index) may bring eliminated candidates back;
    the test by likelihood does not depend on it.

    Candidates, ``noise_scale`` and widths by a norm bound are in units of the rewards, or of standardised rewards with
    ``outcome_transform=Standardize(m=1)``. Means, variances and bounds are in units of the rewards always. Every new
    reward moves the units, which are those of all rewards, and candidates are then judged anew from the first.

    Args:
        train_X: ``n x d`` points in the order observed, n >= 0.
        train_Y: ``n x 1`` rewards, finite.
        candidates: U, at least one: each a :class:`Candidate` or a dict of arguments of :func:`candidate`. Their
            modules are copied to the dtype and device of the data. A candidate's index is its index here. "posterior":
            16 of :func:`~bo_robust.models.posterior_candidates`, of rewards always standardised; without elimination.
        width: Confidence width w^u_t, one for all candidates (each with its own information gain) or one per candidate.
            The guarantee needs a width that holds with probability 1 - delta / 2. ``BayesianFiniteWidth(n, delta)``
            halves delta itself; ``SelfNormalisedWidth(B, R, delta / 2)`` does not. None: that of 1000 arms, and
            w^2 / 5 where ``elimination`` is not "errors", whose test alone is of the width.
        noise_scale: R > 0 of R-sub-Gaussian noise. None: the root of the candidates' largest noise variance.
        delta: Failure probability in (0, 1).
        num_initial: Number of first rows, an initial design, in which nobody is tested.
        input_transform: Applied to X before the candidates see it; its coefficients may not be learned.
        maximize: False if f is to be minimised: the bound is then -mu + w sigma.
        elimination: Who is alive. "errors": those who passed the test of HE-GP-UCB. "likelihood": those whose log
            marginal likelihood is within log(|U| / delta) of the largest; see :attr:`choosing`. "likeliest": the one of
            largest likelihood, a maximum likelihood fit over U (MLE). "shrinking": the one whose lengthscale is nearest
            to the largest one over t^0.9 (A-GP-UCB). None: everyone.
        outcome_transform: ``Standardize(m=1)`` of BoTorch, or None.
        environment: The conditions z, where points are (x, z) that :class:`~bo_robust.acquisition.ValueAtRiskUCB`
            chooses. A row then tests the candidate with the largest bound of the functional at its x.
        functional: F of f(x, Z), or alpha alone for ``ValueAtRisk(alpha)``; given with ``environment``, and only then.

    Raises:
        ValueError: if data, candidates or settings are not as described; the message says what to change.

    Warns:
        UserWarning: if candidates are the same, or if every candidate failed its test. The last survivor is then kept,
            and :attr:`assumptions_violated` is true.

    Example:
        >>> U = [candidate("rbf", 0.1, noise_var=0.01), candidate("periodic", 0.5, noise_var=0.01, period=0.3)]
        >>> model = CandidateEnsemble(X, Y, U, elimination="likelihood", outcome_transform=Standardize(m=1))
        >>> x, _ = optimize_acqf(EliminationUCB(model), bounds, q=1, num_restarts=4, raw_samples=64)
        >>> model, observation = model.observe(x, f(x))
    """

    train_inputs: tuple[Tensor]
    train_targets: Tensor
    risk: Risk | None
    _history: CandidateHistory
    _num_outputs = 1
    _is_ensemble = True
    _supports_batched_models = False

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        candidates: Sequence[Candidate | Mapping[str, Any]] | str,
        width: Widths | None = None,
        noise_scale: float | None = None,
        delta: float = 0.1,
        num_initial: int = 0,
        input_transform: InputTransform | None = None,
        maximize: bool = True,
        elimination: str | None = "errors",
        outcome_transform: Standardize | None = None,
        environment: Environment | None = None,
        functional: Functional | float | None = None,
    ) -> None:
        check_rows(train_X, train_Y)
        drawn = isinstance(candidates, str) and candidates == "posterior"
        self.standardises = check_outcome_transform(outcome_transform) or drawn
        self._validate_tensor_args(X=train_X, Y=train_Y)
        check_transform(input_transform)
        super().__init__()
        self.likelihood = GaussianLikelihood().to(train_X)  # BoTorch and Ax ask for one; candidates have their own
        if input_transform is not None:
            self.input_transform = input_transform.to(train_X)
        self.eval()
        self.train_inputs, self.train_targets = (train_X[:0],), train_Y[:0, 0]
        points = self._inputs("train_X", train_X)
        if drawn and elimination is not None:
            raise ValueError("draws have seen the rewards and are equally likely: give elimination=None.")
        given: Any = posterior_candidates(points, train_Y) if drawn else candidates
        gps = CandidateGPs.empty(given, points[:0])
        self._history = CandidateHistory.start(gps, width, noise_scale, delta, num_initial, maximize, elimination)
        self.risk = Risk.checked(environment, functional, maximize, train_X)
        gps.check_kernels(points)  # before the factor, whose error cannot tell a wrong kernel from rounding
        self._append(train_X, train_Y)
        self._known_to_draws = self._history.evidence if drawn else 0.0

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        candidates: Sequence[Candidate | Mapping[str, Any]] | str,
        width: Widths | Mapping[str, Any] | None = None,
        noise_scale: float | None = None,
        delta: float = 0.1,
        num_initial: int = 0,
        maximize: bool = True,
        elimination: str | None = "errors",
        outcome_transform: Standardize | None = None,
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set whose rows are in the order of the rounds.

        Noise variances of the data are ignored, and what Ax adds for categorical, fidelity or task features. Ax can
        store candidates in JSON only as plain dicts; an objective that it minimises needs ``maximize=False``. ``width``
        may also be ``{"kind": name in WIDTHS, ...}``, and its delta is then delta / 2 by default (delta for
        "bayesian_finite", which halves it itself). Raises ``ValueError`` if that kind or an option is wrong.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs.pop("train_Yvar", None)
        settings: dict[str, Any] = {"noise_scale": noise_scale, "delta": delta, "num_initial": num_initial}
        settings |= {"maximize": maximize, "elimination": elimination, "outcome_transform": outcome_transform}
        if width is not None:
            width = from_spec(width, WIDTHS, {"delta": delta_of_width(width, delta)}, "width")
        return inputs | {"candidates": candidates, "width": width} | settings

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """U, eliminated candidates included."""
        return self._gps().candidates

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates, ``h``."""
        return self._history.names

    @property
    def maximize(self) -> bool:
        """Whether f is to be maximised."""
        return self._history.maximize

    @property
    def alive(self) -> Tensor:
        """Whether each candidate is alive, ``h`` bool."""
        return self._history.alive[0].to(self.train_targets.device)

    @property
    def choosing(self) -> Tensor:
        """Whose largest bound :class:`~bo_robust.acquisition.EliminationUCB` maximises, ``h`` bool: those alive.

        Where the test is by likelihood, :attr:`leader` alone after a reward that informed it by half a bit or more.
        """
        return self._history.choosing[0].to(self.train_targets.device)

    @property
    def evidence(self) -> Tensor:
        """Log marginal likelihood of the rewards under every candidate, ``h``, in nats."""
        return self._history.evidence[0].to(self.train_targets)

    @property
    def weights(self) -> Tensor:
        """How probable each candidate is, ``h``: by the evidence that it was not drawn by, zero if eliminated."""
        evidence = (self._history.evidence - self._known_to_draws)[0].to(self.train_targets)
        return evidence.masked_fill(~self.alive, -math.inf).softmax(0)

    @property
    def t(self) -> int:
        """The round about to be played: one more than the number of rewards."""
        return self.train_targets.shape[0] + 1

    @property
    def widths(self) -> Tensor:
        """w^u_t of the round about to be played, ``h``."""
        return self._history.widths(self.t)[0].to(self.train_targets)

    @property
    def leader(self) -> int:
        """Index of the candidate alive with the largest evidence; the first of equals."""
        return self._history.leader

    @property
    def assumptions_violated(self) -> bool:
        """Whether every candidate failed its test, the last survivor too: then no candidate fits."""
        return self._history.violated

    @property
    def eliminations(self) -> list[dict[str, Any]]:
        """The failed tests by round, as in :func:`bo_robust.posteriors.elimination.timeline`, with ``name``."""
        return self._history.timeline

    @property
    def batch_shape(self) -> torch.Size:
        """The number of candidates alive, as BoTorch wants it of ensembles."""
        return torch.Size([len(self._history.members)])

    def record(self) -> dict[str, Any]:
        """The state of the test as plain JSON: names, alive, eliminations, struck by hand, leader and evidence."""
        return self._history.record(self.t)

    def moments(self, X: Tensor, alive_only: bool = False) -> tuple[Tensor, Tensor]:
        """Mean and variance (>= 1e-12) of f at each point of ``lead x q x d`` on its own, ``lead x h x q`` each.

        ``alive_only`` leaves out eliminated candidates. Moments are differentiable in X. Thousands of arms cost one
        triangular solve. Raises ``ValueError`` if X has not the model's dtype, device and d.
        """
        return self._gps(alive_only).marginal(self._inputs("X", X))

    def sequential_moments(self, X: Tensor, alive_only: bool = False) -> tuple[Tensor, Tensor]:
        """As :meth:`moments`, with the variance of point j taken after observing points 1 .. j - 1 of the q too."""
        return self._gps(alive_only).sequential(self._inputs("X", X))

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GaussianMixturePosterior:
        """The posteriors of f under the candidates alive, as a mixture with equal weights.

        Mean and variance are ``lead x (number alive) x q x 1`` at X, ``lead x q x d``. Arms as ``b x 1 x d`` cost no
        covariances. ``observation_noise`` adds each candidate's noise variance, or is a tensor ``lead x q x 1`` to add.
        ``posterior_transform`` is applied to each candidate's posterior. Errors are those of :meth:`moments`.
        """
        gps = self._gps(alive_only=True)
        posterior: Any = GPyTorchPosterior(gps.distribution(self._inputs("X", X), observation_noise))
        if posterior_transform is not None:
            posterior = posterior_transform(posterior=posterior, X=X)
        return GaussianMixturePosterior(posterior.distribution)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> CandidateEnsemble:
        """A new ensemble with points ``n' x d`` and rewards ``n' x 1`` added and tested; O(h n^2) a row.

        Raises ``ValueError`` if the data are not finite or not as the model's, or ``noise`` is given.
        """
        if noise is not None or kwargs:
            raise ValueError("candidates have their own noise_var: give X and Y only.")
        return self._grown(X, Y)[0]

    def observe(self, x: Tensor, y: Tensor | float) -> tuple[CandidateEnsemble, Observation]:
        """A new ensemble with one point (``d`` or ``1 x d``) and its reward added, and what they did to candidates.

        It equals an ensemble of all rewards to rounding, not bit for bit: a row is added to the factor by a solve, and
        a new ensemble factors all rows at once. Grow one or rebuild it, but not in turn, where runs are to be repeated.
        """
        model, observations = self._grown(one_point("observe", x), one_reward(y, self.train_targets))
        return model, observations[0]

    @torch.no_grad()
    def hallucinate(self, X_pending: Tensor) -> CandidateEnsemble:
        """A new ensemble in which every candidate observed its own posterior mean at ``k x d`` pending points.

        Means stay and variances shrink (GP-BUCB, Desautels et al. 2014). Data, rounds, widths and the test stay as they
        are; rewards cannot be added. Raises ``ValueError`` if the points are not as the model's.
        """
        check_tensor("X_pending", X_pending, floating=False)
        if X_pending.ndim != 2:
            raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
        check_finite("X_pending", X_pending)
        model = self._copy()
        model._history = replace(self._history, gps=self._gps().extended(self._inputs("X_pending", X_pending)))
        return model

    def eliminate(self, index: int) -> CandidateEnsemble:
        """A new ensemble without the candidate of this index, which you know to be wrong whatever its test says.

        The choice is not part of the data: repeat it after building a model anew. Raises ``ValueError`` if no such
        candidate is alive, or it is the last one.
        """
        model = self._copy()
        model._history = self._history.without(index)
        return model

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        """Called by ``fit_gpytorch_mll``; candidates are fixed, so nothing is fitted."""
        return mll.eval()

    def subset_output(self, idcs: list[int]) -> CandidateEnsemble:
        """The model itself: it has one output."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"the model has one output, got indices {idcs}.")
        return self

    def _grown(self, X: Tensor, Y: Tensor) -> tuple[CandidateEnsemble, list[Observation]]:
        if len(self._gps().points) != self.t - 1:
            raise ValueError("this ensemble has hallucinated points; add observations to the one it was made from.")
        check_rows(X, Y)
        model = self._copy()
        return model, model._append(X, Y)

    @torch.no_grad()
    def _append(self, X: Tensor, Y: Tensor) -> list[Observation]:
        """Add rows in place and test them one by one."""
        points, rows, y = self._inputs("X", X), X, Y[:, 0]  # checked before anything changes
        self.train_inputs = (torch.cat([self.train_inputs[0], X]),)
        self.train_targets = torch.cat([self.train_targets, y])
        if self.standardises:
            self._history = self._history.restarted(*units(self.train_targets))
            rows, y = self.train_inputs[0], self.train_targets
            points = self._inputs("X", rows)
        conditions = None if self.risk is None or not len(y) else self._inputs("X", self.risk.conditions(rows))
        self._history, observations = self._history.after(points, y, conditions, self.risk)
        return observations[len(observations) - len(X) :]

    def _gps(self, alive_only: bool = False) -> CandidateGPs:
        return self._history.alive_gps if alive_only else self._history.gps

    def _inputs(self, name: str, X: Tensor) -> Tensor:
        """X, checked and transformed."""
        check_points(name, X, self.train_inputs[0])
        points = self.transform_inputs(X)
        if points.shape[:-1] != X.shape[:-1]:
            raise ValueError("the input_transform adds points; candidates need one point per observation.")
        return points

    def _copy(self) -> CandidateEnsemble:
        """A new model that shares the tensors, since nobody writes to them."""
        # deepcopy takes what its memo holds as already copied.
        shared = (*self.train_inputs, self.train_targets, self._history, self.risk)
        return copy.deepcopy(self, {id(x): x for x in shared})

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CandidateEnsemble:
        super()._apply(fn)
        gps = self._gps().moved(fn)
        if self.risk is not None:
            self.risk.environment._apply(fn)
        if gps is not self._gps():  # really moved
            self._history = replace(self._history, gps=gps)
            self.train_inputs, self.train_targets = (fn(self.train_inputs[0]),), fn(self.train_targets)
        return self

    # Model.eval and Model.train would swap train_inputs; the factor has its own, transformed ones.
    def _set_transformed_inputs(self) -> None: ...

    def _revert_to_original_inputs(self) -> None: ...
