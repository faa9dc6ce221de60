"""Feature maps of GPyTorch kernels: what a :class:`~bo_robust.models.FeatureGP` regresses on.

A map is the user's choice (:class:`FourierMap`, :class:`NystromMap`). Its ``build`` makes the module that evaluates
phi(x) at the present hyperparameters of the model's kernel.
"""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.features.fourier import FourierFeatures, fourier_features, hermite_frequencies, keep_half, outside
from bo_robust.features.nystrom import NystromWeights, nystrom_weights
from bo_robust.utils.covariance import GPyTorchCovariance, Shape, shape_of, squared_exponential_
from bo_robust.utils.input_checks import check_count, check_finite, quoted

WARN_ERROR = 0.05  # share of k(x, x) beyond which the features do not stand for the kernel any more


@dataclass(frozen=True, eq=False)
class FourierMap:
    """Quadrature Fourier features (Mutny & Krause 2018) of an ``RBFKernel``, with or without ``ScaleKernel``.

    There are 2 nodes^d features (half as many where the grid may be halved), so use few input dimensions. Rule of
    thumb: nodes > (side of the box / lengthscale)^2. Fitting may shorten the lengthscale, so leave a margin;
    :class:`bo_robust.features.FourierFeatures` has examples. A posterior warns when the features miss the kernel.

    Args:
        nodes: Quadrature nodes per dimension, >= 1.
        bounds: ``2 x d`` box that holds all points after the input transform; default the unit cube. With
            ``Normalize``, give it the bounds of the search space: bounds that it learns hold the training points only.
    """

    nodes: int
    bounds: Tensor | Sequence[Sequence[float]] | None = None

    def __post_init__(self) -> None:
        check_count(1, nodes=self.nodes)

    def count(self, X: Tensor) -> int:
        """Number of frequencies for points like X (``n x d``)."""
        return self.nodes ** X.shape[-1]

    def build(self, covar_module: Kernel, X: Tensor, half: bool) -> "FeatureModule":
        """The module for a kernel and points like X (``n x d``).

        Raises ``ValueError`` if the kernel is another one or has neither one nor d lengthscales, ``bounds`` are not
        ``2 x d`` with lower < upper, or there are too many frequencies.
        """
        d, number = X.shape[-1], len(_rbf(covar_module).lengthscale)
        if number not in (1, d):
            raise ValueError(f"{number} lengthscales for points of {d} dimensions; set ard_num_dims.")
        default = torch.tensor([[0.0], [1.0]]).expand(2, d)
        bounds = _tensor(default if self.bounds is None else self.bounds, X, f"bounds must be 2 x {d} numbers")
        if bounds.shape != (2, d) or not bool((bounds[0] < bounds[1]).all() & bounds.isfinite().all()):
            raise ValueError(f"bounds must be 2 x {d}, finite and lower < upper, got {bounds.tolist()}.")
        return _Fourier(self.nodes, bounds.clone(), half)


@dataclass(frozen=True, eq=False)
class NystromMap:
    """Nyström features of any kernel: its projection on the span of a dictionary of points (DTC).

    Args:
        inducing_points: The dictionary, ``M x d``, after the input transform, such as a subset of the observed points.
            It is not fitted. Duplicates do no harm.
        size: Instead of the points: take this many of the distinct points of a model's data (all, if there are fewer),
            evenly spaced in lexicographic order.

    Raises:
        ValueError: if none or both are given, or ``size`` is no whole number >= 1.
    """

    inducing_points: Tensor | Sequence[Sequence[float]] | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.inducing_points is None) == (self.size is None):
            raise ValueError("NystromMap needs one of inducing_points and size.")
        if self.size is not None:
            check_count(1, size=self.size)

    def count(self, X: Tensor) -> int:
        """Number of inducing points for points like X (``n x d``)."""
        return len(self._points(X))

    def build(self, covar_module: Kernel, X: Tensor, half: bool) -> "FeatureModule":
        """The module for a kernel and points like X (``n x d``), inducing points checked; ``half`` has no effect."""
        points = self._points(X)
        if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != X.shape[-1]:
            raise ValueError(f"inducing_points must be M x {X.shape[-1]} with M >= 1, got {tuple(points.shape)}.")
        check_finite("inducing_points", points)
        return _Nystrom(points.detach().clone())

    def _points(self, X: Tensor) -> Tensor:
        if self.size is None:
            return _tensor(self.inducing_points, X, f"inducing_points must be M x {X.shape[-1]} numbers")
        distinct = torch.unique(X.detach(), dim=0)
        kept = torch.linspace(0, len(distinct) - 1, min(self.size, len(distinct))).round().long()
        return distinct[kept.to(X.device)]


FEATURE_MAPS: dict[str, Callable[..., FourierMap | NystromMap]] = {"fourier": FourierMap, "nystrom": NystromMap}


class FeatureModule(torch.nn.Module, ABC):
    """phi(x) for one input dimension, dtype and device; buffers move with the model."""

    has_residual: bool  # Whether k(x, x) exceeds phi(x)^T phi(x), so that the DTC variance adds the difference

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    @abstractmethod
    def prepare(self, covar_module: Kernel, symmetric: bool) -> NystromWeights | None:
        """Compute, without gradient, what can be computed once for the current hyperparameters.

        ``symmetric`` asks Nyström features for the papers' symmetric root of K_D instead of the Cholesky root.
        """

    @abstractmethod
    def for_evidence(self, X: Tensor, covar_module: Kernel) -> Tensor:
        """Features of the same phi(x)^T phi(x'), as few as possible, with gradients for the hyperparameters."""

    @abstractmethod
    def forward(self, X: Tensor, covar_module: Kernel, prepared: NystromWeights | None) -> Tensor:
        """phi at points ``... x n x d``, ``... x n x p``, differentiable in X and the hyperparameters. Checks X."""

    def check(self, X: Tensor) -> None:
        """Raise ``ValueError`` unless points are ``... x n x d`` and where the features hold."""
        if X.ndim < 2 or X.shape[-1] != self.dim:
            raise ValueError(f"X must be ... x n x {self.dim} like the training points, got shape {tuple(X.shape)}.")


class _Fourier(FeatureModule):
    has_residual = False
    bounds: Tensor
    frequencies: Tensor
    weights: Tensor

    def __init__(self, nodes: int, bounds: Tensor, half: bool) -> None:
        super().__init__(bounds.shape[-1])
        self.nodes, self.halved = nodes, half
        frequencies, weights = hermite_frequencies(nodes, self.dim, half=half, dtype=bounds.dtype, device=bounds.device)
        for name, x in (("bounds", bounds), ("frequencies", frequencies), ("weights", weights)):
            self.register_buffer(name, x, persistent=False)

    def prepare(self, covar_module: Kernel, symmetric: bool) -> None:
        lengthscale = _rbf(covar_module).lengthscale.detach().expand(self.dim).tolist()
        box = tuple((lower, upper) for lower, upper in self.bounds.mT.tolist())
        error = FourierFeatures(tuple(lengthscale), self.nodes, box).error_along_axis()
        if error > WARN_ERROR:
            warnings.warn(
                f"{self.nodes} nodes per dimension are too few for lengthscales {lengthscale} on the box: the features "
                f"miss the kernel by {error:.2g} of k(x, x), and the posterior with it. Raise `nodes`, or use "
                "NystromMap.",
                UserWarning,
                stacklevel=2,
            )

    def for_evidence(self, X: Tensor, covar_module: Kernel) -> Tensor:
        frequencies, weights = self.frequencies, self.weights
        # Frequencies w and -w give the same cosine and sine up to sign, so half of them give the same kernel.
        return self._evaluate(
            X, covar_module, *((frequencies, weights) if self.halved else keep_half(frequencies, weights))
        )

    def forward(self, X: Tensor, covar_module: Kernel, prepared: NystromWeights | None) -> Tensor:
        return self._evaluate(X, covar_module, self.frequencies, self.weights)

    def _evaluate(self, X: Tensor, covar_module: Kernel, frequencies: Tensor, weights: Tensor) -> Tensor:
        self.check(X)
        _, lengthscale, outputscale = _rbf(covar_module)
        return fourier_features(X - self.bounds[0], frequencies, weights, lengthscale, outputscale)

    def check(self, X: Tensor) -> None:
        super().check(X)
        beyond = outside(X.detach(), *self.bounds)
        if bool(beyond.any()):
            raise ValueError(
                f"{int(beyond.sum())} points are NaN or outside the box {self.bounds.tolist()} on which the Fourier "
                "features hold; widen `bounds` (and raise `nodes`), or rescale X with an input_transform (give "
                "Normalize the `bounds` of the search space: learned ones hold the data only)."
            )


class _Nystrom(FeatureModule):
    has_residual = True
    inducing_points: Tensor

    def __init__(self, inducing_points: Tensor) -> None:
        super().__init__(inducing_points.shape[-1])
        self.register_buffer("inducing_points", inducing_points, persistent=False)

    def prepare(self, covar_module: Kernel, symmetric: bool) -> NystromWeights:
        points, tol = self.inducing_points, None
        if points.dtype == torch.float32:
            # Rounded to float32, K_D tells fewer points apart than its features do: the small root is float64.
            covar_module, points = copy.deepcopy(covar_module).double(), points.double()
            tol = torch.finfo(torch.float32).eps
        root = nystrom_weights(GPyTorchCovariance(covar_module), points, "symmetric" if symmetric else "cholesky", tol)
        return NystromWeights(*(x.to(self.inducing_points) for x in root))

    def for_evidence(self, X: Tensor, covar_module: Kernel) -> Tensor:
        # The set of points that `prepare` drops jumps with the hyperparameters. A jitter of sqrt(eps) of the diagonal
        # is smooth and changes phi^T phi' by no more than itself.
        K: Tensor = cast(Any, covar_module(self.inducing_points)).to_dense()
        L = psd_safe_cholesky(K + torch.diag_embed(torch.finfo(K.dtype).eps ** 0.5 * K.diagonal()))
        K_ZX: Tensor = cast(Any, covar_module(self.inducing_points, X)).to_dense()
        return torch.linalg.solve_triangular(L, K_ZX, upper=False).mT

    def forward(self, X: Tensor, covar_module: Kernel, prepared: NystromWeights | None) -> Tensor:
        assert prepared is not None
        self.check(X)
        # Points flattened: a kernel on ... x 1 x d would copy the dictionary once per t-batch.
        K = covar_module(X.reshape(-1, X.shape[-1]), prepared.points).to_dense()
        return (K @ prepared.weights.mT).reshape(*X.shape[:-1], prepared.weights.shape[0])


def _rbf(covar_module: Kernel) -> Shape:
    """The shape of an RBF kernel; ``ValueError`` of another."""
    shape = shape_of(covar_module)
    if shape is None or shape.radial.of is not squared_exponential_:
        base = getattr(covar_module, "base_kernel", covar_module)
        raise ValueError(
            "Fourier features are for an RBFKernel or ScaleKernel(RBFKernel) on all dimensions, got "
            f"{type(covar_module).__name__} of {type(base).__name__}; use NystromMap for other kernels."
        )
    return shape


def _tensor(value: Any, template: Tensor, must: str) -> Tensor:
    """``value`` in dtype and device of ``template``; a ``ValueError`` says what it must be."""
    try:
        return torch.as_tensor(value, dtype=template.dtype, device=template.device)
    except (TypeError, ValueError):
        raise ValueError(f"{must}, got {quoted(value)}.") from None
