"""Experiments on f(x, Z): configuration, methods, the loop, results and pictures (`loop: value_at_risk`).

The arm engine of :mod:`bo_robust.runner` plays many trials at once on finite arms; here a model is fitted and an
acquisition function optimised over a continuous x in every round, one repetition after the other.
"""
