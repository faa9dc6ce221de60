"""Feature maps x -> phi(x) with phi(x) . phi(x') near k(x, x')."""

from bo_robust.features.fourier import Features, FourierFeatures, fourier_features, hermite_frequencies

__all__ = ["Features", "FourierFeatures", "fourier_features", "hermite_frequencies"]
