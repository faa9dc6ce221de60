"""The methods of runs over pairs (x, z), and the GP that they share.

Every round fits a model and optimises an acquisition function over a continuous x, one trial after the other.
"""
