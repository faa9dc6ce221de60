"""Sensor problems of Srinivas et al. 2010, sec. 6 (b), (c): each trial's f is one reading of all sensors.

The kernel is the empirical covariance of the first 2/3 of the rows in natural units. f is one later row minus ONE
number, the mean of all past readings, so that the best sensor of the row stays the best. The Gaussian noise has a
variance of 5% of the mean k(x, x). The prior mean is 0, so algorithms must learn lasting differences between sensors.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.problems.base import CandidatePriors, OverArms, Problem, Trials
from benchmarks.problems.data import load_npz
from benchmarks.problems.rewards import Gaussian
from benchmarks.problems.tables import covariance_kernel
from bo_robust.utils.covariance import Matern, SquaredExponential

NOISE_FRACTION = 0.05
# Five-minute rows of a day, and the rows from 6 to 11 in the morning.
ROWS_PER_DAY, MORNING = 288, slice(72, 132)
# Days of the week in the file with a morning rush (the third and fourth have none: a weekend).
WORKING_DAYS = [0, 1, 4, 5, 6]


@dataclass(frozen=True)
class IntelLab(OverArms):
    """Which of 50 temperature sensors is hottest (Srinivas et al. 2010, Fig. 5b, on other data)."""

    def make(self, trials: Trials) -> Problem:
        arrays = load_npz("intel_lab")
        train, test = (arrays[f"temperature_{part}"].astype(np.float64) for part in ("train", "test"))
        notes = (
            "Intel Berkeley lab temperatures, 50 motes at 30 minutes, 3 days for the kernel and 2 for f: a "
            "substitute for the paper's 46 sensors at 1 minute. Rewards and regret in degrees Celsius. Trials draw "
            "f from only 96 rows, consecutive in time (2 days): a standard error over trials covers redrawn rows "
            "and noise, not new days."
        )
        return _row_problem("intel_lab", train, test, trials, notes)


@dataclass(frozen=True)
class UnknownKernelTemperature(OverArms):
    """Which sensor of intel_lab is hottest, its kernel unknown: empirical, SE or Matérn (ours).

    The SE and Matérn kernels are functions of the sensors' numbers. No candidate is known to be right.
    """

    # Lengthscales > 0 of the SE candidates, in sensors. The Matérn 5/2 candidate has the median (of two, the lower).
    lengthscales: Sequence[float] = (2.0, 5.0, 20.0)

    def make(self, trials: Trials) -> Problem:
        problem = IntelLab().make(trials)
        if len(self.lengthscales) == 0:
            raise ValueError("lengthscales must hold at least one number of sensors.")
        empirical = problem.kernel
        assert isinstance(empirical, torch.Tensor)
        scale = float(empirical.diagonal().mean())
        numbers = torch.arange(problem.num_arms, dtype=empirical.dtype).unsqueeze(1)
        middle = sorted(self.lengthscales)[(len(self.lengthscales) - 1) // 2]
        smooth = {f"SE, {ell:g} sensors": SquaredExponential(float(ell), scale) for ell in self.lengthscales}
        rough = {f"Matern 5/2, {middle:g} sensors": Matern(2.5, float(middle), scale)}
        kernels = {name: covariance(numbers, numbers) for name, covariance in (smooth | rough).items()}
        candidates = CandidatePriors(("empirical", *kernels), torch.stack([empirical, *kernels.values()]))
        notes = (
            f"{problem.notes} Candidates: the empirical covariance (what algorithms without candidates use), and "
            f"SE and Matern kernels of variance {scale:.4g}, the mean of the empirical k(x, x), over the sensors' "
            "numbers in the file: it gives no locations, but neighbors in number are alike (what is left of the "
            "temperature beside the mean of all sensors has correlation .77 at distance 1, .24 at 5, -.05 at 10 in "
            "the past rows). None of them is known to be right."
        )
        return dataclasses.replace(problem, name="unknown_kernel_temperature", candidates=candidates, notes=notes)


@dataclass(frozen=True)
class MetrLAWeek(OverArms):
    """Which of 207 road sensors is slowest from 6 to 11 a.m. (Srinivas et al. 2010, Fig. 5c, on other data)."""

    def make(self, trials: Trials) -> Problem:
        arrays = load_npz("metr_la_week")
        days = arrays["speed"].astype(np.float64).reshape(-1, ROWS_PER_DAY, arrays["speed"].shape[1])
        rewards = -days[WORKING_DAYS, MORNING].reshape(-1, days.shape[2])
        past, later = np.split(rewards, [2 * len(rewards) // 3])
        notes = (
            "METR-LA loop detectors, 6-11 a.m. of five days with a morning rush, 200 rows for the kernel "
            "and 100 for f: a substitute for the paper's month of I-880 with 357 sensors, NOT I-880. Which "
            "days these are and that rows start at midnight is inferred from the traffic. Reward = -speed, "
            "regret in miles per hour. Trials draw f from only 100 rows, the last two mornings: a standard error "
            "over trials covers redrawn rows and noise, not new days."
        )
        return _row_problem("metr_la_week", past, later, trials, notes, tuple(map(str, arrays["sensor_id"])))


def _row_problem(
    name: str, history: np.ndarray, later: np.ndarray, trials: Trials, notes: str, arm_names: tuple[str, ...] = ()
) -> Problem:
    mean, kernel = history.mean(), covariance_kernel(history)
    noise_var = NOISE_FRACTION * float(kernel.diagonal().mean())
    rows = [int(rng.integers(len(later))) for rng in trials.streams()]
    rewards = Gaussian(noise_var)
    notes = (
        f"{notes} Rewards are relative to {mean:.6g}, the mean of the past rows; Gaussian noise of "
        f"variance {noise_var:.4g}, 5% of the mean k(x, x). v = largest past square + noise. No norm "
        "bound is known."
    )
    v = float(np.square(history - mean).max()) + noise_var
    constants: dict[str, Any] = {"moment_bound": v, "alpha": 1.0, "noise_scale": rewards.noise_scale, "notes": notes}
    f = torch.from_numpy(later[rows] - mean)
    return Problem(name, f, kernel, rewards, noise_var, arm_names=arm_names, **constants)
