"""Algorithms whose arms are pairs of a design x and a condition z, numbered x * w + z for w conditions."""

import math
from collections.abc import Sequence
from functools import lru_cache
from numbers import Real

import torch
from torch import Tensor

from bo_robust.bandits.base import ArmAlgorithm, PosteriorOverArms, State
from bo_robust.risk_measures.functionals import Functional
from bo_robust.risk_measures.weighted_quantile import keep_masses
from bo_robust.utils.input_checks import Count, is_number, quoted
from bo_robust.utils.linalg import row_argmax


class PairAlgorithm(ArmAlgorithm):
    """Base of these algorithms, for ``num_conditions`` conditions w."""

    num_conditions: Count

    def start(self, posterior: PosteriorOverArms) -> State:
        """Make the state around a fresh posterior, whose number of arms must be a multiple of w."""
        check_pairs(posterior.mean.shape[1], self.num_conditions)
        return super().start(posterior)


def recommended_design(
    posterior: PosteriorOverArms, functional: Functional, num_conditions: int, probabilities: tuple[float, ...] | None
) -> Tensor:
    """argmax of F(mu(x, Z)) over the designs with a reward, ``s``; ties go to the first. Design 0 before any reward."""
    pairs = (posterior.mean.shape[0], -1, num_conditions)
    p = probabilities_like(probabilities, posterior.mean.dtype, posterior.mean.device)
    values = functional(posterior.mean.view(pairs), p)
    never_queried = posterior.counts.view(pairs).sum(-1) <= 0
    return row_argmax(values.masked_fill(never_queried, -math.inf))


def check_pairs(num_arms: int, num_conditions: int) -> None:
    """Raise ``ValueError`` unless the arms are whole designs of w pairs each."""
    if num_arms % num_conditions:
        raise ValueError(f"{num_arms} arms are no pairs x * w + z of designs x with w = {num_conditions} conditions z.")


def checked_probabilities(probabilities: Sequence[float], num_conditions: int) -> tuple[float, ...]:
    """The probabilities of the conditions, one each; ``ValueError`` if they are not."""
    if (
        isinstance(probabilities, Real)
        or len(probabilities) != num_conditions
        or not all(is_number(p) and p >= 0.0 for p in probabilities)
    ):
        raise ValueError(
            f"probabilities must be {num_conditions} numbers >= 0, by condition, got {quoted(probabilities)}."
        )
    if not abs(math.fsum(probabilities) - 1.0) <= 1e-6:
        raise ValueError(f"probabilities must sum to 1, got {math.fsum(probabilities):g}; divide them by their sum.")
    return tuple(map(float, probabilities))


@lru_cache(maxsize=64)
def probabilities_like(
    probabilities: tuple[float, ...] | None, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """The probabilities as a tensor; None if all are equal."""
    if probabilities is None or len(set(probabilities)) == 1:
        return None
    return keep_masses(torch.tensor(probabilities, dtype=dtype, device=device))
