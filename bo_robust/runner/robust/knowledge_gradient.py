"""rhoKG^apx of Cakmak, Astudillo, Frazier & Zhou, "Bayesian Optimization of Risk Measures" (NeurIPS 2020), a baseline.

The value of observing f at (x, z) is the best risk that would then be known: the mean, over K fantasies of the
observation, of the largest E[VaR_alpha(f(x', Z))] among designs x'. rhoKG optimises x' for each fantasy; rhoKG^apx
takes the largest over x itself and the designs evaluated before.

Made of BoTorch's parts, as its tutorial on rhoKG: ``AppendFeatures`` gives every x' its conditions,
``model.fantasize`` the K models, ``VaR`` the risk of each of M joint posterior samples.

What differs from the authors' code (saitcakmak/BoRisk): their two-time-scale trick is of no use where the inner problem
is a finite maximum; they optimise over a fresh set of conditions as we do, in number 10 to 40, or weighted (ours come
with the probabilities of Z, and weigh alike), with K = 10 and 10 or more restarts per dimension, where the run plays
K = 4 and 2 restarts of 10 iterations for the sake of time; our GP is the one all methods of a run share (maximum
likelihood, no prior on the noise); the run recommends argmax VaR_alpha(mu) for all methods where they maximise
E[VaR_alpha(f)]; they minimise. For a finite Z the z found is moved to the nearest point of Z, which they need not do,
their conditions being continuous or few.
"""

from __future__ import annotations

import torch
from botorch import settings
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.risk_measures import RiskMeasureMCObjective
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

__all__ = ["RhoKGApx"]


class RhoKGApx(AcquisitionFunction):
    """Mean over fantasies of max over x' in {x, evaluated designs} of E[risk(f(x', Z))], a function of (x, z).

    Args:
        model: A GP over (x, z) whose last conditions are appended by ``AppendFeatures`` when it is evaluated.
        evaluated: Designs evaluated before, ``n x d_x``.
        objective: The risk measure, such as ``VaR(1 - alpha, n_w)`` (BoTorch counts from the upper tail).
        fantasies: K.
        samples: M.
    """

    evaluated: Tensor
    model: SingleTaskGP

    def __init__(
        self,
        model: SingleTaskGP,
        evaluated: Tensor,
        objective: RiskMeasureMCObjective,
        fantasies: int,
        samples: int,
    ) -> None:
        super().__init__(model=model)
        self.register_buffer("evaluated", evaluated)
        self.objective = objective
        # Base samples stay fixed while (x, z) is optimised.
        self.sampler = SobolQMCNormalSampler(torch.Size([fantasies]))
        self.inner_sampler = SobolQMCNormalSampler(torch.Size([samples]))

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at points ``b x 1 x d``, ``b``."""
        n, d_x = self.evaluated.shape
        fantasies = self.model.fantasize(X, sampler=self.sampler)  # batch shape K x b
        designs = torch.cat([self.evaluated.expand(len(X), n, d_x), X[..., :d_x]], -2)
        # Each design with its conditions is a joint posterior of its own.
        inner = designs.movedim(-2, 0)[:, None, :, None, :]  # (n + 1) x 1 x b x 1 x d_x
        with settings.propagate_grads(True):
            samples = self.inner_sampler(fantasies.posterior(inner))  # M x (n + 1) x K x b x n_w x 1
        risk = self.objective(samples).squeeze(-1).mean(0)
        return risk.amax(0).mean(0)
