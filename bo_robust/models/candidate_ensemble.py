"""Exact GPs under several candidate priors, as one BoTorch model weighted by marginal likelihood.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions import UnsupportedError
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from torch import Tensor

from bo_robust.models.candidate_gps import CandidateGPs, Predictions
from bo_robust.models.candidate_priors import Candidate, candidate
from bo_robust.models.training_data import check_data
from bo_robust.utils.input_checks import check_finite, check_like, quoted
from bo_robust.utils.upstream import check_tensor_args, standardizes_one_output


class CandidateEnsemble(GPyTorchModel, GP):
    """Exact GPs under h candidate priors, weighted by their marginal likelihood.

    Candidates are priors in the units of the observations. With ``outcome_transform=Standardize(m=1)`` they are priors
    of the observations standardized by all of them.

    Use it where lengthscale, period, additive decomposition, kernel family or prior mean are unknown and you can name
    candidates, and where the first points may not show f's variation: a fit settles there on one answer. Do not use it
    where the first points are spread and f varies everywhere alike (``SingleTaskGP`` does as well and costs less), or
    with outliers: give it the inliers of a ``RobustGP``. It costs O(h n^3).

    Its posterior is one Gaussian with the mean and covariance of the mixture of the candidates' posteriors, which
    :meth:`member_moments` and :meth:`member_posterior` return. Which candidates the observations contradict is found by
    :func:`~bo_robust.acquisition.eliminate`.

    Nothing is fitted: ``fit_gpytorch_mll`` returns at once. The model never changes: methods return a new one. Data and
    hyperparameters are not in ``state_dict``.

    Args:
        train_X: ``n x d`` points, n >= 0, in the order observed.
        train_Y: ``n x 1`` observations, finite.
        candidates: U, at least one: each a :class:`Candidate` or a dict of arguments of :func:`candidate`. Their
            modules are copied to the dtype and device of the data.
        input_transform: Applied to X before the candidates see it; its coefficients may not be learned.
        outcome_transform: ``Standardize(m=1)`` of BoTorch, or None.

    Raises:
        ValueError: if data, candidates or transforms are not as described; the message says what to change.

    Warns:
        UserWarning: if candidates are the same.

    Examples:
        >>> U = candidate_grid(lengthscale=(0.1, 0.8), noise_var=0.01, kernels=["rbf", "matern52"])
        >>> model = CandidateEnsemble(X, Y, U, outcome_transform=Standardize(m=1))
        >>> for _ in range(20):
        ...     acqf = EliminationUCB(model, eliminate(model, "likelihood"))
        ...     x, _ = optimize_acqf(acqf, bounds, q=1, num_restarts=4, raw_samples=64)
        ...     model = model.condition_on_observations(x, measure(x))
        >>> X = model.train_inputs[0]
        >>> recommended = X[model.posterior(X).mean.argmax()]
    """

    train_inputs: tuple[Tensor]
    train_targets: Tensor
    _gps: CandidateGPs
    _num_outputs = 1
    batch_shape = torch.Size()

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        candidates: Sequence[Candidate | Mapping[str, Any]],
        input_transform: InputTransform | None = None,
        outcome_transform: Standardize | None = None,
    ) -> None:
        check_data("CandidateEnsemble", train_X, train_Y, batched=False, least=0)
        _check_transforms(input_transform, outcome_transform)
        check_tensor_args(train_X, train_Y)
        super().__init__()
        self.likelihood = GaussianLikelihood().to(train_X)  # BoTorch and Ax ask for one; candidates have their own
        if input_transform is not None:
            self.input_transform = input_transform.to(train_X)
        self.eval()
        self.standardizes = outcome_transform is not None
        self.train_inputs, self.train_targets = (train_X[:0],), train_Y[:0, 0]
        points = self._inputs("train_X", train_X)
        self._gps = CandidateGPs.empty(_as_candidates(candidates), points[:0])
        self._gps.check()
        self._append(train_X, train_Y)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        candidates: Sequence[Candidate | Mapping[str, Any]],
        outcome_transform: Standardize | None = None,
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set whose rows are in the order observed.

        Noise variances and what Ax adds for special features are ignored. Ax stores candidates only as plain dicts.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs.pop("train_Yvar", None)
        return inputs | {"candidates": candidates, "outcome_transform": outcome_transform}

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """U."""
        return self._gps.candidates

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(c.name) for c in self.candidates)

    def predictions(self) -> Predictions:
        """What every candidate predicted of each row before its reward was seen, ``n x h`` each."""
        return self._gps.predictions(self.train_targets)

    @property
    def evidence(self) -> Tensor:
        """Log marginal likelihood of the (standardized) rewards under every candidate, ``h``, in nats."""
        return self._gps.evidence.to(self.train_targets)

    @property
    def weights(self) -> Tensor:
        """How probable each candidate is if all were equally probable before the rewards, ``h``."""
        return self.evidence.softmax(0)

    @property
    def map_candidate(self) -> int:
        """Index of the most probable candidate; the first of equals."""
        return int(self.evidence.argmax())

    def subset(self, members: Tensor | Sequence[int]) -> CandidateEnsemble:
        """The ensemble of some candidates, given by their indices or ``h`` bool, such as those that are active."""
        if isinstance(members, Tensor):
            members = (members.nonzero().flatten() if members.dtype == torch.bool else members).tolist()
        if not members:
            raise ValueError("a subset needs at least one candidate.")
        return self._with(self._gps.subset(list(members)))

    def member_moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at each point of ``lead x q x d`` under every candidate, ``lead x h x q`` each.

        Thousands of points cost one triangular solve. ``ValueError`` if X has not the model's dtype, device and d.
        """
        return self._gps.marginal(self._inputs("X", X))

    def member_posterior(self, X: Tensor) -> GPyTorchPosterior:
        """Joint posteriors of f at ``lead x q x d`` under every candidate, of batch shape ``lead x h``."""
        points = self._inputs("X", X)
        covariance = DenseLinearOperator(self._gps.covariance(points, points))
        return GPyTorchPosterior(MultivariateNormal(self._gps.mean(points), covariance))

    @property
    def member_noise(self) -> Tensor:
        """Noise variance of every candidate in the units of the rewards, ``h``."""
        return self._gps.noise_var.squeeze(1) * self._gps.scale**2

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at each point of ``lead x q x d`` on its own, ``lead x q`` each, of the mixture."""
        return self._mixture(*self.member_moments(X))

    def _mixture(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        center = self.weights @ mean
        return center, self.weights @ (variance + (mean - center.unsqueeze(-2)).square())

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior:
        """The posterior of f at ``lead x q x d``: one Gaussian with the mean and covariance of the mixture.

        ``observation_noise`` adds the weighted noise variance, or is a tensor ``lead x q x 1`` to add. Errors are those
        of :meth:`member_moments`.
        """
        points = self._inputs("X", X)
        mean, _ = self._mixture(*self._gps.marginal(points))
        covariance: Any = _MixtureCovariance(self)(points)
        if observation_noise is not False:
            noise = self.weights @ self.member_noise
            if isinstance(observation_noise, Tensor):
                noise = observation_noise.squeeze(-1)
            covariance = covariance + DiagLinearOperator(noise.expand(mean.shape))
        posterior = GPyTorchPosterior(MultivariateNormal(mean, covariance))
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> CandidateEnsemble:
        """A new ensemble with points ``n' x d`` and observations ``n' x 1`` added, O(h n^2) a row.

        It equals an ensemble of all observations, to rounding. Raises ``ValueError`` if data are not finite or not as
        the model's, or ``noise`` is given.
        """
        if noise is not None or kwargs:
            raise ValueError("candidates have their own noise_var: give X and Y only.")
        if len(self._gps.points) != len(self.train_targets):
            raise ValueError("this ensemble has hallucinated points; add observations to the one it was made from.")
        check_data("CandidateEnsemble", X, Y, batched=False, least=0)
        model = self._with(self._gps)
        model._append(X, Y)
        return model

    @torch.no_grad()
    def hallucinate(self, X_pending: Tensor) -> CandidateEnsemble:
        """A new ensemble in which every candidate observed its own posterior mean at ``k x d`` pending points.

        Means, data, evidence and weights stay, variances shrink (GP-BUCB, Desautels et al. 2014). ``ValueError`` if the
        points are not as the model's.
        """
        points = self._inputs("X_pending", X_pending)
        if X_pending.ndim != 2:
            raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
        check_finite("X_pending", X_pending)
        return self._with(self._gps.hallucinated(points))

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        """Called by ``fit_gpytorch_mll``; candidates are fixed, so nothing is fitted."""
        return mll.eval()

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Raise ``UnsupportedError``: BoTorch's ``loo_cv`` needs a Gaussian prior, which a mixture is not."""
        raise UnsupportedError("a CandidateEnsemble has no leave-one-out in closed form; build one model a fold.")

    def subset_output(self, idcs: list[int]) -> CandidateEnsemble:
        """The model itself: it has one output."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"the model has one output, got indices {idcs}.")
        return self

    @torch.no_grad()
    def _append(self, X: Tensor, Y: Tensor) -> None:
        points, y = self._inputs("X", X), torch.cat([self.train_targets, Y[:, 0]])  # checked before anything changes
        self._gps = self._gps.conditioned(points, y, *(_units(y) if self.standardizes else (0.0, 1.0)))
        self.train_inputs, self.train_targets = (torch.cat([self.train_inputs[0], X]),), y

    def _inputs(self, name: str, X: Tensor) -> Tensor:
        """X, checked and transformed."""
        d = self.train_inputs[0].shape[-1]
        check_like(name, X, "the model", self.train_inputs[0])
        if X.ndim < 2 or X.shape[-1] != d:
            raise ValueError(f"{name} must be ... x {d} as train_X has it, with its points, got {tuple(X.shape)}.")
        points = self.transform_inputs(X)
        if points.shape[:-1] != X.shape[:-1]:
            raise ValueError("the input_transform adds points; candidates need one point per observation.")
        return points

    def _with(self, gps: CandidateGPs) -> CandidateEnsemble:
        """A new model with these GPs that shares the other tensors, since nobody writes to them."""
        # deepcopy takes what its memo holds as already copied.
        model = copy.deepcopy(self, {id(x): x for x in (*self.train_inputs, self.train_targets, self._gps)})
        model._gps = gps
        return model

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CandidateEnsemble:
        super()._apply(fn)
        self._gps = self._gps.moved(fn)
        self.train_inputs, self.train_targets = (fn(self.train_inputs[0]),), fn(self.train_targets)
        return self

    # Model.eval and Model.train would swap train_inputs; the factor has its own, transformed ones.
    def _set_transformed_inputs(self) -> None: ...

    def _revert_to_original_inputs(self) -> None: ...


class _MixtureCovariance(Kernel):
    """Covariances of f under the mixture, as a kernel: GPyTorch computes them only where they are asked for."""

    has_lengthscale = False

    def __init__(self, ensemble: CandidateEnsemble) -> None:
        super().__init__()
        self._of = (ensemble,)  # in a tuple the ensemble is no submodule

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        (ensemble,) = self._of
        gps, weights = ensemble._gps, ensemble.weights
        if diag:
            return ensemble._mixture(*gps.marginal(x1))[1]
        gaps = [mean - (weights @ mean).unsqueeze(-2) for mean in (gps.mean(x1), gps.mean(x2))]
        of_means = torch.einsum("h,...hi,...hj->...ij", weights, *gaps)
        return torch.einsum("h,...hij->...ij", weights, gps.covariance(x1, x2)) + of_means


def _as_candidates(value: Any) -> list[Candidate]:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if wrong := [c for c in value if not isinstance(c, Candidate | Mapping)] if listed else [value]:
        raise ValueError(f"candidates must be a list of Candidate or of settings, got {quoted(wrong[0])}.")
    if not value:
        raise ValueError("U is empty: give at least one candidate.")
    converted = []
    for u, settings in enumerate(value):
        try:
            converted.append(settings if isinstance(settings, Candidate) else candidate(**settings))
        except TypeError as error:  # of Python: a setting is missing or unknown
            raise ValueError(f"the settings of candidate {u} do not fit: {error}.") from None
    return converted


def _check_transforms(input_transform: object, outcome_transform: object) -> None:
    if not (input_transform is None or isinstance(input_transform, InputTransform)):
        raise ValueError(f"input_transform must be one of BoTorch, such as Normalize, got {quoted(input_transform)}.")
    parts = () if input_transform is None else input_transform.modules()
    if any(getattr(part, "learn_coefficients", False) for part in parts):
        raise ValueError(f"{type(input_transform).__name__} learns its coefficients; fix them (Normalize: bounds).")
    if outcome_transform is not None and not standardizes_one_output(outcome_transform):
        raise ValueError(f"outcome_transform must be Standardize(m=1) or None, got {quoted(outcome_transform)}.")


def _units(y: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of ``n`` rewards; the latter is 1 if they are fewer than two, or all equal."""
    center, scale = (float(y.mean()) if len(y) else 0.0), (float(y.std()) if len(y) > 1 else 0.0)
    return center, scale if scale > torch.finfo(y.dtype).eps * max(abs(center), 1e-290) else 1.0
