"""BoTorch acquisition functions; importing this registers their input constructors."""

from bo_robust.acquisition import input_constructors
from bo_robust.acquisition.gp_ucb import GPUCB

__all__ = ["GPUCB", "input_constructors"]
