"""V-UCB on finitely many pairs (x, z): x_t = argmax_x F(u(x, Z)), z_t a lacing value of x_t.

Nguyen, Dai, Low & Jaillet, "Value-at-Risk Optimization with Gaussian Processes" (ICML 2021), Algorithm 1. F is the
value at risk, or another functional of the bounds. Differences from :mod:`gp_ucb`: the rule, and that an arm is a pair,
numbered x * w + z for w conditions z.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bo_robust.bandits.base import Selection, State, checked_state
from bo_robust.bandits.pairs import PairAlgorithm, checked_probabilities, probabilities_like, recommended_design
from bo_robust.confidence import Width
from bo_robust.confidence.base import width_at
from bo_robust.risk_measures.functionals import Functional, as_functional
from bo_robust.risk_measures.selection_rules import RANDOM_RULES, check_selection_rule, select_by_rule
from bo_robust.utils.input_checks import Count
from bo_robust.utils.linalg import row_argmax
from bo_robust.utils.random import spread


@dataclass(frozen=True)
class VUCB(PairAlgorithm):
    """V-UCB.

    Args:
        width: Confidence width w_t.
        functional: F, its name, or alpha alone for ``ValueAtRisk(alpha)``, the lower tail.
        num_conditions: w >= 1, conditions per design.
        probabilities: Probabilities of the conditions, ``w`` numbers >= 0 that sum to 1; None if all are equal.
        selection_rule: Which lacing value is chosen: "probable" (V-UCB Prob), "uniform" (V-UCB Unif) or "widest".
            "drawn" is for conditions that cannot be chosen and come with their probabilities (Remark 1).

    Raises:
        ValueError: if an argument is not as described.
    """

    capturable: ClassVar[bool] = True

    width: Width
    functional: Functional | float | str | Mapping[str, Any]
    num_conditions: Count
    probabilities: tuple[float, ...] | None = None
    selection_rule: str = "probable"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "functional", as_functional(self.functional))
        check_selection_rule(self.selection_rule)
        if self.probabilities is not None:
            probabilities = checked_probabilities(self.probabilities, self.num_conditions)
            object.__setattr__(self, "probabilities", probabilities)

    def select(self, state: State, uniform: Tensor) -> Selection:
        """Choose the design of largest bound, ties to the first, and its lacing value.

        A randomized width gets ``uniform``; a random choice of z gets a number derived from it.
        """
        posterior = checked_state(state, State).posterior
        w = width_at(self.width, state.round + 1, posterior.information_gain, uniform)
        reach = posterior.variance.sqrt().mul_(w.unsqueeze(1) if isinstance(w, Tensor) else w)
        functional = as_functional(self.functional)
        p = probabilities_like(self.probabilities, reach.dtype, reach.device)
        pairs = (len(reach), -1, self.num_conditions)
        lower, upper = (posterior.mean - reach).view(pairs), (posterior.mean + reach).view(pairs)
        design = row_argmax(functional.upper_bound(lower, upper, p))
        here = design.view(-1, 1, 1).expand(-1, 1, self.num_conditions)
        lower, upper = lower.gather(1, here).squeeze(1), upper.gather(1, here).squeeze(1)
        draws = spread(uniform, 1)[:, 0] if self.selection_rule in RANDOM_RULES else None
        z = select_by_rule(functional.lacing(lower, upper, p), upper - lower, p, self.selection_rule, draws)
        return Selection(torch.add(z, design, alpha=self.num_conditions), w)

    def recommend(self, state: State) -> Tensor:
        """The queried design of largest F(mu(x, Z)), ``s``; the first design before any query."""
        return recommended_design(
            state.posterior, as_functional(self.functional), self.num_conditions, self.probabilities
        )
