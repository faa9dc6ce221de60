"""Feature maps x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

from bo_robust.features.box import Features, fourier_features
from bo_robust.features.fourier import FourierFeatures, fewest_nodes, hermite_frequencies
from bo_robust.features.matern_fourier import MaternFourierFeatures

__all__ = [
    "Features", "FourierFeatures", "MaternFourierFeatures", "fewest_nodes", "fourier_features", "hermite_frequencies",
]  # fmt: skip
