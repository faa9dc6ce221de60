"""Recipes that must work at the temperature that the reactor happens to have: laboratory campaigns, as measured."""

from dataclasses import dataclass
from pathlib import Path

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.covariance import SquaredExponential
from bo_robust.environments import FiniteEnvironment
from bo_robust.experiments.problems.conditions.base import ConditionsProblem, OverConditions
from bo_robust.experiments.problems.conditions.portfolio import PosteriorMean
from bo_robust.experiments.problems.data import load_csv
from bo_robust.validation import quoted

CAMPAIGNS = ("alkox", "fullerenes", "suzuki")
CONDITION = "temperature"
GRID_POINTS = 16


@dataclass(frozen=True)
class Recipe(OverConditions):
    """The yield of a reaction whose temperature cannot be held: two or three decisions, one condition.

    f is the reading that a GP expects, standardised by the mean and deviation of all readings. The decisions are the
    other settings of the campaign, each scaled to [0, 1]. The condition is the temperature, uniform on 16 values of the
    campaign's range. The GP is BoTorch's ``SingleTaskGP``, fitted to all readings once, on the CPU in float64.
    ``data_dir`` is the folder of real data, see :func:`bo_robust.experiments.problems.data.verified`.
    """

    campaign: str = "suzuki"  # alkox, fullerenes or suzuki
    data_dir: Path | str | None = None

    def __post_init__(self) -> None:
        if self.campaign not in CAMPAIGNS:
            raise ValueError(f"campaign must be one of {', '.join(CAMPAIGNS)}; got {quoted(self.campaign)}.")

    def make(self, device: torch.device | str, dtype: torch.dtype) -> ConditionsProblem:
        table = load_csv(self.campaign, self.data_dir)
        *settings, reading = table.columns
        order = [name for name in settings if name != CONDITION] + [CONDITION]
        X = torch.tensor(table[order].to_numpy(float))
        X = (X - X.amin(0)) / (X.amax(0) - X.amin(0))
        y = torch.tensor(table[reading].to_numpy(float))
        y = (y - y.mean()) / y.std()
        model = SingleTaskGP(X, y.unsqueeze(-1), outcome_transform=None)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        covariance = SquaredExponential(tuple(model.covar_module.lengthscale.flatten().tolist()))
        noise_var, mean = model.likelihood.noise.item(), model.mean_module.constant.item()
        box = torch.tensor([[0.0], [1.0]], device=device, dtype=dtype)
        return ConditionsProblem(
            name=f"recipe, {self.campaign}",
            f=PosteriorMean(covariance, X, y, noise_var, mean, device, dtype),
            x_bounds=box.repeat(1, len(order) - 1),
            z_bounds=box,
            noise_var=noise_var,
            alpha=0.1,
            initial=10,
            environment=FiniteEnvironment(
                torch.linspace(0.0, 1.0, GRID_POINTS, device=device, dtype=dtype).unsqueeze(-1)
            ),
            notes=(
                f"Ours, not the paper's: {len(table)} readings of {reading} ({self.campaign}, from Olympus, Häse et "
                f"al. 2021), inputs {', '.join(order)}. noise_var is what the fit takes for the noise of a reading."
            ),
        )
