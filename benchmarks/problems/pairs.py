"""Problems over arms that are pairs (x, z) of a design and a condition, numbered x * w + z for w conditions.

Regret is that of the design under a functional of f(x, Z): its worst condition, or a value at risk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from botorch.utils.transforms import normalize, unnormalize

from benchmarks.problems.base import CandidatePriors, OverArms, Problem, Trials
from benchmarks.problems.conditions.base import OverConditions
from benchmarks.problems.conditions.synthetic import Branin
from benchmarks.problems.rewards import Gaussian
from benchmarks.problems.synthetic import even_points
from benchmarks.problems.unknown_hyperparameters import UnknownLengthscale
from bo_robust.risk_measures.functionals import WorstCase
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.input_checks import check_count, check_positive


@dataclass(frozen=True)
class Ball(OverArms):
    """Any problem on even points of the line, a design x used at x + delta, |delta| <= epsilon.

    The value of a design is its worst within the ball, cut at the ends of the line (StableOpt, Bogunovic et al. 2018;
    Ziomek et al. 2024, Appendix I).
    """

    of: OverArms = field(default_factory=UnknownLengthscale)
    epsilon: float = 0.05  # > 0, rounded to whole steps of the grid, at least one

    def make(self, trials: Trials) -> Problem:
        check_positive(epsilon=self.epsilon)
        inner = self.of.make(trials)
        X = inner.arms
        if X is None or X.shape[1] != 1 or not isinstance(inner.kernel, torch.Tensor) or inner.num_arms < 2:
            raise ValueError(f"a ball needs even points of the line with a kernel matrix; {inner.name!r} has none.")
        reach = max(1, round(self.epsilon / float(X[1, 0] - X[0, 0])))
        offsets = torch.arange(-reach, reach + 1)
        place = (torch.arange(len(X)).unsqueeze(1) + offsets).clamp(0, len(X) - 1).flatten()
        priors = inner.candidates
        if priors is not None:
            kernels = None if priors.kernels is None else priors.kernels[:, place][:, :, place]
            means = None if priors.prior_means is None else priors.prior_means[:, place]
            priors = dataclasses.replace(priors, kernels=kernels, prior_means=means)
        return dataclasses.replace(
            inner,
            name="ball",
            f=inner.f[:, place],
            kernel=inner.kernel[..., place, :][..., place],
            arms=X[place],
            arm_names=(),
            candidates=priors,
            num_conditions=len(offsets),
            functional=WorstCase(),
            notes=f"{inner.notes} A design is used within {self.epsilon:g} of it; regret is of its worst there.",
        )


@dataclass(frozen=True)
class Conditions(OverArms):
    """Any problem over (x, z) with one decision and finite Z, on a grid of designs.

    The kernel is SE of variance 1 in (x, z), its lengthscale unknown: algorithms without candidates get the middle one.
    """

    of: OverConditions = field(default_factory=Branin)
    designs: int = 25  # Even points of the box of x
    lengthscales: Sequence[float] = (0.1, 0.2, 0.4)  # > 0 of the candidates, in units of the box of (x, z)
    norm_bound: float = 4.0

    def make(self, trials: Trials) -> Problem:
        check_count(2, designs=self.designs)
        inner = self.of.make("cpu")
        z, p = inner.points, inner.probabilities
        if z is None or p is None or inner.dim_x != 1:
            raise ValueError(f"designs must be on a line and Z finite; {inner.name!r} is not so.")
        x = unnormalize(even_points(self.designs), inner.x_bounds)
        X = torch.cat([x.repeat_interleave(len(z), 0), z.repeat(self.designs, 1)], 1)
        unit = normalize(X, torch.cat([inner.x_bounds, inner.z_bounds], 1))
        candidates = CandidatePriors.of_lengthscales(self.lengthscales, lambda l: SquaredExponential(l)(unit, unit))
        assert candidates.kernels is not None
        kernel, noise_var = candidates.kernels[(len(self.lengthscales) - 1) // 2], inner.noise_var
        notes = f"{inner.notes} On {self.designs} designs; regret is of the value at risk at {inner.alpha:g}."
        constants: dict[str, Any] = {"arms": X, "norm_bound": self.norm_bound, "noise_scale": noise_var**0.5}
        constants |= {"num_conditions": len(z), "probabilities": tuple(p.tolist()), "functional": inner.alpha}
        constants |= {"candidates": candidates, "notes": notes}
        return Problem("conditions", trials.share(inner.f(X)), kernel, Gaussian(noise_var), noise_var, **constants)
