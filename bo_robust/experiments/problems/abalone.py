"""Abalone over arms: 4,177 shells, each pays its scaled number of rings (UCI; Nash et al. 1994).

Calandriello et al. 2019 (BKB) print no such experiment, and the settings of BBKB (2020) were not available. Features,
lengthscale and noise are therefore ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bo_robust.experiments.problems.base import OverArms, Problem, Trials
from bo_robust.experiments.problems.data import load_csv
from bo_robust.experiments.problems.rewards import Gaussian, reward_fields
from bo_robust.utils.covariance import SquaredExponential

MEASUREMENTS = ["length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight"]


@dataclass(frozen=True)
class Abalone(OverArms):
    """Which of 4,177 abalones has the most rings, from 8 standardised features (UCI data).

    The features are sex (1 for adults, 0 for infants) and seven measurements. Each has its mean subtracted and is
    divided by its standard deviation, because outlying heights would squeeze a scale of [0, 1]. f = (rings - 1) / 28,
    so the worst arm has regret 1. All trials share f.
    """

    # l > 0 of the squared exponential kernel. The default is about the median distance of two arms (3.01); it is chosen
    # without the target.
    lengthscale: float = 3.0
    noise: Mapping[str, Any] | None = None
    noise_var: float = 0.01
    alpha: float | None = None
    data_dir: Path | str | None = None

    def make(self, trials: Trials) -> Problem:
        covariance = SquaredExponential(self.lengthscale)
        table = load_csv("abalone", self.data_dir)
        adult = (table["sex"] != "I").to_numpy(dtype=np.float64)
        features = np.column_stack([adult, table[MEASUREMENTS].to_numpy(dtype=np.float64)])
        features = (features - features.mean(axis=0)) / features.std(axis=0)
        rings = table["rings"].to_numpy(dtype=np.float64)
        f = (rings - rings.min()) / (rings.max() - rings.min())
        means = trials.share(f)
        rewards = reward_fields(self.noise, Gaussian(self.noise_var), means, 1.0, self.alpha)
        return Problem(
            name="abalone",
            f=means,
            kernel=covariance,
            noise_var=self.noise_var,
            arms=torch.from_numpy(features),
            norm_bound=1.0,
            notes=(
                f"UCI abalone (Nash et al. 1994), {covariance} on standardised features; rewards "
                f"{rewards['rewards']}; f is the real target, (rings - {rings.min():g}) / "
                f"{rings.max() - rings.min():g}. A random arm loses {1.0 - f.mean():.3f} a round on average: divide "
                "by it for the regret relative to random arms. The features explain about half the variance of the "
                "rings, so the best arm (one shell of 29 rings) is partly a needle in a haystack, and B = max|f| = 1 "
                "is not the RKHS norm of f, which is far larger. All trials share one f: a standard error over trials "
                "covers redrawn noise, not other data."
            ),
            **rewards,
        )
