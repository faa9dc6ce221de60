"""Feature maps x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

from bo_robust.features.box import Features, fourier_features
from bo_robust.features.fourier import FourierFeatures, hermite_frequencies

__all__ = ["Features", "FourierFeatures", "fourier_features", "hermite_frequencies"]
