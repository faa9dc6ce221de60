"""Which bound chose the points of an ensemble where they are (x, z): that of a functional of f(x, Z)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bo_robust.environments import Environment
from bo_robust.functionals import Functional, as_functional
from bo_robust.validation import check_like


@dataclass(frozen=True, eq=False)
class Risk:
    """Points are (x, z), and designs x were chosen by the bound of a functional of f(x, Z)."""

    environment: Environment
    functional: Functional

    @classmethod
    def checked(
        cls, environment: Environment | None, functional: Functional | float | None, maximize: bool, X: Tensor
    ) -> Risk | None:
        """The risk of points ``n x d``, or None for none; ``ValueError`` if the arguments do not fit."""
        if environment is None and functional is None:
            return None
        if not isinstance(environment, Environment) or functional is None or not maximize:
            raise ValueError("a risk needs environment (of bo_robust.environments), functional and maximize=True.")
        if not 0 < environment.appended < X.shape[-1]:
            raise ValueError(
                f"the environment adds {environment.appended} columns to x, the points have {X.shape[-1]}; points must "
                "be (x, z), from which x can be read."
            )
        for buffer in environment.buffers():
            check_like("the environment", buffer, "train_X", X)
        return cls(environment, as_functional(functional))

    def conditions(self, X: Tensor) -> Tensor:
        """The designs of points ``k x d`` under every condition, ``k x w x d``."""
        return self.environment.points(X[:, : X.shape[-1] - self.environment.appended])

    def same(self, environment: Environment, functional: Functional) -> bool:
        """Whether these are the conditions and the functional."""
        ours, theirs = list(self.environment.buffers()), list(environment.buffers())
        alike = len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
        return alike and self.functional == functional
