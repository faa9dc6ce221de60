"""Extra prior variance of f around outliers that may be local deviations of f."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from botorch.sampling.pathwise.features.generators import GenKernelFeatures, gen_kernel_features
from botorch.sampling.pathwise.features.maps import FeatureMap
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from bo_robust.models.local_deviation import LocalDeviation


class VarianceInflation(Kernel):
    """The covariance sum_j P_j B_j of possible local deviations; :mod:`bo_robust.models.local_deviation` defines B.

    A deviation of probability P and size a adds a mean square of a^2 P to f at its center, and nothing to its prior
    mean. Observations at and near the center, earlier ones too, condition it like the rest of f.
    """

    centers: Tensor
    radii: Tensor
    variances: Tensor
    low: Tensor
    sides: Tensor

    def __init__(self, X: Tensor) -> None:
        """No inflation yet for points ``n x d`` as the kernel of f sees them."""
        super().__init__()
        self.set(X, (), 1.0)

    def set(self, X: Tensor, deviations: Sequence[LocalDeviation], scale: float) -> None:
        """Inflate the variance around rows of the points ``n x d``; sizes of deviations are divided by ``scale``."""
        low, sides, rows = X.amin(0), X.amax(0) - X.amin(0), [deviation.row for deviation in deviations]
        values = {
            "low": low,
            "sides": torch.where(sides > 0.0, sides, torch.inf),  # a constant column does not count
            "centers": X[rows],
            "radii": X.new_tensor([deviation.radius for deviation in deviations]),
            "variances": X.new_tensor([each.probability * (each.size / scale) ** 2 for each in deviations]),
        }
        for name, value in values.items():
            self.register_buffer(name, value.detach().clone(), persistent=False)

    def __bool__(self) -> bool:
        return len(self.radii) > 0

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Covariances ``... x n x m`` of points ``... x n x d`` and ``... x m x d``; ``... x n`` if ``diag``."""
        first, second = ((x - self.low) / self.sides for x in (x1, x2))
        centers = (self.centers - self.low) / self.sides
        if diag:
            apart = (first - second).square().sum(-1)
        else:  # without the differences, n x m x d, which take most of the time of thousands of points
            apart = torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist").square()
        total = torch.zeros_like(apart)
        for radius in self.radii.unique():  # few, while deviations may be a hundred
            here, rate = self.radii == radius, -0.5 / radius**2
            left, other = (
                ((x.unsqueeze(-2) - centers[here]).square().sum(-1) * rate).exp() for x in (first, second)
            )  # ... x n x k, ... x m x k
            weighted = self.variances[here] * left
            total = total + (rate * apart).exp() * ((weighted * other).sum(-1) if diag else weighted @ other.mT)
        return total


class InflatedKernel(AdditiveKernel):
    """A kernel of f plus its variance inflation; all other attributes are those of the kernel of f."""

    def __init__(self, kernel: Kernel, inflation: VarianceInflation) -> None:
        super().__init__(kernel, inflation)

    @property
    def lengthscale(self) -> Tensor:
        return cast(Tensor, self.kernels[0].lengthscale)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("kernels")[0], name)


class InflatedFeatureMap(FeatureMap):
    """Random features of an :class:`InflatedKernel`, by which ``draw_matheron_paths`` draws from its prior."""

    def __init__(self, features: FeatureMap, inflation: VarianceInflation, frequencies: Tensor) -> None:
        """``features`` are those of the kernel of f; ``frequencies`` are standard normal, ``F x d``."""
        super().__init__()
        self.input_transform = self.output_transform = None
        self.features, self.inflation, self.frequencies = features, inflation, frequencies
        self.num_outputs = features.num_outputs + 2 * len(frequencies) * len(inflation.radii)
        self.batch_shape = features.batch_shape

    def forward(self, x: Tensor) -> Tensor:
        places, centers = ((z - self.inflation.low) / self.inflation.sides for z in (x, self.inflation.centers))
        parts = [self.features(x)]
        for center, radius, variance in zip(centers, self.inflation.radii, self.inflation.variances, strict=True):
            scaled = (places - center) / radius
            phase = scaled @ self.frequencies.mT
            height = (variance / len(self.frequencies)).sqrt() * (-0.5 * scaled.square().sum(-1, keepdim=True)).exp()
            parts += [height * phase.sin(), height * phase.cos()]
        return torch.cat(parts, -1)


@GenKernelFeatures.register(InflatedKernel)
def inflated_features(kernel: InflatedKernel, num_inputs: int, num_outputs: int) -> InflatedFeatureMap:
    """The features of an inflated kernel, as ``gen_kernel_features`` asks for them."""
    base, inflation = kernel.kernels
    features = gen_kernel_features(base, num_inputs=num_inputs, num_outputs=num_outputs)
    num_frequencies = max(1, num_outputs // (2 * len(inflation.radii)))
    radii = inflation.radii
    frequencies = draw_sobol_normal_samples(n=num_frequencies, d=num_inputs, dtype=radii.dtype, device=radii.device)
    return InflatedFeatureMap(features, inflation, frequencies)
