"""Random features of a kernel with variance inflation, for paths of a ``RobustGP``."""

from __future__ import annotations

import torch
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from botorch.sampling.pathwise.features.maps import FeatureMap
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from bo_robust.models.variance_inflation import InflatedKernel, VarianceInflation


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


def inflated_features(kernel: InflatedKernel, num_inputs: int, num_outputs: int) -> InflatedFeatureMap:
    """The features of an inflated kernel, as ``gen_kernel_features`` asks for them."""
    base, inflation = kernel.kernels
    features = gen_kernel_features(base, num_inputs=num_inputs, num_outputs=num_outputs)
    num_frequencies = max(1, num_outputs // (2 * len(inflation.radii)))
    radii = inflation.radii
    frequencies = draw_sobol_normal_samples(n=num_frequencies, d=num_inputs, dtype=radii.dtype, device=radii.device)
    return InflatedFeatureMap(features, inflation, frequencies)
