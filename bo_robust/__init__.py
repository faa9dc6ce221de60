"""bo_robust: Bayesian optimisation when the textbook assumptions fail."""

__version__ = "0.1.0"
