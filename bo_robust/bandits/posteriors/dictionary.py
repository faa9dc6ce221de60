"""Nyström features of arms from a dictionary drawn by leverage scores, one dictionary per trial.

Ray Chowdhury & Gopalan 2019, section 5.1 (b): every past point x_i enters the dictionary on its own with probability
min(q sigma^2_{t-1}(x_i), 1). Copies of a point add nothing to the span, so an arm pulled c times enters with the
probability that any of its copies does.
"""

from dataclasses import dataclass

from torch import Tensor

from bo_robust.bandits.posteriors.arm_kernel import ArmKernel
from bo_robust.bandits.posteriors.whitening import FeatureTable
from bo_robust.features.leverage import padded, redrawn
from bo_robust.features.nystrom import dictionary_root, symmetric_axes
from bo_robust.utils.input_checks import AtLeastOne, Positive, check_fields


@dataclass(frozen=True)
class NystromDictionary:
    """Nyström features from a dictionary of past arms, drawn by leverage scores.

    Args:
        oversampling: The paper's q > 0. Its theorem asks for 6 rho log(4 T / delta) / epsilon^2
            (:func:`bo_robust.features.leverage.theory_oversampling`). That is in the thousands and keeps every point;
            the paper's experiments use less.
        redraw_growth: Growth of the number of rounds after which the dictionary is drawn anew, >= 1. 1 is the paper's
            rule: every round.
        copies: Whether an arm pulled c times is c copies, each drawn on its own: the paper's rule. Its authors' script
            draws every arm once, which leaves smaller dictionaries.
    """

    oversampling: Positive
    redraw_growth: AtLeastOne = 1.0
    copies: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(self, kernel: ArmKernel, variance: Tensor, counts: Tensor, uniform: Tensor) -> FeatureTable:
        """Features of all arms from fresh dictionaries, with the directions of the paper's symmetric root of K_D.

        ``variance`` is sigma^2 and ``counts`` the number of pulls of every arm, ``s x n`` each; ``uniform`` has one
        draw from [0, 1) per trial, ``s``.
        """
        counts = counts if self.copies else counts.clamp(max=1.0)
        arms, mask = padded(redrawn(variance, self.oversampling, counts, uniform))
        columns = kernel.block(arms, slice(None)).mT
        columns_of = arms.unsqueeze(2)
        root = dictionary_root(columns.gather(1, columns_of.expand(-1, -1, arms.shape[1])), mask)
        coordinates = root.features(columns)
        residual = (kernel.diagonal - coordinates.square().sum(2)).clamp_min_(0.0)
        at_dictionary = coordinates.gather(1, columns_of.expand(-1, -1, coordinates.shape[2]))
        return FeatureTable(coordinates, symmetric_axes(at_dictionary, mask), residual, mask.sum(1).to(residual))


def empty_table(kernel: ArmKernel) -> FeatureTable:
    """The table without a dictionary: one feature that is zero, all variance in the residual."""
    diagonal = kernel.diagonal
    return FeatureTable(diagonal.new_zeros(kernel.num_arms, 1), None, diagonal, diagonal.new_zeros(1))
