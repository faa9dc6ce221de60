"""Observing elsewhere, where V-UCB asks for what it knows: its hyperparameters may be wrong."""

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from bo_robust.acquisition.condition_choice import MODEL_PICKS, ConditionChoice
from bo_robust.acquisition.value_at_risk import ValueAtRiskUCB
from bo_robust.models.moments import joint_moments
from bo_robust.picks import check_pick
from bo_robust.validation import check_bounds

# Sobol points among which the design that is least known is looked for.
NUM_DESIGNS = 256


def explore(
    acqf: ValueAtRiskUCB, choice: ConditionChoice, bounds: Tensor, pick: str = "probable", seed: int | None = None
) -> ConditionChoice:
    """Keep the choice, or take the design whose F is least known if a reading of the choice would tell little.

    V-UCB trusts the hyperparameters of its model. If they are wrong, as after few points, its bounds are too narrow, it
    observes one x again and again, and fits to these points change nothing. A call in every third round ends that.
    A reading tells little if it tells less than half a bit of f there: if the variance of f is below that of the
    noise. How little F is known is the length of its interval, F(u) - F(l). Points under evaluation count as observed.

    Ours, not of a paper; the page of value at risk says what it gains.

    Args:
        acqf: The acquisition of this round.
        choice: What ``acqf.select_condition`` returned for one design.
        bounds: Box of the designs, ``2 x d_x``.
        pick: Of ``acqf.select_condition``, for the condition to observe the other design under.
        seed: Of the 256 designs that are compared; None: drawn from the global generator.

    Raises:
        ValueError: if there is more than one design, the box does not fit, or the pick is unknown.
    """
    if not (isinstance(acqf, ValueAtRiskUCB) and isinstance(choice, ConditionChoice)):
        raise ValueError("explore takes a ValueAtRiskUCB (or StableOpt), and what its select_condition returned.")
    if choice.index.numel() != 1:
        raise ValueError(f"explore takes the choice for one design, got {choice.index.numel()}.")
    check_bounds(bounds)
    check_pick(pick, MODEL_PICKS)
    acqf.designs(bounds)  # raises
    with torch.no_grad():
        point = choice.point.reshape(1, -1)
        _, covariance, noise = joint_moments(acqf.model, point, acqf.posterior_transform, acqf.pending_points)
        if not bool((covariance.squeeze(-1) < noise).all()):
            return choice
        designs = draw_sobol_samples(bounds, NUM_DESIGNS, 1, seed=seed).squeeze(1)
        least_known = designs[acqf.interval(designs).argmax()]
        return acqf.select_condition(least_known.expand(*choice.index.shape, -1), pick)
