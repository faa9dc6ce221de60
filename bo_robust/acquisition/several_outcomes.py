"""Improvement of several outcomes: in learnt scales, and without the C++ that BoTorch compiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models.gpytorch import ModelListGPyTorchModel
from botorch.utils.objective import compute_smoothed_feasibility_indicator
from botorch.utils.safe_math import log_fatplus
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bo_robust.acquisition.noisy_improvement import JointSamples, exact_gp
from bo_robust.models.robust.outcome_scale import IDENTITY
from bo_robust.models.robust.posterior import LatentModel
from bo_robust.utils.upstream import no_compilation, sampling_of_outcomes

LONGEST = 1e10  # side of a cell without an end, as in BoTorch


class LatentModels(ModelListGPyTorchModel):
    """Models of several outcomes, each on the scale on which it is Gaussian.

    BoTorch would sample outcomes of a learnt scale from a Gaussian of the same moments.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        scales = [getattr(model, "outcome_scale", IDENTITY) for model in models]
        pairs = zip(models, scales, strict=True)
        super().__init__(*(model if scale.is_identity else LatentModel(model) for model, scale in pairs))
        self.scales = scales

    def outcome(self, j: int, W: Tensor, X: Tensor | None = None) -> Tensor:
        """Samples of outcome j, of samples of all latent values ``... x m``."""
        return self.scales[j].untransform(W[..., j])

    def first_outcomes(self, k: int, W: Tensor, X: Tensor | None = None) -> Tensor:
        """Samples of the first k outcomes, ``... x k``."""
        return torch.stack([self.outcome(j, W) for j in range(k)], -1)


class OnePointLogNoisyExpectedHypervolumeImprovement(qLogNoisyExpectedHypervolumeImprovement):
    """``qLogNoisyExpectedHypervolumeImprovement``, whose value at one point is written out.

    BoTorch compiles C++ when it is first used. That takes half a minute in silence, and prints errors where there is no
    compiler. One point has one subset, so its improvement is a sum over the cells that no design dominates, which takes
    less time than the C++.
    """

    cell_lower_bounds: Tensor
    cell_upper_bounds: Tensor
    objective: Any
    eta: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        with no_compilation():
            super().__init__(*args, **options)

    def _set_cell_bounds(self, num_new_points: int) -> None:
        super()._set_cell_bounds(num_new_points)
        self._make_samples()

    def _make_samples(self) -> None:
        self.joint_samples = torch.nn.ModuleList()
        with torch.no_grad():
            exact = [exact_gp(model, self.X_baseline) for model in getattr(self.model, "models", ())]
            if exact and None not in exact:
                outcomes = zip(exact, sampling_of_outcomes(self), strict=False)  # of which there may be none
                self.joint_samples.extend(JointSamples(*gp, beside) for gp, beside in outcomes if gp is not None)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x q x d``."""
        if not all(sample.current for sample in self.joint_samples):
            self._make_samples()
        if X.shape[-2] > 1 or not self.joint_samples:
            several: Tensor = super().forward(X)
            return several
        x = X.flatten(0, -2)
        samples = torch.stack([sample(x).mT for sample in self.joint_samples], -1).unsqueeze(-2)
        return self._compute_log_qehvi(samples, x.unsqueeze(-2)).reshape(X.shape[:-2])

    def _compute_log_qehvi(self, samples: Tensor, X: Tensor | None = None) -> Tensor:
        """Values ``b`` from samples ``s x b x 1 x m``; of several points by BoTorch."""
        f = self.objective(samples, X=X)
        if f.shape[-2] > 1 or self.cell_lower_bounds.ndim > 3 or not self.fat or f.dtype != torch.float64:
            return super()._compute_log_qehvi(samples, X)
        cells = len(f), *[1] * (f.ndim - 3), *self.cell_lower_bounds.shape[1:]
        lower, upper = self.cell_lower_bounds.view(cells), self.cell_upper_bounds.view(cells)
        side = (upper.clamp_max(LONGEST) - lower).clamp_min(torch.finfo(f.dtype).tiny).log()
        above = log_fatplus(f - lower, tau=self.tau_relu)
        # BoTorch's smooth minimum of two, `fatmin`.
        apart = (above - side).abs() / self.tau_max
        blurred = self.tau_max * (2.0 / (2.0 + apart * (2.0 + apart))).log1p()
        log_volume = (torch.minimum(above, side) - blurred).sum(-1)
        if self.constraints is not None:
            log_volume = log_volume + compute_smoothed_feasibility_indicator(
                self.constraints, samples, self.eta, log=True, fat=self.fat
            )
        return log_volume.logsumexp((0, -1)) - math.log(len(f))
