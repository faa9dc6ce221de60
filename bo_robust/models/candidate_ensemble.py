"""HE-GP-UCB's model: an exact GP per candidate prior, and the test that eliminates candidates.

Ziomek, Adachi & Osborne, "Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any
Type" (ICML 2024), Algorithm 1 as its proof needs it (:mod:`bo_robust.states.elimination`).

Who is eliminated is a function of the data in their order: with L L^T = K_u + lambda I of all rows and
z = L^-1 (y - m), what candidate u predicted of row i before seeing it was y_i - L_ii z_i, with variance
L_ii^2 - lambda. So the test is replayed from one factor whenever a model is built, and needs no state of its own.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.models.candidate_elimination import CandidateTest, Observation, Widths
from bo_robust.models.candidate_factor import CandidateFactor
from bo_robust.models.candidate_priors import Candidate, candidate, placed, same
from bo_robust.models.inputs import width_by_name
from bo_robust.schedules import RKHSWidth, SelfNormalisedWidth
from bo_robust.validation import check_finite, check_kernel_matrix

__all__ = ["Candidate", "CandidateEnsemble", "Observation", "candidate"]

MIN_VARIANCE = 1e-12  # as BoTorch's analytic acquisition functions
BLOCK = 4096  # points evaluated at once: h x n x BLOCK numbers


class CandidateEnsemble(GPyTorchModel, GP):
    """Exact GPs under h candidate priors, and who of them is still alive (HE-GP-UCB).

    Every row from ``num_initial`` on tests the candidate alive of largest bound mu + w sigma at its point, as
    :class:`bo_robust.algorithms.he_gp_ucb.HEGPUCB` does; on points chosen by
    :class:`~bo_robust.acquisition.EliminationUCB` that is who chose them (of bounds equal up to rounding: the first).
    Indices are those of ``candidates`` for
    ever. With one candidate this is the GP of GP-UCB.

    To BoTorch it is an ensemble of those alive, equally weighted, for any acquisition function; there is nothing to
    fit (``fit_gpytorch_mll`` returns at once). Hyperparameters, data and the history of the test come from the
    construction and are not in ``state_dict``. The model never changes: what adds observations returns a new one.

    Rows are rounds 1, 2, ... in their order. A tool that runs trials in parallel and hands their data over in another
    order than they were observed (Ax: by trial index) renumbers rounds, and may bring back who was eliminated. Rewards
    are taken as they are: no outcome transform, as noise scale, widths and noise variances are in their units.

    Args:
        train_X: ``n x d`` points in the order observed, n >= 0.
        train_Y: ``n x 1`` rewards, finite.
        candidates: U, at least one: :class:`Candidate`, or arguments of :func:`candidate` (plain dicts). Their modules
            are copied, in the dtype and on the device of the data.
        width: Confidence width w^u_t, one for all (handed the information gain of each) or one per candidate. The
            guarantee wants one that holds with probability 1 - delta / 2: ``BayesianFiniteWidth(n, delta)`` has that
            half in it, ``SelfNormalisedWidth(B, R, delta / 2)`` has not.
        noise_scale: R > 0, the noise is R-sub-Gaussian; in units of the reward.
        delta: Failure probability in (0, 1).
        num_initial: Rows of an initial design, in which nobody is tested.
        input_transform: What candidates see of X; its coefficients may not be learned.
        maximize: False if f is to be minimised: the bound is then -mu + w sigma.

    Raises:
        ValueError: if data, candidates or settings are not as said; the message says which and what to change.

    Warns:
        UserWarning: about candidates that are the same, and if every candidate failed its test; the last survivor is
            kept then and :attr:`assumptions_violated` is true.

    Example:
        >>> U = [candidate("rbf", 0.1, noise_var=0.01), candidate("periodic", 0.5, noise_var=0.01, period=0.3)]
        >>> model = CandidateEnsemble(X, Y, U, BayesianFiniteWidth(1000, 0.1), noise_scale=0.1, delta=0.1)
        >>> x, _ = optimize_acqf(EliminationUCB(model), bounds, q=1, num_restarts=4, raw_samples=64)
        >>> model, said = model.observe(x, f(x))
    """

    train_inputs: tuple[Tensor]
    train_targets: Tensor
    _num_outputs = 1
    _is_ensemble = True
    _supports_batched_models = False

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        candidates: Sequence[Candidate | Mapping[str, Any]],
        width: Widths,
        noise_scale: float,
        delta: float,
        num_initial: int = 0,
        input_transform: InputTransform | None = None,
        maximize: bool = True,
    ) -> None:
        _check_data(train_X, train_Y)
        self._validate_tensor_args(X=train_X, Y=train_Y)
        parts = () if input_transform is None else input_transform.modules()
        if any(getattr(part, "learn_coefficients", False) for part in parts):
            raise ValueError(
                f"{type(input_transform).__name__} learns its coefficients from the data, so candidates would mean "
                "something else every round; fix them (Normalize: give its bounds)."
            )
        super().__init__()
        given = [c if isinstance(c, Candidate) else candidate(**c) for c in candidates]
        dtype, device = train_X.dtype, train_X.device
        everyone = tuple(
            placed(c, lambda x: x.to(device, dtype if x.is_floating_point() else None), f"candidate {u}")
            for u, c in enumerate(given)
        )
        names = tuple(str(c.name) for c in everyone)
        self._test = CandidateTest.start(names, width, noise_scale, delta, num_initial, maximize)
        self.likelihood = GaussianLikelihood().to(train_X)  # BoTorch and Ax ask for one; candidates have their own
        if input_transform is not None:
            self.input_transform = input_transform.to(train_X)
        self.eval()
        self.train_inputs, self.train_targets = (train_X[:0],), train_Y[:0, 0]
        self._factor = CandidateFactor.empty(everyone, self._inputs("train_X", train_X)[:0])
        self._alive_factor: CandidateFactor | None = None
        self._check_candidates(self._inputs("train_X", train_X))
        self._append(train_X, train_Y)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        candidates: Sequence[Candidate | Mapping[str, Any]],
        width: Widths | str,
        noise_scale: float,
        delta: float,
        width_options: dict[str, Any] | None = None,
        num_initial: int = 0,
        maximize: bool = True,
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set whose rows are in the order of the rounds.

        Args:
            training_data: Points and rewards. Noise variances are not used: candidates have their own.
            candidates: As in the constructor. Ax can store only plain dicts in JSON (and a model once
                ``ax.storage.botorch_modular_registry.register_model`` knows it).
            width: As in the constructor, or the name of one in ``WIDTHS``.
            noise_scale: As in the constructor.
            delta: As in the constructor.
            width_options: Arguments of the named width. Unless among them its delta is delta / 2, but delta for
                "bayesian_finite", which halves it itself.
            num_initial: As in the constructor.
            maximize: As in the constructor; with Ax, False for an objective that is minimised.
            search_space_options: What Ax adds for search spaces with categorical, fidelity or task features.
                Not used: such features are ordinary columns of X, for candidates to treat.

        Returns:
            The keyword arguments.

        Raises:
            ValueError: if the name is unknown, or options come with a width that is not a name.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs.pop("train_Yvar", None)
        settings = {"noise_scale": noise_scale, "delta": delta, "num_initial": num_initial, "maximize": maximize}
        # What the test leaves to the width; "bayesian_finite" halves delta itself.
        left = delta if width == "bayesian_finite" else delta / 2
        return inputs | {"candidates": candidates, "width": width_by_name(width, width_options, left)} | settings

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """U."""
        return self._factor.candidates

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates, ``h``."""
        return self._test.names

    @property
    def maximize(self) -> bool:
        """Whether f is to be maximised."""
        return self._test.maximize

    @property
    def alive(self) -> Tensor:
        """Candidates not eliminated, ``h`` bool."""
        return self._test.alive[0].to(self.train_targets.device)

    @property
    def evidence(self) -> Tensor:
        """Log marginal likelihood of the rewards under every candidate, ``h``, in nats."""
        return self._test.evidence[0].to(self.train_targets)

    @property
    def information_gains(self) -> Tensor:
        """Realised 1/2 logdet(I + K_u / lambda) of the points, ``h``, in nats."""
        return self._test.gains[0].to(self.train_targets)

    @property
    def t(self) -> int:
        """The round about to be played, one more than the rewards observed."""
        return self.train_targets.shape[0] + 1

    @property
    def widths(self) -> Tensor:
        """w^u_t of the round about to be played, ``h``."""
        return self._test.widths(self.t).to(self.train_targets)

    @property
    def leader(self) -> int:
        """Index of the candidate alive of largest evidence, first of equals."""
        return int(self._test.evidence.masked_fill(~self._test.alive, -math.inf).argmax())

    @property
    def assumptions_violated(self) -> bool:
        """Whether every candidate failed its test, the last survivor too: no candidate fits."""
        return self._test.violated

    @property
    def eliminations(self) -> list[dict[str, Any]]:
        """Tests failed, by round: ``hypothesis`` (index), ``name``, ``round``, ``left`` > ``right``, ``eliminated``.

        ``eliminated`` is False for a last survivor that was kept.
        """
        return self._test.timeline

    @property
    def batch_shape(self) -> torch.Size:
        """The number of candidates alive, as BoTorch's ensembles have it."""
        return torch.Size([len(self._test.members)])

    def record(self) -> dict[str, Any]:
        """Where the test stands, as plain JSON: names, who is alive, eliminations, struck by hand, leader, evidence."""
        return {
            "t": self.t,
            "names": list(self.names),
            "alive": self._test.alive[0].tolist(),
            "leader": self.leader,
            "evidence": self._test.evidence[0].tolist(),
            "eliminations": self.eliminations,
            "struck_by_hand": list(self._test.struck),
            "assumptions_violated": self.assumptions_violated,
        }

    def moments(self, X: Tensor, alive_only: bool = False) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance (>= 1e-12) of f at each point on its own, under every candidate.

        Args:
            X: ``lead x q x d``. Points are flattened: thousands of arms cost one triangular solve.
            alive_only: Leave out who is eliminated.

        Returns:
            Mean and variance, ``lead x h x q`` each, differentiable in X.

        Raises:
            ValueError: if X is not of the model's dtype, device and d.
        """
        X, factor = self._inputs("X", X), self._factor_of(alive_only)
        parts = [factor.marginal(x) for x in X.reshape(-1, X.shape[-1]).split(BLOCK)]
        mean, variance = (torch.cat(x, 1).reshape(-1, *X.shape[:-1]).movedim(0, -2) for x in zip(*parts, strict=True))
        return mean, variance.clamp_min(MIN_VARIANCE)

    def sequential_moments(self, X: Tensor, alive_only: bool = False) -> tuple[Tensor, Tensor]:
        """As :meth:`moments`, the variance of point j of q after points 1 .. j - 1 were observed too."""
        factor = self._factor_of(alive_only)
        mean, covariance = factor.joint(self._inputs("X", X))
        noise = factor.noise
        spread = psd_safe_cholesky(covariance + torch.diag_embed(noise.expand(mean.shape)))
        variance = spread.diagonal(dim1=-2, dim2=-1).square() - noise
        return mean, variance.clamp_min(MIN_VARIANCE)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GaussianMixturePosterior:
        """The posteriors of f under the candidates alive, as a mixture with equal weights.

        Args:
            X: ``lead x q x d``; arms as ``b x 1 x d`` cost no covariances.
            output_indices: There is one output; ignored.
            observation_noise: Add each candidate's noise variance, or this tensor ``lead x q x 1``.
            posterior_transform: As in BoTorch, of each candidate's posterior.

        Returns:
            The posterior, whose mean and variance are ``lead x (number alive) x q x 1``.

        Raises:
            ValueError: if X is not of the model's dtype, device and d.
        """
        points, factor = self._inputs("X", X), self._factor_of(True)
        if X.shape[-2] == 1:
            mean, variance = self.moments(X, alive_only=True)
            covariance: Any = DiagLinearOperator(variance)
        else:
            mean, covariance = factor.joint(points)
            covariance = DenseLinearOperator(covariance)
        if observation_noise is not False:
            noise = factor.noise
            if isinstance(observation_noise, Tensor):
                noise = observation_noise.squeeze(-1).unsqueeze(-2)
            covariance = covariance + DiagLinearOperator(noise.expand(mean.shape))
        posterior: Any = GPyTorchPosterior(MultivariateNormal(mean, covariance))
        if posterior_transform is not None:
            posterior = posterior_transform(posterior=posterior, X=X)
        return GaussianMixturePosterior(posterior.distribution)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> CandidateEnsemble:
        """The ensemble with observations of rounds t, t + 1, ... added and their tests done; O(h n^2) a row.

        Args:
            X: ``n' x d`` points.
            Y: ``n' x 1`` rewards.
            noise: Must be None: candidates have their own noise variance.
            kwargs: None known.

        Raises:
            ValueError: if data are not of these shapes, finite and of the model's dtype and device, or ``noise`` is
                given.
        """
        if noise is not None or kwargs:
            raise ValueError("candidates have their own noise_var: give X and Y only.")
        return self._grown(X, Y)[0]

    def observe(self, x: Tensor, y: Tensor | float) -> tuple[CandidateEnsemble, Observation]:
        """One reward: the ensemble with it, and what it did to the candidates.

        Args:
            x: The point, ``d`` or ``1 x d``.
            y: Its reward, one number.

        Raises:
            ValueError: as :meth:`condition_on_observations`.
        """
        Y = torch.as_tensor(y, dtype=None if isinstance(y, Tensor) else self.train_targets.dtype)
        if x.numel() != x.shape[-1] or Y.numel() != 1:
            raise ValueError(f"observe takes one point and one reward, got {tuple(x.shape)} and {tuple(Y.shape)}.")
        Y = Y if isinstance(y, Tensor) else Y.to(self.train_targets.device)
        model, said = self._grown(x.reshape(1, -1), Y.reshape(1, 1))
        return model, said[0]

    def hallucinate(self, X_pending: Tensor) -> CandidateEnsemble:
        """The ensemble as if every candidate had observed its own posterior mean at ``k x d`` pending points.

        Means stay, variances are those after observing (GP-BUCB, Desautels et al. 2014). Data, rounds, widths and the
        test stay as they are. To evaluate only: rewards cannot be added to it.

        Raises:
            ValueError: if the points are not ``k x d``, finite and of the model's dtype and device.
        """
        if X_pending.ndim != 2:
            raise ValueError(f"X_pending must be k x d, got shape {tuple(X_pending.shape)}.")
        check_finite("X_pending", X_pending)
        model = self._copy()
        with torch.no_grad():
            model._factor, model._alive_factor = self._factor.extended(self._inputs("X_pending", X_pending)), None
        return model

    def eliminate(self, index: int) -> CandidateEnsemble:
        """The ensemble without a candidate you know to be wrong, whatever its test says; observations leave it out.

        It is not part of the data: strike again after building a model anew.

        Args:
            index: Its index in U.

        Raises:
            ValueError: if there is no such candidate alive, or it is the last one.
        """
        model = self._copy()
        model._test, model._alive_factor = self._test.without(index), None
        return model

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        """What ``fit_gpytorch_mll`` calls: candidates are fixed, nothing is fitted."""
        return mll.eval()

    def subset_output(self, idcs: list[int]) -> CandidateEnsemble:
        """The model itself: it has one output."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"the model has one output, got indices {idcs}.")
        return self

    def _grown(self, X: Tensor, Y: Tensor) -> tuple[CandidateEnsemble, list[Observation]]:
        if self._factor.points.shape[0] != self.t - 1:
            raise ValueError("this ensemble has hallucinated points; add observations to the one it was made from.")
        _check_data(X, Y)
        self._check("Y", Y)
        model = self._copy()
        return model, model._append(X, Y)

    @torch.no_grad()
    def _append(self, X: Tensor, Y: Tensor) -> list[Observation]:
        """Take in rows and test them one by one, in place."""
        start, points, y = self.t - 1, self._inputs("X", X), Y[:, 0]
        self._check_scale(points)
        new = self._factor.extended(points, y)
        diagonal = new.L.diagonal(dim1=-2, dim2=-1)
        self._test, said = self._test.after(start, y, diagonal[:, start:], new.z[:, start:], new.noise)
        self._factor, self._alive_factor = new, None
        self.train_inputs = (torch.cat([self.train_inputs[0], X]),)
        self.train_targets = torch.cat([self.train_targets, y])
        return said

    def _factor_of(self, alive_only: bool) -> CandidateFactor:
        if not alive_only or bool(self._test.alive.all()):
            return self._factor
        if self._alive_factor is None:
            self._alive_factor = self._factor.subset(self._test.members)
        return self._alive_factor

    def _transformed(self, X: Tensor) -> Tensor:
        points = self.transform_inputs(X)
        if points.shape[:-1] != X.shape[:-1]:
            raise ValueError("the input_transform adds points; candidates need one point per observation.")
        return points

    def _inputs(self, name: str, X: Tensor) -> Tensor:
        """X checked and transformed."""
        self._check(name, X)
        d = self.train_inputs[0].shape[-1]
        if X.ndim < 2 or X.shape[-1] != d:
            raise ValueError(f"{name} must be ... x {d} as train_X has it, with its points, got {tuple(X.shape)}.")
        return self._transformed(X)

    def _check(self, name: str, x: Tensor) -> None:
        like = self.train_targets
        if (x.dtype, x.device) != (like.dtype, like.device):
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, the model {like.dtype} on {like.device}; convert one of them."
            )

    @torch.no_grad()
    def _check_candidates(self, points: Tensor) -> None:
        """Every kernel is one on the points; no two candidates are the same."""
        if not len(points):
            return
        matrices, means = self._factor.kernels(points, points), self._factor.means(points)
        for v, K in enumerate(matrices):
            try:
                check_kernel_matrix(K)
            except ValueError as error:
                raise ValueError(f"candidate {v} ({self.names[v]}): {error}") from None
            for u in range(v if len(points) > 1 else 0):  # one point does not tell kernels apart
                equal = torch.equal(matrices[u], K) and torch.equal(means[u], means[v])
                if equal and same(self.candidates[u], self.candidates[v]):
                    warnings.warn(
                        f"candidates {u} ({self.names[u]}) and {v} ({self.names[v]}) are the same (kernel, prior mean "
                        "and noise variance): keep one of them; the other costs time and widens the test.",
                        UserWarning,
                        stacklevel=4,
                    )

    def _check_scale(self, points: Tensor) -> None:
        """k(x, x) <= 1 where the width is that of a norm bound, as far as the points with data tell."""
        width = self._test.width
        widths = width if isinstance(width, tuple) else (width,) * len(self.names)
        for u, (c, w) in enumerate(zip(self.candidates, widths, strict=True)):
            if isinstance(w, RKHSWidth | SelfNormalisedWidth) and len(points):
                largest = float(c.covar_module(points, diag=True).max())
                if largest > 1.0 + 1e-6:
                    raise ValueError(
                        f"candidate {u} ({c.name}): k(x, x) goes up to c = {largest:.4g}, and a width by norm bound "
                        "assumes k(x, x) <= 1. Divide the kernels and noise_var by c, rewards, prior means and the "
                        "noise scale R by sqrt(c); the norm bound B stays."
                    )

    def _copy(self) -> CandidateEnsemble:
        """A model of its own that shares the tensors, which nobody writes to."""
        shared = (*self.train_inputs, self.train_targets, self._factor, self._alive_factor, self._test)
        return copy.deepcopy(self, {id(x): x for x in shared})

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CandidateEnsemble:
        super()._apply(fn)
        factor = self._factor.moved(fn)
        if factor is not self._factor:  # really moved
            self._factor, self._alive_factor = factor, None
            self.train_inputs, self.train_targets = (fn(self.train_inputs[0]),), fn(self.train_targets)
        return self

    # Model.eval and Model.train would swap train_inputs; the factor has its own, transformed ones.
    def _set_transformed_inputs(self) -> None: ...

    def _revert_to_original_inputs(self) -> None: ...


def _check_data(X: Tensor, Y: Tensor) -> None:
    if X.ndim != 2 or Y.shape != (X.shape[0], 1):
        raise ValueError(
            f"CandidateEnsemble needs X n x d and Y n x 1, got {tuple(X.shape)} and {tuple(Y.shape)}; model several "
            "outputs with a ModelList of one ensemble each."
        )
    for name, x in (("X", X), ("Y", Y)):
        if not x.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {x.dtype}; convert it with .double().")
        check_finite(name, x)
    if (X.dtype, X.device) != (Y.dtype, Y.device):
        raise ValueError(f"X is {X.dtype} on {X.device}, Y {Y.dtype} on {Y.device}; convert one of them.")
