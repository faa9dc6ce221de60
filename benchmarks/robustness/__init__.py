"""Loops on contaminated problems, one against another: ``python -m benchmarks.robustness``.

See :mod:`benchmarks.robustness.__main__` for what is compared and how to run it.
"""
