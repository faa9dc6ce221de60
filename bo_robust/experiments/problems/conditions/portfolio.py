"""Portfolio optimisation under uncertain costs (Cakmak et al. 2020; Nguyen et al. 2021, sec. 4.2).

f is the posterior mean of a Gaussian process on 3000 backtests of CVXPortfolio, rebuilt from the data and the
hyperparameters that its authors saved.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.quasirandom import SobolEngine

from bo_robust.experiments.problems.conditions.base import ConditionsProblem, OverConditions
from bo_robust.experiments.problems.data import load_npz, verified
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.utils.covariance import Covariance, Matern
from bo_robust.utils.linalg import on_cuda

NUM_Z = 100
Z_SEED = 0
# Rows of f evaluated at once: 64 x 3000 doubles stay in a CPU's cache (2.5 times faster than 1024).
CPU_ROWS, CUDA_ROWS = 64, 2**14


class PosteriorMean:
    """shift + scale * posterior mean of a GP, ``... x d`` to ``...``, given points ``n x d`` and observations ``n``.

    The Gaussian process is solved in float64, whatever the ``dtype`` of the points asked about.
    """

    def __init__(
        self,
        covariance: Covariance,
        X: Tensor,
        y: Tensor,
        noise_var: float,
        constant: float,
        device: torch.device | str,
        dtype: torch.dtype,
        shift: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        X, y = X.to(device), y.to(device)
        K = covariance(X, X)
        K.diagonal().add_(noise_var)
        weights = torch.cholesky_solve((y - constant).unsqueeze(-1), torch.linalg.cholesky(K)).squeeze(-1)
        self.covariance, self.X, self.weights = covariance, X.to(dtype), (scale * weights).to(dtype)
        self.offset = shift + scale * constant

    def __call__(self, X: Tensor) -> Tensor:
        rows = X.reshape(-1, X.shape[-1]).split(CUDA_ROWS if on_cuda(X) else CPU_ROWS)
        values = [self.covariance(x, self.X) @ self.weights for x in rows]
        return torch.cat(values).reshape(X.shape[:-1]) + self.offset


@dataclass(frozen=True)
class Portfolio(OverConditions):
    """The yearly return of a trading strategy: three decisions, two uncertain costs.

    f is the annualised mean excess return in %, on [0, 1]^5. The decisions x are risk aversion, trade aversion and
    holding-cost aversion. The costs z are bid-ask spread and borrow cost; Z is uniform on 100 points. The Gaussian
    process is solved in float64, whatever the dtype of the problem. ``data_dir`` is the folder of real data, see
    :func:`bo_robust.experiments.problems.data.verified`.
    """

    data_dir: Path | str | None = None

    def make(self, device: torch.device | str, dtype: torch.dtype) -> ConditionsProblem:
        box = torch.tensor([[0.0], [1.0]], device=device, dtype=dtype)
        points = SobolEngine(2, scramble=True, seed=Z_SEED).draw(NUM_Z, dtype=torch.float64).to(device, dtype)
        return ConditionsProblem(
            name="portfolio",
            f=_return(self.data_dir, device, dtype),
            x_bounds=box.repeat(1, 3),
            z_bounds=box.repeat(1, 2),
            noise_var=0.01,
            alpha=0.2,
            initial=20,
            environment=FiniteEnvironment(points),
            search_points=1000,
            search_tol=1e-4,
            notes=(
                "Posterior mean of a GP (Matern-5/2 ARD, hyperparameters as saved by Cakmak et al. 2020) on their 3000 "
                "backtests. The files hold a loss; f is minus it, the return in % a year, to be maximised. f is not "
                "standardised (its standard deviation is 3.8). Ours: the 100 points of Z, a scrambled Sobol set of "
                f"seed {Z_SEED} on [0, 1]^2 (the paper says only uniform on 100), and noise_var = 0.01 taken to be in "
                "(% a year)^2. The best x found is on the edge of the box, at (0, 1, 0.589) with VaR 17.77."
            ),
        )


def _return(data_dir: Path | str | None, device: torch.device | str, dtype: torch.dtype) -> PosteriorMean:
    """Minus the posterior mean of the saved Gaussian process, ``... x 5`` to ``...``."""
    arrays = load_npz("borisk_portfolio", data_dir)
    saved = json.loads(verified("borisk_portfolio_surrogate", data_dir))
    covariance, noise_var, constant = saved_gp(saved)
    loss = torch.from_numpy(arrays["Y"].astype(np.float64))
    mean, sd = saved["outcome_transform.means"][0], saved["outcome_transform.stdvs"][0]
    X = torch.from_numpy(arrays["X"].astype(np.float64))
    standardised = (loss - mean) / sd
    # Back from standardised units, and from loss to return.
    return PosteriorMean(covariance, X, standardised, noise_var, constant, device, dtype, shift=-mean, scale=-sd)


def saved_gp(saved: dict[str, list[float]]) -> tuple[Matern, float, float]:
    """Covariance, noise variance and constant mean from the saved GPyTorch state, in standardised units."""

    def positive(name: str) -> tuple[float, ...]:
        return tuple(softplus(torch.tensor(saved[name], dtype=torch.float64)).tolist())

    lengthscales = positive("covar_module.base_kernel.raw_lengthscale")
    covariance = Matern(2.5, lengthscales, positive("covar_module.raw_outputscale")[0])
    # The noise was bounded below without a transform: its raw value is its value.
    return covariance, saved["likelihood.noise_covar.raw_noise"][0], saved["mean_module.constant"][0]
