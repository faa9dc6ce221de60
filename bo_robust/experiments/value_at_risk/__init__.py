"""Experiments on f(x, Z) (``loop: value_at_risk``): the methods, the rounds they play, and the summary.

The arm engine plays many trials at once on finite arms. Here every round fits a model and optimises an acquisition
function over a continuous x, one repetition after the other.
"""
