"""BoTorch's loop on contaminated problems, and what others do there: ``python -m benchmarks.robustness``."""
