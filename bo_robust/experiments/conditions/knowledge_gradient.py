"""rhoKG^apx of Cakmak, Astudillo, Frazier & Zhou, "Bayesian Optimization of Risk Measures" (NeurIPS 2020), a baseline.

The value of observing f at (x, z) is the best risk that would then be known: the mean, over K fantasies of the
observation, of the largest E[VaR_alpha(f(x', Z))] among designs x'. rhoKG optimises x' for each fantasy. rhoKG^apx
takes the largest over x itself and the designs evaluated before.

It is made of BoTorch's parts, as in BoTorch's tutorial on rhoKG.

Differences from the authors' code (saitcakmak/BoRisk): they use 10 to 40 conditions, or weighted ones; ours follow
the probabilities of Z and weigh alike; K = 10 and 10 or more restarts per dimension, where we save time by K = 4 and 2
restarts of 10 iterations; and they recommend by E[VaR_alpha(f)]. For a finite Z we move z to its nearest point.
"""

from typing import Any

import torch
from botorch import settings
from botorch.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor


class RhoKGApx(AcquisitionFunction):
    """Mean over fantasies of max over x' in {x, evaluated designs} of E[risk(f(x', Z))], a function of (x, z).

    ``model`` is a GP over (x, z) to which ``AppendFeatures`` appends the conditions. ``evaluated`` holds the designs
    evaluated before, ``n x d_x``. ``objective`` is the risk measure, such as ``VaR(1 - alpha, n_w)`` (BoTorch counts
    from the upper tail). ``fantasies`` is K, ``samples`` is M.
    """

    evaluated: Tensor
    model: SingleTaskGP

    def __init__(self, model: SingleTaskGP, evaluated: Tensor, objective: Any, fantasies: int, samples: int) -> None:
        super().__init__(model=model)
        self.register_buffer("evaluated", evaluated)
        self.objective = objective
        # Base samples stay fixed while (x, z) is optimised.
        self.sampler = SobolQMCNormalSampler(torch.Size([fantasies]))
        self.inner_sampler = SobolQMCNormalSampler(torch.Size([samples]))

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value ``b`` at points ``b x 1 x d``."""
        n, d_x = self.evaluated.shape
        fantasies = self.model.fantasize(X, sampler=self.sampler)  # batch shape K x b
        designs = torch.cat([self.evaluated.expand(len(X), n, d_x), X[..., :d_x]], -2)
        # Each design with its conditions is a joint posterior of its own.
        inner = designs.movedim(-2, 0)[:, None, :, None, :]  # (n + 1) x 1 x b x 1 x d_x
        with settings.propagate_grads(True):
            samples = self.inner_sampler(fantasies.posterior(inner))  # M x (n + 1) x K x b x n_w x 1
        risk = self.objective(samples).squeeze(-1).mean(0)
        return risk.amax(0).mean(0)
