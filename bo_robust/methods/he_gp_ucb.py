"""HE-GP-UCB (Ziomek, Adachi & Osborne 2024, Algorithm 1): candidate kernels, eliminated by their errors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bo_robust.acquisition import EliminationUCB
from bo_robust.confidence.base import EXPLORING
from bo_robust.confidence.candidate_widths import delta_of_width
from bo_robust.methods.base import ABSENT, GRID, NEEDED, Method, Spec, setting
from bo_robust.models import CandidateEnsemble, candidate, candidate_grid
from bo_robust.posteriors.elimination import check_elimination
from bo_robust.specs import quoted

BAYESIAN = {"kind": "bayesian_finite"}


@dataclass(frozen=True, kw_only=True)
class HEGPUCBMethod(Method):
    """HE-GP-UCB. Its width is one that holds, so a study uses it as the certificate as well.

    Where elimination is not by errors, the default width is w / sqrt(5), and there is no certificate.

    Args:
        elimination: Who is alive: "errors", the paper's test, or "likelihood" or "likeliest" (a maximum likelihood fit
            over the candidates) of :class:`bo_robust.models.CandidateEnsemble`.
        width: The width of every candidate. A width that needs a delta gets what the test leaves to it.
        candidates: Settings of :func:`bo_robust.models.candidate`, in the unit box; None: the RBF and the Matérn-5/2
            kernel at lengthscales 0.05, 0.1, ..., 0.8.
        noise_var: lambda > 0 of those default candidates.
        noise_scale: R > 0: the noise is R-sub-Gaussian; None: the root of the candidates' largest noise variance.
        maximize: Whether f is to be maximised.
    """

    model_class = CandidateEnsemble
    acquisition_class = EliminationUCB
    failures_first = True  # failures are no rewards: in the initial design they test no candidate

    width: Spec = setting(BAYESIAN, reported=BAYESIAN | {"num_arms": GRID})
    elimination: str = "errors"
    candidates: Spec = setting(None, reported=NEEDED)
    noise_var: float = setting(0.1, reported=ABSENT)
    noise_scale: float | None = setting(None, reported=NEEDED)
    maximize: bool = setting(True, standardised=ABSENT)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_elimination(self.elimination)
        if self.candidates is not None:
            if (
                not isinstance(self.candidates, list)
                or not self.candidates
                or not all(isinstance(options, Mapping) for options in self.candidates)
            ):
                got = quoted(self.candidates)
                raise ValueError(f"candidates must be a list of settings of bo_robust.models.candidate, got {got}.")
            for options in self.candidates:
                candidate(**options)  # raises

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        grid = self.candidates or candidate_grid((0.05, 0.8), self.noise_var, kernels=("rbf", "matern52"))
        return {
            "candidates": grid,
            "noise_scale": self._noise_scale(),
            "width": self.completed_width(known),
            "delta": self.delta,
            "num_initial": known.get("num_initial", 0),
            "elimination": self.elimination,
            "maximize": self.maximize,
        }

    @property
    def certifies(self) -> bool:
        """As the base class: where elimination is by errors, whose widths hold."""
        return self.elimination == "errors"

    def completed_width(self, known: Mapping[str, Any], role: str = "width") -> dict[str, Any]:
        """As the base class; less where elimination does not need a width that holds, unless ``width`` has a scale."""
        return super().completed_width(known, role) | ({"scale": EXPLORING} if self._explores() else {})

    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def bounds(self, acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        model = acquisition.model
        mean, variance = model.moments(X)
        reach = model.widths.unsqueeze(-1) * variance.sqrt()
        return mean[model.leader], (mean - reach)[model.alive].amin(0), (mean + reach)[model.alive].amax(0)

    def _explores(self) -> bool:
        return self.elimination != "errors" and isinstance(self.width, Mapping) and "scale" not in self.width

    def _noise_scale(self) -> float:
        noise_vars = [options["noise_var"] for options in self.candidates or []] or [self.noise_var]
        return self.noise_scale or math.sqrt(max(noise_vars))

    def _context(self, known: Mapping[str, Any]) -> dict[str, Any]:
        left = {"delta": delta_of_width(self.width, self.delta), "noise_scale": self._noise_scale()}
        return super()._context(known) | left
