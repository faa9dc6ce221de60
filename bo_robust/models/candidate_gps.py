"""The exact GPs of several candidate priors on the same data: GPyTorch kernels around one batched factor.

Axes: ``h`` candidates, ``n`` rows of data, ``lead`` t-batch dimensions, ``q`` points. Points have passed the input
transform.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.confidence.candidate_widths import Widths, check_unit_scale
from bo_robust.models.candidate_priors import Candidate, candidate, placed, same
from bo_robust.models.exact_moments import MIN_VARIANCE
from bo_robust.posteriors.candidate_factor import CandidateFactor
from bo_robust.specs import nearest
from bo_robust.validation import check_finite, check_kernel_matrix, check_like, check_tensor, is_number, quoted

BLOCK = 4096  # points evaluated at once; bounds memory to h x n x BLOCK numbers


def check_rows(X: Tensor, Y: Tensor) -> None:
    """Raise ``ValueError`` unless X is ``n x d`` and Y ``n x 1``, finite floats of one dtype and device."""
    for name, x in (("train_X", X), ("train_Y", Y)):
        check_tensor(name, x, floating=False)
    if X.ndim != 2 or Y.shape != (X.shape[0], 1):
        raise ValueError(
            f"CandidateEnsemble needs X n x d and Y n x 1, got {tuple(X.shape)} and {tuple(Y.shape)}; model several "
            "outputs with a ModelList of one ensemble each."
        )
    for name, x in (("X", X), ("Y", Y)):
        check_tensor(name, x)
        check_finite(name, x)
    check_like("Y", Y, "X", X)


def check_points(name: str, X: Tensor, train_X: Tensor) -> None:
    """Raise ``ValueError`` unless X is ``... x d`` as ``train_X``, of its dtype and on its device."""
    check_like(name, X, "the model", train_X)
    d = train_X.shape[-1]
    if X.ndim < 2 or X.shape[-1] != d:
        raise ValueError(f"{name} must be ... x {d} as train_X has it, with its points, got {tuple(X.shape)}.")


def one_point(caller: str, x: Tensor) -> Tensor:
    """A point ``d`` or ``1 x d`` as ``1 x d``; ``TypeError`` if it is no tensor, ``ValueError`` for any other shape."""
    check_tensor("x", x, floating=False)
    if x.ndim == 0 or x.numel() != x.shape[-1]:
        raise ValueError(f"{caller} takes one point, d or 1 x d, got shape {tuple(x.shape)}.")
    return x.reshape(1, -1)


def one_reward(y: Tensor | float, like: Tensor) -> Tensor:
    """One reward, ``1 x 1``; a number gets the dtype and device of ``like``. ``ValueError`` if it is none."""
    if (y.numel() != 1) if isinstance(y, Tensor) else not is_number(y):
        raise ValueError(f"y must be one finite number, got {quoted(y)}.")
    return (y if isinstance(y, Tensor) else like.new_tensor(y)).reshape(1, 1)


def check_transform(input_transform: InputTransform | None) -> None:
    """Raise ``ValueError`` unless it is an input transform of BoTorch, or None, that learns no coefficients."""
    if not (input_transform is None or isinstance(input_transform, InputTransform)):
        raise ValueError(f"input_transform must be one of BoTorch, such as Normalize, got {quoted(input_transform)}.")
    parts = () if input_transform is None else input_transform.modules()
    if any(getattr(part, "learn_coefficients", False) for part in parts):
        raise ValueError(
            f"{type(input_transform).__name__} learns its coefficients from the data, so candidates would mean "
            "something else every round; fix them (Normalize: give its bounds)."
        )


def check_outcome_transform(transform: object) -> bool:
    """Whether rewards are standardised; ``ValueError`` if the transform is neither ``Standardize(m=1)`` nor None."""
    if transform is not None and (type(transform) is not Standardize or transform._m != 1):
        raise ValueError(f"outcome_transform must be Standardize(m=1) of BoTorch or None, got {quoted(transform)}.")
    return transform is not None


def units(y: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of ``n`` rewards; the latter is 1 if they are fewer than two, or all equal."""
    if len(y) < 2:
        return (float(y.mean()) if len(y) else 0.0), 1.0
    center, scale = float(y.mean()), float(y.std())
    return center, scale if scale > torch.finfo(y.dtype).eps * max(abs(center), 1e-290) else 1.0


@dataclass(frozen=True, eq=False)
class CandidateGPs:
    """The candidates with ``n x d`` points and the factor of these; methods that add rows return a new object.

    Candidates and factor see rewards as (y - center) / scale. All that comes in or goes out is in units of y.
    """

    candidates: tuple[Candidate, ...]
    points: Tensor
    factor: CandidateFactor
    center: float = 0.0
    scale: float = 1.0

    @classmethod
    def empty(cls, candidates: Sequence[Candidate | Mapping[str, Any]], points: Tensor) -> CandidateGPs:
        """Copies of the candidates in the dtype and on the device of ``points``, ``0 x d``, without rows."""
        listed = isinstance(candidates, Sequence) and not isinstance(candidates, str)
        wrong = [c for c in candidates if not isinstance(c, Candidate | Mapping)] if listed else [candidates]
        if wrong:
            raise ValueError(f"candidates must be a list of Candidate or of settings, got {quoted(wrong[0])}.")
        given = [c if isinstance(c, Candidate) else _from_settings(u, c) for u, c in enumerate(candidates)]
        if not given:
            raise ValueError("U is empty: give at least one candidate.")

        def place(x: Tensor) -> Tensor:
            return x.to(points.device, points.dtype if x.is_floating_point() else None)

        everyone = tuple(placed(c, place, f"candidate {u}") for u, c in enumerate(given))
        return cls(everyone, points, CandidateFactor.empty(_noise(everyone, points)))

    @cached_property
    def labels(self) -> list[str]:
        """The names that messages use."""
        return [f"candidate {u} ({c.name})" for u, c in enumerate(self.candidates)]

    def extended(self, X: Tensor, y: Tensor | None = None) -> CandidateGPs:
        """New GPs with ``k x d`` points appended, O(h k n^2).

        The rewards ``y`` are ``k``. None stands for each candidate's expectation: means stay and variances shrink.
        Raises ``ValueError`` if a kernel is not positive semi-definite on the points.
        """
        error = None if y is None else self.standardised(y) - self.means(X)
        factor = self.factor.extended(self.kernels(self.points, X), self.kernels(X, X), error, self.labels)
        return replace(self, points=torch.cat([self.points, X]), factor=factor)

    def subset(self, members: list[int]) -> CandidateGPs:
        """The GPs of the candidates with these indices."""
        candidates = tuple(self.candidates[u] for u in members)
        return replace(self, candidates=candidates, factor=self.factor.subset(members))

    def standardised(self, y: Tensor) -> Tensor:
        """Rewards as candidates see them."""
        return (y - self.center) / self.scale

    def moved(self, fn: Callable[[Tensor], Tensor]) -> CandidateGPs:
        """All tensors passed through ``fn``, a change of dtype or device; ``self`` if that changes nothing."""
        L = fn(self.factor.L)
        if L is self.factor.L:
            return self
        candidates, points = tuple(placed(c, fn, "") for c in self.candidates), fn(self.points)
        factor = CandidateFactor(_noise(candidates, points), L, fn(self.factor.z))
        return replace(self, candidates=candidates, points=points, factor=factor)

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (>= 1e-12) of f at each point of ``lead x q x d`` on its own, ``lead x h x q`` each."""
        parts = [self._marginal(x) for x in X.reshape(-1, X.shape[-1]).split(BLOCK)]
        mean, variance = (torch.cat(x, 1).reshape(-1, *X.shape[:-1]).movedim(0, -2) for x in zip(*parts, strict=True))
        return self._raised(mean), variance.clamp_min(MIN_VARIANCE) * self.scale**2

    def _raised(self, mean: Tensor) -> Tensor:
        return mean * self.scale + self.center

    def _marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`marginal` at ``N x d``, ``h x N`` each, standardised, without the lower bound on variances."""
        S = self.factor.solved(self.kernels(self.points, X))
        if self._families is None:
            prior = torch.stack([c.covar_module(X, diag=True) for c in self.candidates])
        else:
            prior = torch.cat([scale for _, scale, _ in self._families]).unsqueeze(-1)
        return self.means(X) + self.factor.raised(S), prior - S.square().sum(-2)

    @torch.no_grad()
    def before(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (>= 1e-12) of f at points ``k x w x d``, ``h x k x w`` each.

        Those of ``X[i]`` are as they were before row n - k + i, for the last k rows.
        """
        n, step = len(self.points), max(1, BLOCK // X.shape[1])
        rows = torch.arange(n, device=X.device)
        parts = []
        for x, before in zip(X.split(step), rows[n - len(X) :].split(step), strict=True):
            # The first rows of S are those of the first rows of data, as L is triangular.
            S = self.factor.solved(self.kernels(self.points, x.flatten(0, 1))).unflatten(-1, x.shape[:2])
            S = S * (rows.unsqueeze(-1) < before).unsqueeze(-1)
            prior = torch.stack([c.covar_module(x.flatten(0, 1), diag=True) for c in self.candidates])
            mean = self.means(x) + torch.einsum("hn,hnkw->hkw", self.factor.z, S)
            parts.append((mean, prior.unflatten(-1, x.shape[:2]) - S.square().sum(1)))
        mean, variance = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return self._raised(mean), variance.clamp_min(MIN_VARIANCE) * self.scale**2

    def sequential(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`marginal`, with the variance of point j taken after observing points 1 .. j - 1 of the q too."""
        mean, covariance = self._joint(X)
        noise = self.factor.noise_var
        # Entry j of the factor's diagonal is the standard deviation of y_j given y_1 .. y_{j-1}.
        spread = psd_safe_cholesky(covariance + torch.diag_embed(noise.expand(mean.shape)))
        variance = spread.diagonal(dim1=-2, dim2=-1).square() - noise
        return self._raised(mean), variance.clamp_min(MIN_VARIANCE) * self.scale**2

    def distribution(self, X: Tensor, observation_noise: bool | Tensor) -> MultivariateNormal:
        """Joint distribution of f at points ``lead x q x d``, of batch shape ``lead x h``; no covariances where q = 1.

        ``observation_noise`` adds each candidate's noise variance, or is a tensor ``lead x q x 1`` to add.
        """
        covariance: Any
        if X.shape[-2] == 1:
            mean, variance = self.marginal(X)
            covariance = DiagLinearOperator(variance)
        else:
            mean, covariance = self.joint(X)
            covariance = DenseLinearOperator(covariance)
        if observation_noise is not False:
            noise = self.factor.noise_var * self.scale**2
            if isinstance(observation_noise, Tensor):
                noise = observation_noise.squeeze(-1).unsqueeze(-2)
            covariance = covariance + DiagLinearOperator(noise.expand(mean.shape))
        return MultivariateNormal(mean, covariance)

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``lead x h x q`` and covariance ``lead x h x q x q`` of f at points ``lead x q x d``."""
        mean, covariance = self._joint(X)
        return self._raised(mean), covariance * self.scale**2

    def _joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`joint`, standardised."""
        S = self.factor.solved(self.kernels(self.points, X.reshape(-1, X.shape[-1])))
        S = S.unflatten(-1, X.shape[:-1]).movedim(1, -2)
        mean = self.means(X) + self.factor.raised(S)
        return mean.movedim(0, -2), (self.kernels(X, X) - S.mT @ S).movedim(0, -3)

    def kernels(self, X1: Tensor, X2: Tensor) -> Tensor:
        """k_u between points ``lead x q1 x d`` and ``lead x q2 x d``, ``h x lead x q1 x q2``."""
        if X1.shape[-2] == 0 or X2.shape[-2] == 0:  # before any data; kernels need not accept zero points
            batch = torch.broadcast_shapes(X1.shape[:-2], X2.shape[:-2])
            return X1.new_zeros(len(self.candidates), *batch, X1.shape[-2], X2.shape[-2])
        if self._families is None:
            return torch.stack([c.covar_module(X1, X2).to_dense() for c in self.candidates])
        centre = X1.detach().flatten(0, -2)[0]  # squares of large coordinates would round their differences away
        X1, X2, families = X1 - centre, X2 - centre, []
        for shape, scale, lengthscale in self._families:
            lengthscale = lengthscale.view(len(scale), *(1,) * (max(X1.ndim, X2.ndim) - 1), -1)
            if lengthscale.shape[-1] == 1:  # distances that all share
                square = _squared_distances(X1, X2) / lengthscale.square()
            else:
                square = _squared_distances(X1 / lengthscale, X2 / lengthscale)
            families.append(scale.view(-1, *(1,) * (square.ndim - 1)) * shape(square))
        return torch.cat(families)

    @cached_property
    def _families(self) -> list[tuple[Callable[[Tensor], Tensor], Tensor, Tensor]] | None:
        """Neighbours of one family: its shape, output scales and lengthscales, one or ``d`` for each.

        A family is evaluated at once. None if any kernel is of another kind.
        """
        groups: list[tuple[Callable[[Tensor], Tensor], list[Tensor], list[Tensor]]] = []
        for kernel in (c.covar_module for c in self.candidates):
            base: Any = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
            matern = type(base) is MaternKernel and base.nu == 2.5
            if not (matern or type(base) is RBFKernel):
                return None
            if kernel.active_dims is not None or base.active_dims is not None:
                return None
            shape, lengthscale = _matern52 if matern else _squared_exponential, base.lengthscale.flatten()
            if not groups or groups[-1][0] is not shape or groups[-1][2][0].shape != lengthscale.shape:
                groups.append((shape, [], []))
            groups[-1][1].append(kernel.outputscale if kernel is not base else torch.ones_like(lengthscale[0]))
            groups[-1][2].append(lengthscale)
        return [(shape, torch.stack(scales), torch.stack(lengths)) for shape, scales, lengths in groups]

    def means(self, X: Tensor) -> Tensor:
        """m_u at points ``lead x q x d``, ``h x lead x q``."""
        zero = 0.0 * X.sum(-1)  # with a gradient, which the prior alone has not: optimisers ask for one
        if self._constants is not None:
            return self._constants.view(-1, *(1,) * zero.ndim) + zero
        return torch.stack([zero if c.mean_module is None else zero + c.mean_module(X) for c in self.candidates])

    @cached_property
    def _constants(self) -> Tensor | None:
        """The prior means ``h`` if all are constant."""
        means = [c.mean_module for c in self.candidates]
        if not all(mean is None or type(mean) is ConstantMean for mean in means):
            return None
        return torch.stack([self.points.new_zeros(()) if mean is None else mean.constant for mean in means])

    @torch.no_grad()
    def check_kernels(self, points: Tensor) -> None:
        """Raise ``ValueError`` unless candidates fit ``n x d`` points; warn of equal ones.

        Kernels must be positive semi-definite there, and kernels and means of ``d`` columns and one output.
        """
        two = points.new_zeros(2, points.shape[-1])
        for c, label in zip(self.candidates, self.labels, strict=True):
            try:
                mean = two[:, 0] if c.mean_module is None else c.mean_module(two)
                fits = c.covar_module(two).to_dense().shape == (2, 2) and mean.shape == (2,)
            except (RuntimeError, IndexError):
                fits = False
            if not fits:
                raise ValueError(
                    f"{label} does not fit points of {points.shape[-1]} columns: give it lengthscales and columns of "
                    "these, one output and no batch shape."
                )
        if not len(points):
            return
        plain = self._families is not None  # positive definite, and wholly told by their hyperparameters
        matrices, means = None if plain else self.kernels(points, points), self.means(points)
        for v in range(len(self.candidates)):
            if matrices is not None:
                try:
                    check_kernel_matrix(matrices[v])
                except ValueError as error:
                    raise ValueError(f"{self.labels[v]}: {error}") from None
            for u in range(v if len(points) > 1 else 0):  # one point does not tell kernels apart
                equal = matrices is None or torch.equal(matrices[u], matrices[v])
                equal = equal and torch.equal(means[u], means[v])
                if equal and same(self.candidates[u], self.candidates[v]):
                    first, second = (name.removeprefix("candidate ") for name in (self.labels[u], self.labels[v]))
                    warnings.warn(
                        f"candidates {first} and {second} are the same (kernel, prior mean and noise variance): keep "
                        "one of them; the other costs time and widens the test.",
                        UserWarning,
                        stacklevel=4,  # past the wrapper of no_grad and the model's __init__
                    )

    def check_scale(self, width: Widths, points: Tensor) -> None:
        """Raise ``ValueError`` if k(x, x) > 1 at the points although the width assumes a norm bound."""
        if len(points):
            check_unit_scale(width, self.labels, lambda u: self.candidates[u].covar_module(points, diag=True))


def _from_settings(index: int, settings: Mapping[str, Any]) -> Candidate:
    """The candidate of these arguments of :func:`candidate`; ``ValueError`` if one is missing or unknown."""
    parameters = inspect.signature(candidate).parameters
    for name in settings:
        if name not in parameters:
            raise ValueError(f"the settings of candidate {index} have no {quoted(name)}; {nearest(name, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in settings:
            raise ValueError(f"the settings of candidate {index} need {name!r}.")
    return candidate(**settings)


def _noise(candidates: tuple[Candidate, ...], like: Tensor) -> Tensor:
    """lambda_u of the candidates, ``h x 1``."""
    return like.new_tensor([[c.noise_var] for c in candidates])


def _squared_distances(X1: Tensor, X2: Tensor) -> Tensor:
    """Between points ``... x q1 x d`` and ``... x q2 x d``, ``... x q1 x q2``."""
    square = X1.square().sum(-1, keepdim=True) + X2.square().sum(-1).unsqueeze(-2) - 2.0 * X1 @ X2.mT
    return square.clamp_min(0.0)


def _squared_exponential(square: Tensor) -> Tensor:
    return (-0.5 * square).exp()


def _matern52(square: Tensor) -> Tensor:
    root = (5.0 * square).clamp_min(1e-30).sqrt()  # which has a gradient
    return (1.0 + root + 5.0 / 3.0 * square) * (-root).exp()
